//! Advice by software: memory that is retained, memory that grows, and fragmentation.

use crate::software::SoftwareKind;

macro_rules! jemalloc {
    ($tried:literal) => {
        concat!(
            "start the server with jemalloc instead of glibc's malloc: LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0. Tried with ",
            $tried
        )
    };
}

/// Advice on memory that an idle connection retains.
pub(in super::super) fn retained(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Python => {
            "use a Protocol instead of streams, and set asyncio.sslproto.SSLProtocol.max_size (not a public setting) to 16 * 1024: its read buffer takes 256 kB per connection. Tried with {{compare.asyncio}}. The ssl module already releases OpenSSL's record buffers. The two memory BIOs between asyncio and OpenSSL remain: each grows to 21 kB when 16 kB arrive at once, and never shrinks. With `dormouse serve` in front, which terminates TLS, both together took {{behind.asyncio}}"
        }
        SoftwareKind::Twisted => {
            "create the context with twisted.internet.ssl.CertificateOptions, which sets SSL_MODE_RELEASE_BUFFERS, instead of DefaultOpenSSLContextFactory. Tried with {{compare.twisted}}. CertificateOptions turns sessions and tickets off: add enableSessionTickets=True (resumption with {{advice.twisted.sessions}}; memory with {{advice.twisted.sessions-memory}}). The two memory BIOs between Twisted and OpenSSL remain: each grows to 21 kB when 16 kB arrive at once, and never shrinks"
        }
        SoftwareKind::NettyJdk => {
            "use netty-tcnative (BoringSSL) instead of the JDK's SSLEngine. Tried with {{compare.netty-tcnative}}, the second figure with the settings below. With the JDK's engine: use the serial collector with small free ratios, which returns free heap to the system, and small pool chunks. Tried with {{compare.netty-jdk}}. Receive buffers of 512 bytes alone made it worse: {{advice.netty-jdk.small-buffers}}. With `dormouse serve` in front, which terminates TLS, both together took {{behind.netty}}"
        }
        SoftwareKind::NettyTcnative => {
            "use the serial collector and small pool chunks. Tried with {{compare.netty-tcnative}}, which is among the lowest costs of all servers in the lab. Receive buffers of 512 bytes made it worse: {{advice.netty-tcnative.small-buffers}}"
        }
        SoftwareKind::Node => {
            "no setting is known to help: a small young generation, --optimize-for-size, one malloc arena and writing without pipe were tried with {{compare.node}}. Node.js already releases OpenSSL's record buffers, but keeps a read buffer of 64 kB after 16 kB have arrived at once. Put `dormouse serve` in front to terminate TLS: both together took {{behind.node}}"
        }
        SoftwareKind::Go => {
            "copy with a buffer of 1 kB instead of io.Copy's 32 kB per connection, and set GOGC=25. Tried with {{compare.go}}. The goroutines' stacks remain"
        }
        SoftwareKind::Rustls => {
            "allocate a buffer only while there is data to read: tokio::io::copy keeps 8 kB per connection. Tried with {{compare.tokio-rustls}}"
        }
        SoftwareKind::Nginx => {
            "in `stream`, set proxy_buffer_size 4k: a connection keeps two such buffers. Tried with {{compare.nginx-stream}}. In `http`, ssl_buffer_size 4k and small pools were tried with {{compare.nginx-http}}: nginx already releases OpenSSL's record buffers there"
        }
        SoftwareKind::Haproxy => {
            "no setting is known to help: tune.bufsize 4096 was tried with {{compare.haproxy}}; HAProxy holds a buffer only while it transfers data. OpenSSL's object remains. Put `dormouse serve` in front to terminate TLS: with HAProxy without TLS behind it, both together took {{behind.haproxy}}"
        }
        SoftwareKind::Hitch => {
            "no setting changes the memory of an idle connection ({{compare.hitch}} with hitch 1.7.2), which has six buffers of 32 kB. jemalloc was tried with {{allocators.hitch}}. `dormouse serve` in its place takes {{compare.dormouse}}"
        }
        SoftwareKind::Stunnel => {
            "each connection has a thread ({{compare.stunnel}} with stunnel 5.68). Half the stack, `stack = 32768`, was tried with {{advice.stunnel.stack}}. `dormouse serve` in its place takes {{compare.dormouse}}"
        }
        SoftwareKind::Apache => {
            "no setting is known to help: MaxMemFree 64 was tried with the event MPM, {{compare.apache}}. With `dormouse serve` in front, both together took {{behind.apache}}: Apache's own memory of a kept-alive connection remains"
        }
        SoftwareKind::OpenSsl => {
            "call SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS), and hold the program's own buffers only while they contain data. Tried with a server on {{advice.openssl.release-buffers}}"
        }
        SoftwareKind::Dormouse => {
            "Dormouse's own part is a slot ({{compare.dormouse}}). If the server behind it is in the same process tree, the rest belongs to that server: audit it alone"
        }
        SoftwareKind::Perl => {
            "set SSL_MODE_RELEASE_BUFFERS on the context: Net::SSLeay::CTX_set_mode($ctx->{context}, Net::SSLeay::MODE_RELEASE_BUFFERS()). Tried with IO::Socket::SSL and {{advice.perl.release-buffers}}"
        }
        _ => return None,
    })
}

/// The same for a server that speaks HTTP, where the advice above is about one that copies.
pub(in super::super) fn retained_http(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Go => {
            "net/http keeps a buffer of 4 kB in each direction and a goroutine for each connection, and has no setting for them; http.Server.IdleTimeout closes idle connections. GOGC=25 lets Go collect earlier. Neither was tried in the lab with an HTTP server; with an echo server, GOGC=25 and smaller buffers were tried with {{compare.go}}"
        }
        SoftwareKind::Rustls => {
            "close connections that are idle for long, or put `dormouse serve` in front to terminate TLS: the HTTP library holds its buffers beside those of rustls. Not tried in the lab with an HTTP server. An echo server on {{compare.tokio-rustls}}, by a buffer that lives only while there is data to read"
        }
        _ => return None,
    })
}

/// Advice on free pages that the allocator keeps.
pub(in super::super) fn free_pages(kind: SoftwareKind) -> Option<&'static str> {
    macro_rules! recurs {
        ($tried:literal) => {
            concat!(
                "if bursts recur, change nothing: the next burst uses the pages. Otherwise ",
                jemalloc!($tried)
            )
        };
    }
    Some(match kind {
        SoftwareKind::Nginx => recurs!("{{allocators.nginx-http}}"),
        SoftwareKind::Haproxy => recurs!("{{allocators.haproxy}}"),
        SoftwareKind::Hitch => recurs!("{{allocators.hitch}}"),
        SoftwareKind::Jvm => {
            "if bursts recur, change nothing: the next burst uses the pages. Otherwise run jcmd PID System.trim_native_heap after a burst; tried with Jetty 12.0.16 on OpenJDK 17.0.15, where it returned the free pages"
        }
        _ => return None,
    })
}

/// Advice on sessions that accumulate.
pub(in super::super) fn sessions(kind: SoftwareKind) -> Option<&'static str> {
    match kind {
        SoftwareKind::Jvm | SoftwareKind::NettyJdk => Some(
            "limit the JDK's session cache: start the JVM with -Djavax.net.ssl.sessionCacheSize=1000, or call SSLSessionContext.setSessionCacheSize. By default it keeps 20,480 sessions for a day. Not tried in the lab",
        ),
        other => growth(other),
    }
}

/// Advice on memory that grows as connections open and close.
pub(in super::super) fn growth(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Nginx => {
            "set `ssl_session_cache shared:SSL:10m` or `off` instead of `builtin`. The builtin cache keeps up to 20,480 sessions of clients without tickets in the heap of each worker, between short-lived blocks of handshakes. Tried with {{caches.nginx}}. In the case that started this project, memory kept growing by 10 MB per round"
        }
        SoftwareKind::Hitch => {
            "no setting of hitch is known to help; jemalloc was tried with {{advice.hitch.jemalloc-churn}}. Otherwise restart the workers from time to time, or use `dormouse serve` in its place"
        }
        SoftwareKind::Node => {
            "check whether the growth ends after some rounds (--thorough): V8's heap grows before V8 collects. MALLOC_ARENA_MAX=1, --max-semi-space-size=1 and --optimize-for-size were tried with {{advice.node.flags}}"
        }
        SoftwareKind::NettyTcnative => {
            "use the serial collector and small pool chunks. Tried with {{advice.netty-tcnative.serial}}. A smaller session cache, SslContextBuilder.sessionCacheSize(100), was tried with {{advice.netty-tcnative.small-cache}}"
        }
        SoftwareKind::NettyJdk | SoftwareKind::Jvm => {
            "check whether the growth ends after some rounds (--thorough): a JVM's heap grows before the JVM collects. The serial collector with -XX:MaxHeapFreeRatio=15 and small pool chunks were tried with {{advice.netty-jdk.serial}}; a limit alone, -Xmx64m, with {{advice.netty-jdk.heap-max}}"
        }
        SoftwareKind::OpenSsl | SoftwareKind::Perl => {
            "limit OpenSSL's session cache with SSL_CTX_sess_set_cache_size(ctx, 100): for clients without tickets it keeps up to 20,480 TLS 1.2 sessions in the heap. Tried with a server on {{advice.openssl.small-cache}}. Or turn the cache off and leave tickets on, SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF). Tried with {{advice.openssl.cache-off}}"
        }
        SoftwareKind::Dormouse => {
            "if the server behind Dormouse is in the same process tree, audit that server alone"
        }
        SoftwareKind::Twisted => {
            "call context.set_session_cache_mode(SSL.SESS_CACHE_OFF) and leave tickets on: for clients without tickets OpenSSL's cache keeps up to 20,480 TLS 1.2 sessions in the heap. Tried with {{advice.twisted.cache-off}}"
        }
        SoftwareKind::Python => {
            "the ssl module cannot change OpenSSL's session cache, which keeps up to 20,480 sessions in the heap. Allow TLS 1.3 only, which stores nothing there (tried with {{advice.python.tls13}}), or put `dormouse serve` in front to terminate TLS"
        }
        _ => return None,
    })
}

/// Advice on fragmentation that remains after all connections have closed, without growth.
pub(in super::super) fn holes(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Nginx => jemalloc!("{{allocators.nginx-http}}"),
        SoftwareKind::Haproxy => jemalloc!("{{allocators.haproxy}}"),
        SoftwareKind::Hitch => jemalloc!("{{allocators.hitch}}"),
        SoftwareKind::Stunnel => {
            "no setting is known to help: jemalloc instead of glibc's malloc keeps a cache for each of stunnel's threads. Tried with {{allocators.stunnel}}. Use `dormouse serve` in its place"
        }
        SoftwareKind::Apache => {
            "no setting is known to help: jemalloc instead of glibc's malloc was tried with {{allocators.apache}}. Put `dormouse serve` in front"
        }
        SoftwareKind::Node => {
            "no setting is known to help much, because most of the memory is V8's: jemalloc instead of glibc's malloc was tried with {{allocators.node}}. Put `dormouse serve` in front"
        }
        SoftwareKind::Twisted => jemalloc!("{{allocators.twisted}}"),
        SoftwareKind::Python => jemalloc!("{{allocators.asyncio}}"),
        SoftwareKind::OpenSsl => jemalloc!("a server on {{allocators.openssl}}"),
        SoftwareKind::Perl => jemalloc!("{{allocators.perl}}"),
        SoftwareKind::Dormouse => {
            "the pages belong to the server behind Dormouse: audit that server alone"
        }
        SoftwareKind::Rustls => {
            jemalloc!("a program over OpenSSL, not with one over rustls: {{allocators.openssl}}")
        }
        _ => return None,
    })
}
