// Go's crypto/tls as a client. The command line and the answer are described in README.md.
package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

const (
	pauseAt = 1 << 20
	block   = 64 * 1024
)

var messageSizes = []int{1, 5, 17, 100, 1400, 3000, 16384, 16385}

var groups = map[string]tls.CurveID{
	"X25519MLKEM768": tls.X25519MLKEM768,
	"X25519":         tls.X25519,
	"P-256":          tls.CurveP256,
}

// watched notes whether TCP itself ended: crypto/tls reports a bare FIN between records as a plain EOF too.
type watched struct {
	*net.TCPConn
	tcpEnded bool
}

func (w *watched) Read(into []byte) (int, error) {
	n, err := w.TCPConn.Read(into)
	if err == io.EOF {
		w.tcpEnded = true
	}
	return n, err
}

type client struct {
	address, scenario          string
	bytes, back                int
	config                     *tls.Config
	tcp                        *watched
	tls                        *tls.Conn
	sent, received             int
	sentDigest, receivedDigest hash.Hash
	ended                      string
}

func check(err error, doing string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", doing, err)
		os.Exit(1)
	}
}

func (c *client) connect() {
	conn, err := net.DialTimeout("tcp", c.address, 20*time.Second)
	check(err, "connect")
	c.tcp = &watched{TCPConn: conn.(*net.TCPConn)}
	// Small buffers, so that unread data causes backpressure at the other end.
	check(c.tcp.SetReadBuffer(128*1024), "read buffer")
	check(c.tcp.SetWriteBuffer(128*1024), "write buffer")
	check(c.tcp.SetDeadline(time.Now().Add(110*time.Second)), "deadline")
	c.tls = tls.Client(c.tcp, c.config)
	check(c.tls.Handshake(), "handshake")
	c.sent, c.received, c.ended = 0, 0, "none"
	c.sentDigest, c.receivedDigest = sha256.New(), sha256.New()
}

func (c *client) command(line string) {
	_, err := io.WriteString(c.tls, line+"\n")
	check(err, "send the first line")
}

func (c *client) send(data []byte) {
	n, err := c.tls.Write(data)
	c.sent += n
	c.sentDigest.Write(data[:n])
	check(err, "send")
}

func (c *client) sendRandom(total int, progress bool) {
	data := make([]byte, block)
	for c.sent < total {
		part := data[:min(block, total-c.sent)]
		rand.Read(part)
		c.send(part)
		if progress {
			fmt.Println("sent", c.sent)
		}
	}
}

// receive reports how the other side ended in c.ended and then returns 0.
func (c *client) receive(into []byte) int {
	n, err := c.tls.Read(into)
	c.received += n
	c.receivedDigest.Write(into[:n])
	switch {
	case err == nil:
	case err == io.EOF && !c.tcp.tcpEnded:
		c.ended = "close_notify"
	case err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF):
		c.ended = "truncated"
	case errors.Is(err, syscall.ECONNRESET):
		c.ended = "reset"
	default:
		c.ended = "error: " + err.Error()
	}
	return n
}

func (c *client) receiveExactly(count int) []byte {
	data := make([]byte, count)
	for have := 0; have < count; {
		n := c.receive(data[have:])
		have += n
		if n == 0 && c.ended != "none" {
			check(errors.New(c.ended), fmt.Sprintf("receive, after %d of %d bytes", have, count))
		}
	}
	return data
}

func (c *client) receiveToTheEnd() {
	into := make([]byte, block)
	for c.ended == "none" {
		c.receive(into)
	}
}

func (c *client) endSending() { check(c.tls.CloseWrite(), "close_notify") }

func (c *client) echo() {
	c.command("echo")
	for turn := 0; c.sent < c.bytes; turn++ {
		message := make([]byte, messageSizes[turn%len(messageSizes)])
		rand.Read(message)
		c.send(message)
		if !bytes.Equal(c.receiveExactly(len(message)), message) {
			check(errors.New("differs from what was sent"), fmt.Sprintf("echo %d", turn))
		}
	}
	c.endSending()
	c.receiveToTheEnd()
}

func (c *client) run() {
	switch c.scenario {
	case "echo":
		c.echo()
	case "upload":
		c.command(fmt.Sprintf("upload %d pause", c.bytes))
		c.sendRandom(c.bytes, true)
		c.receiveExactly(65)
		c.endSending()
		c.receiveToTheEnd()
	case "download":
		c.command(fmt.Sprintf("download %d", c.bytes))
		for into := make([]byte, block); c.received < pauseAt && c.ended == "none"; {
			c.receive(into)
		}
		fmt.Println("paused", c.received)
		bufio.NewReader(os.Stdin).ReadString('\n')
		c.receiveToTheEnd()
		c.endSending()
	case "halfclose":
		c.command(fmt.Sprintf("halfclose %d", c.bytes))
		c.endSending()
		c.receiveToTheEnd()
	case "backendfirst":
		c.command(fmt.Sprintf("backendfirst %d", c.bytes))
		c.receiveToTheEnd()
		c.sendRandom(c.back, false)
		c.endSending()
	case "truncate":
		c.command("sink")
		c.sendRandom(c.bytes, false)
		check(c.tcp.CloseWrite(), "FIN")
		_, err := io.Copy(io.Discard, c.tcp.TCPConn)
		c.ended = "end"
		if err != nil {
			c.ended = "reset"
		}
	case "reset":
		c.command(fmt.Sprintf("reset %d", c.bytes))
		c.receiveExactly(c.bytes)
		c.send([]byte("got\n"))
		c.receiveToTheEnd()
	case "resume":
		c.echo()
		c.tls.Close()
		c.connect()
		c.echo()
	default:
		check(errors.New("unknown"), "scenario "+c.scenario)
	}
}

func (c *client) answer() map[string]any {
	state := c.tls.ConnectionState()
	group := any(nil)
	for name, id := range groups {
		if id == state.CurveID {
			group = name
		}
	}
	alpn := any(nil)
	if state.NegotiatedProtocol != "" {
		alpn = state.NegotiatedProtocol
	}
	return map[string]any{
		"version":         strings.Replace(tls.VersionName(state.Version), "TLS ", "TLSv", 1),
		"cipher":          tls.CipherSuiteName(state.CipherSuite),
		"group":           group,
		"alpn":            alpn,
		"resumed":         state.DidResume,
		"sent":            c.sent,
		"sent_sha256":     hex.EncodeToString(c.sentDigest.Sum(nil)),
		"received":        c.received,
		"received_sha256": hex.EncodeToString(c.receivedDigest.Sum(nil)),
		"ended":           c.ended,
	}
}

func main() {
	c := &client{}
	flag.StringVar(&c.address, "connect", "", "host:port")
	name := flag.String("name", "localhost", "server name")
	ca := flag.String("ca", "", "file with trusted certificates")
	version := flag.String("version", "", "1.2 or 1.3")
	flag.StringVar(&c.scenario, "scenario", "", "see README.md")
	flag.IntVar(&c.bytes, "bytes", 0, "how many")
	flag.IntVar(&c.back, "back", 0, "how many to send after the backend's end")
	alpn := flag.String("alpn", "", "a,b")
	group := flag.String("group", "", "X25519MLKEM768, X25519 or P-256")
	flag.Parse()

	pem, err := os.ReadFile(*ca)
	check(err, "read "+*ca)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	number, known := map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}[*version]
	if !known {
		check(errors.New("use 1.2 or 1.3"), "--version "+*version)
	}
	c.config = &tls.Config{
		RootCAs: roots, ServerName: *name, MinVersion: number, MaxVersion: number,
		ClientSessionCache: tls.NewLRUClientSessionCache(8),
	}
	if *alpn != "" {
		c.config.NextProtos = strings.Split(*alpn, ",")
	}
	if *group != "" {
		id, known := groups[*group]
		if !known {
			check(errors.New("unknown"), "--group "+*group)
		}
		c.config.CurvePreferences = []tls.CurveID{id}
	}
	c.connect()
	c.run()
	answer, err := json.Marshal(c.answer())
	check(err, "answer")
	fmt.Println(string(answer))
}
