// client URL new|shared|kept: 40 requests with net/http: without a session cache, with one, or with
// one transport that keeps connections.
package main

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"os"
)

func main() {
	url, how := os.Args[1], os.Args[2]
	transport := &http.Transport{DisableKeepAlives: how != "kept", TLSClientConfig: &tls.Config{}}
	if how == "shared" {
		transport.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(64)
	}
	client := http.Client{Transport: transport}
	for n := 0; n < 40; n++ {
		answer, err := client.Get(url)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			log.Fatal(err)
		}
		answer.Body.Close()
	}
}
