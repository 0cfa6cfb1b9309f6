package dormouse

/*
#include "native.h"
*/
import "C"

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"reflect"
	"unsafe"
)

// facts are the results of a handshake. Connections with the same results share them.
type facts struct {
	version, suite uint16
	curve          tls.CurveID
	isResumed      bool
	protocol       string
	serverName     string
	// chain is the peer's certificates, DER; verified is chains of them, each after its length in four bytes.
	chain, verified string
}

// facts returns the results. A client that has resumed a session verifies the certificate of its first handshake again.
func (h *handshake) facts(native *C.dormouse_facts) (facts, error) {
	C.dormouse_go_facts(h.native, native)
	if native.status != C.DORMOUSE_OK {
		return facts{}, refused(native.status)
	}
	if h.config.isClient && h.peer.chain == nil {
		raw, err := h.certificates(int(native.certificates))
		if err == nil {
			err = h.verify(raw)
		}
		if err != nil {
			return facts{}, err
		}
	}
	found := facts{
		version:    uint16(native.version),
		suite:      suites[text(&native.suite)],
		curve:      curves[text(&native.group)],
		isResumed:  native.is_resumed == 1,
		protocol:   text(&native.alpn),
		serverName: text(&native.server_name),
		chain:      concatenated(h.peer.chain),
	}
	if h.config.isClient {
		found.serverName = h.config.serverName
	}
	var verified []byte
	for _, chain := range h.peer.verified {
		der := concatenated(chain)
		verified = append(binary.BigEndian.AppendUint32(verified, uint32(len(der))), der...)
	}
	found.verified = string(verified)
	return found, nil
}

func (h *handshake) certificates(count int) ([][]byte, error) {
	var all [][]byte
	for number := range count {
		needed := C.dormouse_handshake_certificate(h.native, C.size_t(number), nil, 0)
		der := make([]byte, needed.len)
		copied := C.dormouse_handshake_certificate(h.native, C.size_t(number), at(der), C.size_t(len(der)))
		if copied.status != C.DORMOUSE_OK {
			return nil, refused(copied.status)
		}
		all = append(all, der)
	}
	if len(all) == 0 {
		return nil, errors.New("dormouse: the server has no certificate")
	}
	return all, nil
}

func concatenated(chain []*x509.Certificate) string {
	var der []byte
	for _, certificate := range chain {
		der = append(der, certificate.Raw...)
	}
	return string(der)
}

// ConnectionState returns the results of the handshake, and completes it if no one has: net/http asks for them first.
// After an error it is empty, and after [Import] it has only the version.
//
// ExportKeyingMaterial returns an error: the handshake is not kept.
func (conn *Conn) ConnectionState() tls.ConnectionState {
	if conn.Handshake() != nil {
		return tls.ConnectionState{}
	}
	return conn.facts.Value().state()
}

func (f facts) state() tls.ConnectionState {
	state := tls.ConnectionState{
		Version:                    f.version,
		HandshakeComplete:          true,
		DidResume:                  f.isResumed,
		CipherSuite:                f.suite,
		CurveID:                    f.curve,
		NegotiatedProtocol:         f.protocol,
		NegotiatedProtocolIsMutual: true,
		ServerName:                 f.serverName,
	}
	// They were parsed during the handshake.
	state.PeerCertificates, _ = x509.ParseCertificates([]byte(f.chain))
	for left := []byte(f.verified); len(left) > 0; {
		end := 4 + binary.BigEndian.Uint32(left)
		chain, _ := x509.ParseCertificates(left[4:end])
		state.VerifiedChains, left = append(state.VerifiedChains, chain), left[end:]
	}
	setExporter(&state)
	return state
}

// setExporter makes ExportKeyingMaterial return an error: it calls a function that only crypto/tls can set, and would
// panic.
func setExporter(state *tls.ConnectionState) {
	field := reflect.ValueOf(state).Elem().FieldByName("ekm")
	if !field.IsValid() || field.Type() != reflect.TypeOf(noExporter) {
		return
	}
	reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(reflect.ValueOf(noExporter))
}

var noExporter = func(string, []byte, int) ([]byte, error) {
	return nil, errors.New("dormouse: keying material is not available: the handshake is not kept")
}

// suites are the numbers of the cipher suites.
var suites = func() map[string]uint16 {
	all := make(map[string]uint16)
	for _, suite := range tls.CipherSuites() {
		all[suite.Name] = suite.ID
	}
	return all
}()

// curves are the numbers of the groups, by their IANA names.
var curves = map[string]tls.CurveID{
	"secp256r1": tls.CurveP256, "secp384r1": tls.CurveP384, "secp521r1": tls.CurveP521, "x25519": tls.X25519,
	"X25519MLKEM768": tls.X25519MLKEM768, "SecP256r1MLKEM768": 4587, "SecP384r1MLKEM1024": 4589,
}
