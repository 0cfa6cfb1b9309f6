// Package tests uses package dormouse with the libraries that programs have.
package tests

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os/exec"
	"path/filepath"
	"testing"

	"dormouse.example/dormouse"
)

// A site is a certificate for localhost, and a client that trusts it.
type site struct {
	server, client   *tls.Config
	certificate, key string
}

func newSite(t *testing.T, protocols ...string) site {
	made := site{certificate: filepath.Join(t.TempDir(), "cert.pem"), key: filepath.Join(t.TempDir(), "key.pem")}
	openssl := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
		"-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE",
		"-out", made.certificate, "-keyout", made.key)
	if output, err := openssl.CombinedOutput(); err != nil {
		t.Fatal(err, string(output))
	}
	certificate, err := tls.LoadX509KeyPair(made.certificate, made.key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(certificate.Leaf)
	made.server = &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: protocols}
	made.client = &tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: protocols}
	return made
}

func (s site) serverConfig(t *testing.T) *dormouse.Config {
	config, err := dormouse.ServerConfig(s.server)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func (s site) clientConfig(t *testing.T) *dormouse.Config {
	config, err := dormouse.ClientConfig(s.client)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func (s site) listen(t *testing.T) net.Listener {
	listener, err := dormouse.Listen("tcp", "127.0.0.1:0", s.serverConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

// serve calls handle for each connection to the listener that it returns, and closes the connection afterwards.
func (s site) serve(t *testing.T, handle func(net.Conn)) net.Listener {
	listener := s.listen(t)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				handle(conn)
			}()
		}
	}()
	return listener
}

// dial returns a function for the fields of transports and dialers.
func (s site) dial(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
	config := s.clientConfig(t)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return dormouse.DialContext(ctx, network, address, config)
	}
}
