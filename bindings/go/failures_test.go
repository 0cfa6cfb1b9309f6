package dormouse

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A situation is a connection that fails at its subject, whose peer is crypto/tls or plain TCP.
type situation struct {
	name string
	// subject and peer change the settings.
	subject, peer func(*tls.Config)
	// speaks is what a peer without TLS does.
	speaks func(net.Conn)
	// sends is what the peer does after the handshake, and uses what the subject does then; without it, it reads.
	sends func(*tampering, *tls.Conn)
	uses  func(tlsConn) error
	// wait bounds the subject's handshake.
	wait time.Duration
}

// TestFailures compares what programs are told with what crypto/tls tells them, and the alerts that the peer gets.
// failures.tsv has the answers; DORMOUSE_WRITE=1 writes it anew, for FAILURES.md.
func TestFailures(t *testing.T) {
	version := strings.Join(strings.Split(runtime.Version()[2:], ".")[:2], ".")
	lines := []string{"Go " + version}
	for _, isServer := range []bool{false, true} {
		for _, one := range situations(isServer) {
			lines = append(lines, fmt.Sprintf("%s\t%s\t%s", one.name, one.told(t, goStack, isServer), one.told(t, dormouseStack, isServer)))
		}
	}
	lines = append(lines, "client: nobody listens\t"+nobody(t, goDial)+"\t"+nobody(t, dormouseDial))
	table := strings.Join(lines, "\n") + "\n"
	if os.Getenv("DORMOUSE_WRITE") != "" {
		if err := os.WriteFile("failures.tsv", []byte(table), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expected := strings.Split(string(must(os.ReadFile("failures.tsv"))), "\n")
	for index, line := range strings.Split(table, "\n") {
		if line != expected[min(index, len(expected)-1)] && expected[0] == lines[0] {
			t.Errorf("%s\n  the table has: %s", line, expected[min(index, len(expected)-1)])
		}
	}
}

// told returns the subject's error, and the peer's alert.
func (one situation) told(t *testing.T, of stack, isServer bool) string {
	serverEnd, clientEnd := tcp(t)
	deadline := time.Now().Add(5 * time.Second)
	serverEnd.SetDeadline(deadline)
	clientEnd.SetDeadline(deadline)
	server, client := serverSettings(), clientSettings()
	subjectEnd, peerEnd, subject, peer := clientEnd, serverEnd, client, server
	if isServer {
		subjectEnd, peerEnd, subject, peer = serverEnd, clientEnd, server, client
	}
	for settings, change := range map[*tls.Config]func(*tls.Config){subject: one.subject, peer: one.peer} {
		if change != nil {
			change(settings)
		}
	}
	alert := make(chan string)
	go func() { alert <- one.attend(peerEnd, peer, !isServer) }()
	make := of.client
	if isServer {
		make = of.server
	}
	err := one.fail(make(subjectEnd, subject))
	// The peer still reads the alert.
	subjectEnd.(*net.TCPConn).CloseWrite()
	return shown(err) + <-alert
}

// fail is what the subject does until it has an error.
func (one situation) fail(subject tlsConn) error {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(one.wait, 5*time.Second))
	defer cancel()
	if err := subject.HandshakeContext(ctx); err != nil {
		return err
	}
	if one.uses != nil {
		return one.uses(subject)
	}
	_, err := io.Copy(io.Discard, subject)
	return err
}

// attend is what the peer does. It returns the alert that the peer has got.
func (one situation) attend(end net.Conn, settings *tls.Config, isServer bool) string {
	if one.speaks != nil {
		one.speaks(end)
		return ""
	}
	transport := &tampering{TCPConn: end.(*net.TCPConn)}
	conn := tls.Client(transport, settings)
	if isServer {
		conn = tls.Server(transport, settings)
	}
	err := conn.Handshake()
	if err == nil {
		if one.sends != nil {
			one.sends(transport, conn)
		}
		_, err = io.Copy(io.Discard, conn)
	}
	var remote *net.OpError
	if errors.As(err, &remote) && remote.Op == "remote error" {
		return "; the peer gets " + strings.TrimPrefix(remote.Err.Error(), "tls: ")
	}
	if err != nil {
		transport.Close()
	}
	return ""
}

// A tampering transport changes what is written.
type tampering struct {
	*net.TCPConn
	change func([]byte) []byte
}

func (t *tampering) Write(p []byte) (int, error) {
	changed := p
	if t.change != nil {
		changed = t.change(p)
	}
	_, err := t.TCPConn.Write(changed)
	return len(p), err
}

func reset(conn net.Conn) {
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// reads waits for bytes of the subject, and answers.
func reads(then func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		conn.Read(make([]byte, 10_000))
		then(conn)
	}
}

func sendsBytes(bytes string) func(net.Conn) {
	return func(conn net.Conn) {
		io.WriteString(conn, bytes)
		io.Copy(io.Discard, conn)
	}
}

func closes(conn net.Conn) { conn.Close() }

func says(nothing net.Conn) { io.Copy(io.Discard, nothing) }

// shows makes the peer's, or the subject's, certificate this one.
func shows(by *authority, change func(*x509.Certificate)) func(*tls.Config) {
	return func(settings *tls.Config) {
		settings.Certificates = []tls.Certificate{by.signed(newECDSA(), change, "a.test")}
	}
}

func unchanged(*x509.Certificate) {}

func only(version uint16) func(*tls.Config) {
	return func(settings *tls.Config) { settings.MinVersion, settings.MaxVersion = version, version }
}

func all(changes ...func(*tls.Config)) func(*tls.Config) {
	return func(settings *tls.Config) {
		for _, change := range changes {
			change(settings)
		}
	}
}

func offers(protocol string) func(*tls.Config) {
	return func(settings *tls.Config) { settings.NextProtos = []string{protocol} }
}

// needsRSA leaves no cipher suite of TLS 1.2 for the other side, whose key is of another kind.
func needsRSA(settings *tls.Config) {
	only(tls.VersionTLS12)(settings)
	settings.CipherSuites = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
}

func asks(settings *tls.Config) {
	settings.ClientAuth, settings.ClientCAs = tls.RequireAndVerifyClientCert, ours().pool()
}

var errProgram = errors.New("not today")

func situations(isServer bool) []situation {
	stranger := newAuthority("a stranger")
	strange := shows(stranger, unchanged)
	versions := map[string]uint16{"TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}
	var found []situation
	if isServer {
		for _, name := range []string{"TLSv1.2", "TLSv1.3"} {
			only := only(versions[name])
			found = append(found,
				situation{name: "server: the client has no certificate, " + name, subject: all(only, asks)},
				situation{name: "server: the client's certificate is of an unknown authority, " + name, subject: all(only, asks), peer: strange},
				situation{name: "server: the client does not trust the certificate, " + name, subject: only, peer: func(settings *tls.Config) { settings.RootCAs = stranger.pool() }},
			)
		}
		return append(found, []situation{
			{name: "server: no common protocol version", subject: only(tls.VersionTLS13), peer: only(tls.VersionTLS12)},
			{name: "server: no common cipher suite", peer: needsRSA},
			{name: "server: no common application protocol", subject: offers("one"), peer: offers("two")},
			{name: "server: GetConfigForClient returns an error", subject: func(settings *tls.Config) {
				settings.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, errProgram }
			}},
			{name: "server: GetCertificate returns an error", subject: func(settings *tls.Config) {
				settings.Certificates = nil
				settings.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errProgram }
			}},
			{name: "server: the client sends plain HTTP", speaks: sendsBytes("GET / HTTP/1.1\r\n\r\n")},
			{name: "server: the client sends other bytes", speaks: sendsBytes(strings.Repeat("U", 32))},
			{name: "server: the client closes during the handshake", speaks: func(conn net.Conn) {
				io.WriteString(conn, "\x16\x03\x01")
				conn.Close()
			}},
			{name: "server: the client closes before the handshake", speaks: closes},
			{name: "server: the client resets the connection during the handshake", speaks: reset},
			{name: "server: the client does not speak (HandshakeContext)", speaks: says, wait: 50 * time.Millisecond},
		}...)
	}
	found = []situation{
		{name: "client: the certificate is of an unknown authority", peer: strange},
		{name: "client: the certificate is self-signed", peer: shows(nil, unchanged)},
		{name: "client: the certificate has expired", peer: shows(ours(), func(one *x509.Certificate) {
			one.NotBefore, one.NotAfter = time.Unix(1577836800, 0), time.Unix(1609459200, 0)
		})},
		{name: "client: the certificate is not valid yet", peer: shows(ours(), func(one *x509.Certificate) {
			one.NotBefore, one.NotAfter = time.Unix(2461449600, 0), time.Unix(2493072000, 0)
		})},
		{name: "client: the certificate is for another name", peer: shows(ours(), func(one *x509.Certificate) { one.DNSNames = []string{"other.test"} })},
		{name: "client: the certificate is for clients only", peer: shows(ours(), func(one *x509.Certificate) {
			one.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		})},
		{name: "client: VerifyConnection returns an error", subject: func(settings *tls.Config) {
			settings.VerifyConnection = func(tls.ConnectionState) error { return errProgram }
		}},
	}
	for _, name := range []string{"TLSv1.2", "TLSv1.3"} {
		only := only(versions[name])
		found = append(found,
			situation{name: "client without the certificate that the server requires, " + name, subject: only, peer: asks},
			situation{name: "client whose certificate the server does not trust, " + name, subject: all(only, strange), peer: asks},
		)
	}
	return append(found, []situation{
		{name: "client: no common protocol version", subject: only(tls.VersionTLS12), peer: only(tls.VersionTLS13)},
		{name: "client: no common cipher suite", subject: only(tls.VersionTLS12), peer: needsRSA},
		{name: "client: no common application protocol", subject: offers("one"), peer: offers("two")},
		{name: "client: the server answers in plaintext", speaks: reads(sendsBytes("220 ready\r\n"))},
		{name: "client: the server closes during the handshake", speaks: reads(closes)},
		{name: "client: the server resets the connection during the handshake", speaks: reads(reset)},
		{name: "client: the server does not answer (HandshakeContext)", speaks: says, wait: 50 * time.Millisecond},
		{name: "a forged record arrives", sends: func(transport *tampering, conn *tls.Conn) {
			transport.change = func(record []byte) []byte {
				return append(record[:len(record)-1:len(record)-1], record[len(record)-1]^1)
			}
			io.WriteString(conn, "some words")
			transport.change = nil
		}},
		{name: "a record that is too long arrives", sends: func(transport *tampering, _ *tls.Conn) { io.WriteString(transport, "\x17\x03\x03\x70\x00") }},
		{name: "the connection ends within a record", sends: func(transport *tampering, conn *tls.Conn) {
			transport.change = func(record []byte) []byte { return record[:9] }
			io.WriteString(conn, "some words")
			transport.CloseWrite()
		}},
		{name: "the connection ends without close_notify", sends: func(transport *tampering, _ *tls.Conn) { transport.CloseWrite() }},
		{name: "the connection is reset", sends: func(transport *tampering, _ *tls.Conn) { reset(transport.TCPConn) }},
		{name: "a read after its deadline", uses: func(conn tlsConn) error {
			conn.SetReadDeadline(time.Now().Add(-time.Second))
			_, err := conn.Read(make([]byte, 10))
			return err
		}},
		{name: "a read after Close", uses: func(conn tlsConn) error {
			conn.Close()
			_, err := conn.Read(make([]byte, 10))
			return err
		}},
		{name: "a write after Close", uses: func(conn tlsConn) error {
			conn.Close()
			_, err := io.WriteString(conn, "words")
			return err
		}},
		{name: "a write after CloseWrite", uses: func(conn tlsConn) error {
			conn.CloseWrite()
			_, err := io.WriteString(conn, "words")
			return err
		}},
		{name: "a write after one that has timed out", uses: func(conn tlsConn) error {
			conn.SetWriteDeadline(time.Now().Add(-time.Second))
			io.WriteString(conn, "words")
			conn.SetWriteDeadline(time.Time{})
			_, err := io.WriteString(conn, "words")
			return err
		}},
		{name: "a second Close", uses: func(conn tlsConn) error {
			conn.Close()
			return conn.Close()
		}},
	}...)
}

func goDial(address string) error {
	_, err := tls.Dial("tcp", address, clientSettings())
	return err
}

func dormouseDial(address string) error {
	_, err := Dial("tcp", address, must(ClientConfig(clientSettings())))
	return err
}

func nobody(t *testing.T, dial func(string) error) string {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	listener.Close()
	return shown(dial(listener.Addr().String()))
}

// values are errors that programs compare with errors.Is.
var values = []struct {
	name  string
	value error
}{
	{"context.DeadlineExceeded", context.DeadlineExceeded}, {"os.ErrDeadlineExceeded", os.ErrDeadlineExceeded},
	{"net.ErrClosed", net.ErrClosed}, {"io.EOF", io.EOF}, {"io.ErrUnexpectedEOF", io.ErrUnexpectedEOF},
	{"syscall.ECONNRESET", syscall.ECONNRESET}, {"syscall.ECONNREFUSED", syscall.ECONNREFUSED}, {"syscall.EPIPE", syscall.EPIPE},
	{"the program's own", errProgram},
}

// typeOf returns the type that programs look for with errors.As.
func typeOf(err error) string {
	if found := new(x509.CertificateInvalidError); errors.As(err, found) {
		return fmt.Sprintf("%T %d", *found, found.Reason)
	}
	for _, found := range []any{new(x509.UnknownAuthorityError), new(x509.HostnameError), new(tls.RecordHeaderError), new(*net.OpError)} {
		if errors.As(err, found) {
			return strings.TrimPrefix(fmt.Sprintf("%T", found), "*")
		}
	}
	return "error"
}

var changing = regexp.MustCompile(`127\.0\.0\.1:\d+(->127\.0\.0\.1:\d+)?|current time \S+`)

// shown returns an error's value or type, and its text without what changes.
func shown(err error) string {
	if err == nil {
		return "no error"
	}
	class := typeOf(err)
	for _, known := range values {
		if errors.Is(err, known.value) {
			class = known.name
			break
		}
	}
	text := changing.ReplaceAllStringFunc(err.Error(), func(found string) string {
		if strings.HasPrefix(found, "current") {
			return "current time"
		}
		return "ADDRESS"
	})
	return class + ": " + text
}
