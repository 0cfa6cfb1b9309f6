package dormouse

/*
#include "native.h"
*/
import "C"

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/cgo"
	"sync"
	"time"
)

// handshakeTimeout is how long a handshake may take, unless the Config says otherwise.
const handshakeTimeout = 10 * time.Second

// A Config is what connections of one kind have in common: certificates, what they trust, tickets. It does not change,
// and any number of connections may use it.
type Config struct {
	*shared
	serverName string
	timeout    time.Duration
}

// Shared is a Config's part in C, and its tls.Config.
type shared struct {
	settings *tls.Config
	isClient bool
	native   *native
	lock     sync.Mutex
	// others are those of configurations that GetConfigForClient has returned.
	others map[*tls.Config]*shared
}

// othersMax bounds them: a program that makes a configuration for each connection keeps no more.
const othersMax = 64

// native is what a context has in C.
type native struct {
	server     C.dormouse_server
	client     C.dormouse_client
	identities []*identity
	secretLog  cgo.Handle
}

// ServerConfig makes a Config for servers. Nothing of settings may be changed afterwards.
func ServerConfig(settings *tls.Config) (*Config, error) {
	return newConfig(settings, false)
}

// ClientConfig makes a Config for clients. Nothing of settings may be changed afterwards.
//
// A client keeps sessions if settings.ClientSessionCache is [Sessions].
func ClientConfig(settings *tls.Config) (*Config, error) {
	return newConfig(settings, true)
}

func newConfig(settings *tls.Config, isClient bool) (*Config, error) {
	made, err := newShared(settings, isClient)
	if err != nil {
		return nil, err
	}
	return &Config{shared: made, serverName: settings.ServerName, timeout: handshakeTimeout}, nil
}

// WithServerName returns a Config for connections to this server.
func (config *Config) WithServerName(name string) *Config {
	other := *config
	other.serverName = name
	return &other
}

// WithHandshakeTimeout returns a Config whose handshakes may take this long; the default is ten seconds.
func (config *Config) WithHandshakeTimeout(timeout time.Duration) *Config {
	other := *config
	other.timeout = timeout
	return &other
}

func newShared(settings *tls.Config, isClient bool) (*shared, error) {
	if settings == nil {
		return nil, errors.New("dormouse: no tls.Config")
	}
	if err := checkFields(settings, isClient); err != nil {
		return nil, err
	}
	made := &shared{settings: settings.Clone(), isClient: isClient, native: new(native)}
	if err := made.native.make(made); err != nil {
		made.native.free()
		return nil, err
	}
	runtime.AddCleanup(made, (*native).free, made.native)
	return made, nil
}

func (n *native) free() {
	C.dormouse_server_free(n.server)
	C.dormouse_client_free(n.client)
	for _, identity := range n.identities {
		identity.free()
	}
	if n.secretLog != 0 {
		n.secretLog.Delete()
	}
}

func (n *native) make(of *shared) error {
	for index := range of.settings.Certificates {
		made, err := newIdentity(&of.settings.Certificates[index])
		if err != nil {
			return fmt.Errorf("dormouse: Certificates[%d]: %w", index, err)
		}
		n.identities = append(n.identities, made)
	}
	if of.settings.KeyLogWriter != nil {
		n.secretLog = cgo.NewHandle(&keyLog{writer: of.settings.KeyLogWriter})
	}
	if of.isClient {
		return n.makeClient(of.settings)
	}
	if len(n.identities) == 0 && of.settings.GetCertificate == nil && of.settings.GetConfigForClient != nil {
		return nil // every client gets another one
	}
	return n.makeServer(of)
}

func (n *native) makeServer(of *shared) error {
	made := C.dormouse_server_settings_new()
	defer C.dormouse_server_settings_free(made)
	asks := of.settings.ClientAuth != tls.NoClientCert
	results := []C.dormouse_result{
		C.dormouse_server_set_versions(made, versions(of.settings).min, versions(of.settings).max),
		C.dormouse_go_server_hooks(made, number(of.settings.GetCertificate != nil), number(asks), C.uintptr_t(n.secretLog)),
	}
	for _, identity := range n.identities {
		results = append(results, C.dormouse_server_add_identity(made, identity.native))
	}
	for _, protocol := range of.settings.NextProtos {
		results = append(results, C.dormouse_server_add_alpn(made, atString(protocol), C.size_t(len(protocol))))
	}
	if asks {
		required := of.settings.ClientAuth == tls.RequireAnyClientCert || of.settings.ClientAuth == tls.RequireAndVerifyClientCert
		results = append(results, C.dormouse_server_ask_certificates(made, C.int32_t(number(required)), nil, 0))
	}
	if of.settings.SessionTicketsDisabled {
		results = append(results, C.dormouse_server_set_tickets(made, 0))
	}
	if err := firstFailure(results); err != nil {
		return err
	}
	server := C.dormouse_server_new(made)
	n.server = server.server
	return failed(server.result)
}

func (n *native) makeClient(settings *tls.Config) error {
	made := C.dormouse_client_settings_new()
	defer C.dormouse_client_settings_free(made)
	results := []C.dormouse_result{
		C.dormouse_client_set_versions(made, versions(settings).min, versions(settings).max),
		C.dormouse_go_client_hooks(made, C.uintptr_t(n.secretLog)),
	}
	for _, identity := range n.identities {
		results = append(results, C.dormouse_client_set_identity(made, identity.native))
	}
	for _, protocol := range settings.NextProtos {
		results = append(results, C.dormouse_client_add_alpn(made, atString(protocol), C.size_t(len(protocol))))
	}
	if settings.SessionTicketsDisabled || settings.ClientSessionCache == nil {
		results = append(results, C.dormouse_client_disable_resumption(made))
	}
	if err := firstFailure(results); err != nil {
		return err
	}
	client := C.dormouse_client_new(made)
	n.client = client.client
	return failed(client.result)
}

func firstFailure(results []C.dormouse_result) error {
	for _, result := range results {
		if err := failed(result); err != nil {
			return err
		}
	}
	return nil
}

func number(is bool) C.int {
	if is {
		return 1
	}
	return 0
}

// waitsForHello says whether the program decides after the ClientHello.
func (of *shared) waitsForHello() bool {
	return of.settings.GetCertificate != nil || of.settings.GetConfigForClient != nil
}

// other returns the context for a configuration that GetConfigForClient has returned.
func (of *shared) other(settings *tls.Config) (*shared, error) {
	of.lock.Lock()
	defer of.lock.Unlock()
	if known := of.others[settings]; known != nil {
		return known, nil
	}
	made, err := newShared(settings, false)
	if err != nil {
		return nil, err
	}
	if of.others == nil || len(of.others) >= othersMax {
		of.others = make(map[*tls.Config]*shared)
	}
	of.others[settings] = made
	return made, nil
}

// A keyLog writes the secrets of connections, a line at a time.
type keyLog struct {
	lock   sync.Mutex
	writer io.Writer
}

//export dormouseGoLogSecret
func dormouseGoLogSecret(handle C.uintptr_t, line *C.char) {
	log := cgo.Handle(handle).Value().(*keyLog)
	// As an error of Write: without its key log the connection continues.
	_ = isolated("a callback", func() error {
		log.lock.Lock()
		defer log.lock.Unlock()
		_, err := io.WriteString(log.writer, C.GoString(line)+"\n")
		return err
	})
}
