package dormouse

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"
)

// A field of tls.Config, and what a value of it does: nothing, or an error.
type field struct {
	value any
	// fails is for servers and clients, or only for one of them.
	fails, failsServer, failsClient bool
}

var fields = map[string]field{
	"Rand":                                {value: bytes.NewReader(nil), fails: true},
	"Time":                                {value: time.Now},
	"Certificates":                        {value: []tls.Certificate{ours().ecdsa("a.test")}},
	"NameToCertificate":                   {value: map[string]*tls.Certificate{"a.test": {}}, fails: true},
	"GetCertificate":                      {value: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }},
	"GetClientCertificate":                {value: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, nil }, fails: true},
	"GetConfigForClient":                  {value: func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }},
	"VerifyPeerCertificate":               {value: func([][]byte, [][]*x509.Certificate) error { return nil }},
	"VerifyConnection":                    {value: func(tls.ConnectionState) error { return nil }},
	"RootCAs":                             {value: x509.NewCertPool()},
	"NextProtos":                          {value: []string{"h2"}},
	"ServerName":                          {value: "a.test"},
	"ClientAuth":                          {value: tls.RequestClientCert},
	"ClientCAs":                           {value: x509.NewCertPool()},
	"InsecureSkipVerify":                  {value: true},
	"CipherSuites":                        {value: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}, fails: true},
	"PreferServerCipherSuites":            {value: true},
	"SessionTicketsDisabled":              {value: true},
	"SessionTicketKey":                    {value: [32]byte{1}, fails: true},
	"ClientSessionCache":                  {value: tls.NewLRUClientSessionCache(1), failsClient: true},
	"UnwrapSession":                       {value: func([]byte, tls.ConnectionState) (*tls.SessionState, error) { return nil, nil }, fails: true},
	"WrapSession":                         {value: func(tls.ConnectionState, *tls.SessionState) ([]byte, error) { return nil, nil }, fails: true},
	"MinVersion":                          {value: uint16(tls.VersionTLS10), fails: true},
	"MaxVersion":                          {value: uint16(tls.VersionTLS11), fails: true},
	"CurvePreferences":                    {value: []tls.CurveID{tls.X25519}, fails: true},
	"DynamicRecordSizingDisabled":         {value: true},
	"Renegotiation":                       {value: tls.RenegotiateOnceAsClient, fails: true},
	"KeyLogWriter":                        {value: io.Discard},
	"EncryptedClientHelloConfigList":      {value: []byte{1}, fails: true},
	"EncryptedClientHelloRejectionVerify": {value: func(tls.ConnectionState) error { return nil }, fails: true},
	"GetEncryptedClientHelloKeys":         {value: func(*tls.ClientHelloInfo) ([]tls.EncryptedClientHelloKey, error) { return nil, nil }, fails: true},
	"EncryptedClientHelloKeys":            {value: []tls.EncryptedClientHelloKey{{}}, fails: true},
}

// A field that a later Go adds fails here, until somebody has said what it does.
func TestEveryFieldHasAnEffectOrIsAnError(t *testing.T) {
	all := reflect.TypeFor[tls.Config]()
	for index := range all.NumField() {
		name := all.Field(index).Name
		if !all.Field(index).IsExported() {
			continue
		}
		field, isKnown := fields[name]
		if !isKnown {
			t.Errorf("%s is not in this table", name)
			continue
		}
		for isClient, make := range map[bool]func(*tls.Config) (*Config, error){false: ServerConfig, true: ClientConfig} {
			settings := &tls.Config{}
			if !isClient {
				settings.Certificates = serverSettings().Certificates
			}
			reflect.ValueOf(settings).Elem().Field(index).Set(reflect.ValueOf(field.value))
			_, err := make(settings)
			fails := field.fails || field.failsClient && isClient || field.failsServer && !isClient
			if fails != (err != nil) || fails && !strings.Contains(err.Error(), "tls.Config."+name) {
				t.Errorf("%s, client: %v: %v", name, isClient, err)
			}
		}
	}
}

// What no field shows.
func TestOtherSettingsAreErrors(t *testing.T) {
	withKeys := serverSettings()
	withKeys.SetSessionTicketKeys([][32]byte{{1}})
	unusable := func(change func(*tls.Certificate)) *tls.Config {
		settings := serverSettings()
		change(&settings.Certificates[0])
		return settings
	}
	for part, settings := range map[string]*tls.Config{
		"SetSessionTicketKeys":         withKeys,
		"no tls.Config":                nil,
		"certificate":                  {},
		"crypto.Signer":                unusable(func(c *tls.Certificate) { c.PrivateKey = nil }),
		"no certificate":               unusable(func(c *tls.Certificate) { c.Certificate = nil }),
		"SupportedSignatureAlgorithms": unusable(func(c *tls.Certificate) { c.SupportedSignatureAlgorithms = []tls.SignatureScheme{1} }),
		"SignedCertificateTimestamps":  unusable(func(c *tls.Certificate) { c.SignedCertificateTimestamps = [][]byte{{1}} }),
		"RSA keys of 2048":             {Certificates: []tls.Certificate{ours().sign(shortRSA(), "a.test")}},
		"the certificate's has 1024":   {Certificates: []tls.Certificate{ours().sign(struct{ crypto.Signer }{shortRSA()}, "a.test")}},
		"OCSPStaple":                   unusable(func(c *tls.Certificate) { c.OCSPStaple = []byte{1} }),
	} {
		if _, err := ServerConfig(settings); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", part, err)
		}
	}
	two := &tls.Config{Certificates: []tls.Certificate{ours().ecdsa("a"), ours().ecdsa("b")}}
	if _, err := ClientConfig(two); err == nil || !strings.Contains(err.Error(), "tls.Config.Certificates") {
		t.Error(err)
	}
}

func shortRSA() crypto.Signer { return must(rsa.GenerateKey(rand.Reader, 1024)) }

// A tls.Config that crypto/tls has used has keys that it made itself.
func TestAUsedConfigIsUsable(t *testing.T) {
	server, client := serverSettings(), clientSettings()
	pairing{goStack, goStack}.connect(t, server, client)
	must(ServerConfig(server))
	must(ClientConfig(client))
}

func TestTheNameChoosesTheCertificate(t *testing.T) {
	other := ours().ecdsa("b.test")
	static := serverSettings()
	static.Certificates = append(static.Certificates, other)
	dynamic := serverSettings()
	var got *tls.ClientHelloInfo
	dynamic.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		got = hello
		if hello.ServerName == "b.test" {
			return &other, nil
		}
		return nil, nil
	}
	perClient := serverSettings()
	perClient.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if hello.ServerName == "b.test" {
			return &tls.Config{Certificates: []tls.Certificate{other}, NextProtos: []string{"other"}}, nil
		}
		return nil, nil
	}
	only := &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return map[string]*tls.Certificate{"a.test": &static.Certificates[0], "b.test": &other}[hello.ServerName], nil
	}}
	for name, server := range map[string]*tls.Config{"Certificates": static, "GetCertificate": dynamic, "GetConfigForClient": perClient, "only GetCertificate": only} {
		for _, host := range []string{"a.test", "b.test"} {
			eachPairing(t, func(t *testing.T, pairing pairing) {
				client := clientSettings()
				client.ServerName, client.NextProtos = host, []string{"other"}
				s, c := pairing.connect(t, server, client)
				if of := c.ConnectionState().PeerCertificates[0]; of.DNSNames[0] != host {
					t.Errorf("%s: %s gets %s", name, host, of.DNSNames)
				}
				converse(t, s, c, 100)
			})
		}
	}
	if got == nil || got.Conn == nil || len(got.SignatureSchemes) == 0 || len(got.SupportedVersions) == 0 || got.SupportedProtos[0] != "other" {
		t.Errorf("%+v", got)
	}
}

func TestTheProgramMayRefuse(t *testing.T) {
	refusal := errors.New("as a test")
	for name, change := range map[string]func(*tls.Config){
		"GetCertificate": func(s *tls.Config) {
			s.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, refusal }
		},
		"GetConfigForClient": func(s *tls.Config) {
			s.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, refusal }
		},
		"VerifyPeerCertificate": func(s *tls.Config) {
			s.ClientAuth = tls.RequireAnyClientCert
			s.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { return refusal }
		},
		"VerifyConnection": func(s *tls.Config) {
			s.VerifyConnection = func(tls.ConnectionState) error { return refusal }
		},
		"a panic": func(s *tls.Config) {
			s.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { panic("as a test") }
		},
		"another panic": func(s *tls.Config) {
			s.ClientAuth = tls.RequireAnyClientCert
			s.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { panic("as a test") }
		},
	} {
		server, client := serverSettings(), clientSettings()
		client.Certificates = []tls.Certificate{ours().ecdsa("alice")}
		change(server)
		for _, stack := range []stack{dormouseStack, goStack} {
			serverEnd, clientEnd := tcp(t)
			s, c := dormouseStack.server(serverEnd, server), stack.client(clientEnd, client)
			errServer, errClient := handshakes(s, c)
			if errClient == nil {
				// In TLS 1.3 a client is ready first.
				_, errClient = c.Read(make([]byte, 1))
			}
			if errServer == nil || !strings.Contains(errServer.Error(), "as a test") || errClient == nil || errClient == io.EOF {
				t.Errorf("%s: %v; %v", name, errServer, errClient)
			}
			if _, err := s.Write([]byte("more")); err == nil {
				t.Errorf("%s: a Write", name)
			}
		}
	}
	client := clientSettings()
	client.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.VerifiedChains) != 1 {
			t.Errorf("%+v", state)
		}
		return refusal
	}
	serverEnd, clientEnd := tcp(t)
	s, c := goStack.server(serverEnd, serverSettings()), dormouseStack.client(clientEnd, client)
	if _, errClient := handshakes(s, c); errClient != refusal {
		t.Error(errClient)
	}
}

func TestServersAreVerified(t *testing.T) {
	expired := clientSettings()
	expired.Time = func() time.Time { return time.Now().Add(2 * time.Hour) }
	stranger, wrongName := clientSettings(), clientSettings()
	stranger.RootCAs, wrongName.ServerName = newAuthority("a stranger").pool(), "c.test"
	for name, client := range map[string]*tls.Config{"expired": expired, "unknown": stranger, "name": wrongName, "system": {ServerName: "a.test"}} {
		for _, stack := range []stack{dormouseStack, goStack} {
			serverEnd, clientEnd := tcp(t)
			errServer, err := handshakes(stack.server(serverEnd, serverSettings()), dormouseStack.client(clientEnd, client))
			var typed *tls.CertificateVerificationError
			if !errors.As(err, &typed) || len(typed.UnverifiedCertificates) != 1 {
				t.Errorf("%s: %v", name, err)
			}
			if errServer == nil {
				t.Errorf("%s: the server has no error", name)
			}
		}
		insecure := client.Clone()
		insecure.InsecureSkipVerify = true
		s, c := pairings[2].connect(t, serverSettings(), insecure)
		converse(t, s, c, 100)
	}
	nameless := &tls.Config{InsecureSkipVerify: true}
	s, _ := pairings[0].connect(t, serverSettings(), nameless)
	if name := s.ConnectionState().ServerName; name != "" {
		t.Error(name)
	}
	s, _ = pairing{goStack, dormouseStack}.connect(t, serverSettings(), nameless)
	if name := s.ConnectionState().ServerName; name != "" {
		t.Error(name)
	}
}

func TestClientCertificates(t *testing.T) {
	alice, mallory := ours().ecdsa("alice"), newAuthority("a stranger").ecdsa("mallory")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, row := range []struct {
			auth                     tls.ClientAuthType
			without, known, stranger bool
		}{
			{tls.NoClientCert, true, true, true},
			{tls.RequestClientCert, true, true, true},
			{tls.RequireAnyClientCert, false, true, true},
			{tls.VerifyClientCertIfGiven, true, true, false},
			{tls.RequireAndVerifyClientCert, false, true, false},
		} {
			for shown, accepted := range map[*tls.Certificate]bool{nil: row.without, &alice: row.known, &mallory: row.stranger} {
				server, client := serverSettings(), clientSettings()
				server.ClientAuth, server.ClientCAs, server.MaxVersion = row.auth, ours().pool(), version
				if shown != nil {
					client.Certificates = []tls.Certificate{*shown}
					// crypto/tls sends only certificates of the named authorities, otherwise.
					client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return shown, nil }
				}
				for _, stack := range []stack{dormouseStack, goStack} {
					if stack.name == dormouseStack.name {
						client.GetClientCertificate = nil
					} else if shown != nil {
						client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return shown, nil }
					}
					serverEnd, clientEnd := tcp(t)
					s, c := dormouseStack.server(serverEnd, server), stack.client(clientEnd, client)
					if err, _ := handshakes(s, c); (err == nil) != accepted {
						t.Errorf("%v %v: %v", row.auth, accepted, err)
					} else if accepted && (len(s.ConnectionState().PeerCertificates) == 1) != (shown != nil && row.auth != tls.NoClientCert) {
						t.Errorf("%v: %+v", row.auth, s.ConnectionState())
					}
				}
			}
		}
	}
}

func TestSessionsResume(t *testing.T) {
	eachPairing(t, func(t *testing.T, pairing pairing) {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			for _, auth := range []tls.ClientAuthType{tls.NoClientCert, tls.RequireAndVerifyClientCert} {
				server, client := serverSettings(), clientSettings()
				server.MaxVersion, server.ClientAuth, server.ClientCAs = version, auth, ours().pool()
				client.Certificates = []tls.Certificate{ours().ecdsa("alice")}
				client.ClientSessionCache = tls.NewLRUClientSessionCache(10)
				if pairing.client.name == dormouseStack.name {
					client.ClientSessionCache = Sessions
				}
				sessions := sharing(pairing, server, client)
				for round := range 3 {
					s, c := sessions(t)
					// Tickets arrive with the first bytes.
					converse(t, c, s, 100)
					for _, side := range []tlsConn{s, c} {
						state := side.ConnectionState()
						if state.DidResume != (round > 0) {
							t.Fatalf("%s, round %d: %+v", tls.VersionName(version), round, state)
						}
					}
					if of := c.ConnectionState(); len(of.PeerCertificates) != 1 || len(of.VerifiedChains) != 1 {
						t.Errorf("round %d: %+v", round, of)
					}
					if of := s.ConnectionState(); auth != tls.NoClientCert && len(of.VerifiedChains) != 1 {
						t.Errorf("round %d: %+v", round, of)
					}
				}
			}
		}
	})
	server, client := serverSettings(), clientSettings()
	sessions := sharing(pairings[2], server, client)
	for range 2 {
		s, c := sessions(t)
		converse(t, c, s, 100)
		if c.ConnectionState().DidResume {
			t.Error("a client without a session cache resumes")
		}
	}
}

// sharing connects with one configuration for each side.
func sharing(p pairing, server, client *tls.Config) func(testing.TB) (tlsConn, tlsConn) {
	if p.server.name == dormouseStack.name {
		config := must(ServerConfig(server))
		p.server.server = func(transport net.Conn, _ *tls.Config) tlsConn { return Server(transport, config) }
	}
	if p.client.name == dormouseStack.name {
		config := must(ClientConfig(client))
		p.client.client = func(transport net.Conn, _ *tls.Config) tlsConn { return Client(transport, config) }
	}
	return func(t testing.TB) (tlsConn, tlsConn) { return p.connect(t, server, client) }
}

// A resumed session is verified again, because its certificate may have expired.
func TestResumedSessionsAreVerified(t *testing.T) {
	var later time.Duration
	client, server := clientSettings(), serverSettings()
	client.ClientSessionCache, client.Time = Sessions, func() time.Time { return time.Now().Add(later) }
	config := must(ClientConfig(client))
	serverEnd, clientEnd := tcp(t)
	s, c := tls.Server(serverEnd, server), Client(clientEnd, config)
	if errServer, errClient := handshakes(s, c); errServer != nil || errClient != nil {
		t.Fatal(errServer, errClient)
	}
	converse(t, c, s, 100)
	later = 2 * time.Hour
	serverEnd, clientEnd = tcp(t)
	s = tls.Server(serverEnd, server)
	_, err := handshakes(s, Client(clientEnd, config))
	var typed *tls.CertificateVerificationError
	if !errors.As(err, &typed) || !s.ConnectionState().DidResume {
		t.Error(err)
	}
}

func TestSecretsAreLogged(t *testing.T) {
	var ofServer, ofClient bytes.Buffer
	server, client := serverSettings(), clientSettings()
	server.KeyLogWriter, client.KeyLogWriter = &ofServer, &ofClient
	eachPairing(t, func(t *testing.T, pairing pairing) {
		ofServer.Reset()
		ofClient.Reset()
		pairing.connect(t, server, client)
		lines := func(log *bytes.Buffer) map[string]bool {
			all := map[string]bool{}
			for line := range strings.Lines(log.String()) {
				// Only this package logs it.
				if !strings.HasPrefix(line, "EXPORTER_SECRET") {
					all[line] = true
				}
			}
			return all
		}
		if a, b := lines(&ofServer), lines(&ofClient); len(a) < 4 || !reflect.DeepEqual(a, b) {
			t.Errorf("%v\n%v", a, b)
		}
	})
}

func TestListenAndDial(t *testing.T) {
	listener := must(Listen("tcp", "127.0.0.1:0", must(ServerConfig(&tls.Config{Certificates: []tls.Certificate{ours().ecdsa("localhost")}}))))
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go io.Copy(conn, conn)
		}
	}()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	config := must(ClientConfig(&tls.Config{RootCAs: ours().pool()}))
	conn, err := Dial("tcp", "localhost:"+port, config)
	if err != nil {
		t.Fatal(err)
	}
	conn.Write([]byte("words"))
	if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if conn.LocalAddr().String() != conn.NetConn().LocalAddr().String() || conn.RemoteAddr().String() != listener.Addr().String() {
		t.Error(conn.LocalAddr(), conn.RemoteAddr())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := DialContext(ctx, "tcp", "localhost:"+port, config); err == nil {
		t.Error("no error")
	}
	if Version() == "" {
		t.Error("no version")
	}
}
