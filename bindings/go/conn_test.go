package dormouse

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// converse sends bytes in both directions, and checks them.
func converse(t *testing.T, a, b io.ReadWriter, length int) {
	t.Helper()
	sent := bytes.Repeat([]byte("a word "), length/7+1)[:length]
	for range 2 {
		done := make(chan error)
		go func() {
			_, err := a.Write(sent)
			done <- err
		}()
		got := make([]byte, length)
		if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes: %v, same: %v", length, err, bytes.Equal(got, sent))
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		a, b = b, a
	}
}

func TestVersionsAndProtocols(t *testing.T) {
	eachPairing(t, func(t *testing.T, pairing pairing) {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			server, client := serverSettings(), clientSettings()
			server.NextProtos, client.NextProtos = []string{"one", "two"}, []string{"two", "three"}
			client.MinVersion, client.MaxVersion = version, version
			s, c := pairing.connect(t, server, client)
			for _, state := range []tls.ConnectionState{s.ConnectionState(), c.ConnectionState()} {
				if state.Version != version || state.NegotiatedProtocol != "two" || state.ServerName != "a.test" ||
					!state.HandshakeComplete || state.DidResume || state.CipherSuite == 0 || state.CurveID == 0 {
					t.Errorf("%+v", state)
				}
			}
			of := c.ConnectionState()
			if len(of.PeerCertificates) != 1 || len(of.VerifiedChains) != 1 || len(of.VerifiedChains[0]) != 2 {
				t.Errorf("%+v", of)
			}
			for _, length := range []int{1, 100, 16384, 16385, 300_000} {
				converse(t, s, c, length)
			}
		}
	})
}

func TestExportKeyingMaterialIsAnError(t *testing.T) {
	s, _ := pairings[2].connect(t, serverSettings(), clientSettings())
	state := s.ConnectionState()
	if _, err := state.ExportKeyingMaterial("EXPORTER-test", nil, 20); err == nil {
		t.Fatal("no error")
	}
}

func TestEveryKindOfKeySigns(t *testing.T) {
	for kind, key := range everyKindOfKey() {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			server, client := serverSettings(), clientSettings()
			server.Certificates = []tls.Certificate{ours().sign(key, "a.test")}
			server.MaxVersion = version
			client.Certificates = []tls.Certificate{ours().sign(key, "alice")}
			server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, ours().pool()
			t.Run(kind+" "+tls.VersionName(version), func(t *testing.T) {
				eachPairing(t, func(t *testing.T, pairing pairing) {
					s, c := pairing.connect(t, server, client)
					converse(t, s, c, 100)
					of := s.ConnectionState()
					if of.PeerCertificates[0].DNSNames[0] != "alice" || len(of.VerifiedChains) != 1 {
						t.Errorf("%+v", of)
					}
				})
			})
		}
	}
}

// Over transports that cannot wait without a buffer, and that split records anywhere.
func TestAnyTransport(t *testing.T) {
	for _, most := range []int{1, 7, 10_000} {
		serverEnd, clientEnd := tcp(t)
		s, c := dormouseStack.server(sliced{serverEnd, most}, serverSettings()), dormouseStack.client(sliced{clientEnd, most}, clientSettings())
		if errServer, errClient := handshakes(s, c); errServer != nil || errClient != nil {
			t.Fatal(errServer, errClient)
		}
		converse(t, s, c, 40_000)
	}
}

// Programs test their protocols over pipes, which have no buffer.
func TestPipes(t *testing.T) {
	eachPairing(t, func(t *testing.T, pairing pairing) {
		serverEnd, clientEnd := net.Pipe()
		s, c := pairing.server.server(serverEnd, serverSettings()), pairing.client.client(clientEnd, clientSettings())
		go io.Copy(s, s)
		if _, err := c.Write([]byte("some words")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
	})
}

// sliced reads few bytes at once.
type sliced struct {
	net.Conn
	most int
}

func (s sliced) Read(p []byte) (int, error) { return s.Conn.Read(p[:min(len(p), s.most)]) }

// TestTheLastFlightIsSentInTheHandshake: the transport may be closed as soon as the handshake has returned. A server's last
// messages in TLS 1.2 are the client's to check; in TLS 1.3 they are tickets.
func TestTheLastFlightIsSentInTheHandshake(t *testing.T) {
	for range 20 {
		serverEnd, clientEnd := tcp(t)
		settings := serverSettings()
		settings.MaxVersion = tls.VersionTLS12
		ended := make(chan error, 1)
		go func() {
			transport := sliced{serverEnd, 1 << 14} // of a type of its own
			err := Server(transport, must(ServerConfig(settings))).Handshake()
			transport.Close()
			ended <- err
		}()
		err := Client(clientEnd, must(ClientConfig(clientSettings()))).Handshake()
		if errServer := <-ended; err != nil || errServer != nil {
			t.Fatal(err, errServer)
		}
	}
}

func TestSmallReads(t *testing.T) {
	eachPairing(t, func(t *testing.T, pairing pairing) {
		s, c := pairing.connect(t, serverSettings(), clientSettings())
		if _, err := s.Write([]byte("some words")); err != nil {
			t.Fatal(err)
		}
		for _, letter := range []byte("some words") {
			var got [1]byte
			if count, err := c.Read(got[:]); count != 1 || err != nil || got[0] != letter {
				t.Fatal(count, err, got)
			}
		}
		if count, err := c.Read(nil); count != 0 || err != nil {
			t.Fatal(count, err)
		}
	})
}

func TestWaitNeedsNoBuffer(t *testing.T) {
	eachPairing(t, func(t *testing.T, pairing pairing) {
		s, c := pairing.connect(t, serverSettings(), clientSettings())
		conn, isOurs := s.(*Conn)
		if !isOurs {
			conn, c = c.(*Conn), s
		}
		conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if err := conn.Wait(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		conn.SetReadDeadline(time.Time{})
		c.Write([]byte("words"))
		c.CloseWrite()
		for range 2 {
			if err := conn.Wait(); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := io.ReadAll(conn); string(got) != "words" || err != nil {
			t.Fatal(string(got), err)
		}
		if err := conn.Wait(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestHalfClose(t *testing.T) {
	eachPairing(t, func(t *testing.T, pairing pairing) {
		s, c := pairing.connect(t, serverSettings(), clientSettings())
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := s.Read(make([]byte, 10)); err != io.EOF {
				t.Fatal(err)
			}
		}
		if _, err := s.Write([]byte("after the end")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 13)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "after the end" {
			t.Fatal(err, got)
		}
		if _, err := c.Write([]byte("more")); err == nil {
			t.Fatal("a Write after CloseWrite")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(got); err != io.EOF {
			t.Fatal(err)
		}
	})
}

func TestCloseWriteBeforeTheHandshake(t *testing.T) {
	_, client := tcp(t)
	if err := dormouseStack.client(client, clientSettings()).CloseWrite(); err != errEarlyCloseWrite {
		t.Fatal(err)
	}
}

func TestTruncationIsNotAnEnd(t *testing.T) {
	eachPairing(t, func(t *testing.T, pairing pairing) {
		s, c := pairing.connect(t, serverSettings(), clientSettings())
		s.Write([]byte("a part"))
		s.(interface{ NetConn() net.Conn }).NetConn().Close()
		got, err := io.ReadAll(c)
		if pairing.client.name == goStack.name {
			return // takes the end of TCP for an end
		}
		if string(got) != "a part" || err != io.ErrUnexpectedEOF {
			t.Fatal(string(got), err)
		}
		if _, err := c.Read(got); err != io.ErrUnexpectedEOF {
			t.Fatal(err)
		}
	})
}

func TestDeadlines(t *testing.T) {
	eachPairing(t, func(t *testing.T, pairing pairing) {
		s, c := pairing.connect(t, serverSettings(), clientSettings())
		for range 2 {
			c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			_, err := c.Read(make([]byte, 10))
			if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
		}
		c.SetReadDeadline(time.Time{})
		converse(t, s, c, 100)
		// Nobody reads: the Write ends in the middle of a record, and the stream with it.
		s.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		var err error
		for err == nil {
			_, err = s.Write(make([]byte, 1_000_000))
		}
		for range 2 {
			if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
				t.Fatal(err)
			}
			s.SetWriteDeadline(time.Time{})
			_, err = s.Write([]byte("more"))
		}
	})
}

func TestCloseEndsWhatIsInProgress(t *testing.T) {
	eachPairing(t, func(t *testing.T, pairing pairing) {
		s, c := pairing.connect(t, serverSettings(), clientSettings())
		ended := make(chan error, 2)
		go func() {
			_, err := c.Read(make([]byte, 10))
			ended <- err
		}()
		go func() {
			_, err := c.Write(make([]byte, 100_000_000))
			ended <- err
		}()
		if _, err := s.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		c.Close()
		for range 2 {
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
		if err := c.Close(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if _, err := c.Write([]byte("more")); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if _, err := io.Copy(io.Discard, s); err == nil && pairing.server.name == dormouseStack.name {
			t.Error("a cut stream has a proper end")
		}
	})
}

func TestManyGoroutinesUseOneConnection(t *testing.T) {
	eachPairing(t, func(t *testing.T, pairing pairing) {
		s, c := pairing.connect(t, serverSettings(), clientSettings())
		go io.Copy(s, s)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range 50 {
					c.Write(make([]byte, 3000))
				}
			})
		}
		if _, err := io.ReadFull(c, make([]byte, 8*50*3000)); err != nil {
			t.Fatal(err)
		}
		group.Wait()
	})
}

func TestKeyUpdates(t *testing.T) {
	for _, pairing := range pairings {
		s, c := pairing.connect(t, serverSettings(), clientSettings())
		for _, side := range []tlsConn{s, c} {
			if conn, ok := side.(*Conn); ok {
				if err := conn.UpdateKeys(); err != nil {
					t.Fatal(err)
				}
			}
		}
		converse(t, s, c, 1000)
	}
	client := clientSettings()
	client.MaxVersion = tls.VersionTLS12
	s, _ := pairings[2].connect(t, serverSettings(), client)
	if err := s.(*Conn).UpdateKeys(); err == nil {
		t.Fatal("TLS 1.2 has no KeyUpdate")
	}
}

func TestAlertsAreTyped(t *testing.T) {
	eachPairing(t, func(t *testing.T, pairing pairing) {
		serverEnd, clientEnd := tcp(t)
		server, client := serverSettings(), clientSettings()
		server.NextProtos, client.NextProtos = []string{"one"}, []string{"two"}
		errServer, errClient := handshakes(pairing.server.server(serverEnd, server), pairing.client.client(clientEnd, client))
		const noApplicationProtocol = 120
		for name, err := range map[string]error{pairing.server.name: errServer, pairing.client.name: errClient} {
			if name != dormouseStack.name || errServer == nil || errClient == nil {
				continue
			}
			var alert tls.AlertError
			if !errors.As(err, &alert) || alert != noApplicationProtocol {
				t.Errorf("%#v", err)
			}
		}
		var atServer, atClient *Error
		if errors.As(errServer, &atServer) && atServer.Remote || errors.As(errClient, &atClient) && !atClient.Remote {
			t.Errorf("%v; %v", errServer, errClient)
		}
	})
}

func TestChangedBytesAreRefused(t *testing.T) {
	s, c := pairings[2].connect(t, serverSettings(), clientSettings())
	s.(*Conn).NetConn().Write([]byte("\x17\x03\x03\x00\x20 thirty-two bytes of somebody else"))
	_, err := c.Read(make([]byte, 100))
	var ours *Error
	if !errors.As(err, &ours) || ours.Remote || ours.Alert != 20 {
		t.Fatal(err)
	}
	_, err = s.Read(make([]byte, 100))
	if !errors.As(err, &ours) || !ours.Remote || ours.Alert != 20 {
		t.Fatal(err)
	}
}

func TestHandshakeEnds(t *testing.T) {
	config := must(ServerConfig(serverSettings()))
	for name, test := range map[string]func(server *Conn, client net.Conn) error{
		"time": func(server *Conn, _ net.Conn) error {
			server = Server(server.NetConn(), config.WithHandshakeTimeout(30*time.Millisecond))
			err := server.Handshake()
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				return err
			}
			return nil
		},
		"context": func(server *Conn, _ net.Conn) error {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			err := server.HandshakeContext(ctx)
			if err != context.Canceled {
				return err
			}
			return nil
		},
		"nothing arrives": func(server *Conn, client net.Conn) error {
			client.Close()
			err := server.Handshake()
			if err != io.EOF {
				return err
			}
			return nil
		},
		"a part arrives": func(server *Conn, client net.Conn) error {
			client.Write([]byte("\x16\x03\x01\x02"))
			client.(*net.TCPConn).CloseWrite()
			err := server.Handshake()
			if err != io.ErrUnexpectedEOF {
				return err
			}
			return nil
		},
		"plain HTTP": func(server *Conn, client net.Conn) error {
			client.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
			if foreign, ok := server.Handshake().(tls.RecordHeaderError); !ok || string(foreign.RecordHeader[:]) != "GET /" {
				return foreign
			}
			return nil
		},
	} {
		server, client := tcp(t)
		conn := Server(server, config)
		if err := test(conn, client); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := conn.Handshake(); err == nil {
			t.Errorf("%s: a handshake after its end", name)
		}
	}
}

func TestTheWrongConfig(t *testing.T) {
	server, client := must(ServerConfig(serverSettings())), must(ClientConfig(clientSettings()))
	transport, _ := tcp(t)
	for _, conn := range []*Conn{
		Server(transport, client), Server(transport, nil), Client(transport, server), Client(transport, nil),
		Client(transport, client.WithServerName("")),
	} {
		if err := conn.Handshake(); err == nil {
			t.Error("no error")
		}
	}
	if _, err := Listen("tcp", "127.0.0.1:0", client); err == nil {
		t.Error("no error")
	}
	if _, err := Dial("tcp", "127.0.0.1:1", server); err == nil {
		t.Error("no error")
	}
}
