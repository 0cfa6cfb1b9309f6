//! What to change, in which software. A figure is quoted only where the change was tried on the
//! real thing: a name in double braces is a row of `quoted.md`, made of the lab's results. Figures of
//! the cases which this project began with stand in the text, which says so. Where a change was not
//! tried, the text says that.

use super::quoted;
use crate::software::SoftwareKind;

/// The name of the advice for `heap-fragmented` where nothing grows.
pub(super) const HOLES: &str = "heap-fragmented, no growth";

/// What to change for a finding, in this software.
pub(super) fn of(kind: SoftwareKind, id: &str) -> String {
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
        "client-cpu" => client_cpu(kind),
        "old-versions" => versions(kind),
        "handshake-cpu" | "resumption-not-cheaper" => cpu(kind),
        _ => None,
    };
    let advice = quoted::filled(special.unwrap_or_else(|| general(id)));
    match kind {
        SoftwareKind::Unknown => advice,
        known => format!("{}: {advice}", known.name()),
    }
}

fn renegotiation(kind: SoftwareKind) -> Option<&'static str> {
    match kind {
        SoftwareKind::Node => Some(
            "set minVersion to TLSv1.3, or tls.CLIENT_RENEG_LIMIT = 0 and destroy the socket when it says 'error', which ends the connection as soon as a client begins (tried with Node 20.20.2); by itself Node allows three in ten minutes, and only says so then",
        ),
        _ => None,
    }
}

/// What a quiet connection keeps.
fn memory(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Python => {
            "use a Protocol in place of streams, and set asyncio.sslproto.SSLProtocol.max_size (no public setting) to 16 * 1024: its read buffer is 256 kB per connection. Tried with {{compare.asyncio}}. The ssl module gives OpenSSL's record buffers back by itself; what remains are the two memory BIOs between asyncio and OpenSSL, which grow to 21 kB each when 16 kB come at a time and never shrink. With TLS ended by `dormouse serve` in front, both together took {{behind.asyncio}}"
        }
        SoftwareKind::Twisted => {
            "make the context with twisted.internet.ssl.CertificateOptions, which sets SSL_MODE_RELEASE_BUFFERS, in place of DefaultOpenSSLContextFactory. Tried with {{compare.twisted}}. It turns sessions and tickets off: add enableSessionTickets=True ({{advice.twisted.sessions}}; {{advice.twisted.sessions-memory}} with it). The two memory BIOs between Twisted and OpenSSL remain, which grow to 21 kB each when 16 kB come at a time and never shrink"
        }
        SoftwareKind::NettyJdk => {
            "use netty-tcnative (BoringSSL) in place of the JDK's SSLEngine (after the change: {{compare.netty-tcnative}}, the second with the settings which follow). Staying with the JDK: the serial collector with small free ratios, which gives free heap back, and small pool chunks. Tried with {{compare.netty-jdk}}. Buffers of 512 bytes to receive into were tried alone with {{advice.netty-jdk.small-buffers}}. With TLS ended by `dormouse serve` in front, both together took {{behind.netty}}"
        }
        SoftwareKind::NettyTcnative => {
            "the serial collector and small pool chunks: tried with {{compare.netty-tcnative}}; it is among the best there are. Buffers of 512 bytes to receive into were tried with {{advice.netty-tcnative.small-buffers}}"
        }
        SoftwareKind::Node => {
            "no setting was found which helps: a small young generation, --optimize-for-size, one malloc arena and writing without pipe were tried with {{compare.node}}. Node releases OpenSSL's record buffers by itself, but keeps 64 kB for reading once 16 kB have come at a time. Let `dormouse serve` terminate TLS in front: both together took {{behind.node}}"
        }
        SoftwareKind::Go => {
            "copy with a buffer of 1 kB in place of io.Copy's 32 kB for each connection, and GOGC=25. Tried with {{compare.go}}; the goroutines' stacks remain"
        }
        SoftwareKind::Rustls => {
            "take a buffer only while there is something to read: tokio::io::copy keeps 8 kB per connection. Tried with {{compare.tokio-rustls}}"
        }
        SoftwareKind::Nginx => {
            "in `stream`: proxy_buffer_size 4k, of which two are kept per connection. Tried with {{compare.nginx-stream}}. In `http` ssl_buffer_size 4k and small pools were tried with {{compare.nginx-http}}: OpenSSL's record buffers are released already"
        }
        SoftwareKind::Haproxy => {
            "no setting was found which helps: tune.bufsize 4096 was tried with {{compare.haproxy}}; buffers are only taken while bytes are under way. What is left is OpenSSL's object: put `dormouse serve` in front to take it away (plain HAProxy behind it, both together: {{behind.haproxy}})"
        }
        SoftwareKind::Hitch => {
            "it takes no setting for the memory of a quiet connection ({{compare.hitch}} with hitch 1.7.2): six buffers of 32 kB belong to it. jemalloc was tried with {{allocators.hitch}}. `dormouse serve` in its place: {{compare.dormouse}}"
        }
        SoftwareKind::Stunnel => {
            "a thread belongs to each connection ({{compare.stunnel}} with stunnel 5.68). Half the stack for it, `stack = 32768`, was tried with {{advice.stunnel.stack}}. `dormouse serve` in its place: {{compare.dormouse}}"
        }
        SoftwareKind::Apache => {
            "no setting was found which helps: MaxMemFree 64 was tried with the event MPM, {{compare.apache}}. With `dormouse serve` in front, both together took {{behind.apache}}: what a connection that is kept alive has of Apache's own stays"
        }
        SoftwareKind::OpenSsl => {
            "SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS), and take the program's own buffers only while there is something in them. Tried with a server on {{advice.openssl.release-buffers}}"
        }
        SoftwareKind::Dormouse => {
            "its own part is a slot ({{compare.dormouse}}); the rest is the server behind it, where that is in the same process tree: audit that one by itself"
        }
        SoftwareKind::Perl => {
            "SSL_MODE_RELEASE_BUFFERS on the context: Net::SSLeay::CTX_set_mode($ctx->{context}, Net::SSLeay::MODE_RELEASE_BUFFERS()). Tried with IO::Socket::SSL and {{advice.perl.release-buffers}}"
        }
        _ => return None,
    })
}

/// Memory that grows with connections which come and go.
fn growth(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Nginx => {
            "`ssl_session_cache shared:SSL:10m` or `off` in place of `builtin`, which lies in the heap among the garbage of handshakes, with up to 20,480 sessions of clients which have no tickets. Tried with {{caches.nginx}}. In the case this project began with it went on growing by 10 MB per round"
        }
        SoftwareKind::Hitch => {
            "no setting was found that changes it; jemalloc was tried with {{advice.hitch.jemalloc-churn}}. Or restart its workers from time to time, or put `dormouse serve` in its place"
        }
        SoftwareKind::Node => {
            "look whether the growth ends after some rounds: V8 lets its heap grow before it collects. MALLOC_ARENA_MAX=1, --max-semi-space-size=1 and --optimize-for-size were tried with {{advice.node.flags}}"
        }
        SoftwareKind::NettyTcnative => {
            "the serial collector and small pool chunks: tried with {{advice.netty-tcnative.serial}}. A smaller session cache, SslContextBuilder.sessionCacheSize(100), was tried with {{advice.netty-tcnative.small-cache}}"
        }
        SoftwareKind::NettyJdk | SoftwareKind::Jvm => {
            "look whether the growth ends after some rounds: a JVM lets its heap grow before it collects. The serial collector with -XX:MaxHeapFreeRatio=15, and small pool chunks, were tried with {{advice.netty-jdk.serial}}; a bound alone, -Xmx64m, with {{advice.netty-jdk.heap-max}}"
        }
        SoftwareKind::OpenSsl | SoftwareKind::Perl => {
            "bound OpenSSL's cache, SSL_CTX_sess_set_cache_size(ctx, 100): for clients without tickets it keeps up to 20,480 sessions of TLS 1.2 in the heap. Tried with a server on {{advice.openssl.small-cache}}. Or do without it and leave tickets on, SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF): tried with {{advice.openssl.cache-off}}"
        }
        SoftwareKind::Dormouse => {
            "look at the server behind it, where that is in the same process tree: audit that one by itself"
        }
        SoftwareKind::Twisted => {
            "context.set_session_cache_mode(SSL.SESS_CACHE_OFF), with tickets: for clients without them OpenSSL's cache keeps up to 20,480 sessions of TLS 1.2 in the heap. Tried with {{advice.twisted.cache-off}}"
        }
        SoftwareKind::Python => {
            "the ssl module has no switch for OpenSSL's cache, which lies in the heap up to its bound of 20,480 sessions: allow TLS 1.3 only, which keeps nothing in it (tried with {{advice.python.tls13}}), or let `dormouse serve` terminate TLS in front"
        }
        _ => return None,
    })
}

/// Holes that stay when all have closed, without growth.
fn holes(kind: SoftwareKind) -> Option<&'static str> {
    macro_rules! jemalloc {
        ($tried:literal) => {
            concat!(
                "start it with jemalloc in place of glibc's malloc: LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0. Tried with ",
                $tried
            )
        };
    }
    Some(match kind {
        SoftwareKind::Nginx => jemalloc!("{{allocators.nginx-http}}"),
        SoftwareKind::Haproxy => jemalloc!("{{allocators.haproxy}}"),
        SoftwareKind::Hitch => jemalloc!("{{allocators.hitch}}"),
        SoftwareKind::Stunnel => {
            "no setting was found which helps: jemalloc in place of glibc's malloc keeps a cache for each of its threads. Tried with {{allocators.stunnel}}. Put `dormouse serve` in its place"
        }
        SoftwareKind::Apache => {
            "no setting was found which helps: jemalloc in place of glibc's malloc was tried with {{allocators.apache}}. Put `dormouse serve` in front"
        }
        SoftwareKind::Node => {
            "no setting was found which helps much, for most of it is V8's: jemalloc in place of glibc's malloc was tried with {{allocators.node}}. Put `dormouse serve` in front"
        }
        SoftwareKind::Twisted => jemalloc!("{{allocators.twisted}}"),
        SoftwareKind::Python => jemalloc!("{{allocators.asyncio}}"),
        SoftwareKind::OpenSsl => jemalloc!("a server on {{allocators.openssl}}"),
        SoftwareKind::Perl => jemalloc!("{{allocators.perl}}"),
        SoftwareKind::Dormouse => {
            "they are those of the server behind it: audit that one by itself"
        }
        SoftwareKind::Rustls => {
            jemalloc!("programs over OpenSSL, not with one over rustls: {{allocators.openssl}}")
        }
        SoftwareKind::Jvm
        | SoftwareKind::NettyJdk
        | SoftwareKind::NettyTcnative
        | SoftwareKind::Go
        | SoftwareKind::Unknown => return None,
    })
}

/// Sessions that a server does not resume.
fn resumption(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Nginx => {
            "ssl_session_tickets on, as it is by default ({{advice.nginx.tickets}}); for clients without tickets `ssl_session_cache shared:SSL:10m` (tried with {{advice.nginx.ids}}); for several machines the same ssl_session_ticket_key file on all (tried with {{advice.nginx.shared}})"
        }
        SoftwareKind::Apache => {
            "SSLSessionTickets on and `SSLSessionCache shmcb:/run/apache2/ssl_scache(512000)`, which all its processes share. Tried with {{advice.apache.cache}}; without tickets, by the cache alone, {{advice.apache.ids}}. In the case this project began with, a browser's share of the server's CPU fell from 6.83 % to under 1 %. Several machines need the same SSLSessionTicketKeyFile: tried with {{advice.apache.shared}}"
        }
        SoftwareKind::Haproxy => {
            "do not set no-tls-tickets. The cache (tune.ssl.cachesize, 20,000) is shared by all its threads; several machines need the same tls-ticket-keys file on their bind lines: tried with {{advice.haproxy.shared}}"
        }
        SoftwareKind::Hitch => {
            "do not turn tickets off: its workers share them. Several machines cannot: let `dormouse serve` terminate"
        }
        SoftwareKind::Stunnel => {
            "sessionCacheSize above 0, and for several machines the same ticketKeySecret and ticketMacSecret: tried with {{advice.stunnel.shared}}"
        }
        SoftwareKind::Node => {
            "give all processes and machines the same ticketKeys (48 bytes) and the same sessionIdContext in tls.createServer's options; the latter is made of the command line by default, so the keys alone do not help where command lines differ. Tried with {{advice.node.shared}}; with the keys alone, {{advice.node.shared-alone}}"
        }
        SoftwareKind::Twisted => {
            "CertificateOptions turns sessions and tickets off: add enableSessionTickets=True. Tried with {{advice.twisted.sessions}}"
        }
        SoftwareKind::Python => {
            "the context must be one for all connections: so {{advice.python.one-context}}. With several processes the ticket keys cannot be shared through the ssl module: one process, or let `dormouse serve` terminate"
        }
        SoftwareKind::NettyJdk | SoftwareKind::Jvm => {
            "one SSLContext for all connections: so {{advice.netty-jdk.one-context}}. Keys cannot be shared between processes: let `dormouse serve` terminate"
        }
        SoftwareKind::NettyTcnative => {
            "one SslContext for all connections, and in all processes OpenSslSessionContext.setTicketKeys with the same keys: tried with {{advice.netty-tcnative.shared}}"
        }
        SoftwareKind::Go => {
            "one tls.Config for all connections, and in all processes SetSessionTicketKeys with the same keys: tried with {{advice.go.shared}}"
        }
        SoftwareKind::Rustls => {
            "set ServerConfig.ticketer (rustls has none by default for TLS 1.2; its memory cache is per process), with keys that all processes share. Tried in lab/sick: in four processes a quarter of the sessions was resumed with keys of their own, all with shared ones"
        }
        SoftwareKind::OpenSsl => {
            "SSL_CTX_set_session_id_context, tickets on, and SSL_CTX_set_tlsext_ticket_key_evp_cb with keys that all processes share: tried with a server on {{advice.openssl.shared}}"
        }
        SoftwareKind::Dormouse => {
            "`tickets` of the configuration is 0, or the ticket keys of several machines differ"
        }
        _ => return None,
    })
}

/// An OpenSSL that can compress can be had today (Debian 13's), and two switches stand before it: the option and the
/// security level.
fn compression(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Node => {
            "update it: Node.js 20 is built without zlib and has no switch which would turn compression on. Before that, secureOptions: constants.SSL_OP_NO_COMPRESSION; in the case this project began with (Node 0.4) it took 200 connections from 200 MB to 15 MB. With a library of today: {{advice.openssl.compression}}"
        }
        SoftwareKind::Twisted => {
            "update pyOpenSSL: the library in cryptography's wheels is built without zlib. Before that, context.set_options(SSL.OP_NO_COMPRESSION); in the case this project began with: 1.15 GB → about 300 MB. With a library of today: {{advice.openssl.compression}}"
        }
        SoftwareKind::Python => {
            "leave ssl.OP_NO_COMPRESSION in context.options, where it is by default since Python 3.6, and @SECLEVEL in set_ciphers at 2. Tried with {{advice.python.compression}}"
        }
        SoftwareKind::Apache => {
            "SSLCompression off (the default since 2.4.4), no Compression in SSLOpenSSLConfCmd Options, and @SECLEVEL in SSLCipherSuite at 2. Tried with {{advice.apache.compression}}"
        }
        SoftwareKind::Nginx => {
            "nginx turns it off by itself: take Compression out of ssl_conf_command Options, and leave @SECLEVEL in ssl_ciphers at 2. Tried with {{advice.nginx.compression}}"
        }
        SoftwareKind::Stunnel => {
            "take `compression` and `options = -NO_COMPRESSION` out of its configuration, and leave securityLevel at 2. Tried with {{advice.stunnel.compression}}"
        }
        SoftwareKind::Haproxy => {
            "update it: HAProxy turns compression off by itself ({{advice.haproxy.compression}}, at security level 0, were compressed)"
        }
        SoftwareKind::Hitch => {
            "update it: hitch turns compression off by itself ({{advice.hitch.compression}}, at security level 0, were compressed)"
        }
        SoftwareKind::OpenSsl => {
            "leave SSL_OP_NO_COMPRESSION set, as it is by default since OpenSSL 1.1.0, and the security level at 2. Tried with {{advice.openssl.compression}}"
        }
        SoftwareKind::Perl => {
            "leave SSL_OP_NO_COMPRESSION set, as IO::Socket::SSL does by default. Not tried with it; with {{advice.openssl.compression}}"
        }
        _ => return None,
    })
}

/// Sessions that a client does not offer, or always the same.
fn client(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Perl => {
            "make one context for all: my $ctx = IO::Socket::SSL::SSL_Context->new(…, SSL_session_cache_size => 64), passed as ssl_opts => { SSL_reuse_ctx => $ctx }. Tried with {{advice.lwp.context}}. With TLS 1.2 it does not help ({{advice.lwp.context-12}}): LWP closes connections without close_notify, and OpenSSL then forgets their sessions. Or leave the script as it is and connect through `dormouse connect`: {{advice.lwp.connect}}. In the case this project began with, the script's share of the server's CPU fell from 20.5 % to under 1 %; a session which is never renewed is cured by a fresh context after a number of requests"
        }
        SoftwareKind::Python => {
            "one ssl.SSLContext for all is not enough, for http.client sets no session by itself (tried with {{advice.http-client.context}}). Pass session=previous.session to wrap_socket, taken after the first answer was read: {{advice.python.session}}. Or keep connections: http.client ({{advice.http-client.connection}}), requests ({{advice.requests.session}}). Or connect through `dormouse connect`: {{advice.http-client.connect}}, without a change to the client's TLS"
        }
        SoftwareKind::Node => {
            "keep one https.Agent: it caches sessions per host. Tried with {{advice.agent.one}}; with keepAlive: true, {{advice.agent.keep-alive}}"
        }
        SoftwareKind::Go => {
            "tls.Config.ClientSessionCache = tls.NewLRUClientSessionCache(64), and one http.Transport for all requests. Tried with {{advice.go.cache}}"
        }
        SoftwareKind::Rustls => {
            "one ClientConfig for all connections: its session store is in it. Tried in lab/sick: 0 of 12 resumed with a new one each time, 11 of 12 with one"
        }
        SoftwareKind::Jvm | SoftwareKind::NettyJdk => {
            "one SSLContext for all connections; sessions live in it, by host name and port. Tried with HttpsURLConnection and {{advice.java.context}}"
        }
        SoftwareKind::NettyTcnative => {
            "one SslContext for all connections, with newHandler(allocator, host, port), for sessions are kept by host and port. Tried with {{advice.netty-client.context}}; without host and port, {{advice.netty-client.unnamed}}"
        }
        SoftwareKind::OpenSsl => {
            "one SSL_CTX for all; keep the session from SSL_CTX_sess_set_new_cb (in TLS 1.3 it comes after the handshake), give it to the next connection by SSL_set_session, and renew it. Tried through Python, which does so: {{advice.python.session}}"
        }
        _ => return None,
    })
}

fn keep_alive(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Perl => {
            "LWP::UserAgent->new(keep_alive => 8), one for all requests. Tried with {{advice.lwp.keep-alive}}"
        }
        SoftwareKind::Python => {
            "one requests.Session or http.client.HTTPSConnection for all requests. Tried with {{advice.requests.session}}; {{advice.http-client.connection}}"
        }
        SoftwareKind::Node => {
            "one https.Agent with keepAlive: true. Tried with {{advice.agent.keep-alive}}"
        }
        SoftwareKind::Go => {
            "one http.Client; read the body to its end and close it, or the connection is not used again. Tried with {{advice.go.keep-alive}}"
        }
        SoftwareKind::Jvm | SoftwareKind::NettyJdk => {
            "read the answer to its end, and leave http.keepAlive on. Tried with HttpsURLConnection and {{advice.java.keep-alive}}"
        }
        _ => return None,
    })
}

fn client_cpu(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Python => {
            "make one ssl.SSLContext: each new one which trusts the usual authorities parses some 140 certificates. Tried with http.client and {{advice.http-client.roots}}"
        }
        SoftwareKind::Jvm | SoftwareKind::NettyJdk | SoftwareKind::NettyTcnative => {
            "make one SSLContext, and one process for many requests: a JVM loads and interprets its code at first. Tried with HttpsURLConnection, whose trust store had one certificate, and {{advice.java.roots}}"
        }
        _ => return None,
    })
}

fn versions(kind: SoftwareKind) -> Option<&'static str> {
    match kind {
        SoftwareKind::Go => Some(
            "tls.Config.MinVersion = tls.VersionTLS12; or `go 1.22` or later in go.mod, from which on it is so by itself (tried: with `go 1.19` there, a server built by Go 1.26.8 accepts TLS 1.0)",
        ),
        _ => None,
    }
}

fn cpu(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Node => {
            "make the secure context once (tls.createSecureContext) and do not pass `ca` to every connection: in the case this project began with (Node 0.4) one shared, parsed-once store took 70 requests per second to 700"
        }
        SoftwareKind::Python | SoftwareKind::Twisted => {
            "make one SSLContext and share it: load_verify_locations for each connection parses all root certificates again. Tried with the ssl module, some 140 certificates, and a context for each connection → one: {{advice.python.context-cpu}}"
        }
        SoftwareKind::Nginx => {
            "an ECDSA P-256 certificate beside or in place of RSA, and tickets on, so that most handshakes are resumed. Tried with {{advice.nginx.keys}}"
        }
        SoftwareKind::Haproxy => {
            "an ECDSA P-256 certificate beside or in place of RSA, and tickets on, so that most handshakes are resumed. Tried with {{advice.haproxy.keys}}"
        }
        SoftwareKind::Hitch => {
            "an ECDSA P-256 certificate in place of RSA, and tickets on, so that most handshakes are resumed. Tried with {{advice.hitch.keys}}"
        }
        SoftwareKind::Stunnel => {
            "an ECDSA P-256 certificate in place of RSA, and tickets on, so that most handshakes are resumed; a thread is started for each connection all the same. Tried with {{advice.stunnel.keys}}"
        }
        SoftwareKind::Apache => {
            "an ECDSA P-256 certificate beside or in place of RSA, and tickets on, so that most handshakes are resumed. Tried with {{advice.apache.keys}}"
        }
        SoftwareKind::OpenSsl => {
            "one SSL_CTX for all connections; no SSL_CTX_load_verify_locations per connection (tried through Python's ssl module, with some 140 root certificates: {{advice.python.context-cpu}}); an ECDSA P-256 certificate (tried with {{advice.nginx.keys}})"
        }
        SoftwareKind::Jvm | SoftwareKind::NettyJdk | SoftwareKind::NettyTcnative => {
            "measure again when it has run for a while: a JVM interprets and compiles its code during the first ten thousands of handshakes. Then: one SSLContext or SslContext for all connections. Tried as a client, whose trust store has one certificate: {{advice.java.roots}}"
        }
        SoftwareKind::Dormouse => {
            "what the server behind it needs is counted as well, where that is in the same process tree: audit each by itself"
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
            "parse certificates, trust stores and configuration once and share them: in a case this project began with (Node 0.4) a store for each connection was 20 % of the memory and 90 % of the time of a request"
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
        "shared-memory-fills" => {
            "nothing, if its bound suits the machine: for nginx `ssl_session_cache shared:NAME:SIZE`, for Apache `SSLSessionCache shmcb:PATH(SIZE)`, for HAProxy tune.ssl.cachesize"
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
        assert!(of(SoftwareKind::Nginx, "heap-fragmented").contains("shared:SSL"));
        assert!(of(SoftwareKind::Perl, "client-never-resumes").contains("SSL_reuse_ctx"));
        assert!(!of(SoftwareKind::Unknown, "first-connection-slow").contains("unknown"));
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
            assert_ne!(
                of(SoftwareKind::Unknown, id),
                "nothing needs to be changed",
                "{id}"
            );
        }
        assert!(ids >= 20, "{ids}");
    }
}
