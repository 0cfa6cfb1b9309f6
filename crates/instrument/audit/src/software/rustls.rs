//! Programs in Rust with rustls.

use super::program::{Program, advice, echo, jemalloc, on};

pub(super) const PROGRAM: Program = Program {
    is_general: true,
    lab: |_| echo("tokio-rustls"),
    advice: advice! {
        IDLE_MEMORY: "allocate a buffer only while there is data to read: tokio::io::copy keeps 8 kB per connection. Tried with {{compare.tokio-rustls}}";
        IDLE_MEMORY if Http: "close connections that are idle for long, or put `dormouse serve` in front to terminate TLS: the HTTP library holds its buffers beside those of rustls. Not tried in the lab with an HTTP server. An echo server on {{compare.tokio-rustls}}, by a buffer that lives only while there is data to read";
        FRAGMENTATION: jemalloc!("a program over OpenSSL, not with one over rustls: {{allocators.openssl}}");
        RESUMPTION: "set ServerConfig.ticketer, with keys that all processes share. By default rustls issues no TLS 1.2 tickets, and its session cache belongs to one process. Tried in lab/sick with four processes: a quarter of the sessions was resumed with separate keys, all with shared keys";
        CLIENT_SESSIONS: "use one ClientConfig for all connections: it holds the session store. Tried in lab/sick: 0 of 12 connections resumed with a new one each time, 11 of 12 with one";
    },
    ..Program::of("rustls program", |signs| signs.rustls)
};
