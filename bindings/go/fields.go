package dormouse

/*
#include "native.h"
*/
import "C"

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"
)

// Sessions is a value for [tls.Config.ClientSessionCache]: clients keep sessions for resumption, in the memory of their
// Config. Other caches cannot be used, because a session of this package is not a [tls.SessionState].
var Sessions tls.ClientSessionCache = sessions{}

type sessions struct{}

func (sessions) Get(string) (*tls.ClientSessionState, bool) { return nil, false }
func (sessions) Put(string, *tls.ClientSessionState)        {}

// A use says what becomes of a field of tls.Config that has a value.
type use func(settings *tls.Config, isClient bool) error

// uses are the fields that may have a value. Every other one that has a value is an error, as is one that a later Go
// adds.
var uses = map[string]use{
	"Time":                        used, // verifies certificates; the engine has the system's clock
	"Certificates":                useCertificates,
	"GetCertificate":              used,
	"GetConfigForClient":          used,
	"VerifyPeerCertificate":       used,
	"VerifyConnection":            used,
	"RootCAs":                     used,
	"NextProtos":                  used,
	"ServerName":                  used,
	"ClientAuth":                  used,
	"ClientCAs":                   used,
	"InsecureSkipVerify":          used,
	"PreferServerCipherSuites":    used, // crypto/tls ignores it, too
	"SessionTicketsDisabled":      used,
	"SessionTicketKey":            useTicketKey,
	"ClientSessionCache":          useSessionCache,
	"MinVersion":                  useVersions,
	"MaxVersion":                  useVersions,
	"DynamicRecordSizingDisabled": used, // records are never made small
	"KeyLogWriter":                used,
	// Unexported: a lock, keys that crypto/tls makes itself, and keys of SetSessionTicketKeys.
	"mutex":                 used,
	"autoSessionTicketKeys": used,
}

func used(*tls.Config, bool) error { return nil }

func useCertificates(settings *tls.Config, isClient bool) error {
	if isClient && len(settings.Certificates) > 1 {
		return fmt.Errorf("a client has one certificate, not %d", len(settings.Certificates))
	}
	return nil
}

func useSessionCache(settings *tls.Config, isClient bool) error {
	if isClient && settings.ClientSessionCache != Sessions {
		return fmt.Errorf("%T: only dormouse.Sessions is supported", settings.ClientSessionCache)
	}
	return nil
}

// useTicketKey accepts what crypto/tls writes there when it makes keys itself.
func useTicketKey(settings *tls.Config, _ bool) error {
	if !bytes.HasPrefix(settings.SessionTicketKey[:], []byte("DEPRECATED")) {
		return errors.New("is not supported")
	}
	return nil
}

func useVersions(settings *tls.Config, _ bool) error {
	for _, version := range []uint16{settings.MinVersion, settings.MaxVersion} {
		if version != 0 && version != tls.VersionTLS12 && version != tls.VersionTLS13 {
			return fmt.Errorf("%s: there are TLS 1.2 and 1.3", tls.VersionName(version))
		}
	}
	return nil
}

// checkFields returns an error that names the first field that has no equivalent here.
func checkFields(settings *tls.Config, isClient bool) error {
	value := reflect.ValueOf(settings).Elem()
	for index := range value.NumField() {
		name := value.Type().Field(index).Name
		if value.Field(index).IsZero() {
			continue
		}
		use := uses[name]
		if use == nil {
			if name == "sessionTicketKeys" {
				name = "SetSessionTicketKeys"
			}
			return fmt.Errorf("dormouse: tls.Config.%s is not supported", name)
		}
		if err := use(settings, isClient); err != nil {
			return fmt.Errorf("dormouse: tls.Config.%s: %w", name, err)
		}
	}
	return nil
}

type versionRange struct{ min, max C.uint16_t }

func versions(settings *tls.Config) versionRange {
	found := versionRange{min: C.uint16_t(settings.MinVersion), max: C.uint16_t(settings.MaxVersion)}
	if found.min == 0 {
		found.min = tls.VersionTLS12
	}
	if found.max == 0 {
		found.max = tls.VersionTLS13
	}
	return found
}
