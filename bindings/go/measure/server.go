// Command measure is an echo server for compare: measure TLS CERTIFICATE KEY. It prints its port.
//
// TLS: plain, own (crypto/tls), dormouse, waiting. A connection is a goroutine with a buffer of 4 KiB; waiting is dormouse
// with a buffer only for what has arrived.
package main

import (
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"os"
	"sync"

	"dormouse.example/dormouse"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: measure TLS CERTIFICATE KEY")
	}
	certificate, err := tls.LoadX509KeyPair(os.Args[2], os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	settings := &tls.Config{Certificates: []tls.Certificate{certificate}}
	config, err := dormouse.ServerConfig(settings)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	for {
		transport, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		switch os.Args[1] {
		case "plain":
			go echo(transport)
		case "own":
			go echo(tls.Server(transport, settings))
		case "dormouse":
			go echo(dormouse.Server(transport, config))
		case "waiting":
			go waitAndEcho(dormouse.Server(transport, config))
		default:
			log.Fatal("no such TLS: ", os.Args[1])
		}
	}
}

func echo(conn net.Conn) {
	defer conn.Close()
	buffer := make([]byte, 4096)
	for answer(conn, buffer) {
	}
}

var buffers = sync.Pool{New: func() any { return new([4096]byte) }}

func waitAndEcho(conn *dormouse.Conn) {
	defer conn.Close()
	for goesOn := true; goesOn && conn.Wait() == nil; {
		buffer := buffers.Get().(*[4096]byte)
		goesOn = answer(conn, buffer[:])
		buffers.Put(buffer)
	}
}

func answer(conn net.Conn, buffer []byte) bool {
	count, err := conn.Read(buffer)
	if err == nil {
		_, err = conn.Write(buffer[:count])
	}
	return err == nil
}
