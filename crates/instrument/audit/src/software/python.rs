//! Python: the module ssl, mostly with asyncio's loop, and pyOpenSSL with Twisted.

use super::program::{Program, advice, echo, jemalloc, on};
use super::signs::Signs;
use crate::catalogue::FindingId;

/// Evidence that a Python program runs asyncio.
pub(crate) const ASYNCIO: &str = "mapped _asyncio";

/// Advice where an interpreter takes the CPU time of handshakes, and no certificates are parsed.
pub(super) const INTERPRETED: &str = "no connection parses certificates of its own: the time is the interpreter's, for accepting a connection and its first answer. Keep connections open and leave resumption on, so that there are fewer handshakes; several processes use more cores. Or put `dormouse serve` in front to terminate TLS. Not tried in the lab";

pub(super) fn is_asyncio(signs: &Signs) -> bool {
    signs.file("/_asyncio.")
}

/// Programs of asyncio, too, map the Rust part of the package cryptography.
fn has_pyopenssl(signs: &Signs) -> bool {
    signs.file("/OpenSSL/")
        || (signs.file("_rust.abi3") && !is_asyncio(signs))
        || signs.word("twist")
}

pub(super) const PROGRAM: Program = Program {
    is_interpreted: true,
    interpreter: &["python", "libpython"],
    lab: |facts| echo("asyncio").filter(|_| facts.asyncio),
    is_done: |id, facts| match id {
        // The advice concerns the buffers of asyncio's TLS.
        FindingId::BytesPerConnection | FindingId::RecordBuffersKept => {
            !facts.asyncio || facts.buffers_released
        }
        // Threads make jemalloc, which the advice recommends, keep a cache each.
        FindingId::HeapFragmented => !facts.asyncio,
        _ => false,
    },
    advice: advice! {
        IDLE_MEMORY: "use a Protocol instead of streams, and set asyncio.sslproto.SSLProtocol.max_size (not a public setting) to 16 * 1024: its read buffer takes 256 kB per connection. Tried with {{compare.asyncio}}. The ssl module already releases OpenSSL's record buffers. The two memory BIOs between asyncio and OpenSSL remain: each grows to 21 kB when 16 kB arrive at once, and never shrinks. With `dormouse serve` in front, which terminates TLS, both together took {{behind.asyncio}}";
        FRAGMENTATION: jemalloc!("{{allocators.asyncio}}");
        GROWTH: "the ssl module cannot change OpenSSL's session cache, which keeps up to 20,480 sessions in the heap. Allow TLS 1.3 only, which stores nothing there (tried with {{advice.python.tls13}}), or put `dormouse serve` in front to terminate TLS";
        RESUMPTION: "use one SSLContext for all connections. Tried with {{advice.python.one-context}}. The ssl module cannot share ticket keys between processes: use one process, or let `dormouse serve` terminate TLS";
        COMPRESSION: "leave ssl.OP_NO_COMPRESSION in context.options, which is the default since Python 3.6, and @SECLEVEL in set_ciphers at 2. Tried with {{advice.python.compression}}";
        HANDSHAKE_COST: "create one SSLContext and share it: load_verify_locations for each connection parses all root certificates again. Tried with the ssl module and some 140 certificates, from a context for each connection to one: {{advice.python.context-cpu}}";
        HANDSHAKES_AT_A_TIME: "accept on a plain listener, and call context.wrap_socket(connection, server_side=True) in the thread of each connection, after connection.settimeout(10): a listener that is wrapped itself, or wrap_socket in the accept loop, waits there for the client's handshake. Tried in lab/sick. For more than one core, start several processes";
        CLIENT_SESSIONS: "pass session=previous.session to wrap_socket, read after the first answer has arrived: {{advice.python.session}}. One ssl.SSLContext for all connections is not enough, because http.client sets no session (tried with {{advice.http-client.context}}). Or keep connections open: http.client ({{advice.http-client.connection}}), requests ({{advice.requests.session}}). Or leave the client unchanged and connect through `dormouse connect`: {{advice.http-client.connect}}";
        KEEP_ALIVE: "use one requests.Session or http.client.HTTPSConnection for all requests. Tried with {{advice.requests.session}}; {{advice.http-client.connection}}";
        CLIENT_COST: "create one ssl.SSLContext: each new context that trusts the system's authorities parses some 140 certificates. Tried with http.client and {{advice.http-client.roots}}";
        HANDSHAKE_COST if NothingParsed: INTERPRETED;
    },
    ..Program::of("Python ssl", |signs| signs.program("python"))
};

pub(super) const TWISTED: Program = Program {
    banner: Some("twisted"),
    is_interpreted: true,
    lab: |_| echo("twisted"),
    advice: advice! {
        IDLE_MEMORY: "create the context with twisted.internet.ssl.CertificateOptions, which sets SSL_MODE_RELEASE_BUFFERS, instead of DefaultOpenSSLContextFactory. Tried with {{compare.twisted}}. CertificateOptions turns sessions and tickets off: add enableSessionTickets=True (resumption with {{advice.twisted.sessions}}; memory with {{advice.twisted.sessions-memory}}). The two memory BIOs between Twisted and OpenSSL remain: each grows to 21 kB when 16 kB arrive at once, and never shrinks";
        FRAGMENTATION: jemalloc!("{{allocators.twisted}}");
        GROWTH: "call context.set_session_cache_mode(SSL.SESS_CACHE_OFF) and leave tickets on: for clients without tickets OpenSSL's cache keeps up to 20,480 TLS 1.2 sessions in the heap. Tried with {{advice.twisted.cache-off}}";
        RESUMPTION: "add enableSessionTickets=True: CertificateOptions turns sessions and tickets off. Tried with {{advice.twisted.sessions}}";
        COMPRESSION: "update pyOpenSSL: OpenSSL in the wheels of cryptography is built without zlib. Older versions: context.set_options(SSL.OP_NO_COMPRESSION). In the case that started this project memory fell from 1.15 GB to about 300 MB. Tried with a current library: {{advice.openssl.compression}}";
        HANDSHAKE_COST: "create one SSLContext and share it: load_verify_locations for each connection parses all root certificates again. Tried with the ssl module and some 140 certificates, from a context for each connection to one: {{advice.python.context-cpu}}";
        HANDSHAKE_COST if NothingParsed: INTERPRETED;
    },
    ..Program::of("Twisted/pyOpenSSL", |signs| {
        signs.program("python") && has_pyopenssl(signs)
    })
};
