//! All findings that an audit can make: their identifiers and what to change.
//!
//! Each finding is defined here, derived from the figures by a module of this directory, and proven with a faulty
//! server or client (`lab/sick`). The compiler checks that each has advice.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::advice::{handshakes, memory, sessions};
use super::quoted;
use crate::software::SoftwareKind;

/// Returns advice for one kind of software; `None` if only the general advice applies.
type SoftwareAdvice = fn(SoftwareKind) -> Option<&'static str>;

const NO_COMPRESSION: &str = "turn TLS compression off";
const PROFILER: &str = "find out with a profiler what a handshake does besides its cryptography, and create or parse once what all connections share";

/// Defines the findings: name, identifier, advice for any software, and after `or` a function with advice for some.
macro_rules! findings {
    ($($(#[$doc:meta])* $name:ident = $id:literal: $advice:tt $(or $special:path)?;)+) => {
        /// A kind of finding. Its identifier is stable because stored audits contain it.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "&'static str")]
        pub enum FindingId {
            $($(#[$doc])* $name,)+
        }

        impl FindingId {
            /// All kinds of findings.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Returns the identifier: `record-buffers-kept`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $id,)+
                }
            }

            fn general_advice(self) -> &'static str {
                match self {
                    $(Self::$name => $advice,)+
                }
            }

            fn software_advice(self) -> SoftwareAdvice {
                match self {
                    $(Self::$name => {
                        let special: &[SoftwareAdvice] = &[$($special)?];
                        special.first().copied().unwrap_or(|_| None)
                    })+
                }
            }
        }
    };
}

findings! {
    /// Every idle connection keeps buffers as large as a record.
    RecordBuffersKept = "record-buffers-kept":
        "hold a buffer only while it contains data; start with the size of real flights and let it grow. If that cannot be changed, put `dormouse serve` in front to terminate TLS"
        or memory::retained;
    /// An idle connection uses many bytes, and no single cause explains them.
    BytesPerConnection = "bytes-per-connection":
        "free what an established connection no longer needs: buffers, handshake state, parsed certificates. If that cannot be changed, put `dormouse serve` in front to terminate TLS"
        or memory::retained;
    /// Every connection has a process of its own.
    ProcessPerConnection = "process-per-connection":
        "let one process serve many connections if the server has a setting for that (Dovecot: `service_count = 0` of its login services; PostgreSQL: a connection pool in front; neither was tried in the lab), or put `dormouse serve` in front of a server that speaks TLS from the first byte";
    /// Every connection has a context or a trust store of its own.
    ContextPerConnection = "context-per-connection":
        "parse certificates, trust stores and configuration once and share them. In a case that started this project (Node 0.4), a store for each connection took 20 % of the memory and 90 % of the time of a request";
    /// Blocks in use pin pages that are otherwise free.
    HeapFragmented = "heap-fragmented":
        "keep long-lived entries, such as the session cache, in a bounded memory area of their own, separate from what a handshake allocates. malloc_trim(0) does not help: it returns only pages without a block in use"
        or memory::holes;
    /// The allocator retains whole free pages.
    FreeMemoryRetained = "free-memory-retained":
        "if bursts recur, change nothing: the next burst uses the pages. Otherwise call malloc_trim(0) after a burst, or limit the arenas (MALLOC_ARENA_MAX=1) and lower the threshold at which malloc returns memory (MALLOC_TRIM_THRESHOLD_=131072). Not tried in the lab"
        or memory::free_pages;
    /// A session cache grows without a bound.
    SessionCacheGrows = "session-cache-grows":
        "limit the cache in entries or bytes and evict the oldest; or turn it off and use tickets, which need no memory on the server"
        or memory::sessions;
    /// Some memory of each connection is never freed.
    LeakPerConnection = "leak-per-connection":
        "look for what a connection allocates at its start and does not free at its end; `measured` has the sizes of the blocks that accumulate";
    /// A mapping of a fixed size fills page by page.
    SharedMemoryFills = "shared-memory-fills":
        "change nothing if the machine has room for the full mapping. Its size is set by `ssl_session_cache shared:NAME:SIZE` in nginx, `SSLSessionCache shmcb:PATH(SIZE)` in Apache, tune.ssl.cachesize in HAProxy";
    /// Memory grows as connections open and close, and the cause is not known.
    GrowsUnderChurn = "grows-under-churn":
        "turn the session cache off and audit again: if memory still grows, each connection leaves memory behind"
        or memory::growth;
    /// A client that offers a session gets no connection.
    SessionOfferRefused = "session-offer-refused":
        "find out in the server's log why it refuses the session; until then turn tickets and the session cache off: clients then make full handshakes instead of failing"
        or sessions::refused;
    /// No session is ever resumed.
    NoResumption = "no-resumption":
        "resume sessions by ticket, with keys that outlive a connection and that all processes share"
        or sessions::server;
    /// Sessions are resumed by id only.
    NoTickets = "no-tickets":
        "turn session tickets on: they need no memory on the server, and all processes can share their keys"
        or sessions::server;
    /// No session of one version is resumed.
    NoResumptionInOneVersion = "no-resumption-in-one-version":
        "turn session tickets on for this version too"
        or sessions::server;
    /// Only a part of the sessions is resumed.
    ResumptionPartial = "resumption-partial":
        "give all processes and machines the same ticket keys, or one session cache that they share; rotate the keys together"
        or sessions::server;
    /// Sessions are not resumed at another address of the same name.
    ResumptionNotShared = "resumption-not-shared":
        "give all machines behind the name the same ticket keys, and rotate the keys together; or use a session store that all machines share";
    /// A ticket is refused before its lifetime is over.
    ResumptionEndsEarly = "resumption-ends-early":
        "accept tickets under earlier keys until their announced lifetime ends, or announce a shorter lifetime";
    /// The server accepts TLS compression.
    CompressionAccepted = "compression-accepted":
        NO_COMPRESSION
        or handshakes::compression;
    /// The server accepts TLS 1.0 or 1.1.
    OldVersions = "old-versions":
        "allow TLS 1.2 and 1.3 only"
        or handshakes::versions;
    /// The server does not offer TLS 1.3.
    NoTls13 = "no-tls13":
        "update the TLS library and allow TLS 1.3";
    /// The server does not announce secure renegotiation.
    NoRenegotiationInfo = "no-renegotiation-info":
        "update the TLS library, or allow TLS 1.3 only";
    /// The server renegotiates without protection (CVE-2009-3555).
    RenegotiationInsecure = "renegotiation-insecure":
        "update the TLS library; allow TLS 1.3 only until then";
    /// A client may renegotiate as often as it likes.
    RenegotiationByClient = "renegotiation-by-client":
        "refuse renegotiation (OpenSSL 1.1.1: set SSL_OP_NO_RENEGOTIATION; since 3.0: do not set SSL_OP_ALLOW_CLIENT_RENEGOTIATION), or allow TLS 1.3 only"
        or handshakes::renegotiation;
    /// The server accepts 0-RTT data, which can be replayed.
    EarlyData = "early-data":
        "turn 0-RTT off unless every request is safe to repeat";
    /// A certificate of the chain has expired or will soon.
    CertificateExpires = "certificate-expires":
        "renew the certificate and load it";
    /// The server's first flight takes an additional round trip.
    FlightLarge = "flight-large":
        "remove the root certificate from the chain, and use ECDSA certificates";
    /// A full handshake costs a multiple of what it needs.
    HandshakeCpu = "handshake-cpu":
        PROFILER
        or handshakes::server_cpu;
    /// Signatures with a large RSA key dominate the handshake.
    SignatureDear = "signature-dear":
        "use an ECDSA P-256 certificate beside the RSA one or instead of it, or an RSA key of 2,048 bits"
        or handshakes::server_cpu;
    /// A resumed handshake costs as much as a full one.
    ResumptionNotCheaper = "resumption-not-cheaper":
        PROFILER
        or handshakes::server_cpu;
    /// Handshakes wait for each other, or for clients that say nothing.
    HandshakesSerialised = "handshakes-serialised":
        "accept without a handshake, and make handshakes with non-blocking sockets or in a thread for each connection, with a time limit and without a lock that is held while anything waits. For more than one core, start several threads or processes that share the listening socket. Tried in lab/sick: the same servers with a handshake in each connection's thread, and without the lock, have no finding"
        or handshakes::at_a_time;
    /// Answers are sent in many small records.
    RecordsSmall = "records-small":
        "collect an answer in a buffer and write it at once (OpenSSL: BIO_f_buffer or an own buffer before SSL_write; Go: bufio.Writer; Java: BufferedOutputStream; Node.js: cork and uncork). Tried in lab/sick: 9 answers with 4,044 bytes of data take 4,044 records if each byte is written by itself, and 12 if the server writes what it has read";
    /// Records are padded to a large multiple.
    RecordsPadded = "records-padded":
        "if the padding is not meant to hide the length of answers, turn it off; otherwise pad to a small multiple, such as 64 bytes (OpenSSL: SSL_CTX_set_block_padding, or RecordPadding in openssl.cnf). Tried in lab/sick with 4,096 and 64 bytes";
    /// Idle connections cost CPU time.
    IdleCpu = "idle-cpu":
        "use one timer for all connections instead of one for each, and wait for events instead of polling every connection";
    /// The first connection does work that the server could do at its start.
    FirstConnectionSlow = "first-connection-slow":
        "do this work at the start: seed the random generator, load keys and certificates, and make one handshake in memory before the listener opens";
    /// The client never offers a session.
    ClientNeverResumes = "client-never-resumes":
        "use one TLS context for all connections to a server: it holds the sessions"
        or sessions::client;
    /// The client resumes fewer than half of the connections that it could.
    ClientSeldomResumes = "client-seldom-resumes":
        "use one context for all connections, and read at least one answer before closing a connection: in TLS 1.3 the server sends tickets after the handshake"
        or sessions::client;
    /// The client resumes the same session again and again.
    ClientSameSessionForEver = "client-same-session-for-ever":
        "offer the session that the latest connection received, and make a full handshake from time to time"
        or sessions::client;
    /// The client uses a TLS 1.3 ticket more than once.
    ClientTicketsReused = "client-tickets-reused":
        "keep several tickets per server and use each once"
        or sessions::client;
    /// The client opens a connection for each request.
    ClientNoKeepAlive = "client-no-keep-alive":
        "keep the connection open and send the next request on it"
        or sessions::keep_alive;
    /// The client offers TLS compression.
    ClientCompressionOffered = "client-compression-offered":
        NO_COMPRESSION
        or handshakes::compression;
    /// The client offers neither TLS 1.2 nor 1.3.
    ClientOldVersion = "client-old-version":
        "update the TLS library";
    /// The client sends no server name.
    ClientNoSni = "client-no-sni":
        "connect by name, and set the name on the connection";
    /// The ClientHello does not fit into one segment.
    ClientHelloLarge = "client-hello-large":
        "if a post-quantum key share is the cause, change nothing: it is worth a packet. If a ticket is the cause, only its server can issue shorter ones";
    /// Handshakes of the client take an additional round trip.
    ClientExtraRoundTrip = "client-extra-round-trip":
        "offer a key share for X25519 first";
    /// The client uses much CPU time per connection.
    ClientCpu = "client-cpu":
        "create the context once, load the trust store once, and do not start a process for each request"
        or handshakes::client_cpu;
}

impl FindingId {
    /// Returns what to change in this software.
    pub(super) fn advice(self, software: SoftwareKind) -> String {
        match (self.software_advice()(software), software) {
            // An operator cannot call a function of its library.
            (Some(special), SoftwareKind::OpenSsl) => format!(
                "{}, in its source unless it has a setting for this: {}",
                software.name(),
                quoted::filled(special)
            ),
            (special, _) => worded(software, special.unwrap_or(self.general_advice())),
        }
    }

    /// Returns what to change in any software.
    pub(super) fn advice_for_any(self) -> String {
        quoted::filled(self.general_advice())
    }
}

fn worded(software: SoftwareKind, advice: &str) -> String {
    let advice = quoted::filled(advice);
    match software {
        SoftwareKind::Unknown => advice,
        known => format!("{}: {advice}", known.name()),
    }
}

impl fmt::Display for FindingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl From<FindingId> for &'static str {
    fn from(id: FindingId) -> Self {
        id.name()
    }
}

impl TryFrom<String> for FindingId {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|id| id.name() == name);
        known.copied().ok_or_else(|| {
            format!("unknown finding {name:?} (a newer dormouse may have written it)")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_fits_the_software() {
        let growing = FindingId::SessionCacheGrows.advice(SoftwareKind::Nginx);
        assert!(growing.contains("shared:SSL"));
        let client = FindingId::ClientNeverResumes.advice(SoftwareKind::Perl);
        assert!(client.contains("SSL_reuse_ctx"));
        let slow = FindingId::FirstConnectionSlow.advice(SoftwareKind::Unknown);
        assert!(!slow.contains("unknown"));
    }

    #[test]
    fn every_finding_has_advice() {
        assert!(FindingId::ALL.len() >= 20);
        for id in FindingId::ALL {
            let advice = id.advice(SoftwareKind::Unknown);
            assert!(
                advice.len() > 10 && advice != "nothing needs to be changed",
                "{id}"
            );
        }
    }

    #[test]
    fn identifiers_are_kept_and_unknown_ones_refused() {
        for id in FindingId::ALL {
            let json = serde_json::to_string(id).unwrap();
            assert_eq!(json, format!("\"{id}\""));
            assert_eq!(serde_json::from_str::<FindingId>(&json).unwrap(), *id);
        }
        let error = serde_json::from_str::<FindingId>("\"warp-core-breach\"").unwrap_err();
        assert!(
            error
                .to_string()
                .contains("unknown finding \"warp-core-breach\""),
            "{error}"
        );
    }
}
