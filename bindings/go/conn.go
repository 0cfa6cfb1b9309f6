package dormouse

/*
#include "native.h"
*/
import "C"

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unique"
)

// A Conn is a TLS connection over another connection. It is a [net.Conn] with the conventions of [tls.Conn]: the first
// Read or Write completes the handshake, several goroutines may use it at once, and after a Write that has timed out all
// others fail.
//
// Read returns [io.EOF] only after the peer's close_notify. If the transport ends without it, bytes may be missing, and
// Read returns [io.ErrUnexpectedEOF]. Other ends are an [Error] with its alert.
//
// At rest it is this struct and its keys, and has no buffer.
type Conn struct {
	transport net.Conn
	waiter    waiter
	// keys is the connection, which C reads and writes during calls; nil before the handshake.
	keys  *keys
	facts unique.Handle[facts]
	// handshake is nil once the connection is established.
	handshake atomic.Pointer[handshake]
	incoming  *incoming // guarded by reading
	outgoing  *outgoing // guarded by lock
	// lock guards the keys, and is held for calculations only.
	lock    sync.Mutex
	reading sync.Mutex
	writing sync.Mutex
	closed  atomic.Bool
}

// keys are the 128 bytes of a connection, apart from it, because a finalizer's object must not be part of a cycle.
type keys struct {
	connection C.dormouse_connection
}

func newKeys() *keys {
	made := new(keys)
	runtime.SetFinalizer(made, (*keys).wipe)
	return made
}

func (k *keys) wipe() {
	C.dormouse_connection_wipe(&k.connection)
}

func newConn(transport net.Conn, handshake *handshake) *Conn {
	conn := &Conn{transport: transport}
	if raw := rawOf(transport); raw != nil {
		conn.waiter.raw, conn.waiter.fill = raw, conn.fill
	}
	if handshake != nil {
		conn.handshake.Store(handshake)
	}
	return conn
}

// rawOf returns the descriptor of a transport if the transport's Read reads from it and does nothing else. A type that
// embeds a net.TCPConn has a SyscallConn, too, but maybe a Read of its own, with bytes that were read ahead.
func rawOf(transport net.Conn) syscall.RawConn {
	var raw syscall.RawConn
	err := errors.ErrUnsupported
	switch transport := transport.(type) {
	case *net.TCPConn:
		raw, err = transport.SyscallConn()
	case *net.UnixConn:
		raw, err = transport.SyscallConn()
	}
	if err != nil {
		return nil
	}
	return raw
}

// NetConn returns the connection below. Using it breaks the TLS connection.
func (conn *Conn) NetConn() net.Conn { return conn.transport }

// LocalAddr returns the transport's local address.
func (conn *Conn) LocalAddr() net.Addr { return conn.transport.LocalAddr() }

// RemoteAddr returns the transport's remote address.
func (conn *Conn) RemoteAddr() net.Addr { return conn.transport.RemoteAddr() }

// SetDeadline sets the deadlines of reads and writes. After a Write that has timed out, all others fail.
func (conn *Conn) SetDeadline(t time.Time) error { return conn.transport.SetDeadline(t) }

// SetReadDeadline sets the deadline of reads.
func (conn *Conn) SetReadDeadline(t time.Time) error { return conn.transport.SetReadDeadline(t) }

// SetWriteDeadline sets the deadline of writes. After a Write that has timed out, all others fail.
func (conn *Conn) SetWriteDeadline(t time.Time) error { return conn.transport.SetWriteDeadline(t) }

// Close sends close_notify, closes the transport, and erases the keys. Calls in progress end with an error.
func (conn *Conn) Close() (err error) {
	if !conn.closed.CompareAndSwap(false, true) {
		return net.ErrClosed
	}
	// Also if the transport panics.
	defer conn.erase()
	defer func() { err = conn.transport.Close() }()
	// A writer in progress is stuck, or its record would be cut: then the peer sees a truncation, which it is.
	if conn.handshake.Load() == nil && conn.writing.TryLock() {
		defer conn.writing.Unlock()
		conn.transport.SetWriteDeadline(time.Now().Add(5 * time.Second))
		conn.sendCloseNotify()
	}
	return nil
}

// CloseWrite sends close_notify: the peer reads [io.EOF], and Read continues. In TLS 1.2 the peer closes, too.
func (conn *Conn) CloseWrite() error {
	if conn.handshake.Load() != nil {
		return errEarlyCloseWrite
	}
	conn.writing.Lock()
	defer conn.writing.Unlock()
	return conn.sendCloseNotify()
}

// erase erases the keys and what was received.
func (conn *Conn) erase() {
	conn.lock.Lock()
	if conn.keys != nil {
		conn.keys.wipe()
	}
	conn.ignoreTickets()
	conn.lock.Unlock()
	if conn.reading.TryLock() {
		if conn.incoming != nil {
			clear(conn.incoming.plaintext)
		}
		conn.incoming = &incoming{err: net.ErrClosed}
		conn.reading.Unlock()
	}
}
