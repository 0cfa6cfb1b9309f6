// An echo server in Go with one fault, and its healthy twins: sick FAULT ADDRESS CERTIFICATE KEY.
//
//	healthy    a closed connection leaves nothing behind
//	leak       1 kB of each connection is kept forever
//	bounded    the same kilobyte is kept for the last hundred connections: the twin of leak
//	register   each connection is entered into a map, and never removed
//	records    every byte of an answer has a record of its own
//	goroutines a goroutine of each closed connection waits for ever
//	keys-each  each connection gets a configuration, with ticket keys of its own
//	keys-once  each connection asks for its configuration and gets the same: the twin of keys-each
//	two-faults leak and keys-each together
package main

import (
	"crypto/rand"
	"crypto/tls"
	"io"
	"log"
	"net"
	"os"
	"sync"
)

const (
	kept  = 1024
	bound = 100
)

var (
	lock     sync.Mutex
	all      [][]byte
	register = map[net.Conn]struct{}{}
)

func main() {
	fault, address := os.Args[1], os.Args[2]
	certificate, err := tls.LoadX509KeyPair(os.Args[3], os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	listener, err := tls.Listen("tcp", address, configuration(fault, certificate))
	if err != nil {
		log.Fatal(err)
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go serve(fault, connection)
	}
}

func configuration(fault string, certificate tls.Certificate) *tls.Config {
	config := &tls.Config{Certificates: []tls.Certificate{certificate}}
	once := config.Clone()
	switch fault {
	case "keys-each", "two-faults":
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			own := once.Clone()
			var key [32]byte
			rand.Read(key[:])
			own.SetSessionTicketKeys([][32]byte{key})
			return own, nil
		}
	case "keys-once":
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return once, nil }
	}
	return config
}

func serve(fault string, connection net.Conn) {
	defer connection.Close()
	if fault == "register" {
		lock.Lock()
		register[connection] = struct{}{}
		lock.Unlock()
	}
	if fault == "records" {
		inPieces(connection)
	} else {
		buffer := make([]byte, 1024)
		io.CopyBuffer(struct{ io.Writer }{connection}, struct{ io.Reader }{connection}, buffer)
	}
	if fault == "goroutines" {
		go func() { <-make(chan struct{}) }()
	}
	if fault == "leak" || fault == "bounded" || fault == "two-faults" {
		remember(fault == "bounded")
	}
}

func inPieces(connection net.Conn) {
	buffer := make([]byte, 1024)
	for {
		count, err := connection.Read(buffer)
		if err != nil {
			return
		}
		for index := range count {
			if _, err := connection.Write(buffer[index : index+1]); err != nil {
				return
			}
		}
	}
}

func remember(bounded bool) {
	lock.Lock()
	defer lock.Unlock()
	all = append(all, make([]byte, kept))
	if bounded && len(all) > bound {
		all[0] = nil
		all = all[1:]
	}
}
