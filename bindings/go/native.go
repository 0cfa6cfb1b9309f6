package dormouse

/*
#cgo CFLAGS: -Wall -Wextra -Werror
#cgo noescape dormouse_receive_kept
#cgo nocallback dormouse_receive_kept
#cgo noescape dormouse_receive_tickets
#cgo nocallback dormouse_receive_tickets
#cgo noescape dormouse_seal_kept
#cgo nocallback dormouse_seal_kept
#cgo noescape dormouse_close
#cgo nocallback dormouse_close
#include "native.h"
*/
import "C"

import (
	"errors"
	"unsafe"
)

// at returns the address of bytes for a call. C keeps none.
func at(bytes []byte) *C.uint8_t {
	return (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(bytes)))
}

// atString returns the address of text for a call that only reads it.
func atString(text string) *C.uint8_t {
	return (*C.uint8_t)(unsafe.Pointer(unsafe.StringData(text)))
}

// failed returns the error of a call that reads settings.
func failed(result C.dormouse_result) error {
	if result.status == C.DORMOUSE_OK {
		return nil
	}
	return errors.New("dormouse: " + C.GoString(&result.message[0]))
}

// refused returns the error of a call on a connection or handshake.
func refused(status uint32) error {
	return errors.New("dormouse: " + C.GoString(C.dormouse_status_text(C.uint32_t(status))))
}

func text(from *C.dormouse_text) string {
	return C.GoStringN((*C.char)(unsafe.Pointer(&from.bytes[0])), C.int(from.len))
}

// Version returns the version of libdormouse.
func Version() string {
	return C.GoString(C.dormouse_version())
}
