//! All findings that an audit can make, a row for each.
//!
//! A row has the texts of a finding: its title, what is good instead, the usual cause and what to change in any software.
//! `{name}` is a figure of the audit, `{{name}}` a figure of the lab (`findings/quoted.md`). The rules that make a finding
//! are in `findings/`; where they see a special cause, they name it instead of the usual one. What to change in one
//! kind of software is in the file of that software.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Can be improved.
    Low,
    /// Costs noticeably more than needed.
    Medium,
    /// Costs a multiple of what is needed, or breaks something.
    High,
}

impl Severity {
    /// All of them, the most severe first.
    pub const ALL: [Self; 4] = [Self::High, Self::Medium, Self::Low, Self::Info];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// Returns the severity of the first limit that is exceeded; the limits begin with the most severe.
    pub(crate) fn above(limits: &[(f64, Self)], value: f64) -> Option<Self> {
        let exceeded = limits.iter().find(|(limit, _)| value > *limit);
        exceeded.map(|(_, severity)| *severity)
    }
}

/// Confidence in the cause of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// One of several causes that fit.
    Low,
    /// The cause fits, and few others do.
    Medium,
    /// The cause was seen directly.
    High,
}

/// The texts of a finding.
pub(crate) struct FindingRow {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// What a good server or client does.
    pub(crate) good: &'static str,
    /// The usual cause, and the confidence in it.
    pub(crate) cause: &'static str,
    pub(crate) confidence: Confidence,
    /// What to change in any software.
    pub(crate) change: &'static str,
    /// Mode and options of `bench` that show it again; `None`: another audit does.
    pub(crate) again: Option<&'static str>,
}

/// Defines the findings: name, identifier, texts.
macro_rules! findings {
    ($($(#[$doc:meta])* $id:ident = $name:literal {
        title: $title:expr,
        good: $good:expr,
        cause $confidence:ident: $cause:expr,
        change: $change:expr,
        $(again: $again:literal,)?
    })+) => {
        /// A kind of finding. Its identifier is stable because stored audits contain it.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "&'static str")]
        pub enum FindingId {
            $($(#[$doc])* $id,)+
        }

        impl FindingId {
            /// All kinds of findings.
            pub const ALL: &[Self] = &[$(Self::$id),+];

            pub(crate) fn row(self) -> &'static FindingRow {
                match self {
                    $(Self::$id => {
                        const ROW: FindingRow = FindingRow {
                            name: $name,
                            title: $title,
                            good: $good,
                            cause: $cause,
                            confidence: Confidence::$confidence,
                            change: $change,
                            again: [$(Some($again),)? None][0],
                        };
                        &ROW
                    })+
                }
            }
        }
    };
}

/// What a connection needs.
macro_rules! needed {
    () => {
        "a few hundred bytes: two traffic secrets and two sequence numbers (dormouse serve: {{compare.dormouse}})"
    };
}

const NO_GROWTH: &str = "no growth: a closed connection leaves nothing behind";
const GROWS: &str = "memory grows by {bytes} for every closed connection";

const OLD_LIBRARY: &str = "an old TLS library";
const NO_COMPRESSION: &str = "turn TLS compression off";
const HAS_ZLIB: &str = "the TLS library was built with zlib, and compression is not switched off";
const PROFILER: &str = "find out with a profiler what a handshake does besides its cryptography, and create or parse once what all connections share";
const ALL_RESUMED: &str =
    "all sessions are resumed: a resumed handshake needs no signature and no certificate";
const LATER_RESUME: &str = "all connections but the first resume";
const NO_RENEGOTIATION: &str =
    "the server refuses renegotiation, or offers TLS 1.3 only, which has none";
const DISCARDED: &str = "the client keeps no sessions or discards them, or it creates a new TLS context for each connection";

findings! {
    /// Every idle connection keeps buffers as large as a record.
    RecordBuffersKept = "record-buffers-kept" {
        title: "every idle connection keeps {buffers} buffers as large as a record",
        good: concat!("no buffer while no record is in flight; ", needed!()),
        cause High: "each connection allocates a buffer for the largest record (2^14 bytes) in each direction and keeps both while it is idle",
        change: "hold a buffer only while it contains data; start with the size of real flights and let it grow. If that cannot be changed, put `dormouse serve` in front to terminate TLS",
        again: "hold -n 2000",
    }
    /// An idle connection uses many bytes, and no single cause explains them.
    BytesPerConnection = "bytes-per-connection" {
        title: "an idle connection takes {bytes}",
        good: needed!(),
        cause Medium: "most of the memory is in {parts}",
        change: "free what an established connection no longer needs: buffers, handshake state, parsed certificates. If that cannot be changed, put `dormouse serve` in front to terminate TLS",
        again: "hold -n 2000",
    }
    /// Every connection has a process of its own.
    ProcessPerConnection = "process-per-connection" {
        title: "every connection has a process of its own, {bytes} each",
        good: "a few processes or threads for all connections",
        cause High: "the server starts a process for each connection, with a heap of its own",
        change: "let one process serve many connections if the server has a setting for that (Dovecot: `service_count = 0` of its login services; PostgreSQL: a connection pool in front; neither was tried in the lab), or put `dormouse serve` in front of a server that speaks TLS from the first byte",
        again: "hold -n 2000",
    }
    /// Every connection has a context or a trust store of its own.
    ContextPerConnection = "context-per-connection" {
        title: "every connection has its own context or trust store",
        good: "one context for all connections: certificates, trust stores and keys are parsed once",
        cause Medium: "blocks of that number and variety are parsed certificates or a whole configuration, which each connection parses and keeps",
        change: "parse certificates, trust stores and configuration once and share them. In a case that started this project (Node 0.4), a store for each connection took 20 % of the memory and 90 % of the time of a request",
        again: "hold -n 2000",
    }
    /// Blocks in use pin pages that are otherwise free.
    HeapFragmented = "heap-fragmented" {
        title: "blocks in use keep pages resident that are otherwise free",
        good: "memory returns to its level before the connections (dormouse serve keeps {{compare.dormouse-left}} of what they took)",
        cause High: "blocks that outlive connections (sessions, statistics, caches) lie between the blocks of connections, and each keeps its page resident",
        change: "keep long-lived entries, such as the session cache, in a bounded memory area of their own, separate from what a handshake allocates. malloc_trim(0) does not help: it returns only pages without a block in use",
        again: "churn -n 20000 -c 500 --rounds 5",
    }
    /// The allocator retains whole free pages.
    FreeMemoryRetained = "free-memory-retained" {
        title: "the allocator keeps free memory after a burst of connections",
        good: "free pages return to the system, or the next burst uses them",
        cause High: "malloc returns only the end of its heap to the system until the program calls malloc_trim. Later connections use these pages, so this is neither a leak nor fragmentation",
        change: "if bursts recur, change nothing: the next burst uses the pages. Otherwise call malloc_trim(0) after a burst, or limit the arenas (MALLOC_ARENA_MAX=1) and lower the threshold at which malloc returns memory (MALLOC_TRIM_THRESHOLD_=131072). Not tried in the lab",
        again: "hold -n 2000",
    }
    /// A session cache grows without a bound.
    SessionCacheGrows = "session-cache-grows" {
        title: GROWS,
        good: NO_GROWTH,
        cause High: "sessions: resumed connections leave only {share} as much behind as full ones. The session cache has no limit, or it is not full yet",
        change: "limit the cache in entries or bytes and evict the oldest; or turn it off and use tickets, which need no memory on the server",
        again: "churn -n 5000 -c 50 --rounds 5",
    }
    /// Some memory of each connection is never freed.
    LeakPerConnection = "leak-per-connection" {
        title: GROWS,
        good: NO_GROWTH,
        cause High: "not sessions: resumed connections, which create no session, leave {share} as much behind as full ones. Each connection leaves memory that is never freed",
        change: "look for what a connection allocates at its start and does not free at its end; `measured` has the sizes of the blocks that accumulate",
        again: "churn -n 5000 -c 50 --rounds 5",
    }
    /// A mapping of a fixed size fills page by page.
    SharedMemoryFills = "shared-memory-fills" {
        title: GROWS,
        good: NO_GROWTH,
        cause Medium: "a shared mapping of fixed size fills, such as a session cache: its pages become resident one by one until all are",
        change: "change nothing if the machine has room for the full mapping. Its size is set by `ssl_session_cache shared:NAME:SIZE` in nginx, `SSLSessionCache shmcb:PATH(SIZE)` in Apache, tune.ssl.cachesize in HAProxy",
        again: "churn -n 5000 -c 50 --rounds 5",
    }
    /// Memory grows as connections open and close, and the cause is not known.
    GrowsUnderChurn = "grows-under-churn" {
        title: GROWS,
        good: NO_GROWTH,
        cause Low: "not known: a leak per connection, or a session cache without a limit. Growth over resumed connections would distinguish them, and is not known for certain",
        change: "turn the session cache off and audit again: if memory still grows, each connection leaves memory behind",
        again: "churn -n 5000 -c 50 --rounds 5",
    }
    /// A client that offers a session gets no connection.
    SessionOfferRefused = "session-offer-refused" {
        title: "a client that offers a session of {versions} gets no connection",
        good: "the server resumes the session, or makes a full handshake",
        cause Medium: "the server issues sessions that it cannot accept, and ends the handshake instead of making a full one",
        change: "find out in the server's log why it refuses the session; until then turn tickets and the session cache off: clients then make full handshakes instead of failing",
    }
    /// No session is ever resumed.
    NoResumption = "no-resumption" {
        title: "the server resumes no session",
        good: ALL_RESUMED,
        cause Low: "tickets and session cache are off, or the ticket keys change with every connection",
        change: "resume sessions by ticket, with keys that outlive a connection and that all processes share",
        again: "churn -n 1000 -c 8 --resume",
    }
    /// Sessions are resumed by id only.
    NoTickets = "no-tickets" {
        title: "the server resumes sessions{of_version} by id only",
        good: ALL_RESUMED,
        cause High: "the server sends no ticket: they are off",
        change: "turn session tickets on: they need no memory on the server, and all processes can share their keys",
        again: "churn -n 1000 -c 8 --resume",
    }
    /// No session of one version is resumed.
    NoResumptionInOneVersion = "no-resumption-in-one-version" {
        title: "the server resumes no session{of_version}",
        good: ALL_RESUMED,
        cause High: "the server sends no ticket: they are off",
        change: "turn session tickets on for this version too",
        again: "churn -n 1000 -c 8 --resume",
    }
    /// Only a part of the sessions is resumed.
    ResumptionPartial = "resumption-partial" {
        title: "the server resumes only {share} of the sessions{of_version}",
        good: ALL_RESUMED,
        cause Medium: "the share is consistent with {places} processes or machines ({least} to {most}) that each have their own ticket keys or session cache: a client that returns to another one is not recognised",
        change: "give all processes and machines the same ticket keys, or one session cache that they share; rotate the keys together",
        again: "churn -n 1000 -c 8 --resume",
    }
    /// Sessions are not resumed at another address of the same name.
    ResumptionNotShared = "resumption-not-shared" {
        title: "{share} of the sessions are resumed at another address of the server's name",
        good: "all of them: a returning client may reach any of the machines",
        cause High: "each machine has its own ticket keys or session cache",
        change: "give all machines behind the name the same ticket keys, and rotate the keys together; or use a session store that all machines share",
    }
    /// A ticket is refused before its lifetime is over.
    ResumptionEndsEarly = "resumption-ends-early" {
        title: "the server refuses sessions before their lifetime ends",
        good: "{lifetime} s, the lifetime that the server announced",
        cause Medium: "the server replaced its ticket keys and dropped the earlier ones",
        change: "accept tickets under earlier keys until their announced lifetime ends, or announce a shorter lifetime",
    }
    /// The server accepts TLS compression.
    CompressionAccepted = "compression-accepted" {
        title: "the server accepts TLS compression",
        good: "no compression: it leaks secrets (CRIME) and takes memory for every connection. Turned off with {{advice.openssl.compression}}",
        cause High: HAS_ZLIB,
        change: NO_COMPRESSION,
    }
    /// The server accepts TLS 1.0 or 1.1.
    OldVersions = "old-versions" {
        title: "the server accepts TLS versions that RFC 8996 has withdrawn",
        good: "TLS 1.2 and 1.3 only",
        cause High: "the configuration allows these versions",
        change: "allow TLS 1.2 and 1.3 only",
    }
    /// The server does not offer TLS 1.3.
    NoTls13 = "no-tls13" {
        title: "the server does not offer TLS 1.3",
        good: "TLS 1.3 needs one round trip less",
        cause High: "an old TLS library, or the configuration forbids it",
        change: "update the TLS library and allow TLS 1.3",
    }
    /// The server does not announce secure renegotiation.
    NoRenegotiationInfo = "no-renegotiation-info" {
        title: "the server does not announce secure renegotiation",
        good: "announced (RFC 5746), or TLS 1.3 only",
        cause High: OLD_LIBRARY,
        change: "update the TLS library, or allow TLS 1.3 only",
    }
    /// The server renegotiates without protection (CVE-2009-3555).
    RenegotiationInsecure = "renegotiation-insecure" {
        title: "renegotiation is not protected: an attacker can insert data before the client's (CVE-2009-3555)",
        good: NO_RENEGOTIATION,
        cause High: "an old TLS library, or a setting that allows unsafe renegotiation",
        change: "update the TLS library; allow TLS 1.3 only until then",
    }
    /// A client may renegotiate as often as it likes.
    RenegotiationByClient = "renegotiation-by-client" {
        title: "a client can make the server repeat handshakes on one connection",
        good: NO_RENEGOTIATION,
        cause High: "the TLS library or the configuration allows it",
        change: "refuse renegotiation (OpenSSL 1.1.1: set SSL_OP_NO_RENEGOTIATION; since 3.0: do not set SSL_OP_ALLOW_CLIENT_RENEGOTIATION), or allow TLS 1.3 only",
    }
    /// The server accepts 0-RTT data, which can be replayed.
    EarlyData = "early-data" {
        title: "the server accepts 0-RTT data, which can be replayed",
        good: "no 0-RTT, unless every request is safe to repeat",
        cause High: "0-RTT is switched on",
        change: "turn 0-RTT off unless every request is safe to repeat",
    }
    /// A certificate of the chain has expired or will soon.
    CertificateExpires = "certificate-expires" {
        title: "a certificate of the chain {expires}",
        good: "more than 14 days",
        cause High: "the certificate was not renewed",
        change: "renew the certificate and load it",
    }
    /// The server's first flight takes an additional round trip.
    FlightLarge = "flight-large" {
        title: "the server's first flight takes an additional round trip",
        good: "{window} bytes fit into the first ten segments",
        cause High: "the certificate chain is long",
        change: "remove the root certificate from the chain, and use ECDSA certificates",
    }
    /// A full handshake costs a multiple of what it needs.
    HandshakeCpu = "handshake-cpu" {
        title: "a connection with a full handshake costs {times} times the CPU time that its handshake needs",
        good: "{needed} µs on this machine: {handshake} for Dormouse's handshake ({key} signature {signature}, key exchange {exchange}), {socket} for the socket{certificate}",
        cause Low: "most of the time is spent in the kernel: many small system calls per connection, or memory that the process returns and takes again. `strace -c -f -p PID` under load counts the calls",
        change: PROFILER,
        again: "churn -n 2000 -c 16",
    }
    /// Signatures with a large RSA key dominate the handshake.
    SignatureDear = "signature-dear" {
        title: "signatures with an {key} key dominate the handshake",
        good: "a handshake with ECDSA P-256 takes {handshake} µs on this machine, its signature included",
        cause High: "the certificate has a key of {bits} bits",
        change: "use an ECDSA P-256 certificate beside the RSA one or instead of it, or an RSA key of 2,048 bits",
        again: "churn -n 2000 -c 16",
    }
    /// A resumed handshake costs as much as a full one.
    ResumptionNotCheaper = "resumption-not-cheaper" {
        title: "resuming a session of {version} saves no CPU time",
        good: "a resumed handshake saves at least the signature",
        cause Low: "the server does other work for a resumed session, which costs as much as the signature",
        change: PROFILER,
        again: "churn -n 2000 -c 16 --resume",
    }
    /// Handshakes wait for each other, or for clients that say nothing.
    HandshakesSerialised = "handshakes-serialised" {
        title: "handshakes use one core, while others are idle",
        good: "several threads or processes make handshakes, so that they can use all cores",
        cause Medium: "one thread makes all handshakes, or one lock is held during each",
        change: "accept without a handshake, and make handshakes with non-blocking sockets or in a thread for each connection, with a time limit and without a lock that is held while anything waits. For more than one core, start several threads or processes that share the listening socket. Tried in lab/sick: the same servers with a handshake in each connection's thread, and without the lock, have no finding",
    }
    /// Answers are sent in many small records.
    RecordsSmall = "records-small" {
        title: "answers are cut into records of {bytes} bytes",
        good: "one record for each of {answers} answers: {least} bytes of overhead, {share} of the content",
        cause Medium: "the program writes an answer in small pieces: a TLS library makes a record of each write",
        change: "collect an answer in a buffer and write it at once (OpenSSL: BIO_f_buffer or an own buffer before SSL_write; Go: bufio.Writer; Java: BufferedOutputStream; Node.js: cork and uncork). Tried in lab/sick: 9 answers with 4,044 bytes of data take 4,044 records if each byte is written by itself, and 12 if the server writes what it has read",
    }
    /// Records are padded to a large multiple.
    RecordsPadded = "records-padded" {
        title: "every record is padded by {bytes} bytes",
        good: "no padding, or so little that it takes no further segment of {segment} bytes",
        cause High: "the server pads records to a large multiple",
        change: "if the padding is not meant to hide the length of answers, turn it off; otherwise pad to a small multiple, such as 64 bytes (OpenSSL: SSL_CTX_set_block_padding, or RecordPadding in openssl.cnf). Tried in lab/sick with 4,096 and 64 bytes",
    }
    /// Idle connections cost CPU time.
    IdleCpu = "idle-cpu" {
        title: "the server uses CPU time while all connections are idle",
        good: "0 µs: nothing happens on an idle connection",
        cause Medium: "a timer for each connection, or a loop over all connections",
        change: "use one timer for all connections instead of one for each, and wait for events instead of polling every connection",
        again: "hold -n 1000 --for 10s",
    }
    /// The first connection does work that the server could do at its start.
    FirstConnectionSlow = "first-connection-slow" {
        title: "the first connection does work that belongs to the server's start",
        good: "the first connection costs as much as the thousandth",
        cause Medium: "the server seeds, loads or compiles something on the first connection instead of at its start",
        change: "do this work at the start: seed the random generator, load keys and certificates, and make one handshake in memory before the listener opens",
    }
    /// The client never offers a session.
    ClientNeverResumes = "client-never-resumes" {
        title: "the client never offers a session",
        good: LATER_RESUME,
        cause Medium: DISCARDED,
        change: "use one TLS context for all connections to a server: it holds the sessions",
    }
    /// The client resumes fewer than half of the connections that it could.
    ClientSeldomResumes = "client-seldom-resumes" {
        title: "the client resumes fewer than half of the connections that could resume",
        good: LATER_RESUME,
        cause Low: "several contexts, many connections at the same time, or tickets that arrive after the client has closed",
        change: "use one context for all connections, and read at least one answer before closing a connection: in TLS 1.3 the server sends tickets after the handshake",
    }
    /// The client resumes the same session again and again.
    ClientSameSessionForEver = "client-same-session-for-ever" {
        title: "the client resumes the same session again and again",
        good: "a client renews a session after some uses or some time, with a full handshake that verifies the certificate again",
        cause High: "the client offers the session of its first connection on all others and ignores later tickets",
        change: "offer the session that the latest connection received, and make a full handshake from time to time",
    }
    /// The client uses a TLS 1.3 ticket more than once.
    ClientTicketsReused = "client-tickets-reused" {
        title: "the client uses TLS 1.3 tickets more than once",
        good: "each ticket is used once (RFC 8446 C.4): an observer can recognise the client by a ticket that it sees twice",
        cause High: "the TLS library keeps one ticket per server",
        change: "keep several tickets per server and use each once",
    }
    /// The client opens a connection for each request.
    ClientNoKeepAlive = "client-no-keep-alive" {
        title: "the client opens a connection for every request",
        good: "one connection for many requests",
        cause Medium: "keep-alive is off, or the program creates a new client object for each request",
        change: "keep the connection open and send the next request on it",
    }
    /// The client offers TLS compression.
    ClientCompressionOffered = "client-compression-offered" {
        title: "the client offers TLS compression",
        good: "no compression: it leaks secrets (CRIME), and where the server accepts it, it takes memory. Turned off in a server with {{advice.openssl.compression}}",
        cause High: HAS_ZLIB,
        change: NO_COMPRESSION,
    }
    /// The client offers neither TLS 1.2 nor 1.3.
    ClientOldVersion = "client-old-version" {
        title: "the client supports withdrawn versions only",
        good: "TLS 1.3",
        cause High: OLD_LIBRARY,
        change: "update the TLS library",
    }
    /// The client sends no server name.
    ClientNoSni = "client-no-sni" {
        title: "the client sends no server name",
        good: "the client sends the name of the server, unless it connects by address",
        cause Low: "the client connects by address, or does not set the name. Java sends no name without a dot, such as `localhost` here",
        change: "connect by name, and set the name on the connection",
    }
    /// The ClientHello does not fit into one segment.
    ClientHelloLarge = "client-hello-large" {
        title: "the ClientHello takes two packets",
        good: "one packet, unless it has a post-quantum key share",
        cause Medium: "a post-quantum key share, or a long ticket",
        change: "if a post-quantum key share is the cause, change nothing: it is worth a packet. If a ticket is the cause, only its server can issue shorter ones",
    }
    /// Handshakes of the client take an additional round trip.
    ClientExtraRoundTrip = "client-extra-round-trip" {
        title: "the handshake takes an additional round trip",
        good: "a key share for a group that servers support: X25519",
        cause High: "the first key share of the client is for an unusual group",
        change: "offer a key share for X25519 first",
    }
    /// The client uses much CPU time per connection.
    ClientCpu = "client-cpu" {
        title: "the client spends {ms} ms of CPU time per connection",
        good: "a client needs a few milliseconds for a handshake",
        cause Low: "the client loads its trust store or creates a context for each connection",
        change: "create the context once, load the trust store once, and do not start a process for each request",
    }
}

impl FindingId {
    /// Returns the identifier: `record-buffers-kept`.
    pub fn name(self) -> &'static str {
        self.row().name
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
    fn every_finding_has_advice() {
        assert!(FindingId::ALL.len() >= 20);
        for id in FindingId::ALL {
            let advice = id.row().change;
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
