//! stunnel, which has a thread for each connection.

use super::program::{Program, advice, itself, on};

pub(super) const PROGRAM: Program = Program {
    has_stacks: true,
    lab: |_| itself("stunnel"),
    advice: advice! {
        IDLE_MEMORY: "each connection has a thread ({{compare.stunnel}} with stunnel 5.68). Half the stack, `stack = 32768`, was tried with {{advice.stunnel.stack}}. `dormouse serve` in its place takes {{compare.dormouse}}";
        FRAGMENTATION: "no setting is known to help: jemalloc instead of glibc's malloc keeps a cache for each of stunnel's threads. Tried with {{allocators.stunnel}}. Use `dormouse serve` in its place";
        RESUMPTION: "leave `sessionResume = yes`, which is the default. Several machines need the same ticketKeySecret and ticketMacSecret (tried with {{advice.stunnel.shared}})";
        COMPRESSION: "remove `compression` and `options = -NO_COMPRESSION` from the configuration, and leave securityLevel at 2. Tried with {{advice.stunnel.compression}}";
        HANDSHAKE_COST: "use an ECDSA P-256 certificate instead of RSA, and leave tickets on, so that most handshakes are resumed. stunnel still starts a thread for each connection. Tried with {{advice.stunnel.keys}}";
    },
    ..Program::of("stunnel", |signs| signs.program("stunnel"))
};
