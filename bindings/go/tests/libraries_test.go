package tests

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	cwebsocket "github.com/coder/websocket"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"
)

// ask gets a page by net/http and crypto/tls.
func (s site) ask(t *testing.T, address string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: s.client, DisableKeepAlives: true}}
	response, err := client.Get("https://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// library: gin, chi, echo | works | handlers of a `http.Server`, with `Serve(listener)`
func TestRouters(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	withGin, withChi, withEcho := gin.New(), chi.NewRouter(), echo.New()
	withGin.GET("/", func(c *gin.Context) { c.String(200, fmt.Sprint(c.Request.TLS != nil)) })
	withChi.Get("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.TLS != nil) })
	withEcho.GET("/", func(c echo.Context) error { return c.String(200, c.Scheme()) })
	for name, handler := range map[string]http.Handler{"gin": withGin, "chi": withChi, "echo": withEcho} {
		s := newSite(t, "http/1.1")
		listener := s.listen(t)
		server := &http.Server{Handler: handler}
		serve(t, server, server.Serve, listener)
		if body := s.ask(t, listener.Addr().String()); body != "true" && body != "https" {
			t.Error(name, body)
		}
	}
}

// library: fasthttp | works | `Serve(listener)`, `Client.Dial`
func TestFastHTTP(t *testing.T) {
	s := newSite(t, "http/1.1")
	listener := s.listen(t)
	go fasthttp.Serve(listener, func(ctx *fasthttp.RequestCtx) { fmt.Fprintf(ctx, "hello %v", ctx.IsTLS()) })
	if answer := s.ask(t, listener.Addr().String()); answer != "hello true" {
		t.Error(answer)
	}
}

// library: coder/websocket | works | any `http.Server`; as a client, the `DialTLSContext` of its `HTTPClient`
func TestCoderWebSocket(t *testing.T) {
	s := newSite(t, "http/1.1")
	listener := s.listen(t)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := cwebsocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		kind, message, err := conn.Read(r.Context())
		if err == nil {
			conn.Write(r.Context(), kind, message)
		}
		conn.Close(cwebsocket.StatusNormalClosure, "")
	})}
	serve(t, server, server.Serve, listener)
	client := &http.Client{Transport: &http.Transport{DialTLSContext: s.dial(t)}}
	conn, _, err := cwebsocket.Dial(context.Background(), "wss://"+listener.Addr().String(), &cwebsocket.DialOptions{HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if err := conn.Write(context.Background(), cwebsocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, message, err := conn.Read(context.Background()); err != nil || string(message) != "hello" {
		t.Error(err, string(message))
	}
}

// library: go-redis | works | `Options.Dialer`
func TestGoRedis(t *testing.T) {
	s := newSite(t)
	listener := s.serve(t, func(conn net.Conn) {
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			switch lines.Text() {
			case "hello":
				io.WriteString(conn, "-ERR unknown command\r\n")
			case "ping":
				io.WriteString(conn, "+PONG\r\n")
			}
		}
	})
	dial := s.dial(t)
	client := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), Protocol: 2, DisableIdentity: true, Dialer: dial})
	defer client.Close()
	if answer, err := client.Ping(context.Background()).Result(); err != nil || answer != "PONG" {
		t.Error(err, answer)
	}
}
