package dormouse

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"maps"
	"math/big"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// An authority signs certificates for tests.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

var ours = sync.OnceValue(func() *authority { return newAuthority("the test's authority") })

func newAuthority(name string) *authority {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := must(x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key))
	return &authority{must(x509.ParseCertificate(der)), key}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// sign returns a certificate for these names, for servers and clients.
func (a *authority) sign(key crypto.Signer, names ...string) tls.Certificate {
	return a.signed(key, func(*x509.Certificate) {}, names...)
}

// signed is sign for a certificate that is changed before. Without an authority it is self-signed.
func (a *authority) signed(key crypto.Signer, change func(*x509.Certificate), names ...string) tls.Certificate {
	template := x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	change(&template)
	if a == nil {
		a = &authority{&template, key}
	}
	der := must(x509.CreateCertificate(rand.Reader, &template, a.certificate, key.Public(), a.key))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func newECDSA() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func (a *authority) ecdsa(names ...string) tls.Certificate {
	return a.sign(newECDSA(), names...)
}

// everyKindOfKey returns keys whose bytes are there, and the same behind a signer.
func everyKindOfKey() map[string]crypto.Signer {
	_, ed := must2(ed25519.GenerateKey(rand.Reader))
	all := map[string]crypto.Signer{
		"P-256":   newECDSA(),
		"P-384":   must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)),
		"RSA":     must(rsa.GenerateKey(rand.Reader, 2048)),
		"Ed25519": ed,
	}
	for _, name := range slices.Collect(maps.Keys(all)) {
		all["a signer's "+name] = struct{ crypto.Signer }{all[name]}
		all["a signer's of messages "+name] = messageSigner{all[name]}
	}
	return all
}

// A messageSigner signs no digests.
type messageSigner struct{ crypto.Signer }

func (m messageSigner) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return nil, errors.New("this key signs messages")
}

func (m messageSigner) SignMessage(random io.Reader, message []byte, options crypto.SignerOpts) ([]byte, error) {
	return crypto.SignMessage(struct{ crypto.Signer }{m.Signer}, random, message, options)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func must2[A, B any](a A, b B, err error) (A, B) {
	if err != nil {
		panic(err)
	}
	return a, b
}

func serverSettings() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{ours().ecdsa("a.test")}}
}

func clientSettings() *tls.Config {
	return &tls.Config{RootCAs: ours().pool(), ServerName: "a.test"}
}

// A stack makes TLS connections: this package or crypto/tls.
type stack struct {
	name   string
	server func(net.Conn, *tls.Config) tlsConn
	client func(net.Conn, *tls.Config) tlsConn
}

type tlsConn interface {
	net.Conn
	CloseWrite() error
	Handshake() error
	HandshakeContext(context.Context) error
	ConnectionState() tls.ConnectionState
}

var dormouseStack = stack{
	"dormouse",
	func(transport net.Conn, settings *tls.Config) tlsConn {
		return Server(transport, must(ServerConfig(settings)))
	},
	func(transport net.Conn, settings *tls.Config) tlsConn {
		return Client(transport, must(ClientConfig(settings)))
	},
}

var goStack = stack{
	"crypto/tls",
	func(transport net.Conn, settings *tls.Config) tlsConn { return tls.Server(transport, settings) },
	func(transport net.Conn, settings *tls.Config) tlsConn { return tls.Client(transport, settings) },
}

// A pairing says which stacks talk to each other.
type pairing struct{ server, client stack }

var pairings = []pairing{{dormouseStack, goStack}, {goStack, dormouseStack}, {dormouseStack, dormouseStack}}

func eachPairing(t *testing.T, test func(t *testing.T, pairing pairing)) {
	for _, pairing := range pairings {
		t.Run(pairing.server.name+" serves "+pairing.client.name, func(t *testing.T) { test(t, pairing) })
	}
}

// tcp returns the two ends of a TCP connection.
func tcp(t testing.TB) (server, client net.Conn) {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	client = must(net.Dial("tcp", listener.Addr().String()))
	server = must(listener.Accept())
	t.Cleanup(func() { server.Close(); client.Close() })
	return server, client
}

// connect returns both sides, established.
func (p pairing) connect(t testing.TB, server, client *tls.Config) (tlsConn, tlsConn) {
	serverEnd, clientEnd := tcp(t)
	s, c := p.server.server(serverEnd, server), p.client.client(clientEnd, client)
	if errServer, errClient := handshakes(s, c); errServer != nil || errClient != nil {
		t.Fatalf("server: %v; client: %v", errServer, errClient)
	}
	return s, c
}

// handshakes makes both handshakes, and closes the side that fails.
func handshakes(server, client tlsConn) (errServer, errClient error) {
	done := make(chan error)
	go func() {
		err := client.Handshake()
		if err != nil {
			client.Close()
		}
		done <- err
	}()
	if errServer = server.Handshake(); errServer != nil {
		server.Close()
	}
	return errServer, <-done
}
