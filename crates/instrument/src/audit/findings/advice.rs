//! What to change, in which software. A figure is quoted only where the change was tried on the
//! real thing: by `lab/compare` (variants `default` and `memory`), `lab/audit`, `lab/allocators`,
//! `lab/clients` and `lab/figures`, or on the systems of the cases which this project began with.
//! Where a change was not tried, the text says so.

use super::super::software::Kind;

/// The name of the advice for `heap-fragmented` where nothing grows.
pub(super) const HOLES: &str = "heap-fragmented, no growth";

/// What to change for a finding, in this software.
pub(super) fn of(kind: Kind, id: &str) -> String {
    let special = match id {
        "record-buffers-kept" | "bytes-per-connection" => memory(kind),
        HOLES => holes(kind),
        "heap-fragmented" | "session-cache-grows" | "grows-under-churn" | "leak-per-connection" => {
            growth(kind)
        }
        "no-resumption" | "no-tickets" | "no-resumption-in-one-version" | "resumption-partial" => {
            resumption(kind)
        }
        "compression-accepted" | "client-compression-offered" => compression(kind),
        "client-never-resumes"
        | "client-seldom-resumes"
        | "client-same-session-for-ever"
        | "client-tickets-reused" => client(kind),
        "renegotiation-by-client" => renegotiation(kind),
        "client-no-keep-alive" => keep_alive(kind),
        "handshake-cpu" | "resumption-not-cheaper" => cpu(kind),
        _ => None,
    };
    let advice = special.unwrap_or_else(|| general(id));
    match kind {
        Kind::Unknown => advice.to_owned(),
        known => format!("{}: {advice}", known.name()),
    }
}

fn renegotiation(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Node => Some(
            "set minVersion to TLSv1.3, or tls.CLIENT_RENEG_LIMIT = 0 and destroy the socket when it says 'error', which ends the connection as soon as a client begins (tried with Node 20.20.2); by itself Node allows three in ten minutes, and only says so then",
        ),
        _ => None,
    }
}

/// What a quiet connection keeps. Quoted is `lab/compare`, 9,500 connections; a test holds the words to its results.
fn memory(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Python => {
            "use a Protocol in place of streams, and set asyncio.sslproto.SSLProtocol.max_size (no public setting) to 16 * 1024: its read buffer is 256 kB per connection. Tried with CPython 3.11.7: 287,108 → 37,811 bytes per connection. OpenSSL's two record buffers remain (the ssl module cannot set SSL_MODE_RELEASE_BUFFERS); with TLS ended by `dormouse serve` in front the same program took 2 kB"
        }
        Kind::Twisted => {
            "make the context with twisted.internet.ssl.CertificateOptions, which sets SSL_MODE_RELEASE_BUFFERS, in place of DefaultOpenSSLContextFactory. Tried with Twisted 26.10.0: 49,261 → 25,859 bytes per connection; it turns sessions and tickets off (seen: 0 of 16 resumed)"
        }
        Kind::NettyJdk => {
            "use netty-tcnative (BoringSSL) in place of the JDK's SSLEngine. Tried with Netty 4.1.118 on Java 17: 31,892 → 10,860 bytes per connection. Staying with the JDK: the serial collector with small free ratios, which gives free heap back, and small pool chunks: 31,892 → 9,818. Buffers of 512 bytes to receive into hardly matter (audited with 2,000 connections: 105,843 → 94,988)"
        }
        Kind::NettyTcnative => {
            "it is among the best there are (10,860 bytes per connection with Netty 4.1.118); the serial collector and small pool chunks made it 9,718"
        }
        Kind::Node => {
            "no setting was found which helps: a small young generation, --optimize-for-size, one malloc arena and writing without pipe were tried with Node 20.20.2, 30,226 → 30,264 bytes per connection. Node releases OpenSSL's record buffers by itself, but keeps 64 kB for reading once 16 kB have come at a time. Let `dormouse serve` terminate TLS in front"
        }
        Kind::Go => {
            "copy with a buffer of 1 kB in place of io.Copy's 32 kB for each connection, and GOGC=25. Tried with Go 1.26.8: 39,669 → 16,805 bytes per connection; the goroutines' stacks remain"
        }
        Kind::Rustls => {
            "take a buffer only while there is something to read: tokio::io::copy keeps 8 kB per connection. Tried with tokio-rustls 0.26: 19,169 → 9,644 bytes per connection"
        }
        Kind::Nginx => {
            "in `stream`: proxy_buffer_size 4k, of which two are kept per connection. Tried with nginx 1.22.1: 36,524 → 23,634 bytes per connection. In `http` ssl_buffer_size 4k and small pools hardly matter (14,888 → 14,664): OpenSSL's record buffers are released already"
        }
        Kind::Haproxy => {
            "no setting was found which helps: tune.bufsize 4096 was tried with HAProxy 2.6.12, 17,767 → 17,747 bytes per connection; buffers are only taken while bytes are under way. What is left is OpenSSL's object: put `dormouse serve` in front to take it away"
        }
        Kind::Hitch => {
            "it has no setting for the memory of a quiet connection (42,544 bytes with hitch 1.7.2); started with LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0 it was 17,679. Put `dormouse serve` in its place: 197 bytes"
        }
        Kind::Stunnel => {
            "its memory are its threads' stacks, and it has no setting for them (78,024 bytes per connection with stunnel 5.68). Put `dormouse serve` in its place: 197 bytes"
        }
        Kind::Apache => {
            "no setting was found which helps: MaxMemFree 64 was tried with Apache 2.4.71 and the event MPM, 71,906 → 72,358 bytes per connection. Put `dormouse serve` in front: with Apache behind it, connections which have asked for nothing yet took 0.2 kB, those kept alive still 41 kB of Apache's own"
        }
        Kind::OpenSsl => {
            "SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS), and take the program's own buffers only while there is something in them. In Twisted, where it is one of the two settings, it was tried: 49,261 → 25,859 bytes per connection"
        }
        Kind::Perl => {
            "SSL_MODE_RELEASE_BUFFERS on the context (Net::SSLeay::CTX_set_mode). Not tried here with Perl"
        }
        _ => return None,
    })
}

/// Memory that grows with connections which come and go.
fn growth(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Nginx => {
            "`ssl_session_cache shared:SSL:10m` or `off` in place of `builtin`, which lies in the heap among the garbage of handshakes. Tried with nginx 1.22.1, 4,000 handshakes per round: no growth that could be told from noise, with `builtin` (0.4 ± 1.4 MB) or without a cache (−1.0 ± 1.6 MB)"
        }
        Kind::Hitch => {
            "no setting was found that changes it; restart its workers from time to time, or put `dormouse serve` in its place"
        }
        Kind::Node => {
            "look whether the growth ends after some rounds: V8 lets its heap grow before it collects. Tried with Node 20.20.2, 4,000 handshakes per round: it grew by 6.4 MB per round, and not at all with MALLOC_ARENA_MAX=1, --max-semi-space-size=1 and --optimize-for-size"
        }
        Kind::NettyTcnative => {
            "bound OpenSSL's session cache, which lies outside of the JVM's heap: SslContextBuilder.sessionCacheSize(n) with a small n, and sessionTimeout. Not tried; with the serial collector and small pool chunks (Netty 4.1.118) a round of 4,000 handshakes grew by 1.4 MB in place of 14.4 ± 24 MB"
        }
        Kind::NettyJdk | Kind::Jvm => {
            "look whether the growth ends after some rounds: a JVM lets its heap grow before it collects; -Xmx, or the serial collector with -XX:MaxHeapFreeRatio, bounds it. Not tried for growth under churn"
        }
        Kind::OpenSsl | Kind::Perl => {
            "SSL_CTX_sess_set_cache_size with a bound, or SSL_SESS_CACHE_NO_INTERNAL with tickets: OpenSSL's cache holds 20,480 sessions in the heap by default. Not tried here"
        }
        Kind::Twisted | Kind::Python => {
            "in pyOpenSSL context.set_session_cache_mode(SSL.SESS_CACHE_OFF), with tickets: OpenSSL's cache lies in the heap. The ssl module has no such switch. Not tried here"
        }
        _ => return None,
    })
}

/// Holes that stay when all have closed, without growth. Quoted is `lab/allocators`.
fn holes(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Nginx => {
            "start it with jemalloc in place of glibc's malloc: LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0. Tried with nginx 1.22.1: of what 1,500 connections took 94 % stayed when they had closed, with jemalloc nothing"
        }
        Kind::Haproxy => {
            "start it with jemalloc in place of glibc's malloc: LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0. Tried with HAProxy 2.6.12: of what 1,500 connections took all stayed when they had closed, with jemalloc 11 %"
        }
        Kind::Hitch => {
            "start it with jemalloc in place of glibc's malloc: LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0. Tried with hitch 1.7.2: of what 1,500 connections took all stayed when they had closed, with jemalloc 7 %; and a connection took 17,679 bytes in place of 42,810"
        }
        Kind::Dormouse => "they are those of the server behind it: audit that one by itself",
        Kind::Jvm | Kind::NettyJdk | Kind::NettyTcnative | Kind::Go | Kind::Unknown => return None,
        _ => {
            "start it with jemalloc in place of glibc's malloc: LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0. Not tried with it; with nginx 1.22.1 94 % stayed when all connections had closed, with jemalloc nothing"
        }
    })
}

/// Sessions that a server does not resume.
fn resumption(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Nginx => {
            "ssl_session_tickets on (the default: 16 of 16 resumed with nginx 1.22.1), and with several machines the same ssl_session_ticket_key file on all; for clients without tickets `ssl_session_cache shared:SSL:10m` (by session id: 0 of 16 without a cache, 16 of 16 with it)"
        }
        Kind::Apache => {
            "SSLSessionTickets on and `SSLSessionCache shmcb:/run/apache2/ssl_scache(512000)`, which all its processes share. Tried with Apache 2.4.71: 0 of 16 sessions resumed without both, 16 of 16 with them. In the case this project began with, a browser's share of the server's CPU fell from 6.83 % to under 1 %. Several machines need the same SSLSessionTicketKeyFile (not tried)"
        }
        Kind::Haproxy => {
            "do not set no-tls-tickets: by default HAProxy 2.6.12 resumed 16 of 16. The cache (tune.ssl.cachesize, 20,000) is shared by all its threads; several machines need the same tls-ticket-keys file on their bind lines (not tried)"
        }
        Kind::Hitch => {
            "do not turn tickets off: by default hitch 1.7.2 resumed 16 of 16; its workers share them, several machines cannot"
        }
        Kind::Stunnel => {
            "sessionCacheSize above 0 (by default stunnel 5.68 resumed 16 of 16), and ticketKeySecret with ticketMacSecret, the same on all machines (not tried)"
        }
        Kind::Node => {
            "by default Node 20.20.2 resumed 16 of 16 by ticket. In a cluster give all processes the same ticketKeys (48 bytes) in tls.createServer's options, or server.setTicketKeys from the primary; without it each process knows its own tickets only (not tried)"
        }
        Kind::Twisted => {
            "CertificateOptions turns sessions and tickets off: 0 of 16 resumed with Twisted 26.10.0, 16 of 16 with DefaultOpenSSLContextFactory. To have both: context.set_session_id(b'…') and OP_NO_TICKET cleared on the context it makes (not tried)"
        }
        Kind::Python => {
            "the context must be one for all connections: so CPython 3.11.7 resumed 16 of 16. With several processes the ticket keys cannot be shared through the ssl module: one process, or let `dormouse serve` terminate"
        }
        Kind::NettyJdk | Kind::Jvm => {
            "one SSLContext for all connections (so Netty 4.1.118 on Java 17 resumed TLS 1.3 by ticket); keys cannot be shared between processes: let `dormouse serve` terminate"
        }
        Kind::NettyTcnative => {
            "OpenSslSessionContext.setTicketKeys, with the same keys in all processes (not tried)"
        }
        Kind::Go => {
            "one tls.Config for all connections: so Go 1.26.8 resumed 16 of 16. SetSessionTicketKeys with the same keys in all processes (not tried)"
        }
        Kind::Rustls => {
            "set ServerConfig.ticketer (rustls has none by default for TLS 1.2; its memory cache is per process), with keys that all processes share. Tried in lab/sick: in four processes a quarter of the sessions was resumed with keys of their own, all with shared ones"
        }
        Kind::OpenSsl => {
            "SSL_CTX_set_session_id_context, tickets on, and SSL_CTX_set_tlsext_ticket_key_evp_cb with keys that all processes share. Not tried here"
        }
        Kind::Dormouse => {
            "`tickets` of the configuration is 0, or the ticket keys of several machines differ"
        }
        _ => return None,
    })
}

fn compression(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Node => {
            "update it, or secureOptions: constants.SSL_OP_NO_COMPRESSION. In Node 0.4 turning it off took 200 connections from 200 MB to 15 MB"
        }
        Kind::Twisted => {
            "context.set_options(SSL.OP_NO_COMPRESSION). In the case this project began with: 1.15 GB → about 300 MB"
        }
        Kind::Python => "context.options |= ssl.OP_NO_COMPRESSION (the default since Python 3.6)",
        Kind::Apache => "SSLCompression off (the default since 2.4.4)",
        Kind::Nginx | Kind::Haproxy | Kind::Hitch | Kind::Stunnel | Kind::OpenSsl | Kind::Perl => {
            "update OpenSSL to 1.1.0 or later, or set SSL_OP_NO_COMPRESSION"
        }
        _ => return None,
    })
}

/// Sessions that a client does not offer, or always the same.
fn client(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Perl => {
            "make one context for all: my $ctx = IO::Socket::SSL::SSL_Context->new(…, SSL_session_cache_size => 64), passed as ssl_opts => { SSL_reuse_ctx => $ctx }. Tried with LWP 6.68: 0 of 40 resumed with a new agent each time, 39 of 40 with the shared context, in TLS 1.3 and 1.2. Or leave the script as it is and connect through `dormouse connect`: 39 of 40. In the case this project began with, the script's share of the server's CPU fell from 20.5 % to under 1 %; a session which is never renewed is cured by a fresh context after a number of requests"
        }
        Kind::Python => {
            "one ssl.SSLContext for all is not enough, for http.client sets no session by itself (tried with CPython 3.11.7: 0 of 40 resumed). Pass session=previous.session to wrap_socket, taken after the first answer was read: 39 of 40. Or keep one requests.Session, whose connections live on (not tried); or connect through `dormouse connect`: 39 of 40 without a change to the client's TLS"
        }
        Kind::Node => {
            "keep one https.Agent: it caches sessions per host. Tried with Node 20.20.2: 0 of 40 resumed with a new agent each time, 39 of 40 with one; with keepAlive: true one connection took all 40 requests"
        }
        Kind::Go => {
            "tls.Config.ClientSessionCache = tls.NewLRUClientSessionCache(64), and one http.Transport for all requests. Not tried here"
        }
        Kind::Rustls => {
            "one ClientConfig for all connections: its session store is in it. Tried in lab/sick: 0 of 12 resumed with a new one each time, 11 of 12 with one"
        }
        Kind::Jvm | Kind::NettyJdk => {
            "one SSLContext (and one HttpClient) for all connections; sessions live in it, by host name and port. Not tried here"
        }
        Kind::NettyTcnative => {
            "one SslContext for all connections, with newHandler(allocator, host, port): sessions are kept by host and port. Not tried here"
        }
        Kind::OpenSsl => {
            "one SSL_CTX for all; keep the session from SSL_CTX_sess_set_new_cb (in TLS 1.3 it comes after the handshake), give it to the next connection by SSL_set_session, and renew it. Tried through Perl and Python, which do so: 39 of 40 resumed"
        }
        _ => return None,
    })
}

fn keep_alive(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Perl => "LWP::UserAgent->new(keep_alive => 8), one for all requests. Not tried here",
        Kind::Python => {
            "one requests.Session or http.client.HTTPSConnection for all requests. Not tried here"
        }
        Kind::Node => {
            "one https.Agent with keepAlive: true. Tried with Node 20.20.2: 40 requests on one connection in place of 40"
        }
        Kind::Go => {
            "one http.Client; read the body to its end and close it, or the connection is not used again. Not tried here"
        }
        _ => return None,
    })
}

fn cpu(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Node => {
            "make the secure context once (tls.createSecureContext) and do not pass `ca` to every connection: in Node 0.4 one shared, parsed-once store took 70 requests per second to 700"
        }
        Kind::Python | Kind::Twisted => {
            "make one SSLContext and share it: load_verify_locations or load_default_certs for each connection parses all root certificates again. Not tried here"
        }
        Kind::Nginx | Kind::Haproxy => {
            "an ECDSA P-256 certificate beside or in place of RSA (tried: 1,287 → 576 µs per handshake with nginx 1.22.1, 1,365 → 733 with HAProxy 2.6.12); tickets on, so that most handshakes are resumed (576 → 498, 733 → 584)"
        }
        Kind::Hitch | Kind::Stunnel | Kind::Apache => {
            "an ECDSA P-256 certificate beside or in place of RSA, and tickets on, so that most handshakes are resumed. Not tried with it; with nginx 1.22.1: 1,287 → 576 µs per handshake, 498 resumed"
        }
        Kind::OpenSsl => {
            "one SSL_CTX for all connections; no SSL_CTX_load_verify_locations per connection; an ECDSA certificate. Not tried here"
        }
        _ => return None,
    })
}

fn general(id: &str) -> &'static str {
    match id {
        "record-buffers-kept" => {
            "keep a buffer only while something is in it; begin with the size of real flights and let it grow. Where that cannot be changed, let `dormouse serve` terminate TLS in front"
        }
        "bytes-per-connection" => {
            "drop what a connection does not need to go on: buffers, handshake state, parsed certificates. Where that cannot be changed, let `dormouse serve` terminate TLS in front"
        }
        "context-per-connection" => {
            "parse certificates, trust stores and configuration once and share them: in Node 0.4 a store for each connection was 20 % of the memory and 90 % of the time of a request"
        }
        HOLES => {
            "malloc gives a page back only when nothing on it is in use. Keep long-lived entries in memory of their own, apart from what connections take, and call malloc_trim(0) after a burst"
        }
        "heap-fragmented" => {
            "keep long-lived entries (the session cache) in memory of their own, bounded and apart from what a handshake allocates; malloc_trim(0) after a burst helps only where nothing pins the pages"
        }
        "session-cache-grows" => {
            "give the cache a bound in entries or bytes and evict the oldest; or turn it off and use tickets, which take nothing on the server"
        }
        "leak-per-connection" => {
            "look for what is allocated when a connection begins and has no counterpart when it ends; the size of the blocks that become more is above"
        }
        "grows-under-churn" => {
            "turn the session cache off and audit again: if it still grows, something of each connection is never freed"
        }
        "no-resumption" => "turn session tickets on",
        "no-tickets" => {
            "turn session tickets on: they take nothing on the server, and all processes can share their keys"
        }
        "no-resumption-in-one-version" => "turn session tickets on for this version too",
        "resumption-partial" => {
            "give all processes and machines the same ticket keys, or one session cache that they share; rotate the keys together"
        }
        "compression-accepted" | "client-compression-offered" => "turn TLS compression off",
        "handshake-cpu" | "resumption-not-cheaper" => {
            "find out with a profiler what a handshake does besides its cryptography; make and parse once whatever is the same for all connections"
        }
        "idle-cpu" => {
            "one timer for all connections in place of one for each; wait for events in place of asking every connection"
        }
        "first-connection-slow" => {
            "do at the start what belongs there: seed the random generator, load keys and certificates, make one handshake with oneself before the listener opens"
        }
        "old-versions" => "allow TLS 1.2 and 1.3 only",
        "no-tls13" => "update the TLS library and allow TLS 1.3",
        "no-renegotiation-info" => "update the TLS library, or allow TLS 1.3 only",
        "renegotiation-insecure" => "update the TLS library; allow TLS 1.3 only until then",
        "renegotiation-by-client" => {
            "refuse it (OpenSSL: SSL_OP_NO_RENEGOTIATION, and what 3.0 does by itself), or allow TLS 1.3 only"
        }
        "resumption-not-shared" => {
            "give all machines behind the name the same ticket keys, and rotate them together; a store of sessions which all of them reach does it too"
        }
        "resumption-ends-early" => {
            "accept tickets of the keys before the present one for as long as tickets are said to live, or say a shorter lifetime"
        }
        "early-data" => "turn 0-RTT off unless every request is safe to be repeated",
        "certificate-expires" => "renew the certificate and load it",
        "flight-large" => "leave the root certificate out of the chain, and use ECDSA certificates",
        "client-never-resumes" => {
            "keep one TLS context for all connections to a server; sessions live in it"
        }
        "client-seldom-resumes" => {
            "share one context between all connections, and read at least one answer before a connection is closed: TLS 1.3 sends tickets after the handshake"
        }
        "client-same-session-for-ever" => {
            "take the session that the newest connection was given, and make a full handshake from time to time"
        }
        "client-tickets-reused" => "keep several tickets per server and use each once",
        "client-no-keep-alive" => "keep the connection and send the next request on it",
        "client-cpu" => {
            "make the context once; load the trust store once; do not start a process for each request"
        }
        "client-old-version" => "update the TLS library",
        "client-no-sni" => "connect by name, and set the name on the connection",
        "client-extra-round-trip" => "offer a key share for X25519 first",
        "client-hello-large" => {
            "keep a post-quantum share, which makes it so and is worth a packet; if it is the ticket, its server can make that shorter, which a client can't"
        }
        _ => "nothing needs to be changed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_fits_the_software() {
        assert!(of(Kind::Nginx, "heap-fragmented").contains("shared:SSL"));
        assert!(of(Kind::Perl, "client-never-resumes").contains("SSL_reuse_ctx"));
        assert!(!of(Kind::Unknown, "first-connection-slow").contains("unknown"));
    }

    /// Peer of the lab, whose advice speaks of it, and whether `memory` is quoted beside `default`.
    const QUOTED: [(&str, Kind, bool); 13] = [
        ("asyncio", Kind::Python, true),
        ("twisted", Kind::Twisted, true),
        ("netty-jdk", Kind::NettyJdk, true),
        ("netty-tcnative", Kind::NettyTcnative, true),
        ("node", Kind::Node, true),
        ("go", Kind::Go, true),
        ("tokio-rustls", Kind::Rustls, true),
        ("nginx-stream", Kind::Nginx, true),
        ("nginx-http", Kind::Nginx, true),
        ("haproxy", Kind::Haproxy, true),
        ("apache", Kind::Apache, true),
        ("hitch", Kind::Hitch, false),
        ("stunnel", Kind::Stunnel, false),
    ];

    #[test]
    fn what_is_quoted_was_measured() {
        let lab = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/results");
        let runs = std::fs::read(format!("{lab}/compare-2026-11-21/runs.json")).unwrap();
        let runs: Vec<serde_json::Value> = serde_json::from_slice(&runs).unwrap();
        let measured = |peer: &str, variant: &str| {
            let run = runs.iter().find(|run| {
                let lab = &run["lab"];
                lab["peer"] == peer && lab["variant"] == variant && lab["mode"] == "hold"
            });
            let figures = run.unwrap()["figures"].as_array().unwrap().iter();
            let mut per = figures.filter(|figure| figure["name"] == "memory.per_connection.pss");
            crate::model::grouped(per.next().unwrap()["value"].as_f64().unwrap(), 0)
        };
        for (peer, kind, both) in QUOTED {
            let said = of(kind, "bytes-per-connection");
            let default = measured(peer, "default");
            assert!(
                said.contains(&default),
                "{peer}: {default} is not in {said:?}"
            );
            let memory = measured(peer, if both { "memory" } else { "default" });
            assert!(
                said.contains(&memory),
                "{peer}: {memory} is not in {said:?}"
            );
        }
    }

    #[test]
    fn every_finding_has_advice() {
        let source = [
            include_str!("server.rs"),
            include_str!("memory.rs"),
            include_str!("resumption.rs"),
            include_str!("client.rs"),
        ]
        .concat();
        let mut ids = 0;
        for id in source.split('"').filter(|word| {
            word.contains('-')
                && word
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c == '-' || c.is_ascii_digit())
        }) {
            if id.starts_with('-') || id == "-n" {
                continue;
            }
            ids += 1;
            assert_ne!(of(Kind::Unknown, id), "nothing needs to be changed", "{id}");
        }
        assert!(ids >= 20, "{ids}");
    }
}
