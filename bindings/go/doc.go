// Package dormouse is TLS whose quiet connections are small: an established connection is 128 bytes of state and a few
// words beside its transport, and has no buffer.
//
// A [Conn] is a [net.Conn], and takes the place of a [tls.Conn]. A [Config] is made from a [tls.Config], once; fields
// that have no equivalent here are errors that name the field.
//
//	config, err := dormouse.ServerConfig(&tls.Config{Certificates: []tls.Certificate{certificate}})
//	listener, err := dormouse.Listen("tcp", ":8443", config)
//
// Network input and output stay with Go: a goroutine that waits in Read is parked by the runtime, holds no thread, and
// no buffer if the transport is a [net.TCPConn] or a [net.UnixConn]. Certificates are verified by crypto/x509, and keys
// of other types than those of crypto stay with their [crypto.Signer]. The engine, libdormouse, is called through cgo; it
// only turns bytes into bytes. It is linked statically, by pkg-config's dormouse-static; the build tag dormouse_shared
// selects the shared library.
package dormouse
