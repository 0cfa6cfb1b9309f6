package dormouse

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"
	"unsafe"
)

// Bytes of the heap that one connection at rest takes beyond its transport, allocations included.
const restMax = 400

func TestAConnectionAtRestIsSmall(t *testing.T) {
	server, client := must(ServerConfig(serverSettings())), must(ClientConfig(clientSettings()))
	const count = 200
	var ends []net.Conn
	for range count {
		serverEnd, clientEnd := tcp(t)
		ends = append(ends, serverEnd, clientEnd)
	}
	// What is made once.
	pairings[2].connect(t, serverSettings(), clientSettings())
	before := heap()
	var conns []*Conn
	for index := range count {
		s, c := Server(ends[2*index], server), Client(ends[2*index+1], client)
		conns = append(conns, s, c)
		if errServer, errClient := handshakes(s, c); errServer != nil || errClient != nil {
			t.Fatal(errServer, errClient)
		}
		converse(t, s, c, 20_000)
	}
	if each := (int(heap()) - int(before)) / len(conns); each > restMax {
		t.Errorf("a connection at rest takes %d bytes", each)
	} else {
		t.Logf("a connection at rest takes %d bytes; its struct %d, its keys %d", each, unsafe.Sizeof(Conn{}), keysLen)
	}
	for _, conn := range conns {
		if conn.incoming != nil || conn.outgoing != nil || conn.waiter.filled != nil || conn.handshake.Load() != nil {
			t.Fatalf("%+v", conn)
		}
	}
	runtime.KeepAlive(ends)
}

// heap returns the bytes in use, without what waits to be collected.
func heap() uint64 {
	for range 4 {
		// Pools and finalizers take more than one collection.
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// A Read that waits has no buffer either.
func TestAWaitingReadHasNoBuffer(t *testing.T) {
	s, c := pairings[2].connect(t, serverSettings(), clientSettings())
	conn := s.(*Conn)
	got := make(chan error)
	go func() {
		_, err := io.ReadFull(conn, make([]byte, 5))
		got <- err
	}()
	time.Sleep(20 * time.Millisecond)
	if filled := conn.waiter.filled; filled != nil {
		t.Fatal("it has one")
	}
	c.Write([]byte("words"))
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

func TestKeysAreErased(t *testing.T) {
	eachEnd := map[string]func(conn *Conn, transport net.Conn){
		"Close":  func(conn *Conn, _ net.Conn) { conn.Close() },
		"Export": func(conn *Conn, _ net.Conn) { conn.Export() },
	}
	for name, end := range eachEnd {
		s, _ := pairings[2].connect(t, serverSettings(), clientSettings())
		conn := s.(*Conn)
		end(conn, conn.NetConn())
		if *conn.keys != (keys{}) {
			t.Errorf("%s: they are there", name)
		}
	}
	// A connection that nobody has closed.
	erased := make(chan bool)
	func() {
		s, _ := pairings[2].connect(t, serverSettings(), clientSettings())
		conn := s.(*Conn)
		runtime.SetFinalizer(conn.keys, nil)
		runtime.SetFinalizer(conn.keys, func(k *keys) {
			k.wipe()
			erased <- *k == keys{}
		})
	}()
	for range 100 {
		runtime.GC()
		select {
		case is := <-erased:
			if !is {
				t.Error("they are there")
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Error("the finalizer does not run")
}

func TestConnectionsContinueElsewhere(t *testing.T) {
	ended, _ := pairings[0].connect(t, serverSettings(), clientSettings())
	conn := ended.(*Conn)
	if _, err := conn.Export(); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Export(); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("more")); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	s, c := pairings[0].connect(t, serverSettings(), clientSettings())
	conn = s.(*Conn)
	transport := conn.NetConn()
	converse(t, conn, c, 100)
	for range 3 {
		exported, err := conn.Export()
		if err != nil {
			t.Fatal(err)
		}
		conn, err = Import(transport, exported)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(exported, make([]byte, len(exported))) {
			t.Error("the bytes are not erased")
		}
		converse(t, conn, c, 30_000)
	}
	if state := conn.ConnectionState(); state.Version == 0 || !state.HandshakeComplete {
		t.Errorf("%+v", state)
	}
}

// What has arrived and what waits to be sent go along.
func TestExportsHaveWhatIsInFlight(t *testing.T) {
	s, c := pairings[2].connect(t, serverSettings(), clientSettings())
	a, b := s.(*Conn), c.(*Conn)
	converse(t, a, b, 100)
	// A record, of which b has received 30 bytes.
	over, pipe := net.Pipe()
	a.transport, a.waiter = over, waiter{}
	go a.Write([]byte("a record that arrives in two parts"))
	record := make([]byte, 200)
	count := must(pipe.Read(record))
	b.incoming = &incoming{partial: bytes.Clone(record[:30]), missing: count - 30}
	exported := must(b.Export())
	if len(exported) != keysLen+8+30 {
		t.Fatal(len(exported))
	}
	rest, far := net.Pipe()
	b = must(Import(rest, exported))
	go far.Write(record[30:count])
	got := make([]byte, 100)
	if count, err := b.Read(got); err != nil || string(got[:count]) != "a record that arrives in two parts" {
		t.Fatal(err, string(got[:count]))
	}
}

func TestWhatCannotBeExported(t *testing.T) {
	serverEnd, clientEnd := tcp(t)
	if _, err := dormouseStack.server(serverEnd, serverSettings()).(*Conn).Export(); err == nil {
		t.Error("during the handshake")
	}
	s, c := pairings[2].connect(t, serverSettings(), clientSettings())
	c.Write([]byte("words"))
	s.Read(make([]byte, 1))
	if _, err := s.(*Conn).Export(); err == nil {
		t.Error("with decrypted bytes")
	}
	s.Read(make([]byte, 10))
	go s.Read(make([]byte, 1))
	for s.(*Conn).reading.TryLock() {
		s.(*Conn).reading.Unlock()
		time.Sleep(time.Millisecond)
	}
	if _, err := s.(*Conn).Export(); err == nil {
		t.Error("during a Read")
	}
	for _, exported := range [][]byte{nil, make([]byte, keysLen), make([]byte, keysLen+8), bytes.Repeat([]byte{255}, 300)} {
		if _, err := Import(clientEnd, exported); err == nil {
			t.Errorf("%d bytes are imported", len(exported))
		}
	}
	good := must(c.(*Conn).Export())
	for _, more := range [][]byte{make([]byte, 7), append(make([]byte, 8), 1), {255, 255, 255, 255, 0, 0, 0, 0}} {
		if _, err := Import(clientEnd, append(bytes.Clone(good), more...)); err == nil {
			t.Errorf("%v is imported", more)
		}
	}
}
