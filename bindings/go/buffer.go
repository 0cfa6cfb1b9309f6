package dormouse

/*
#include "native.h"
*/
import "C"

import "sync"

const (
	// recordMax is the length of the longest record.
	recordMax = 18437
	// plaintextMax is the most that is sealed at once.
	plaintextMax = 65536
	// answersMax is how much may wait for a writer: answers to the peer, such as updates of keys.
	answersMax = 4096
	// sealedMax is the room for plaintextMax in records.
	sealedMax = plaintextMax + 64 + 29*(plaintextMax/16384)
)

// A buffer is where bytes are opened and sealed. No connection at rest has one.
type buffer struct {
	bytes  [sealedMax]byte
	answer [C.DORMOUSE_ANSWER_MAX]byte
	// opened is the result of opening the records in bytes.
	opened C.dormouse_received
	// established is what a handshake has found.
	established C.dormouse_facts
	// filled and err are results of reading from the transport.
	filled int
	err    error
}

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// An unread holds plaintext that did not fit into a Read, if it is long; streams would make garbage otherwise.
type unread [recordMax]byte

// unreadMin is the least plaintext that takes an unread: a program may leave it there for long.
const unreadMin = recordMax / 4

var unreads = sync.Pool{New: func() any { return new(unread) }}

func takeBuffer() *buffer {
	return buffers.Get().(*buffer)
}

// give wipes the plaintext at the buffer's start, and returns the buffer.
func (b *buffer) give(plaintext int) {
	clear(b.bytes[:plaintext])
	b.filled, b.err = 0, nil
	buffers.Put(b)
}
