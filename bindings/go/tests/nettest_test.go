package tests

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"testing"

	"dormouse.example/dormouse"
	"golang.org/x/net/nettest"
)

// possible are the tests of golang.org/x/net that a TLS connection can pass. The others, PastTimeout, FutureTimeout and
// ConcurrentMethods, write again after a timeout, when a record may have been cut.
const possible = "^(BasicIO|PingPong|RacyRead|RacyWrite|ReadTimeout|WriteTimeout|PresentTimeout|CloseTimeout)$"

// library: golang.org/x/net/nettest | works | its tests of a `net.Conn`, but those that write after a timeout
func TestNetConn(t *testing.T) {
	if os.Getenv("NETTEST_CHILD") != "" {
		nettest.TestConn(t, pipes(t, newSite(t)))
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestNetConn$/"+possible)
	child.Env = append(os.Environ(), "NETTEST_CHILD=1")
	if output, err := child.CombinedOutput(); err != nil {
		t.Error(err, string(output))
	}
}

// pipes returns connections after their handshake, whose time the tests do not expect.
func pipes(t *testing.T, s site) nettest.MakePipe {
	serverConfig, clientConfig := s.serverConfig(t), s.clientConfig(t)
	return func() (net.Conn, net.Conn, func(), error) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, nil, err
		}
		defer listener.Close()
		clientEnd, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			return nil, nil, nil, err
		}
		serverEnd, err := listener.Accept()
		if err != nil {
			return nil, nil, nil, err
		}
		server, client := dormouse.Server(serverEnd, serverConfig), dormouse.Client(clientEnd, clientConfig)
		ended := make(chan error)
		go func() { ended <- client.Handshake() }()
		err = errors.Join(server.Handshake(), <-ended)
		stop := func() {
			server.Close()
			client.Close()
		}
		return server, client, stop, err
	}
}
