//! nginx, and OpenResty.

use super::program::{Program, advice, itself, jemalloc, on, unless_bursts_recur};

pub(super) const PROGRAM: Program = Program {
    banner: Some("nginx"),
    lab: |_| itself("nginx-http"),
    advice: advice! {
        IDLE_MEMORY: "in `stream`, set proxy_buffer_size 4k: a connection keeps two such buffers. Tried with {{compare.nginx-stream}}. In `http`, ssl_buffer_size 4k and small pools were tried with {{compare.nginx-http}}: nginx already releases OpenSSL's record buffers there";
        FRAGMENTATION: jemalloc!("{{allocators.nginx-http}}");
        FREE_PAGES: unless_bursts_recur!(jemalloc!("{{allocators.nginx-http}}"));
        GROWTH: "set `ssl_session_cache shared:SSL:10m` or `off` instead of `builtin`. The builtin cache keeps up to 20,480 sessions of clients without tickets in the heap of each worker, between short-lived blocks of handshakes. Tried with {{caches.nginx}}. In the case that started this project, memory kept growing by 10 MB per round";
        RESUMPTION: "leave `ssl_session_tickets on`, which is the default ({{advice.nginx.tickets}}). For clients without tickets add `ssl_session_cache shared:SSL:10m` (tried with {{advice.nginx.ids}}). Several machines need the same ssl_session_ticket_key file (tried with {{advice.nginx.shared}})";
        COMPRESSION: "remove Compression from `ssl_conf_command Options`, and leave @SECLEVEL in ssl_ciphers at 2: nginx turns compression off by default. Tried with {{advice.nginx.compression}}";
        HANDSHAKE_COST: "use an ECDSA P-256 certificate beside RSA or instead of it, and leave tickets on, so that most handshakes are resumed. Tried with {{advice.nginx.keys}}";
    },
    ..Program::of("nginx", |signs| {
        signs.program("nginx") || signs.program("openresty")
    })
};
