package tests

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"dormouse.example/dormouse"
	paho "github.com/eclipse/paho.mqtt.golang"
	"github.com/gorilla/websocket"
	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
)

// library: gorilla/websocket | works | any `http.Server`; `Dialer.NetDialTLSContext`
func TestWebSocket(t *testing.T) {
	s := newSite(t, "http/1.1")
	listener := s.listen(t)
	var upgrader websocket.Upgrader
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			kind, message, err := conn.ReadMessage()
			if err != nil || conn.WriteMessage(kind, message) != nil {
				return
			}
		}
	})}
	serve(t, server, server.Serve, listener)
	for name, dialer := range map[string]*websocket.Dialer{
		"crypto/tls": {TLSClientConfig: s.client},
		"dormouse":   {NetDialTLSContext: s.dial(t)},
	} {
		conn, _, err := dialer.Dial("wss://"+listener.Addr().String(), nil)
		if err != nil {
			t.Fatal(name, err)
		}
		defer conn.Close()
		for _, length := range []int{1, 100, 200_000} {
			if err := conn.WriteMessage(websocket.BinaryMessage, make([]byte, length)); err != nil {
				t.Fatal(name, err)
			}
			if _, message, err := conn.ReadMessage(); err != nil || len(message) != length {
				t.Fatal(name, err, len(message))
			}
		}
		closing := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
		conn.WriteControl(websocket.CloseMessage, closing, time.Now().Add(time.Second))
		if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			t.Error(name, err)
		}
	}
}

// transport is grpc's TransportCredentials: its handshakes are those of this package.
type transport struct {
	server, client *dormouse.Config
}

func (c transport) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return established(context.Background(), dormouse.Server(raw, c.server))
}

func (c transport) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	host, _, err := net.SplitHostPort(authority)
	if err != nil {
		host = authority
	}
	return established(ctx, dormouse.Client(raw, c.client.WithServerName(host)))
}

func established(ctx context.Context, conn *dormouse.Conn) (net.Conn, credentials.AuthInfo, error) {
	if err := conn.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, nil, err
	}
	state := conn.ConnectionState()
	if state.NegotiatedProtocol != "h2" {
		conn.Close()
		return nil, nil, fmt.Errorf("the peer does not speak HTTP/2, but %q", state.NegotiatedProtocol)
	}
	return conn, credentials.TLSInfo{
		State:          state,
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

func (c transport) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}
func (c transport) Clone() credentials.TransportCredentials { return c }
func (c transport) OverrideServerName(name string) error {
	return fmt.Errorf("WithServerName(%q) of the Config does this", name)
}

// library: grpc-go | works | `TransportCredentials` of 40 lines
func TestGRPC(t *testing.T) {
	s := newSite(t, "h2")
	ours := transport{s.serverConfig(t), s.clientConfig(t)}
	sides := map[string]struct {
		server, client credentials.TransportCredentials
	}{
		"crypto/tls calls": {ours, credentials.NewTLS(s.client)},
		"dormouse calls":   {credentials.NewTLS(s.server), ours},
		"both":             {ours, ours},
	}
	for name, side := range sides {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := grpc.NewServer(grpc.Creds(side.server))
			grpc_health_v1.RegisterHealthServer(server, health.NewServer())
			go server.Serve(listener)
			defer server.Stop()
			conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(side.client), grpc.WithAuthority("localhost"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			client := grpc_health_v1.NewHealthClient(conn)
			for range 20 {
				var other peer.Peer
				response, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Peer(&other))
				if err != nil || response.Status != grpc_health_v1.HealthCheckResponse_SERVING {
					t.Fatal(err, response)
				}
				if info, ok := other.AuthInfo.(credentials.TLSInfo); !ok || len(info.State.PeerCertificates) != 1 {
					t.Errorf("%+v", other.AuthInfo)
				}
			}
			watch, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
			if err == nil {
				_, err = watch.Recv()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// library: mochi-mqtt, Paho | works | `listeners.NewNet`; `CustomOpenConnectionFn` of the client
func TestMQTT(t *testing.T) {
	s := newSite(t)
	listener := s.listen(t)
	broker := mqtt.New(&mqtt.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	defer broker.Close()
	if err := broker.AddHook(new(auth.AllowHook), nil); err != nil {
		t.Fatal(err)
	}
	if err := broker.AddListener(listeners.NewNet("tls", listener)); err != nil {
		t.Fatal(err)
	}
	if err := broker.Serve(); err != nil {
		t.Fatal(err)
	}
	dial := s.dial(t)
	for name, with := range map[string]func(*paho.ClientOptions){
		"crypto/tls": func(options *paho.ClientOptions) { options.SetTLSConfig(s.client) },
		"dormouse": func(options *paho.ClientOptions) {
			options.SetCustomOpenConnectionFn(func(*url.URL, paho.ClientOptions) (net.Conn, error) {
				return dial(context.Background(), "tcp", listener.Addr().String())
			})
		},
	} {
		options := paho.NewClientOptions().AddBroker("ssl://" + listener.Addr().String()).SetClientID(name)
		with(options)
		client := paho.NewClient(options)
		await(t, client.Connect())
		messages := make(chan string, 1)
		await(t, client.Subscribe(name, 1, func(_ paho.Client, message paho.Message) { messages <- string(message.Payload()) }))
		for _, text := range []string{"a word", "another"} {
			await(t, client.Publish(name, 1, false, text))
			select {
			case got := <-messages:
				if got != text {
					t.Errorf("%s: %q", name, got)
				}
			case <-time.After(20 * time.Second):
				t.Fatal(name, "no message")
			}
		}
		client.Disconnect(100)
	}
}

func await(t *testing.T, token paho.Token) {
	t.Helper()
	if !token.WaitTimeout(20*time.Second) || token.Error() != nil {
		t.Fatal(token.Error())
	}
}
