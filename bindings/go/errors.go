package dormouse

import (
	"crypto/tls"
	"errors"
)

// An Error is a violation of the protocol, by either side, or a refusal. It wraps a [tls.AlertError], for [errors.As].
type Error struct {
	// Alert is the alert that ended the connection; 0 if there was none.
	Alert tls.AlertError
	// Remote is true if the peer has sent the alert.
	Remote bool
	reason string
}

func (e *Error) Error() string {
	switch {
	case e.reason != "":
		return "dormouse: " + e.reason
	case e.Remote:
		return "dormouse: remote error: " + e.Alert.Error()
	}
	return "dormouse: " + e.Alert.Error()
}

// Unwrap returns the alert.
func (e *Error) Unwrap() error {
	if e.Alert == 0 {
		return nil
	}
	return e.Alert
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
