// A TLS server that echoes what it receives, over libdormouse from Go.
//
//	echo PORT CERTIFICATE KEY     (PEM files)
//
// A connection at rest is 128 bytes in Go's memory. C keeps no pointer to them, so any memory will do.
package main

/*
#cgo LDFLAGS: -ldormouse
#include <dormouse.h>
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"unsafe"
)

// The longest record.
const recordMax = 18437

// Conn is a TLS connection over another one.
type Conn struct {
	state    C.dormouse_connection
	inner    net.Conn
	received []byte // the start of a record
}

func pointer(bytes []byte) *C.uint8_t {
	return (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(bytes)))
}

func failed(result *C.dormouse_result) error {
	if result.status == C.DORMOUSE_OK {
		return nil
	}
	return errors.New(C.GoString(&result.message[0]))
}

// Accept completes the handshake with a client.
func Accept(server C.dormouse_server, inner net.Conn) (*Conn, error) {
	made := C.dormouse_accept(server)
	if err := failed(&made.result); err != nil {
		return nil, err
	}
	defer C.dormouse_handshake_free(made.handshake)
	input, output := make([]byte, 65536), make([]byte, 65536)
	for {
		count, err := inner.Read(input)
		if err != nil {
			return nil, err
		}
		step := C.dormouse_handshake_step(made.handshake, pointer(input), C.size_t(count), pointer(output), C.size_t(len(output)))
		for {
			if step.status != C.DORMOUSE_OK {
				return nil, errors.New(C.GoString(C.dormouse_status_text(C.uint32_t(step.status))))
			}
			if _, err := inner.Write(output[:step.output_len]); err != nil {
				return nil, err
			}
			if step.output_left == 0 {
				break
			}
			step = C.dormouse_handshake_step(made.handshake, nil, 0, pointer(output), C.size_t(len(output)))
		}
		switch step.progress {
		case C.DORMOUSE_NOT_ESTABLISHED:
			failure := C.dormouse_handshake_failure(made.handshake)
			return nil, failed(&failure.result)
		case C.DORMOUSE_ESTABLISHED:
			conn := &Conn{inner: inner}
			finished := C.dormouse_handshake_finish(made.handshake, &conn.state, pointer(input), C.size_t(len(input)))
			if finished.status != C.DORMOUSE_OK {
				return nil, errors.New(C.GoString(C.dormouse_status_text(C.uint32_t(finished.status))))
			}
			conn.received = append(conn.received, input[:finished.leftover_len]...)
			return conn, nil
		}
	}
}

// Receive returns data from the client, and io.EOF once the client has closed. A record must fit into the buffer.
func (conn *Conn) Receive(buffer []byte) (int, error) {
	if len(buffer) < recordMax {
		return 0, io.ErrShortBuffer
	}
	answer := make([]byte, C.DORMOUSE_ANSWER_MAX)
	for {
		filled := copy(buffer, conn.received)
		got := C.dormouse_receive(&conn.state, pointer(buffer), C.size_t(filled), pointer(answer), C.DORMOUSE_ANSWER_MAX)
		conn.received = append([]byte(nil), conn.received[got.consumed:]...)
		if _, err := conn.inner.Write(answer[:got.output_len]); err != nil {
			return 0, err
		}
		switch {
		case got.status != C.DORMOUSE_OK:
			return 0, errors.New(C.GoString(C.dormouse_status_text(C.uint32_t(got.status))))
		case got.plaintext_len > 0:
			return int(got.plaintext_len), nil
		case got.end == C.DORMOUSE_END_CLOSED:
			return 0, io.EOF
		case got.end != C.DORMOUSE_END_NONE:
			return 0, fmt.Errorf("the connection ended with alert %d", got.alert)
		}
		count, err := conn.inner.Read(buffer)
		if err != nil {
			return 0, io.ErrUnexpectedEOF // without close_notify: bytes may be missing
		}
		conn.received = append(conn.received, buffer[:count]...)
	}
}

// Send sends data to the client.
func (conn *Conn) Send(words []byte) error {
	output := make([]byte, C.dormouse_sealed_len(&conn.state, C.size_t(len(words))))
	sealed := C.dormouse_seal(&conn.state, pointer(words), C.size_t(len(words)), pointer(output), C.size_t(len(output)))
	if sealed.status != C.DORMOUSE_OK {
		return errors.New(C.GoString(C.dormouse_status_text(C.uint32_t(sealed.status))))
	}
	_, err := conn.inner.Write(output[:sealed.output_len])
	return err
}

// Close ends our direction, and wipes the connection.
func (conn *Conn) Close() {
	output := make([]byte, C.DORMOUSE_SMALL_MAX)
	sealed := C.dormouse_close(&conn.state, pointer(output), C.DORMOUSE_SMALL_MAX)
	conn.inner.Write(output[:sealed.output_len])
	C.dormouse_connection_wipe(&conn.state)
}

func echo(server C.dormouse_server, inner net.Conn) {
	defer inner.Close()
	conn, err := Accept(server, inner)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer conn.Close()
	buffer := make([]byte, 65536)
	for {
		count, err := conn.Receive(buffer)
		if err == nil {
			err = conn.Send(buffer[:count])
		}
		if err != nil {
			return
		}
	}
}

func newServer(certificate, key string) (C.dormouse_server, error) {
	certificatePath, keyPath := C.CString(certificate), C.CString(key)
	defer C.free(unsafe.Pointer(certificatePath))
	defer C.free(unsafe.Pointer(keyPath))
	identity := C.dormouse_identity_from_files(certificatePath, keyPath)
	if err := failed(&identity.result); err != nil {
		return C.dormouse_server{}, err
	}
	defer C.dormouse_identity_free(identity.identity)
	settings := C.dormouse_server_settings_new()
	C.dormouse_server_add_identity(settings, identity.identity)
	made := C.dormouse_server_new(settings)
	return made.server, failed(&made.result)
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: echo PORT CERTIFICATE KEY")
		os.Exit(2)
	}
	server, err := newServer(os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	fmt.Println("listening on", listener.Addr())
	for {
		inner, err := listener.Accept()
		if err != nil {
			continue
		}
		go echo(server, inner)
	}
}
