// Package dormousehttp serves HTTP/2 beside HTTP/1.1 over the listeners of package dormouse.
//
// HTTP/1.1 alone needs no help: http.Server.Serve takes the listener, and requests have their TLS field. HTTP/2 of
// net/http insists on a *tls.Conn; here golang.org/x/net/http2 serves it.
package dormousehttp

import (
	"context"
	"log"
	"net"
	"net/http"
	"sync"

	"dormouse.example/dormouse"
	"golang.org/x/net/http2"
)

// Serve is server.Serve for a listener whose Config has the NextProtos "h2" and "http/1.1". Handshakes do not delay each
// other. Shutdown lets requests of both protocols finish; Close closes connections of HTTP/1.1 only.
func Serve(server *http.Server, listener net.Listener) error {
	protocol := new(http2.Server)
	if err := http2.ConfigureServer(server, protocol); err != nil {
		return err
	}
	split := &splitter{Listener: listener, server: server, protocol: protocol, accepted: make(chan accepted), done: make(chan struct{})}
	go split.run()
	return server.Serve(split)
}

// A splitter is a listener of connections with HTTP/1.1. It serves the others itself.
type splitter struct {
	net.Listener
	server   *http.Server
	protocol *http2.Server
	accepted chan accepted
	close    sync.Once
	done     chan struct{}
}

type accepted struct {
	conn net.Conn
	err  error
}

func (s *splitter) run() {
	for {
		conn, err := s.Listener.Accept()
		switch {
		case err != nil:
			// The server decides whether it goes on, and closes the listener if not.
			if !s.hand(nil, err) {
				return
			}
		default:
			go s.serve(conn)
		}
	}
}

func (s *splitter) serve(conn net.Conn) {
	ours, ok := conn.(*dormouse.Conn)
	if !ok {
		s.hand(conn, nil)
		return
	}
	if err := ours.HandshakeContext(context.Background()); err != nil {
		s.logf("http: TLS handshake error from %s: %v", ours.RemoteAddr(), err)
		ours.Close()
		return
	}
	if ours.ConnectionState().NegotiatedProtocol != http2.NextProtoTLS {
		s.hand(conn, nil)
		return
	}
	ctx := context.WithValue(context.Background(), http.LocalAddrContextKey, ours.LocalAddr())
	if with := s.server.ConnContext; with != nil {
		ctx = with(ctx, conn)
	}
	s.protocol.ServeConn(conn, &http2.ServeConnOpts{Context: ctx, BaseConfig: s.server})
}

func (s *splitter) logf(format string, arguments ...any) {
	if s.server.ErrorLog != nil {
		s.server.ErrorLog.Printf(format, arguments...)
	} else {
		log.Printf(format, arguments...)
	}
}

// hand gives a connection to the server, unless that no longer accepts.
func (s *splitter) hand(conn net.Conn, err error) bool {
	select {
	case s.accepted <- accepted{conn, err}:
		return true
	case <-s.done:
		if conn != nil {
			conn.Close()
		}
		return false
	}
}

func (s *splitter) Accept() (net.Conn, error) {
	select {
	case next := <-s.accepted:
		return next.conn, next.err
	case <-s.done:
		return nil, net.ErrClosed
	}
}

func (s *splitter) Close() error {
	s.close.Do(func() { close(s.done) })
	return s.Listener.Close()
}
