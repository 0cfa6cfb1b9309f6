package dormouse

/*
#include "native.h"
*/
import "C"

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/cgo"
	"sync"
	"time"
	"unique"
)

// ticketWait is how long a client waits for session tickets after the handshake, which keep some kilobytes meanwhile.
const ticketWait = time.Second

// recordApplicationData is the type of a record that TLS 1.3 protects (RFC 8446 §5.2).
const recordApplicationData = 23

var errEarlyCloseWrite = errors.New("dormouse: CloseWrite before the handshake")

// A handshake is what a connection needs until it is established.
type handshake struct {
	config *Config
	lock   sync.Mutex
	// err is why it failed.
	err error

	native C.dormouse_handshake
	conn   *Conn
	peer   peer
	// chosen is the certificate that GetCertificate has returned.
	chosen *identity
	// refusal is why a callback refused.
	refusal error
	// last is what a server sends after the handshake.
	last []byte
}

// Server returns the server's side of a connection over transport. Its configuration is made by [ServerConfig].
func Server(transport net.Conn, config *Config) *Conn {
	return newConn(transport, &handshake{config: config, err: config.checkSide(false)})
}

// Client returns the client's side of a connection over transport. Its configuration is made by [ClientConfig], and has
// the server's name: see [Config.WithServerName].
func Client(transport net.Conn, config *Config) *Conn {
	return newConn(transport, &handshake{config: config, err: config.checkSide(true)})
}

func (config *Config) checkSide(isClient bool) error {
	switch {
	case config == nil:
		return errors.New("dormouse: no Config")
	case isClient && !config.isClient:
		return errors.New("dormouse: a client needs a Config of ClientConfig")
	case !isClient && config.isClient:
		return errors.New("dormouse: a server needs a Config of ServerConfig")
	case isClient && config.serverName == "" && !config.settings.InsecureSkipVerify:
		return errors.New("dormouse: either ServerName or InsecureSkipVerify must be specified in the tls.Config")
	}
	return nil
}

// Handshake completes the handshake, unless that has been done. Read and Write call it.
func (conn *Conn) Handshake() error {
	return conn.HandshakeContext(context.Background())
}

// HandshakeContext is Handshake, and closes the connection if the context ends before the handshake does.
func (conn *Conn) HandshakeContext(ctx context.Context) error {
	h := conn.handshake.Load()
	if h == nil {
		return nil
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	if conn.handshake.Load() == nil || h.err != nil {
		return h.err
	}
	if conn.closed.Load() {
		return net.ErrClosed
	}
	h.conn = conn
	// It needs more stack than a connection at rest, and a stack that has grown stays large.
	if h.err = isolated("the transport", func() error { return h.within(ctx) }); h.err == nil {
		conn.handshake.Store(nil)
	}
	if conn.closed.Load() {
		// Close has come too early to erase them.
		conn.erase()
	}
	return h.err
}

// within bounds the time: at the limit, or when the context ends, the transport is closed.
func (h *handshake) within(ctx context.Context) error {
	timer := time.AfterFunc(h.config.timeout, h.conn.cutOff)
	stop := func() bool { return true }
	if ctx.Done() != nil {
		stop = context.AfterFunc(ctx, h.conn.cutOff)
	}
	// Also if the transport panics.
	defer func() {
		timer.Stop()
		stop()
	}()
	err := h.run(ctx)
	switch isInTime := timer.Stop(); {
	case !stop():
		return ctx.Err()
	case !isInTime:
		return errHandshakeTimeout
	}
	return err
}

// cutOff closes the transport, on a goroutine where its panic would end the process.
func (conn *Conn) cutOff() {
	_ = isolated("the transport", conn.transport.Close)
}

var errHandshakeTimeout = &net.OpError{Op: "handshake", Net: "tls", Err: os.ErrDeadlineExceeded}

func (h *handshake) run(ctx context.Context) error {
	if err := h.start(); err != nil {
		return err
	}
	callbacks := cgo.NewHandle(h)
	awaitsTickets := false
	defer func() {
		if !awaitsTickets {
			C.dormouse_handshake_free(h.native)
		}
		callbacks.Delete()
		if h.chosen != nil {
			h.chosen.free()
		}
		runtime.KeepAlive(h.config)
	}()
	last, err := h.exchange(ctx, callbacks)
	if err != nil {
		return err
	}
	defer last.give(0)
	if err := h.finish(last); err != nil {
		return err
	}
	awaitsTickets = h.conn.awaitTickets(h.native)
	return nil
}

func (h *handshake) start() error {
	var made C.dormouse_made_handshake
	switch {
	case h.config.isClient:
		name := h.name()
		made = C.dormouse_connect(h.config.native.client, atString(name), C.size_t(len(name)))
	case h.config.waitsForHello():
		made = C.dormouse_listen()
	default:
		made = C.dormouse_accept(h.config.native.server)
	}
	h.native = made.handshake
	return failed(made.result)
}

// name returns the server's name. Without one no name is sent, as for addresses.
func (h *handshake) name() string {
	if h.config.serverName != "" {
		return h.config.serverName
	}
	if remote, ok := h.conn.RemoteAddr().(*net.TCPAddr); ok && remote.IP != nil {
		return remote.IP.String()
	}
	return "0.0.0.0"
}

// exchange moves messages until the handshake is done, and returns the buffer of the last ones.
func (h *handshake) exchange(ctx context.Context, callbacks cgo.Handle) (*buffer, error) {
	if h.config.isClient {
		if _, err := h.step(callbacks, nil); err != nil {
			return nil, err
		}
	}
	// The first messages of a client, until they are read.
	var hello []byte
	for isFirst := true; ; isFirst = false {
		received, err := h.conn.wait(recordMax)
		if err == io.EOF && (h.config.isClient || !isFirst) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		progress, err := h.step(callbacks, received.bytes[:received.filled])
		if err == nil && progress == C.DORMOUSE_CLIENT_HELLO {
			if err = h.decide(ctx, append(hello, received.bytes[:received.filled]...)); err == nil {
				progress, err = h.step(callbacks, nil)
			}
		} else if h.config.waitsForHello() && h.conn.facts == (unique.Handle[facts]{}) {
			hello = append(hello, received.bytes[:received.filled]...)
		}
		if err == nil && progress == C.DORMOUSE_ESTABLISHED {
			return received, nil
		}
		if failed, ok := err.(*Error); ok && isFirst && failed.Alert == 0 {
			err = failed.foreign(received.bytes[:received.filled])
		}
		received.give(0)
		if err != nil {
			return nil, err
		}
	}
}

// step handles received bytes and sends the output.
func (h *handshake) step(callbacks cgo.Handle, input []byte) (uint32, error) {
	output := takeBuffer()
	defer output.give(0)
	room := output.bytes[:]
	var unsent error
	for {
		step := C.dormouse_go_step(h.native, C.uintptr_t(callbacks), at(input), C.size_t(len(input)), at(room), C.size_t(len(room)))
		if step.status != C.DORMOUSE_OK {
			return 0, refused(step.status)
		}
		input = nil
		if count := int(step.output_len); h.isLast(step, room[:count]) {
			h.last = append(h.last, room[:count]...)
		} else if count > 0 && unsent == nil {
			_, unsent = h.conn.transport.Write(room[:count])
		}
		switch {
		case step.output_left > 0:
		case step.progress == C.DORMOUSE_NOT_ESTABLISHED:
			return 0, h.failure()
		default:
			return step.progress, unsent
		}
	}
}

// isLast says whether output is sent after the handshake: a server's session tickets of TLS 1.3, because a transport may
// have no buffer, as a net.Pipe. They would wait until the client reads, which may be writing already. In TLS 1.2 the
// client waits for the server's last messages.
func (h *handshake) isLast(step C.dormouse_step, output []byte) bool {
	isProtected := len(output) > 0 && output[0] == recordApplicationData
	return isProtected && step.progress == C.DORMOUSE_ESTABLISHED && !h.config.isClient && h.conn.waiter.raw == nil
}

// failure returns why the handshake failed.
func (h *handshake) failure() error {
	if h.refusal != nil {
		return h.refusal
	}
	failure := C.dormouse_handshake_failure(h.native)
	if failure.is_received == 1 {
		return &Error{Alert: tls.AlertError(failure.alert), Remote: true}
	}
	return &Error{Alert: tls.AlertError(failure.alert), reason: C.GoString(&failure.result.message[0])}
}

// finish puts the connection to rest.
func (h *handshake) finish(last *buffer) error {
	conn := h.conn
	found, err := h.facts(&last.established)
	if err != nil {
		return err
	}
	keys := newKeys()
	finished := C.dormouse_handshake_finish(h.native, &keys.connection, at(last.bytes[:]), C.size_t(len(last.bytes)))
	if finished.status != C.DORMOUSE_OK {
		return refused(finished.status)
	}
	conn.lock.Lock()
	conn.keys, conn.facts = keys, unique.Make(found)
	if h.last != nil {
		conn.out().answers = h.last
		defer func() { go conn.sendInBackground() }()
	}
	conn.lock.Unlock()
	if finished.leftover_len > 0 {
		conn.incoming = &incoming{partial: append([]byte(nil), last.bytes[:finished.leftover_len]...)}
	}
	if err := h.verifyConnection(found); err != nil {
		conn.abort(alertBadCertificate)
		return err
	}
	return nil
}

func (h *handshake) verifyConnection(found facts) error {
	verify := h.config.settings.VerifyConnection
	if verify == nil {
		return nil
	}
	return isolated("a callback", func() error { return verify(found.state()) })
}

// abort sends a fatal alert and erases the keys.
func (conn *Conn) abort(alert C.uint8_t) {
	conn.writing.Lock()
	defer conn.writing.Unlock()
	conn.send(func(room []byte) C.dormouse_sealed {
		return C.dormouse_abort(&conn.keys.connection, alert, at(room), C.size_t(len(room)))
	})
	conn.erase()
}

// awaitTickets keeps a client's handshake until its session tickets have arrived, or not for much longer.
func (conn *Conn) awaitTickets(handshake C.dormouse_handshake) bool {
	if C.dormouse_handshake_awaits_tickets(handshake) == 0 {
		return false
	}
	conn.lock.Lock()
	defer conn.lock.Unlock()
	conn.out().tickets = handshake
	time.AfterFunc(ticketWait, func() {
		conn.lock.Lock()
		defer conn.lock.Unlock()
		conn.ignoreTickets()
	})
	return true
}
