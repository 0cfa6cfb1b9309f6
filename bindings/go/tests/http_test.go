package tests

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"dormouse.example/dormouse"
	"dormouse.example/dormouse/dormousehttp"
	"golang.org/x/net/http2"
)

// about says what a handler knows of its request.
var about = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	length, _ := io.Copy(io.Discard, r.Body)
	fmt.Fprintf(w, "%s %x %s %d", r.Proto, r.TLS.Version, r.TLS.ServerName, length)
})

func serve(t *testing.T, server *http.Server, serve func(net.Listener) error, listener net.Listener) {
	server.ErrorLog = log.New(io.Discard, "", 0)
	ended := make(chan error)
	go func() { ended <- serve(listener) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
}

// fetch sends requests at once, and checks the answers.
func fetch(t *testing.T, transport http.RoundTripper, address, protocol string) {
	t.Helper()
	client := &http.Client{Transport: transport, Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	for _, length := range []int{0, 10, 300_000} {
		const count = 8
		results := make(chan error, count)
		for range count {
			go func() {
				response, err := client.Post("https://"+address, "text/plain", strings.NewReader(strings.Repeat("x", length)))
				if err != nil {
					results <- err
					return
				}
				defer response.Body.Close()
				body, err := io.ReadAll(response.Body)
				if want := fmt.Sprintf("%s 304 localhost %d", protocol, length); err == nil && string(body) != want {
					err = fmt.Errorf("%q, not %q", body, want)
				}
				results <- err
			}()
		}
		for range count {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	}
}

// Transports of net/http and golang.org/x/net, over crypto/tls and over this package.
func transports(t *testing.T, s site) map[string]map[string]http.RoundTripper {
	dial := s.dial(t)
	return map[string]map[string]http.RoundTripper{
		"HTTP/1.1": {
			"crypto/tls": &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.client.RootCAs, ServerName: "localhost"}},
			"dormouse":   &http.Transport{DialTLSContext: site{client: &tls.Config{RootCAs: s.client.RootCAs, ServerName: "localhost"}}.dial(t)},
		},
		"HTTP/2.0": {
			"crypto/tls": &http.Transport{TLSClientConfig: s.client.Clone(), ForceAttemptHTTP2: true},
			"dormouse": &http2.Transport{DialTLSContext: func(ctx context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
				return dial(ctx, network, address)
			}},
		},
	}
}

// library: net/http, golang.org/x/net/http2 | works | `dormousehttp.Serve`; as a client, `DialTLSContext`
func TestBothVersionsOfHTTP(t *testing.T) {
	s := newSite(t, "h2", "http/1.1")
	listener := s.listen(t)
	server := &http.Server{Handler: about}
	serve(t, server, func(l net.Listener) error { return dormousehttp.Serve(server, l) }, listener)
	for protocol, stacks := range transports(t, s) {
		for name, transport := range stacks {
			t.Run(protocol+" of "+name, func(t *testing.T) { fetch(t, transport, listener.Addr().String(), protocol) })
		}
	}
	if _, err := exec.LookPath("curl"); err != nil {
		return
	}
	for _, version := range []string{"--http1.1", "--http2"} {
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		curl := exec.Command("curl", "-sS", version, "--cacert", s.certificate, "--resolve", "localhost:"+port+":127.0.0.1", "https://localhost:"+port)
		if output, err := curl.CombinedOutput(); err != nil || !strings.HasSuffix(string(output), "304 localhost 0") {
			t.Error(err, string(output))
		}
	}
}

// Without help, a server of net/http has HTTP/1.1, and its requests have their TLS field.
func TestPlainServe(t *testing.T) {
	s := newSite(t, "http/1.1")
	listener := s.listen(t)
	server := &http.Server{Handler: about}
	serve(t, server, server.Serve, listener)
	for name, transport := range transports(t, s)["HTTP/1.1"] {
		t.Run(name, func(t *testing.T) { fetch(t, transport, listener.Addr().String(), "HTTP/1.1") })
	}
}

// A client of this package, with a server that net/http serves over crypto/tls.
func TestClientsOfOthers(t *testing.T) {
	s := newSite(t, "h2", "http/1.1")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: about, TLSConfig: s.server}
	serve(t, server, func(l net.Listener) error { return server.ServeTLS(l, "", "") }, listener)
	for protocol, stacks := range transports(t, s) {
		t.Run(protocol, func(t *testing.T) { fetch(t, stacks["dormouse"], listener.Addr().String(), protocol) })
	}
}

// A client that never completes its handshake delays no other, and is closed.
func TestSilentClients(t *testing.T) {
	s := newSite(t, "h2", "http/1.1")
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := dormouse.NewListener(plain, s.serverConfig(t).WithHandshakeTimeout(3*time.Second))
	server := &http.Server{Handler: about}
	serve(t, server, func(l net.Listener) error { return dormousehttp.Serve(server, l) }, listener)
	silent, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	fetch(t, transports(t, s)["HTTP/2.0"]["crypto/tls"], listener.Addr().String(), "HTTP/2.0")
	if _, err := silent.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
}

// Each side that expects TLS says so, as with crypto/tls.
func TestTheOtherScheme(t *testing.T) {
	s := newSite(t, "h2", "http/1.1")
	listener := s.listen(t)
	server := &http.Server{Handler: about}
	serve(t, server, func(l net.Listener) error { return dormousehttp.Serve(server, l) }, listener)
	response, err := http.Get("http://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "https") {
		t.Error(response.Status, string(body))
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	other := &http.Server{Handler: about}
	serve(t, other, other.Serve, plain)
	client := http.Client{Transport: &http.Transport{DialTLSContext: s.dial(t)}}
	if _, err := client.Get("https://" + plain.Addr().String()); !errors.Is(err, http.ErrSchemeMismatch) {
		t.Error(err)
	}
}
