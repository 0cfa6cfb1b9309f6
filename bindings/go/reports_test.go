package dormouse

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
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
	for name, fail := range map[string]func(){"panic": func() { panic("as a test") }, "Goexit": runtime.Goexit} {
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
		} {
			server := serverSettings()
			change(server)
			serverEnd, clientEnd := tcp(t)
			s, c := dormouseStack.server(serverEnd, server), goStack.client(clientEnd, clientSettings())
			errServer, errClient := handshakes(s, c)
			if errClient == nil {
				// In TLS 1.3 a client is ready first.
				_, errClient = c.Read(make([]byte, 1))
			}
			if errServer == nil || !strings.Contains(errServer.Error(), "callback") || errClient == nil {
				t.Errorf("%s in %s: %v; %v", name, where, errServer, errClient)
			}
		}
	}
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

type panics struct{}

func (panics) Write([]byte) (int, error) { panic("as a test") }

func TestTransportsAndKeyLogsThatPanic(t *testing.T) {
	for _, method := range []string{"Read", "Write"} {
		serverEnd, clientEnd := tcp(t)
		s, c := dormouseStack.server(serverEnd, serverSettings()), dormouseStack.client(broken{clientEnd, method}, clientSettings())
		if _, err := handshakes(s, c); err == nil || !strings.Contains(err.Error(), "as a test") {
			t.Errorf("%s: %v", method, err)
		}
	}
	settings := serverSettings()
	settings.KeyLogWriter = panics{}
	serverEnd, clientEnd := tcp(t)
	s, c := dormouseStack.server(serverEnd, settings), goStack.client(clientEnd, clientSettings())
	if errServer, errClient := handshakes(s, c); errServer != nil || errClient != nil {
		t.Error(errServer, errClient)
	}
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
