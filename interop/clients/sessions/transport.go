// Go's net/http with one Transport and a session cache; each connection is closed.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
)

func main() {
	address := flag.String("url", "", "")
	resolve := flag.String("resolve", "", "")
	ca := flag.String("ca", "", "")
	version := flag.String("version", "", "")
	requests := flag.Int("requests", 0, "")
	flag.Parse()

	pem, err := os.ReadFile(*ca)
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	number := map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}[*version]
	parsed, err := url.Parse(*address)
	if err != nil {
		log.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(*resolve, parsed.Port()))
		},
		TLSClientConfig: &tls.Config{
			RootCAs: roots, MinVersion: number, MaxVersion: number,
			ClientSessionCache: tls.NewLRUClientSessionCache(8),
		},
	}}
	resumed := 0
	for n := 0; n < *requests; n++ {
		answer, err := client.Get(*address + "/bytes/100")
		if err != nil {
			log.Fatal(err)
		}
		if answer.TLS.DidResume {
			resumed++
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			log.Fatal(err)
		}
		answer.Body.Close()
	}
	fmt.Printf("{\"requests\": %d, \"resumed\": %d}\n", *requests, resumed)
}
