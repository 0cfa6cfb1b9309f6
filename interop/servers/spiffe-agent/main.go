// An agent of the SPIFFE Workload API, with the project's own definitions of the protocol and gRPC's own library. Each line
// on its standard input is a response for all streams that are open and that come:
//
//	serve SVID... [federated DOMAIN BUNDLE]   SVID is ID CHAIN KEY BUNDLE, files in PEM
//	garbage | oversized | refuse              something that cannot be used
//
// It answers each line with `done` when the streams have it.
package main

import (
	"bufio"
	"encoding/pem"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Bytes that are sent as they are, in place of a message.
type raw []byte

// The usual codec, and one that sends raw bytes.
type codec struct{ usual encoding.CodecV2 }

func (c codec) Name() string { return "proto" }

func (c codec) Unmarshal(data mem.BufferSlice, into any) error {
	return c.usual.Unmarshal(data, into)
}

func (c codec) Marshal(message any) (mem.BufferSlice, error) {
	if bytes, is := message.(raw); is {
		return mem.BufferSlice{mem.SliceBuffer(bytes)}, nil
	}
	return c.usual.Marshal(message)
}

type agent struct {
	workload.UnimplementedSpiffeWorkloadAPIServer
	mutex   sync.Mutex
	current any
	changed chan struct{}
}

func (a *agent) next() (any, chan struct{}) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.current, a.changed
}

func (a *agent) set(next any) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.current = next
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *agent) FetchX509SVID(_ *workload.X509SVIDRequest, stream workload.SpiffeWorkloadAPI_FetchX509SVIDServer) error {
	head, _ := metadata.FromIncomingContext(stream.Context())
	if values := head.Get("workload.spiffe.io"); len(values) != 1 || values[0] != "true" {
		return status.Error(codes.InvalidArgument, "security header missing from request")
	}
	for {
		current, changed := a.next()
		switch message := current.(type) {
		case error:
			return message
		case nil:
		default:
			if err := stream.SendMsg(message); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func der(path string) []byte {
	text, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	var all []byte
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		all = append(all, block.Bytes...)
	}
	return all
}

func response(words []string) *workload.X509SVIDResponse {
	response := &workload.X509SVIDResponse{FederatedBundles: map[string][]byte{}}
	for len(words) > 0 {
		if words[0] == "federated" {
			response.FederatedBundles[words[1]] = der(words[2])
			words = words[3:]
			continue
		}
		response.Svids = append(response.Svids, &workload.X509SVID{
			SpiffeId:    words[0],
			X509Svid:    der(words[1]),
			X509SvidKey: der(words[2]),
			Bundle:      der(words[3]),
			Hint:        "internal",
		})
		words = words[4:]
	}
	return response
}

func main() {
	socket := os.Args[1]
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.Chmod(socket, 0o777); err != nil {
		log.Fatal(err)
	}
	agent := &agent{changed: make(chan struct{})}
	encoding.RegisterCodecV2(codec{encoding.GetCodecV2("proto")})
	server := grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(server, agent)
	go func() { log.Fatal(server.Serve(listener)) }()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch words[0] {
		case "serve":
			agent.set(response(words[1:]))
		case "garbage":
			agent.set(raw("no protocol buffer"))
		case "oversized":
			agent.set(raw(make([]byte, 5<<20)))
		case "refuse":
			agent.set(status.Error(codes.PermissionDenied, "no identity issued"))
		}
		fmt.Println("done")
	}
}
