package dormouse

/*
#include "native.h"
*/
import "C"

import (
	"errors"
	"net"
)

// Outgoing holds what belongs to our direction.
type outgoing struct {
	// answers are sealed records that the next writer sends first.
	answers []byte
	// err is the error of all further writes.
	err error
	// tickets is a client's handshake that waits for session tickets; its id is 0 if there is none.
	tickets C.dormouse_handshake
}

// out returns the connection's outgoing. The lock is held.
func (conn *Conn) out() *outgoing {
	if conn.outgoing == nil {
		conn.outgoing = new(outgoing)
	}
	return conn.outgoing
}

// settleOut drops it when it is empty. The lock is held.
func (conn *Conn) settleOut() {
	if out := conn.outgoing; out != nil && len(out.answers) == 0 && out.err == nil && out.tickets.id == 0 {
		conn.outgoing = nil
	}
}

// Write encrypts and sends p. It returns once the transport has taken everything.
func (conn *Conn) Write(p []byte) (int, error) {
	if err := conn.Handshake(); err != nil {
		return 0, err
	}
	count, err := conn.writeAll(p)
	// Those that were sealed while this writer had the transport.
	conn.sendAnswers()
	return count, err
}

func (conn *Conn) writeAll(p []byte) (int, error) {
	conn.writing.Lock()
	defer conn.writing.Unlock()
	for sent := 0; ; {
		chunk := p[sent:min(sent+plaintextMax, len(p))]
		err := conn.send(func(room []byte) C.dormouse_sealed {
			return C.dormouse_seal_kept(&conn.keys.connection, at(chunk), C.size_t(len(chunk)), at(room), C.size_t(len(room)))
		})
		if err != nil {
			return sent, err
		}
		if sent += len(chunk); sent == len(p) {
			return sent, nil
		}
	}
}

// sendCloseNotify ends our direction. The caller has locked writing.
func (conn *Conn) sendCloseNotify() error {
	return conn.send(func(room []byte) C.dormouse_sealed {
		return C.dormouse_close(&conn.keys.connection, at(room), C.size_t(len(room)))
	})
}

// UpdateKeys replaces the key of our direction (TLS 1.3). Keys near their limit are replaced automatically.
func (conn *Conn) UpdateKeys() error {
	if err := conn.Handshake(); err != nil {
		return err
	}
	defer conn.sendAnswers()
	conn.writing.Lock()
	defer conn.writing.Unlock()
	return conn.send(func(room []byte) C.dormouse_sealed {
		return C.dormouse_update_keys(&conn.keys.connection, at(room), C.size_t(len(room)))
	})
}

// sendAnswers sends what was sealed for the peer while bytes were received. If a writer has the transport, that writer
// does; a peer that never reads and demands more answers waits. An error is one of the next Write.
func (conn *Conn) sendAnswers() {
	for {
		waiting := conn.answersLen()
		if waiting > answersMax {
			conn.writing.Lock()
		} else if waiting == 0 || !conn.writing.TryLock() {
			return
		}
		if conn.sendOnlyAnswers() != nil {
			return
		}
	}
}

// sendOnlyAnswers unlocks writing afterwards.
func (conn *Conn) sendOnlyAnswers() error {
	defer conn.writing.Unlock()
	return conn.send(func([]byte) C.dormouse_sealed { return C.dormouse_sealed{} })
}

// sendInBackground is sendAnswers on a goroutine where a panic of the transport would end the process: it becomes the
// error of the next Write.
func (conn *Conn) sendInBackground() {
	err := isolated("the transport", func() error {
		conn.sendAnswers()
		return nil
	})
	if err != nil {
		conn.writeError(err)
	}
}

func (conn *Conn) answersLen() int {
	conn.lock.Lock()
	defer conn.lock.Unlock()
	if conn.outgoing == nil {
		return 0
	}
	return len(conn.outgoing.answers)
}

// send sends the answers and what is sealed behind them. The caller has locked writing.
func (conn *Conn) send(seal func(room []byte) C.dormouse_sealed) error {
	sealed := takeBuffer()
	answers, count, err := conn.seal(sealed, seal)
	if err == nil && len(answers) > 0 {
		err = conn.transmit(answers)
	}
	if err == nil && count > 0 {
		err = conn.transmit(sealed.bytes[:count])
	}
	sealed.give(0)
	return err
}

var errNoReturn = errors.New("dormouse: Write of the transport has panicked, or called runtime.Goexit")

// transmit sends sealed records. An error ends our direction, and so does a Write that does not return: a part of a
// record may have been sent.
func (conn *Conn) transmit(records []byte) error {
	hasReturned := false
	defer func() {
		if !hasReturned {
			conn.writeError(errNoReturn)
		}
	}()
	_, err := conn.transport.Write(records)
	hasReturned = true
	if err != nil {
		err = conn.writeError(err)
	}
	return err
}

func (conn *Conn) writeError(err error) error {
	if conn.closed.Load() {
		return net.ErrClosed
	}
	conn.lock.Lock()
	defer conn.lock.Unlock()
	conn.out().err = err
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		conn.out().err = writeTimeout{err}
	}
	return err
}

// seal returns the answers, which are sent first, and the length of what is sealed behind them.
func (conn *Conn) seal(into *buffer, seal func(room []byte) C.dormouse_sealed) (answers []byte, count int, err error) {
	conn.lock.Lock()
	defer conn.lock.Unlock()
	if conn.outgoing != nil && conn.outgoing.err != nil {
		return nil, 0, conn.outgoing.err
	}
	sealed := seal(into.bytes[:])
	switch sealed.status {
	case C.DORMOUSE_OK:
	case C.DORMOUSE_CLOSED:
		return nil, 0, errShutdown
	case C.DORMOUSE_NO_CONNECTION:
		return nil, 0, net.ErrClosed
	default:
		return nil, 0, refused(sealed.status)
	}
	if conn.outgoing != nil {
		answers, conn.outgoing.answers = conn.outgoing.answers, nil
		conn.settleOut()
	}
	return answers, int(sealed.output_len), nil
}

// ignoreTickets frees a client's finished handshake. The lock is held.
func (conn *Conn) ignoreTickets() {
	if conn.outgoing != nil && conn.outgoing.tickets.id != 0 {
		C.dormouse_handshake_free(conn.outgoing.tickets)
		conn.outgoing.tickets.id = 0
		conn.settleOut()
	}
}
