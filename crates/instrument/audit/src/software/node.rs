//! Node.js.

use super::program::{Program, advice, echo, on};
use super::python::INTERPRETED;

pub(super) const PROGRAM: Program = Program {
    interpreter: &["node", "libnode"],
    connection_classes: &["TLSSocket", "TLSWrap"],
    garbage_buffers: Some(
        "these buffers may be garbage: V8 frees them when it collects, and the audit could not make it collect; with --inspect=127.0.0.1:0 it can; otherwise, ",
    ),
    lab: |_| echo("node"),
    advice: advice! {
        IDLE_MEMORY: "no setting is known to help: a small young generation, --optimize-for-size, one malloc arena and writing without pipe were tried with {{compare.node}}. Node.js already releases OpenSSL's record buffers, but keeps a read buffer of 64 kB after 16 kB have arrived at once. Put `dormouse serve` in front to terminate TLS: both together took {{behind.node}}";
        FRAGMENTATION: "no setting is known to help much, because most of the memory is V8's: jemalloc instead of glibc's malloc was tried with {{allocators.node}}. Put `dormouse serve` in front";
        GROWTH: "check whether the growth ends after some rounds (--thorough): V8's heap grows before V8 collects. MALLOC_ARENA_MAX=1, --max-semi-space-size=1 and --optimize-for-size were tried with {{advice.node.flags}}";
        RESUMPTION: "give all processes and machines the same ticketKeys (48 bytes) and the same sessionIdContext in the options of tls.createServer. By default sessionIdContext is derived from the command line, so the keys alone do not help where command lines differ. Tried with {{advice.node.shared}}; with the keys alone, {{advice.node.shared-alone}}";
        COMPRESSION: "update Node.js: version 20 is built without zlib and cannot compress. Older versions: secureOptions: constants.SSL_OP_NO_COMPRESSION. In the case that started this project (Node 0.4) the memory of 200 connections fell from 200 MB to 15 MB. Tried with a current library: {{advice.openssl.compression}}";
        RENEGOTIATION: "set minVersion to 'TLSv1.3', or set tls.CLIENT_RENEG_LIMIT = 0 and destroy the socket on its 'error' event, which closes the connection when a client starts to renegotiate (tried with Node.js 20.20.2). By default Node.js allows three renegotiations in ten minutes, and then only emits 'error'";
        HANDSHAKE_COST: "create the secure context once (tls.createSecureContext), and do not pass `ca` to every connection. In the case that started this project (Node 0.4), one shared trust store raised 70 requests per second to 700";
        HANDSHAKES_AT_A_TIME: "start a process for each core (node:cluster), and move work that takes long out of SNICallback and ALPNCallback. Not tried in the lab";
        CLIENT_SESSIONS: "use one https.Agent for all requests: it caches sessions per host. Tried with {{advice.agent.one}}; with keepAlive: true, {{advice.agent.keep-alive}}";
        KEEP_ALIVE: "use one https.Agent with keepAlive: true. Tried with {{advice.agent.keep-alive}}";
        HANDSHAKE_COST if NothingParsed: INTERPRETED;
        CLIENT_SESSIONS if ContextEach: "Node.js: create one https.Agent, or one tls.createSecureContext for all, and use it for all requests: an Agent with its own `ca` parses these certificates again for each context, and caches sessions only for itself. Tried in lab/sick: 0 of 12 connections resumed with an Agent each, 11 of 12 with one";
        CLIENT_SESSIONS if Discarded: "Node.js: leave `maxCachedSessions` of the https.Agent at its default of 100 (0 turns the session cache off), and use one Agent for all requests. Tried in lab/sick: 0 of 12 connections resumed with 0, 11 of 12 with the default";
    },
    ..Program::collecting("Node.js", |signs| signs.program("node"))
};
