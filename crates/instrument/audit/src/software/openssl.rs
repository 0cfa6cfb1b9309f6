//! Programs over OpenSSL that have no file of their own, and the library itself, which most others use, too.

use super::program::{Program, advice, jemalloc, on};
use crate::catalogue::FindingId;

/// Advice on a session cache that grows.
pub(super) const SMALL_CACHE: &str = "limit OpenSSL's session cache with SSL_CTX_sess_set_cache_size(ctx, 100): for clients without tickets it keeps up to 20,480 TLS 1.2 sessions in the heap. Tried with a server on {{advice.openssl.small-cache}}. Or turn the cache off and leave tickets on, SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF). Tried with {{advice.openssl.cache-off}}";

/// Advice where OpenSSL 3 itself is the largest part of the CPU time of handshakes with a key that signs quickly.
pub(crate) const WORK_OF_LIBRARY: &str = "the largest part is OpenSSL 3's own work, which no setting of the server is known to change. A build with another library needs less: tried with {{library.openssl}}. Or put `dormouse serve` in front to terminate TLS";

pub(super) const PROGRAM: Program = Program {
    is_general: true,
    is_library: true,
    causes: &[(
        FindingId::SessionOfferRefused,
        "the server asks for client certificates and has set no session id context: OpenSSL then issues sessions and ends the handshakes that offer one",
    )],
    is_done: |id, facts| id == FindingId::BytesPerConnection && facts.buffers_released,
    advice: advice! {
        IDLE_MEMORY: "call SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS), and hold the program's own buffers only while they contain data. Tried with a server on {{advice.openssl.release-buffers}}";
        FRAGMENTATION: jemalloc!("a server on {{allocators.openssl}}");
        GROWTH: SMALL_CACHE;
        RESUMPTION: "call SSL_CTX_set_session_id_context, leave tickets on, and set SSL_CTX_set_tlsext_ticket_key_evp_cb with keys that all processes share. Tried with a server on {{advice.openssl.shared}}";
        REFUSED_SESSIONS: "call SSL_CTX_set_session_id_context after SSL_CTX_set_verify: without it, OpenSSL ends each handshake that offers a session if the server asks for client certificates. Tried in lab/sick: no connection with a session is established without the call, all are resumed with it";
        COMPRESSION: "leave SSL_OP_NO_COMPRESSION set, which is the default since OpenSSL 1.1.0, and the security level at 2. Tried with {{advice.openssl.compression}}";
        HANDSHAKE_COST: "use one SSL_CTX for all connections, and do not call SSL_CTX_load_verify_locations for each (tried with Python's ssl module and some 140 root certificates: {{advice.python.context-cpu}}). Use an ECDSA P-256 certificate (tried with {{advice.nginx.keys}})";
        CLIENT_SESSIONS: "use one SSL_CTX for all connections, keep the session that the callback of SSL_CTX_sess_set_new_cb receives (in TLS 1.3 after the handshake), pass it to the next connection with SSL_set_session, and renew it. Tried with Python, which does this: {{advice.python.session}}";
        BUFFERS if Threads: "In a thread for each connection, also wait with poll(2) before SSL_read while SSL_has_pending is 0: a thread that waits inside SSL_read holds the read buffer in spite of this mode";
    },
    ..Program::of("OpenSSL program", |signs| signs.file("libssl.so"))
};

/// Block sizes of OpenSSL 3.0 on 64-bit Linux, including malloc's header, as seen in its malloc calls.
const OPENSSL_3_0: [(u64, &str); 3] = [
    (CONNECTION, "OpenSSL's SSL object"),
    (SESSION, "OpenSSL's session"),
    (976, "OpenSSL's cipher context"),
];
const CONNECTION: u64 = 7_616;
const SESSION: u64 = 944;

/// The TLS library of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Library {
    /// `libssl.so.3`.
    OpenSsl3,
    #[default]
    Other,
}

impl Library {
    /// Recognises the library by its mapped file.
    pub(crate) fn of(file: Option<&str>) -> Self {
        match file {
            Some(file) if file.starts_with("libssl.so.3") => Self::OpenSsl3,
            _ => Self::Other,
        }
    }

    /// Returns what a malloc block of this size holds.
    pub(crate) fn block(self, bytes: u64) -> Option<&'static str> {
        let known = OPENSSL_3_0.iter().find(|(size, _)| *size == bytes);
        known
            .filter(|_| self == Self::OpenSsl3)
            .map(|known| known.1)
    }

    /// Whether a malloc block of this size holds a connection.
    pub(crate) fn is_connection(self, bytes: u64) -> bool {
        self == Self::OpenSsl3 && bytes == CONNECTION
    }

    /// Whether a malloc block of this size holds a session.
    pub(crate) fn is_session(self, bytes: u64) -> bool {
        self == Self::OpenSsl3 && bytes == SESSION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_known_for_their_library_alone() {
        let library = Library::of(Some("libssl.so.3"));
        assert_eq!(library.block(944), Some("OpenSSL's session"));
        assert!(library.is_session(944) && !library.is_session(976));
        assert_eq!(library.block(945), None);
        assert_eq!(Library::of(Some("libssl.so.1.1")).block(944), None);
        assert_eq!(Library::of(None).block(944), None);
    }
}
