package dormouse

/*
#include "native.h"
*/
import "C"

import (
	"encoding/binary"
	"errors"
	"net"
	"unique"
	"unsafe"
)

const keysLen = int(unsafe.Sizeof(C.dormouse_connection{}))

// Export ends the connection here and returns the bytes with which [Import] continues it, also in another process,
// together with its transport, which stays open. They are secret, and must be imported once: two connections that
// continue from them would reveal what they send. The peer notices nothing.
//
// No other call may be in progress, and what Read has decrypted must have been read.
func (conn *Conn) Export() ([]byte, error) {
	if conn.handshake.Load() != nil {
		return nil, errors.New("dormouse: the handshake is not complete")
	}
	if !conn.reading.TryLock() {
		return nil, errors.New("dormouse: a Read is in progress")
	}
	defer conn.reading.Unlock()
	if !conn.writing.TryLock() {
		return nil, errors.New("dormouse: a Write is in progress")
	}
	defer conn.writing.Unlock()
	conn.lock.Lock()
	defer conn.lock.Unlock()
	var answers []byte
	switch in, out := conn.incoming, conn.outgoing; {
	case in != nil && in.err != nil:
		return nil, in.err
	case in != nil && in.plaintext != nil:
		return nil, errors.New("dormouse: decrypted bytes have not been read")
	case out != nil && out.err != nil:
		return nil, out.err
	case out != nil:
		answers = out.answers
	}
	if !conn.closed.CompareAndSwap(false, true) {
		return nil, net.ErrClosed
	}
	// The format of all bindings.
	exported := append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(conn.keys)), keysLen)...)
	if partial := conn.partial(); len(partial)+len(answers) > 0 {
		exported = binary.LittleEndian.AppendUint32(exported, uint32(len(partial)))
		exported = binary.LittleEndian.AppendUint32(exported, uint32(len(answers)))
		exported = append(append(exported, partial...), answers...)
	}
	conn.keys.wipe()
	conn.ignoreTickets()
	conn.incoming = &incoming{err: net.ErrClosed}
	return exported, nil
}

// Import continues an exported connection. The bytes are erased.
func Import(transport net.Conn, exported []byte) (*Conn, error) {
	invalid := errors.New("dormouse: this is no exported connection")
	if len(exported) < keysLen {
		return nil, invalid
	}
	defer clear(exported)
	conn := newConn(transport, nil)
	conn.keys = newKeys()
	copy(unsafe.Slice((*byte)(unsafe.Pointer(conn.keys)), keysLen), exported)
	described := C.dormouse_describe(&conn.keys.connection)
	if described.status != C.DORMOUSE_OK {
		return nil, refused(described.status)
	}
	conn.facts = unique.Make(facts{version: uint16(described.version)})
	rest := exported[keysLen:]
	if len(rest) == 0 {
		return conn, nil
	}
	if len(rest) < 8 {
		return nil, invalid
	}
	partial, answers := binary.LittleEndian.Uint32(rest), binary.LittleEndian.Uint32(rest[4:])
	rest = rest[8:]
	if uint64(partial)+uint64(answers) != uint64(len(rest)) || partial > plaintextMax || answers > plaintextMax {
		return nil, invalid
	}
	if partial > 0 {
		conn.incoming = &incoming{partial: append([]byte(nil), rest[:partial]...)}
	}
	if answers > 0 {
		conn.outgoing = &outgoing{answers: append([]byte(nil), rest[partial:]...)}
	}
	return conn, nil
}
