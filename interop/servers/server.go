// An HTTPS server which says whether it resumed: server ADDRESS CERT KEY
package main

import (
	"fmt"
	"net/http"
	"os"
)

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "resumed=%v\n", r.TLS.DidResume)
	})
	fmt.Println(http.ListenAndServeTLS(os.Args[1], os.Args[2], os.Args[3], nil))
	os.Exit(1)
}
