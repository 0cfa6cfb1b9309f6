//! What to change, in which software. A figure is quoted only where the change was tried on the
//! real thing (`lab/peers`, variants `default` and `memory`, 9,500 connections, and the systems of
//! the cases which this project began with); it is then said what was tried.

use super::super::software::Kind;

/// What to change for a finding, in this software.
pub(super) fn of(kind: Kind, id: &str) -> String {
    let special = match id {
        "record-buffers-kept" | "bytes-per-connection" => memory(kind),
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

fn memory(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Python => {
            "use a Protocol in place of streams, whose reader keeps up to 64 kB, and set asyncio.sslproto.SSLProtocol.max_size (no public setting) to 16 * 1024: its read buffer is 256 kB per connection. Tried with CPython 3.11: 287,433 → 41,830 bytes per connection"
        }
        Kind::Twisted => {
            "make the context with twisted.internet.ssl.CertificateOptions, which sets SSL_MODE_RELEASE_BUFFERS, in place of DefaultOpenSSLContextFactory. Tried with Twisted 26.10: 48,806 → 25,999 bytes per connection; it turns sessions off, so set a session id context and tickets again"
        }
        Kind::NettyJdk => {
            "use netty-tcnative (OpenSSL or BoringSSL) in place of the JDK's SSLEngine, which keeps arrays of 16 kB: 39,963 → 10,716 bytes per connection with Netty 4.1.118 on Java 17. Staying with the JDK: the serial collector, which gives free heap back, small pool chunks and unpooled heap buffers: 39,963 → 19,273"
        }
        Kind::NettyTcnative => {
            "most of what is left is the pipeline's; it is among the best there are (10,716 bytes per connection). Do not tune for it: small chunks and the serial collector made it 11,781"
        }
        Kind::Node => {
            "write without pipe, whose stream states are kept per connection, with --max-semi-space-size=1 --optimize-for-size and MALLOC_ARENA_MAX=1. Tried with Node 20.20: 35,737 → 31,247 bytes per connection. Node releases OpenSSL's record buffers of idle connections by itself"
        }
        Kind::Go => {
            "read into a buffer of 1 kB that is taken when something comes, in place of io.Copy with 32 kB for each connection, and GOGC=25. Tried with Go 1.26: 39,056 → 21,103 bytes per connection; the goroutines' stacks remain"
        }
        Kind::Rustls => {
            "take a buffer only while there is something to read: tokio::io::copy keeps 8 kB per connection. Tried with tokio-rustls 0.26: 18,038 → 10,876 bytes per connection"
        }
        Kind::Nginx => {
            "in `stream`: proxy_buffer_size 4k, of which two are kept per connection: 37,012 → 23,630 bytes per connection with nginx 1.22.1. In `http`: ssl_buffer_size 4k and small pools hardly matter (15,230 → 15,066): OpenSSL's record buffers are released already"
        }
        Kind::Haproxy => {
            "tune.bufsize hardly matters (17,866 → 17,702 bytes per connection with HAProxy 2.6.12): buffers are only taken while bytes are under way. What is left is OpenSSL's object: put `dormouse serve` in front to take it away"
        }
        Kind::Hitch => {
            "it has no setting for the memory of a quiet connection (47,021 bytes with hitch 1.7.2). Put `dormouse serve` in its place: 193 bytes"
        }
        Kind::Stunnel => {
            "its memory are its threads' stacks, and no setting changes them (81,605 bytes per connection with stunnel 5.68). Put `dormouse serve` in its place: 193 bytes"
        }
        Kind::Apache => {
            "MaxMemFree hardly matters (65,510 → 65,070 bytes per connection with the event MPM). Put `dormouse serve` in front and let Apache see short plain connections"
        }
        Kind::OpenSsl => {
            "SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS), and take the program's own buffers only while there is something in them"
        }
        Kind::Perl => {
            "SSL_mode with SSL_MODE_RELEASE_BUFFERS on the context (Net::SSLeay::CTX_set_mode)"
        }
        _ => return None,
    })
}

fn growth(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Nginx => {
            "`ssl_session_cache shared:SSL:10m` or `off` in place of `builtin`: the builtin cache lies in the heap among the garbage of handshakes. Measured with nginx 1.22.1, 20,000 handshakes per round, 500 at a time: builtin grew by 1 to 10 MB per round, without a cache 0"
        }
        Kind::Hitch => {
            "it grows by 7 to 10 MB per round of 20,000 handshakes (hitch 1.7.2) and no setting was found that changes it; restart its workers from time to time"
        }
        Kind::Node => {
            "run it with MALLOC_ARENA_MAX=1, and look whether the growth ends after some rounds: V8 lets its heap grow by 3 to 13 MB per round of 20,000 handshakes before it collects (Node 20.20)"
        }
        Kind::NettyTcnative => {
            "SslContextBuilder.sessionCacheSize(n) with a small n and sessionTimeout: the cache is outside of the JVM's heap, up to 60 MB per round of 20,000 handshakes (Netty 4.1.118)"
        }
        Kind::OpenSsl | Kind::Perl => {
            "SSL_CTX_sess_set_cache_size with a bound, or SSL_SESS_CACHE_NO_INTERNAL with tickets: OpenSSL's cache holds 20,480 sessions in the heap by default; MALLOC_ARENA_MAX=1 and malloc_trim(0) after bursts give holes back"
        }
        Kind::Twisted | Kind::Python => {
            "context.set_session_cache_mode(SSL.SESS_CACHE_OFF) with tickets (pyOpenSSL), or options |= OP_NO_TICKET only where there is a bounded cache: OpenSSL's lies in the heap; MALLOC_ARENA_MAX=1 keeps holes together"
        }
        _ => return None,
    })
}

fn resumption(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Nginx => {
            "ssl_session_tickets on (the default), and with several machines the same ssl_session_ticket_key file on all; for clients without tickets `ssl_session_cache shared:SSL:10m`"
        }
        Kind::Apache => {
            "SSLSessionTickets on and `SSLSessionCache shmcb:/run/apache2/ssl_scache(512000)`, which all its processes share; SSLSessionTicketKeyFile on all machines. In the case this project began with, the server's share of the CPU fell from 6.83 % to under 1 % at the same rate of requests"
        }
        Kind::Haproxy => {
            "do not set no-tls-tickets; the cache (tune.ssl.cachesize, 20,000) is shared by all its threads; several machines need the same tls-ticket-keys file on their bind lines"
        }
        Kind::Hitch => {
            "do not turn tickets off; several workers share them, several machines cannot"
        }
        Kind::Stunnel => {
            "sessionCacheSize above 0, and ticketKeySecret with ticketMacSecret, the same on all machines"
        }
        Kind::Node => {
            "in a cluster: give all processes the same ticketKeys (48 bytes) in tls.createServer's options, or server.setTicketKeys from the primary; without it each process knows its own tickets only"
        }
        Kind::Twisted => {
            "CertificateOptions turns sessions and tickets off: context.set_session_id(b'…') and clear OP_NO_TICKET on the context it makes"
        }
        Kind::Python => {
            "the context must be one for all connections; with several processes the ticket keys cannot be shared through the ssl module: let `dormouse serve` terminate, or one process"
        }
        Kind::NettyJdk | Kind::Jvm => {
            "one SSLContext for all connections; -Djdk.tls.server.enableSessionTicketExtension=true (the default since Java 11 for TLS 1.3); keys cannot be shared between processes"
        }
        Kind::NettyTcnative => {
            "OpenSslSessionContext.setTicketKeys with the same keys in all processes"
        }
        Kind::Go => {
            "one tls.Config for all connections, and SetSessionTicketKeys with the same keys in all processes"
        }
        Kind::Rustls => {
            "set ServerConfig.ticketer (rustls has none by default for TLS 1.2; its memory cache is per process), with keys that all processes share"
        }
        Kind::OpenSsl => {
            "SSL_CTX_set_session_id_context, tickets on, and SSL_CTX_set_tlsext_ticket_key_evp_cb with keys that all processes share"
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

fn client(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Perl => {
            "make one context for all: my $ctx = IO::Socket::SSL::SSL_Context->new(…, SSL_session_cache_size => 128), passed as ssl_opts => { SSL_reuse_ctx => $ctx }, and keep one LWP::UserAgent with keep_alive => 1. In the case this project began with, the script's share of the server's CPU fell from 20.5 % to under 1 %; a session which is never renewed is cured by a fresh context after a number of requests. OpenSSL over TLS 1.3: LWP reads the ticket only with the answer, so the session must be taken after it. Or connect through `dormouse connect`"
        }
        Kind::Python => {
            "keep one requests.Session or one ssl.SSLContext; http.client does not set a session by itself: pass session=previous.session to wrap_socket, taken after the first answer was read"
        }
        Kind::Node => {
            "keep one https.Agent (keepAlive: true); it caches sessions per host. A new Agent for each request forgets them"
        }
        Kind::Go => {
            "tls.Config.ClientSessionCache = tls.NewLRUClientSessionCache(64), and one http.Transport for all requests"
        }
        Kind::Rustls => "one ClientConfig for all connections: its session store is in it",
        Kind::Jvm | Kind::NettyJdk => {
            "one SSLContext (and one HttpClient) for all connections; sessions live in it, by host name and port"
        }
        Kind::NettyTcnative => {
            "one SslContext for all connections, with newHandler(allocator, host, port): sessions are kept by host and port"
        }
        Kind::OpenSsl => {
            "one SSL_CTX for all; keep the session from SSL_CTX_sess_set_new_cb (in TLS 1.3 it comes after the handshake), give it to the next connection by SSL_set_session, and renew it"
        }
        _ => return None,
    })
}

fn keep_alive(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Perl => "LWP::UserAgent->new(keep_alive => 8), one for all requests",
        Kind::Python => "one requests.Session or http.client.HTTPSConnection for all requests",
        Kind::Node => "one https.Agent with keepAlive: true",
        Kind::Go => {
            "one http.Client; read the body to its end and close it, or the connection is not used again"
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
            "make one SSLContext and share it: load_verify_locations or load_default_certs for each connection parses all root certificates again"
        }
        Kind::Nginx | Kind::Haproxy | Kind::Hitch | Kind::Stunnel | Kind::Apache => {
            "an ECDSA P-256 certificate beside or in place of RSA; tickets on, so that most handshakes are resumed; worker processes as many as cores"
        }
        Kind::OpenSsl => {
            "one SSL_CTX for all connections; no SSL_CTX_load_verify_locations per connection; an ECDSA certificate"
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

    #[test]
    fn every_finding_has_advice() {
        let source = [
            include_str!("server.rs"),
            include_str!("memory.rs"),
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
