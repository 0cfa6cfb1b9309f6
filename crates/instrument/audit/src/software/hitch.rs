//! hitch.

use super::program::{Program, advice, itself, jemalloc, on, unless_bursts_recur};

pub(super) const PROGRAM: Program = Program {
    lab: |_| itself("hitch"),
    advice: advice! {
        IDLE_MEMORY: "no setting changes the memory of an idle connection ({{compare.hitch}} with hitch 1.7.2), which has six buffers of 32 kB. jemalloc was tried with {{allocators.hitch}}. `dormouse serve` in its place takes {{compare.dormouse}}";
        FRAGMENTATION: jemalloc!("{{allocators.hitch}}");
        FREE_PAGES: unless_bursts_recur!(jemalloc!("{{allocators.hitch}}"));
        GROWTH: "no setting of hitch is known to help; jemalloc was tried with {{advice.hitch.jemalloc-churn}}. Otherwise restart the workers from time to time, or use `dormouse serve` in its place";
        RESUMPTION: "leave tickets on: hitch's workers share their keys. Several machines cannot share them: let `dormouse serve` terminate TLS";
        COMPRESSION: "update hitch: it turns compression off by default. Tried at security level 0 with {{advice.hitch.compression}}";
        HANDSHAKE_COST: "use an ECDSA P-256 certificate instead of RSA, and leave tickets on, so that most handshakes are resumed. Tried with {{advice.hitch.keys}}";
    },
    ..Program::of("hitch", |signs| signs.program("hitch"))
};
