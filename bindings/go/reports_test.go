package dormouse

import (
	"bufio"
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What users of other TLS have reported of their programs: transports of their own, callbacks that fail, calls in an
// unusual order.

// ahead is a connection some of whose bytes were read before TLS began, as behind the PROXY protocol or after STARTTLS. It
// embeds a net.TCPConn, whose descriptor does not have them.
type ahead struct {
	*net.TCPConn
	reader *bufio.Reader
	read   int
}

func (a *ahead) Read(p []byte) (int, error) {
	count, err := a.reader.Read(p)
	a.read += count
	return count, err
}

func TestATransportWithItsOwnRead(t *testing.T) {
	serverEnd, clientEnd := tcp(t)
	client := goStack.client(clientEnd, clientSettings())
	done := make(chan error, 1)
	go func() {
		_, err := clientEnd.Write([]byte("PROXY UNKNOWN\r\n"))
		if err == nil {
			_, err = client.Write([]byte("hello"))
		}
		done <- err
	}()
	transport := &ahead{TCPConn: serverEnd.(*net.TCPConn)}
	transport.reader = bufio.NewReader(transport.TCPConn)
	if line := must(transport.reader.ReadString('\n')); line != "PROXY UNKNOWN\r\n" {
		t.Fatal(line)
	}
	// The ClientHello is in the reader now.
	must(transport.reader.Peek(100))
	server := dormouseStack.server(transport, serverSettings())
	server.SetDeadline(time.Now().Add(20 * time.Second))
	got := make([]byte, 5)
	if _, err := io.ReadFull(server, got); err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	before := transport.read
	go client.Write([]byte("hello"))
	if _, err := io.ReadFull(server, got); err != nil || transport.read <= before {
		t.Fatalf("%v; the transport's Read has seen %d bytes, before %d", err, transport.read, before)
	}
}

// idle reads nothing now and then, which is no end: io.Reader allows it.
type idle struct {
	net.Conn
	reads int
}

func (i *idle) Read(p []byte) (int, error) {
	if i.reads++; i.reads%3 != 0 {
		return 0, nil
	}
	return i.Conn.Read(p)
}

func TestReadsOfNothing(t *testing.T) {
	serverEnd, clientEnd := tcp(t)
	s, c := dormouseStack.server(&idle{Conn: serverEnd}, serverSettings()), dormouseStack.client(&idle{Conn: clientEnd}, clientSettings())
	if errServer, errClient := handshakes(s, c); errServer != nil || errClient != nil {
		t.Fatal(errServer, errClient)
	}
	converse(t, s, c, 40_000)
}

// empty reads nothing, ever.
type empty struct{ net.Conn }

func (empty) Read([]byte) (int, error) { return 0, nil }

func TestReadsOfNothingWithoutEnd(t *testing.T) {
	serverEnd, _ := tcp(t)
	if err := dormouseStack.server(empty{serverEnd}, serverSettings()).Handshake(); err != io.ErrNoProgress {
		t.Error(err)
	}
}

// A callback that panics, or ends its goroutine as testing.T.FailNow does, is the program's mistake: it costs that
// connection, and neither the process nor a goroutine that waits.
func TestCallbacksThatDoNotReturn(t *testing.T) {
	for name, fail := range doNotReturn {
		for where, change := range map[string]func(*tls.Config){
			"GetConfigForClient": func(s *tls.Config) {
				s.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { fail(); return nil, nil }
			},
			"GetCertificate": func(s *tls.Config) {
				s.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { fail(); return nil, nil }
			},
			"VerifyConnection": func(s *tls.Config) {
				s.VerifyConnection = func(tls.ConnectionState) error { fail(); return nil }
			},
			"VerifyPeerCertificate": func(s *tls.Config) {
				s.ClientAuth = tls.RequireAnyClientCert
				s.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { fail(); return nil }
			},
			"Time": func(s *tls.Config) {
				s.ClientAuth, s.ClientCAs = tls.RequireAndVerifyClientCert, ours().pool()
				s.Time = func() time.Time { fail(); return time.Now() }
			},
		} {
			server, client := serverSettings(), clientSettings()
			change(server)
			client.Certificates = []tls.Certificate{ours().ecdsa("client.test")}
			errServer, errClient := attempt(t, server, client)
			if !tells(errServer, "callback") || !tells(errClient, "remote error") {
				t.Errorf("%s in %s: %v; %v", name, where, errServer, errClient)
			}
		}
		server := serverSettings()
		server.Certificates[0].PrivateKey = signer{server.Certificates[0].PrivateKey.(crypto.Signer), fail}
		if errServer, errClient := attempt(t, server, clientSettings()); errServer == nil || !tells(errClient, "remote error") {
			t.Errorf("%s in Sign: %v; %v", name, errServer, errClient)
		}
		for where, change := range map[string]func(*tls.Config){
			"VerifyPeerCertificate": func(s *tls.Config) {
				s.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { fail(); return nil }
			},
			"Time": func(s *tls.Config) { s.Time = func() time.Time { fail(); return time.Now() } },
		} {
			client := clientSettings()
			change(client)
			serverEnd, clientEnd := tcp(t)
			s, c := goStack.server(serverEnd, serverSettings()), dormouseStack.client(clientEnd, client)
			if errServer, errClient := handshakes(s, c); !tells(errServer, "remote error") || !tells(errClient, "callback") {
				t.Errorf("%s in the client's %s: %v; %v", name, where, errServer, errClient)
			}
		}
	}
}

func tells(err error, what string) bool { return err != nil && strings.Contains(err.Error(), what) }

var doNotReturn = map[string]func(){"panic": func() { panic("as a test") }, "Goexit": runtime.Goexit}

// attempt makes a handshake of a server of this package. In TLS 1.3 a client is ready first, so it reads, too.
func attempt(t *testing.T, server, client *tls.Config) (errServer, errClient error) {
	serverEnd, clientEnd := tcp(t)
	s, c := dormouseStack.server(serverEnd, server), goStack.client(clientEnd, client)
	if errServer, errClient = handshakes(s, c); errServer != nil && errClient == nil {
		_, errClient = c.Read(make([]byte, 1))
	}
	return errServer, errClient
}

// signer is a key that fails.
type signer struct {
	crypto.Signer
	fail func()
}

func (s signer) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	s.fail()
	return nil, nil
}

// broken panics in one of its methods.
type broken struct {
	net.Conn
	method string
}

func (b broken) Read(p []byte) (int, error) {
	if b.method == "Read" {
		panic("as a test")
	}
	return b.Conn.Read(p)
}

func (b broken) Write(p []byte) (int, error) {
	if b.method == "Write" {
		panic("as a test")
	}
	return b.Conn.Write(p)
}

// fails does not return from Write.
type fails struct{ fail func() }

func (f fails) Write([]byte) (int, error) { f.fail(); return 0, nil }

func TestTransportsAndKeyLogsThatPanic(t *testing.T) {
	for _, method := range []string{"Read", "Write"} {
		serverEnd, clientEnd := tcp(t)
		s, c := dormouseStack.server(serverEnd, serverSettings()), dormouseStack.client(broken{clientEnd, method}, clientSettings())
		if _, err := handshakes(s, c); !tells(err, "transport panicked: as a test") {
			t.Errorf("%s: %v", method, err)
		}
	}
	for name, fail := range doNotReturn {
		settings := serverSettings()
		settings.KeyLogWriter = fails{fail}
		serverEnd, clientEnd := tcp(t)
		s, c := dormouseStack.server(serverEnd, settings), goStack.client(clientEnd, clientSettings())
		if errServer, errClient := handshakes(s, c); errServer != nil || errClient != nil {
			t.Error(name, errServer, errClient)
		}
		converse(t, s, c, 10)
	}
}

// breaking is a transport whose Write does not return after some calls.
type breaking struct {
	net.Conn
	left atomic.Int64
	fail func()
}

func (b *breaking) Write(p []byte) (int, error) {
	if b.left.Add(-1) < 0 {
		b.fail()
	}
	return b.Conn.Write(p)
}

// Wherever it breaks, also in the background, it costs that connection only, and no later call waits.
func TestTransportsThatBreakLater(t *testing.T) {
	for name, fail := range doNotReturn {
		for writes := range int64(8) {
			serverEnd, clientEnd := tcp(t)
			transport := &breaking{Conn: serverEnd, fail: fail}
			transport.left.Store(writes)
			s, c := dormouseStack.server(transport, serverSettings()), goStack.client(clientEnd, clientSettings())
			if errServer, _ := handshakes(s, c); errServer != nil {
				if !tells(errServer, "the transport") {
					t.Errorf("%s after %d: %v", name, writes, errServer)
				}
				continue
			}
			for transport.left.Load() >= 0 {
				apart(func() { s.Write([]byte("x")) })
			}
			apart(func() {
				if _, err := s.Write([]byte("x")); !tells(err, "the transport") {
					t.Errorf("%s after %d: a later Write: %v", name, writes, err)
				}
			})
			transport.left.Store(1)
			if err := s.Close(); err != nil {
				t.Errorf("%s after %d: Close: %v", name, writes, err)
			}
		}
	}
}

// Close closes the transport, also if its close_notify breaks it.
func TestATransportThatBreaksInClose(t *testing.T) {
	for name, fail := range doNotReturn {
		serverEnd, clientEnd := tcp(t)
		transport := &breaking{Conn: serverEnd, fail: fail}
		transport.left.Store(100)
		s, c := dormouseStack.server(transport, serverSettings()), goStack.client(clientEnd, clientSettings())
		if errServer, errClient := handshakes(s, c); errServer != nil || errClient != nil {
			t.Fatal(errServer, errClient)
		}
		converse(t, s, c, 10)
		transport.left.Store(0)
		apart(func() { s.Close() })
		if _, err := serverEnd.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: the transport: %v", name, err)
		}
	}
}

// apart calls a function that may not return.
func apart(call func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { recover() }()
		call()
	}()
	<-done
}

func TestAContextThatHasEnded(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	serverEnd, _ := tcp(t)
	s := dormouseStack.server(serverEnd, serverSettings())
	if err := s.HandshakeContext(ended); err != context.Canceled {
		t.Error(err)
	}
	// The error stays, and does not become that of a closed connection.
	if _, err := s.Read(make([]byte, 1)); err != context.Canceled {
		t.Error(err)
	}
	// After the handshake a context is without effect.
	eachPairing(t, func(t *testing.T, pairing pairing) {
		s, c := pairing.connect(t, serverSettings(), clientSettings())
		if err := s.HandshakeContext(ended); err != nil {
			t.Error(err)
		}
		converse(t, s, c, 10)
	})
}

func TestEmptyReadsAndWrites(t *testing.T) {
	eachPairing(t, func(t *testing.T, pairing pairing) {
		s, c := pairing.connect(t, serverSettings(), clientSettings())
		for _, p := range [][]byte{nil, {}} {
			if count, err := s.Write(p); count != 0 || err != nil {
				t.Error(count, err)
			}
			if count, err := c.Read(p); count != 0 || err != nil {
				t.Error(count, err)
			}
		}
		converse(t, s, c, 10)
	})
}

// A deadline of reads that has passed does not harm writes, and a later one makes reads possible again.
func TestAReadDeadlineThatHasPassed(t *testing.T) {
	eachPairing(t, func(t *testing.T, pairing pairing) {
		s, c := pairing.connect(t, serverSettings(), clientSettings())
		for range 3 {
			c.SetReadDeadline(time.Unix(1, 0))
			if _, err := c.Read(make([]byte, 1)); err == nil || !err.(net.Error).Timeout() {
				t.Fatal(err)
			}
			go c.Write([]byte("x"))
			if _, err := io.ReadFull(s, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			c.SetReadDeadline(time.Time{})
			converse(t, s, c, 20_000)
		}
	})
}

// A record that has come in part when the deadline passes is read on later.
func TestADeadlineWithinARecord(t *testing.T) {
	serverEnd, clientEnd := tcp(t)
	recorded := &recorder{Conn: serverEnd}
	s, c := goStack.server(recorded, serverSettings()), dormouseStack.client(clientEnd, clientSettings())
	if errServer, errClient := handshakes(s, c); errServer != nil || errClient != nil {
		t.Fatal(errServer, errClient)
	}
	recorded.holds = true
	must(s.Write(bytes.Repeat([]byte("y"), 5_000)))
	held := recorded.held
	must(serverEnd.Write(held[:1_000]))
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := io.ReadFull(c, make([]byte, 5_000)); err == nil || !err.(net.Error).Timeout() {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Time{})
	must(serverEnd.Write(held[1_000:]))
	if got := make([]byte, 5_000); must(io.ReadFull(c, got)) != 5_000 || !bytes.Equal(got, bytes.Repeat([]byte("y"), 5_000)) {
		t.Error("other bytes")
	}
}

// recorder holds back what is written.
type recorder struct {
	net.Conn
	holds bool
	held  []byte
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.holds {
		r.held = append(r.held, p...)
		return len(p), nil
	}
	return r.Conn.Write(p)
}

// Close ends calls of many goroutines, in every stage, and all calls of Close but one say that it was closed.
func TestManyGoroutinesClose(t *testing.T) {
	for _, isEstablished := range []bool{true, false} {
		serverEnd, clientEnd := tcp(t)
		s, c := dormouseStack.server(serverEnd, serverSettings()), goStack.client(clientEnd, clientSettings())
		if isEstablished {
			if errServer, errClient := handshakes(s, c); errServer != nil || errClient != nil {
				t.Fatal(errServer, errClient)
			}
		}
		var calls sync.WaitGroup
		var lock sync.Mutex
		closed := 0
		for range 4 {
			calls.Go(func() { io.Copy(io.Discard, s) })
			calls.Go(func() {
				for {
					if _, err := s.Write(make([]byte, 10_000)); err != nil {
						return
					}
				}
			})
		}
		for range 4 {
			calls.Go(func() {
				if err := s.Close(); err == nil {
					lock.Lock()
					closed++
					lock.Unlock()
				} else if !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if closed != 1 {
			t.Errorf("closed %d times", closed)
		}
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
}

// Certificates of a peer in odd shapes: an error, not a panic, and the process goes on.
func TestOddCertificates(t *testing.T) {
	odd := map[string]func() tls.Certificate{
		"a chain with its leaf twice": func() tls.Certificate {
			leaf := ours().ecdsa("a.test")
			leaf.Certificate = append(leaf.Certificate, leaf.Certificate[0])
			return leaf
		},
		"a chain in the wrong order": func() tls.Certificate {
			leaf := ours().ecdsa("a.test")
			leaf.Certificate = append(leaf.Certificate, newAuthority("another").certificate.Raw, ours().certificate.Raw)
			return leaf
		},
		"forty certificates": func() tls.Certificate {
			leaf := ours().ecdsa("a.test")
			for range 39 {
				leaf.Certificate = append(leaf.Certificate, ours().certificate.Raw)
			}
			return leaf
		},
		"no names at all": func() tls.Certificate {
			return ours().signed(newECDSA(), func(c *x509.Certificate) { c.DNSNames = nil }, "a.test")
		},
		"a thousand names": func() tls.Certificate {
			names := []string{"a.test"}
			for range 1_000 {
				names = append(names, strings.Repeat("b", 20)+".test")
			}
			return ours().ecdsa(names...)
		},
	}
	for name, make := range odd {
		certificate := make()
		server, client := &tls.Config{Certificates: []tls.Certificate{certificate}}, clientSettings()
		seen := map[string]bool{}
		for _, stack := range []stack{dormouseStack, goStack} {
			serverEnd, clientEnd := tcp(t)
			_, err := handshakes(goStack.server(serverEnd, server), stack.client(clientEnd, client))
			seen[stack.name] = err == nil
		}
		if seen["dormouse"] != seen["crypto/tls"] {
			t.Errorf("%s: accepted by %v", name, seen)
		}
	}
}
