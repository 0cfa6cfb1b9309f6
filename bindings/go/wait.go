package dormouse

import (
	"io"
	"net"
	"os"
	"syscall"
)

// A waiter waits until the transport has bytes, and takes a buffer only then. It is empty if the transport cannot do this.
type waiter struct {
	raw  syscall.RawConn
	fill func(descriptor uintptr) bool
	// room is the most that fill reads; filled is its result, until wait returns it.
	room   int
	filled *buffer
}

// firstBytes is how much an established connection reads at first from a transport that cannot wait without a buffer.
const firstBytes = 512

// emptyReadsMax is how many reads in a row may return nothing, as in bufio: one is no end.
const emptyReadsMax = 100

// wait returns a buffer with the partial record and newly received bytes behind it. Only one goroutine may wait.
// The error [io.EOF] is the end of the transport.
func (conn *Conn) wait(room int) (*buffer, error) {
	if conn.waiter.raw == nil {
		return conn.waitInRead(room)
	}
	conn.waiter.room = room
	err := conn.waiter.raw.Read(conn.waiter.fill)
	filled := conn.waiter.filled
	conn.waiter.filled = nil
	if err == nil && filled.err == nil && filled.filled > len(conn.partial()) {
		return filled, nil
	}
	return nil, conn.waitError(filled, err)
}

// waitError returns the error of waiting, as net.Conn.Read would name it.
func (conn *Conn) waitError(filled *buffer, err error) error {
	if err != nil {
		if operation, ok := err.(*net.OpError); ok {
			operation.Op = "read"
		}
		return err
	}
	defer filled.give(0)
	if filled.err == nil {
		return io.EOF
	}
	return &net.OpError{Op: "read", Net: conn.LocalAddr().Network(), Source: conn.LocalAddr(), Addr: conn.RemoteAddr(),
		Err: os.NewSyscallError("read", filled.err)}
}

// fill reads what has arrived; false: nothing.
func (conn *Conn) fill(descriptor uintptr) bool {
	filled := takeBuffer()
	start := copy(filled.bytes[:], conn.partial())
	for {
		count, err := syscall.Read(int(descriptor), filled.bytes[start:min(start+conn.waiter.room, len(filled.bytes))])
		switch err {
		case nil:
			filled.filled = start + count
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			filled.give(0)
			return false
		default:
			filled.err = err
		}
		conn.waiter.filled = filled
		return true
	}
}

// waitInRead waits in the transport's Read, with as much memory as the next record is known to need. A handshake reads
// whole flights: both sides would wait in Write if the transport had no buffer, as a net.Pipe.
func (conn *Conn) waitInRead(room int) (*buffer, error) {
	switch {
	case conn.incoming != nil && conn.incoming.missing > 0:
		room = conn.incoming.missing
	case conn.handshake.Load() == nil:
		room = firstBytes
	}
	received := make([]byte, room)
	count, err := 0, error(nil)
	for reads := 0; count == 0 && err == nil; reads++ {
		if reads == emptyReadsMax {
			return nil, io.ErrNoProgress
		}
		count, err = conn.transport.Read(received)
	}
	if count == 0 {
		return nil, err
	}
	filled := takeBuffer()
	filled.filled = copy(filled.bytes[:], conn.partial())
	filled.filled += copy(filled.bytes[filled.filled:], received[:count])
	return filled, nil
}

func (conn *Conn) partial() []byte {
	if conn.incoming == nil {
		return nil
	}
	return conn.incoming.partial
}
