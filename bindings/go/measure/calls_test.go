package main

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"testing"

	"dormouse.example/dormouse"
)

// What a message of 100 bytes costs both sides, over TCP: go test -bench . ./measure (with CERTIFICATE and KEY).
func BenchmarkMessage(b *testing.B) {
	certificate, err := tls.LoadX509KeyPair(os.Getenv("CERTIFICATE"), os.Getenv("KEY"))
	if err != nil {
		b.Skip(err)
	}
	server := &tls.Config{Certificates: []tls.Certificate{certificate}}
	client := &tls.Config{InsecureSkipVerify: true}
	ofServer, err := dormouse.ServerConfig(server)
	if err != nil {
		b.Fatal(err)
	}
	ofClient, err := dormouse.ClientConfig(client)
	if err != nil {
		b.Fatal(err)
	}
	for name, wrap := range map[string]func(server, client net.Conn) (net.Conn, net.Conn){
		"plain": func(s, c net.Conn) (net.Conn, net.Conn) { return s, c },
		"own":   func(s, c net.Conn) (net.Conn, net.Conn) { return tls.Server(s, server), tls.Client(c, client) },
		"dormouse": func(s, c net.Conn) (net.Conn, net.Conn) {
			return dormouse.Server(s, ofServer), dormouse.Client(c, ofClient)
		},
	} {
		b.Run(name, func(b *testing.B) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer listener.Close()
			far, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			near, err := listener.Accept()
			if err != nil {
				b.Fatal(err)
			}
			s, c := wrap(near, far)
			defer s.Close()
			defer c.Close()
			go echo(s)
			message := make([]byte, 100)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Write(message); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, message); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The smallest call of the engine, which is mostly the way there and back.
func BenchmarkCall(b *testing.B) {
	for b.Loop() {
		dormouse.Version()
	}
}
