//! HAProxy.

use super::program::{Program, advice, itself, jemalloc, on, unless_bursts_recur};

pub(super) const PROGRAM: Program = Program {
    lab: |_| itself("haproxy"),
    advice: advice! {
        IDLE_MEMORY: "no setting is known to help: tune.bufsize 4096 was tried with {{compare.haproxy}}; HAProxy holds a buffer only while it transfers data. OpenSSL's object remains. Put `dormouse serve` in front to terminate TLS: with HAProxy without TLS behind it, both together took {{behind.haproxy}}";
        FRAGMENTATION: jemalloc!("{{allocators.haproxy}}");
        FREE_PAGES: unless_bursts_recur!(jemalloc!("{{allocators.haproxy}}"));
        RESUMPTION: "remove no-tls-tickets. All threads share the session cache (tune.ssl.cachesize, 20,000 by default). Several machines need the same tls-ticket-keys file on their bind lines (tried with {{advice.haproxy.shared}})";
        COMPRESSION: "update HAProxy: it turns compression off by default. Tried at security level 0 with {{advice.haproxy.compression}}";
        HANDSHAKE_COST: "use an ECDSA P-256 certificate beside RSA or instead of it, and leave tickets on, so that most handshakes are resumed. Tried with {{advice.haproxy.keys}}";
    },
    ..Program::of("HAProxy", |signs| signs.program("haproxy"))
};
