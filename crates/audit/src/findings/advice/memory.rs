//! Advice by software: memory that is retained, memory that grows, and fragmentation.

use crate::software::SoftwareKind;

/// Advice on memory that an idle connection retains.
pub(in super::super) fn retained(kind: SoftwareKind) -> Option<&'static str> {
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

/// Advice on memory that grows as connections open and close.
pub(in super::super) fn growth(kind: SoftwareKind) -> Option<&'static str> {
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

/// Advice on fragmentation that remains after all connections have closed, without growth.
pub(in super::super) fn holes(kind: SoftwareKind) -> Option<&'static str> {
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
