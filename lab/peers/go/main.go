// An echo server on crypto/tls: one goroutine per connection, one configuration for all.
//
//	go-echo default|memory|plain|ticket-key PORT CERT KEY
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"runtime"
	"strings"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "version" {
		fmt.Println("Go " + strings.TrimPrefix(runtime.Version(), "go"))
		return
	}
	if len(os.Args) != 5 {
		log.Fatal("usage: go-echo default|memory|plain|ticket-key PORT CERT KEY")
	}
	certificate, err := tls.LoadX509KeyPair(os.Args[3], os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}}
	if os.Args[1] == "ticket-key" {
		config.SetSessionTicketKeys([][32]byte{{1}})
	}
	if os.Args[1] != "plain" {
		listener = tls.NewListener(listener, config)
	}
	echo := copyAll
	if os.Args[1] == "memory" {
		echo = copySmall
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go echo(connection)
	}
}

// copyAll is what the documentation suggests: io.Copy allocates a buffer of 32 kB.
func copyAll(connection net.Conn) {
	defer connection.Close()
	io.Copy(connection, connection)
}

// copySmall keeps 1 kB per connection instead of 32.
func copySmall(connection net.Conn) {
	defer connection.Close()
	io.CopyBuffer(onlyWriter{connection}, onlyReader{connection}, make([]byte, 1024))
}

// Without these, io.CopyBuffer may look for faster ways and leave the buffer unused.
type onlyWriter struct{ io.Writer }
type onlyReader struct{ io.Reader }
