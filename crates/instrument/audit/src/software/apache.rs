//! The Apache HTTP server.

use super::program::{Program, advice, itself, on};

pub(super) const PROGRAM: Program = Program {
    banner: Some("apache"),
    lab: |_| itself("apache"),
    advice: advice! {
        IDLE_MEMORY: "no setting is known to help: MaxMemFree 64 was tried with the event MPM, {{compare.apache}}. With `dormouse serve` in front, both together took {{behind.apache}}: Apache's own memory of a kept-alive connection remains";
        FRAGMENTATION: "no setting is known to help: jemalloc instead of glibc's malloc was tried with {{allocators.apache}}. Put `dormouse serve` in front";
        RESUMPTION: "set `SSLSessionTickets on` and `SSLSessionCache shmcb:/run/apache2/ssl_scache(512000)`, which all of Apache's processes share. Tried with {{advice.apache.cache}}; without tickets, by the cache alone, {{advice.apache.ids}}. In the case that started this project, a browser's share of the server's CPU fell from 6.83 % to under 1 %. Several machines need the same SSLSessionTicketKeyFile (tried with {{advice.apache.shared}})";
        COMPRESSION: "set `SSLCompression off` (the default since 2.4.4), remove Compression from `SSLOpenSSLConfCmd Options`, and leave @SECLEVEL in SSLCipherSuite at 2. Tried with {{advice.apache.compression}}";
        HANDSHAKE_COST: "use an ECDSA P-256 certificate beside RSA or instead of it, and leave tickets on, so that most handshakes are resumed. Tried with {{advice.apache.keys}}";
    },
    ..Program::of("Apache", |signs| {
        signs.program("apache2") || signs.program("httpd")
    })
};
