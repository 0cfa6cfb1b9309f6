package dormouse

/*
#include "native.h"
*/
import "C"

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime/cgo"
	"time"
)

// decide lets the program choose a configuration and a certificate. The goroutine may wait here: no call of C is in
// progress.
func (h *handshake) decide(ctx context.Context, hello []byte) error {
	err := isolated("a callback", func() error { return h.choose(ctx, hello) })
	if err == nil {
		if status := C.dormouse_handshake_decide(h.native, h.config.native.server); status != C.DORMOUSE_OK {
			err = refused(status)
		}
	}
	if err != nil {
		// There are no keys yet.
		h.conn.transport.Write([]byte{21, 3, 3, 0, 2, 2, alertInternalError})
	}
	return err
}

func (h *handshake) choose(ctx context.Context, hello []byte) error {
	info, err := readHello(ctx, h.conn.transport, hello)
	if err != nil {
		return err
	}
	if get := h.config.settings.GetConfigForClient; get != nil {
		settings, err := get(info)
		if err != nil {
			return err
		}
		if settings != nil {
			other, err := h.config.other(settings)
			if err != nil {
				return fmt.Errorf("dormouse: GetConfigForClient: %w", err)
			}
			h.config = &Config{shared: other, timeout: h.config.timeout}
		}
	}
	settings := h.config.settings
	if get := settings.GetCertificate; get != nil && (len(settings.Certificates) == 0 || info.ServerName != "") {
		certificate, err := get(info)
		if err != nil {
			return err
		}
		if certificate != nil {
			if h.chosen, err = newIdentity(certificate); err != nil {
				return fmt.Errorf("dormouse: GetCertificate: %w", err)
			}
		}
	}
	return nil
}

//export dormouseGoChoose
func dormouseGoChoose(callbacks C.uintptr_t) C.uint64_t {
	if h := cgo.Handle(callbacks).Value().(*handshake); h.chosen != nil {
		return h.chosen.native.id
	}
	return 0
}

// readHello has crypto/tls read a ClientHello, so that the program gets what crypto/tls would give it.
func readHello(ctx context.Context, transport net.Conn, hello []byte) (*tls.ClientHelloInfo, error) {
	var found *tls.ClientHelloInfo
	enough := errors.New("the ClientHello has been read")
	reader := tls.Server(&replay{bytes.NewReader(hello), transport}, &tls.Config{
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			found = info
			return nil, enough
		},
	})
	if err := reader.HandshakeContext(ctx); found == nil {
		return nil, fmt.Errorf("dormouse: the ClientHello cannot be read: %w", err)
	}
	found.Conn = transport
	return found, nil
}

// A replay is a connection with recorded bytes only.
type replay struct {
	*bytes.Reader
	of net.Conn
}

func (r *replay) Write(p []byte) (int, error)      { return len(p), nil }
func (r *replay) Close() error                     { return nil }
func (r *replay) LocalAddr() net.Addr              { return r.of.LocalAddr() }
func (r *replay) RemoteAddr() net.Addr             { return r.of.RemoteAddr() }
func (r *replay) SetDeadline(time.Time) error      { return nil }
func (r *replay) SetReadDeadline(time.Time) error  { return nil }
func (r *replay) SetWriteDeadline(time.Time) error { return nil }
