package dormouse

/*
#include "native.h"
*/
import "C"

import (
	"crypto/tls"
	"crypto/x509"
	"runtime/cgo"
	"time"
	"unsafe"
)

// A peer is what the other side has shown and what was verified.
type peer struct {
	chain    []*x509.Certificate
	verified [][]*x509.Certificate
}

// dormouseGoJudge returns 1 if the peer's certificates are accepted. The engine verifies that the peer has the key.
//
//export dormouseGoJudge
func dormouseGoJudge(callbacks C.uintptr_t, shown *C.dormouse_shown) C.int32_t {
	h := cgo.Handle(callbacks).Value().(*handshake)
	var raw [][]byte
	for _, der := range unsafe.Slice(shown.chain, shown.chain_len) {
		raw = append(raw, C.GoBytes(unsafe.Pointer(der.at), C.int(der.len)))
	}
	h.refusal = h.verify(raw)
	if h.refusal != nil {
		return 0
	}
	return 1
}

func (h *handshake) verify(raw [][]byte) error {
	return isolated("a callback", func() error { return h.verifyChain(raw) })
}

// verifyChain verifies a chain as crypto/tls does.
func (h *handshake) verifyChain(raw [][]byte) (err error) {
	settings := h.config.settings
	var found peer
	for _, der := range raw {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return &Error{Alert: alertBadCertificate, reason: "the peer's certificate: " + err.Error()}
		}
		found.chain = append(found.chain, certificate)
	}
	if options, verifies := h.verifyOptions(); verifies {
		options.Intermediates = x509.NewCertPool()
		for _, certificate := range found.chain[1:] {
			options.Intermediates.AddCert(certificate)
		}
		if found.verified, err = found.chain[0].Verify(options); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: found.chain, Err: err}
		}
	}
	if check := settings.VerifyPeerCertificate; check != nil {
		if err := check(raw, found.verified); err != nil {
			return err
		}
	}
	h.peer = found
	return nil
}

func (h *handshake) verifyOptions() (options x509.VerifyOptions, verifies bool) {
	settings := h.config.settings
	options.CurrentTime = time.Now()
	if settings.Time != nil {
		options.CurrentTime = settings.Time()
	}
	if h.config.isClient {
		options.Roots, options.DNSName = settings.RootCAs, h.config.serverName
		return options, !settings.InsecureSkipVerify
	}
	options.Roots, options.KeyUsages = settings.ClientCAs, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return options, settings.ClientAuth >= tls.VerifyClientCertIfGiven
}
