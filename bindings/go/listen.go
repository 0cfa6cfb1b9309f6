package dormouse

import (
	"context"
	"net"
)

// Listen listens at an address. The handshakes of accepted connections begin with their first Read or Write.
func Listen(network, address string, config *Config) (net.Listener, error) {
	if err := config.checkSide(false); err != nil {
		return nil, err
	}
	inner, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	return NewListener(inner, config), nil
}

// NewListener returns a listener whose connections are the server's sides over those of inner.
func NewListener(inner net.Listener, config *Config) net.Listener {
	return &listener{inner, config}
}

type listener struct {
	net.Listener
	config *Config
}

func (l *listener) Accept() (net.Conn, error) {
	transport, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Server(transport, l.config), nil
}

// Dial connects to an address and completes the handshake. If the Config has no server name, it is the address's host.
func Dial(network, address string, config *Config) (*Conn, error) {
	return DialContext(context.Background(), network, address, config)
}

// DialContext is Dial with a context, which is not used afterwards.
func DialContext(ctx context.Context, network, address string, config *Config) (*Conn, error) {
	if config != nil && config.serverName == "" {
		if host, _, err := net.SplitHostPort(address); err == nil {
			config = config.WithServerName(host)
		}
	}
	if err := config.checkSide(true); err != nil {
		return nil, err
	}
	transport, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := Client(transport, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		transport.Close()
		return nil, err
	}
	return conn, nil
}
