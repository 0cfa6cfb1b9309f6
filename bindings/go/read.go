package dormouse

/*
#include "native.h"
*/
import "C"

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
)

// Incoming holds what no Read has taken yet.
type incoming struct {
	// partial is the start of a record, as received; missing is how much the record lacks, as far as is known, or 0 if
	// nobody has looked at it yet.
	partial []byte
	missing int
	// plaintext waits for the next Read, in unread if that is not nil.
	plaintext []byte
	unread    *unread
	// err is how the peer's direction ended.
	err error
}

// Read reads decrypted bytes. See [Conn] for the errors at the end.
func (conn *Conn) Read(p []byte) (int, error) {
	if err := conn.Handshake(); err != nil {
		return 0, err
	}
	conn.reading.Lock()
	defer conn.reading.Unlock()
	for len(p) > 0 {
		if count, err := conn.takePlaintext(p); count > 0 || err != nil {
			return count, err
		}
		if count, err := conn.receive(p); count > 0 || err != nil {
			return count, err
		}
	}
	return 0, nil
}

// Wait waits until Read has something to return: bytes, or the end. A program that has many quiet connections takes a
// buffer afterwards, instead of holding one for each connection in Read.
func (conn *Conn) Wait() error {
	if err := conn.Handshake(); err != nil {
		return err
	}
	conn.reading.Lock()
	defer conn.reading.Unlock()
	for conn.incoming == nil || conn.incoming.plaintext == nil && conn.incoming.err == nil {
		if _, err := conn.receive(nil); err != nil {
			return err
		}
	}
	return nil
}

// receive opens bytes that are there or waits for more.
func (conn *Conn) receive(p []byte) (int, error) {
	var received *buffer
	if partial := conn.partial(); partial != nil && conn.incoming.missing == 0 {
		// Nobody has looked at it.
		received = takeBuffer()
		received.filled = copy(received.bytes[:], partial)
	} else {
		var err error
		if received, err = conn.wait(recordMax + len(p)); err != nil {
			return 0, conn.endOfTransport(err)
		}
	}
	count := conn.open(received, p)
	conn.sendAnswers()
	return count, nil
}

// takePlaintext takes what an earlier Read has left.
func (conn *Conn) takePlaintext(p []byte) (int, error) {
	in := conn.incoming
	if in == nil {
		return 0, nil
	}
	count := copy(p, in.plaintext)
	if count == 0 {
		return 0, in.err
	}
	clear(in.plaintext[:count])
	in.plaintext = in.plaintext[count:]
	if len(in.plaintext) == 0 {
		in.plaintext = nil
		if in.unread != nil {
			unreads.Put(in.unread)
			in.unread = nil
		}
	}
	conn.settle()
	return count, nil
}

// open opens all complete records, and copies their plaintext to p. What does not fit, or is incomplete, waits.
func (conn *Conn) open(received *buffer, p []byte) int {
	conn.openRecords(received)
	got := &received.opened
	plaintext, consumed := int(got.plaintext_len), int(got.consumed)
	count := copy(p, received.bytes[:plaintext])
	conn.incoming = nil
	if err := errorOf(got); err != nil || consumed < received.filled || count < plaintext {
		conn.incoming = conn.left(received, count, err)
	}
	received.give(plaintext)
	return count
}

// left returns what stays after a Read.
func (conn *Conn) left(received *buffer, read int, err error) *incoming {
	got := &received.opened
	partial := received.bytes[got.consumed:received.filled]
	in := &incoming{partial: bytes.Clone(nonempty(partial)), missing: max(int(got.need)-len(partial), 0), err: err}
	switch plaintext := received.bytes[read:got.plaintext_len]; {
	case len(plaintext) >= unreadMin && len(plaintext) <= recordMax:
		in.unread = unreads.Get().(*unread)
		in.plaintext = in.unread[:copy(in.unread[:], plaintext)]
	default:
		in.plaintext = bytes.Clone(nonempty(plaintext))
	}
	return in
}

func nonempty(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// openRecords opens in place, and keeps the answer for the peer.
func (conn *Conn) openRecords(received *buffer) {
	conn.lock.Lock()
	records, length := at(received.bytes[:]), C.size_t(received.filled)
	answer, room := at(received.answer[:]), C.size_t(len(received.answer))
	if conn.outgoing != nil && conn.outgoing.tickets.id != 0 {
		received.opened = C.dormouse_receive_tickets(&conn.keys.connection, conn.outgoing.tickets, records, length, answer, room)
		if C.dormouse_handshake_awaits_tickets(conn.outgoing.tickets) == 0 {
			conn.ignoreTickets()
		}
	} else {
		received.opened = C.dormouse_receive_kept(&conn.keys.connection, records, length, answer, room)
	}
	if length := received.opened.output_len; length > 0 {
		conn.out().answers = append(conn.out().answers, received.answer[:length]...)
	}
	conn.lock.Unlock()
}

// errorOf returns how the peer's direction ended; nil: it has not.
func errorOf(got *C.dormouse_received) error {
	switch {
	case got.status == C.DORMOUSE_NO_CONNECTION:
		return net.ErrClosed
	case got.status != C.DORMOUSE_OK:
		return refused(got.status)
	}
	switch got.end {
	case C.DORMOUSE_END_NONE:
		return nil
	case C.DORMOUSE_END_CLOSED:
		return io.EOF
	case C.DORMOUSE_END_TRUNCATED:
		return io.ErrUnexpectedEOF
	}
	return &Error{Alert: tls.AlertError(got.alert), Remote: got.end == C.DORMOUSE_END_ALERT}
}

// endOfTransport returns what an error of the transport means for the connection.
func (conn *Conn) endOfTransport(err error) error {
	if conn.closed.Load() {
		return net.ErrClosed
	}
	if err != io.EOF {
		return err
	}
	conn.lock.Lock()
	defer conn.lock.Unlock()
	if C.dormouse_eof(&conn.keys.connection) != C.DORMOUSE_END_CLOSED {
		err = io.ErrUnexpectedEOF
	}
	conn.incoming = &incoming{err: err}
	return err
}

// settle drops what is empty.
func (conn *Conn) settle() {
	if in := conn.incoming; in.partial == nil && in.plaintext == nil && in.err == nil {
		conn.incoming = nil
	}
}
