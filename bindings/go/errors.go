package dormouse

import (
	"crypto/tls"
	"errors"
	"net"
)

// An Error is a violation of the protocol, by either side, or a refusal. For [errors.As] it wraps a [net.OpError], as in
// crypto/tls, and this a [tls.AlertError].
type Error struct {
	// Alert is the alert that ended the connection; 0 if there was none.
	Alert tls.AlertError
	// Remote is true if the peer has sent the alert.
	Remote bool
	reason string
}

func (e *Error) Error() string {
	if e.reason != "" {
		return "dormouse: " + e.reason
	}
	return "dormouse: " + e.wrapped().Error()
}

// Unwrap returns a [net.OpError] with the alert.
func (e *Error) Unwrap() error {
	if e.Alert == 0 {
		return nil
	}
	return e.wrapped()
}

func (e *Error) wrapped() *net.OpError {
	operation := "local error"
	if e.Remote {
		operation = "remote error"
	}
	return &net.OpError{Op: operation, Err: e.Alert}
}

// foreign returns the error of crypto/tls for a peer whose first bytes are no record, which net/http and other libraries
// look for. It has no Conn to answer on: an HTTP request has its answer.
func (e *Error) foreign(first []byte) tls.RecordHeaderError {
	found := tls.RecordHeaderError{Msg: e.reason}
	copy(found.RecordHeader[:], first)
	return found
}

// Alerts (RFC 8446 section 6.2).
const (
	alertBadCertificate = 42
	alertInternalError  = 80
)

var errShutdown = errors.New("dormouse: the connection is closed for writing")

// A writeTimeout is the error of every Write after one that has timed out: the stream ends within a record.
type writeTimeout struct{ error }

func (e writeTimeout) Unwrap() error   { return e.error }
func (e writeTimeout) Timeout() bool   { return true }
func (e writeTimeout) Temporary() bool { return false }
