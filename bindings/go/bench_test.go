package dormouse

import (
	"io"
	"net"
	"testing"
)

// BenchmarkMessage is a message of 100 bytes and its echo over TCP: two seal, two open.
func BenchmarkMessage(b *testing.B) {
	stacks := map[string]func() (server, client net.Conn){
		"plain": func() (server, client net.Conn) { return tcp(b) },
		"crypto/tls": func() (server, client net.Conn) {
			return pairing{goStack, goStack}.connect(b, serverSettings(), clientSettings())
		},
		"dormouse": func() (server, client net.Conn) { return pairings[2].connect(b, serverSettings(), clientSettings()) },
	}
	for name, connect := range stacks {
		b.Run(name, func(b *testing.B) {
			server, client := connect()
			go io.Copy(server, server)
			message := make([]byte, 100)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := client.Write(message); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(client, message); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStream is a block of 64 KiB and its echo, by a server with a buffer of 4 KiB.
func BenchmarkStream(b *testing.B) {
	for _, server := range []stack{goStack, dormouseStack} {
		b.Run(server.name, func(b *testing.B) {
			server, client := pairing{server, goStack}.connect(b, serverSettings(), clientSettings())
			go func(conn net.Conn) {
				buffer := make([]byte, 4096)
				for {
					count, err := conn.Read(buffer)
					if err != nil {
						return
					}
					conn.Write(buffer[:count])
				}
			}(server)
			block := make([]byte, 65536)
			b.SetBytes(2 * 65536)
			b.ReportAllocs()
			for b.Loop() {
				go client.Write(block)
				if _, err := io.ReadFull(client, make([]byte, 65536)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCall is the way to C and back, and the wiping of 128 bytes.
func BenchmarkCall(b *testing.B) {
	for keys := new(keys); b.Loop(); {
		keys.wipe()
	}
}

// BenchmarkHandshake is a handshake of a client of crypto/tls, with its garbage.
func BenchmarkHandshake(b *testing.B) {
	for _, server := range []stack{goStack, dormouseStack} {
		b.Run(server.name, func(b *testing.B) {
			pairing := sharing(pairing{server, goStack}, serverSettings(), clientSettings())
			b.ReportAllocs()
			for b.Loop() {
				server, client := pairing(b)
				server.Close()
				client.Close()
			}
		})
	}
}
