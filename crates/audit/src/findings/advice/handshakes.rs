//! Advice by software: what handshakes allow and what they cost.

use crate::software::SoftwareKind;

/// Advice on compression. OpenSSL builds with compression still exist (Debian 13), but both an option and the security
/// level must enable it.
pub(in super::super) fn compression(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Node => {
            "update Node.js: version 20 is built without zlib and cannot compress. Older versions: secureOptions: constants.SSL_OP_NO_COMPRESSION. In the case that started this project (Node 0.4) the memory of 200 connections fell from 200 MB to 15 MB. Tried with a current library: {{advice.openssl.compression}}"
        }
        SoftwareKind::Twisted => {
            "update pyOpenSSL: OpenSSL in the wheels of cryptography is built without zlib. Older versions: context.set_options(SSL.OP_NO_COMPRESSION). In the case that started this project memory fell from 1.15 GB to about 300 MB. Tried with a current library: {{advice.openssl.compression}}"
        }
        SoftwareKind::Python => {
            "leave ssl.OP_NO_COMPRESSION in context.options, which is the default since Python 3.6, and @SECLEVEL in set_ciphers at 2. Tried with {{advice.python.compression}}"
        }
        SoftwareKind::Apache => {
            "set `SSLCompression off` (the default since 2.4.4), remove Compression from `SSLOpenSSLConfCmd Options`, and leave @SECLEVEL in SSLCipherSuite at 2. Tried with {{advice.apache.compression}}"
        }
        SoftwareKind::Nginx => {
            "remove Compression from `ssl_conf_command Options`, and leave @SECLEVEL in ssl_ciphers at 2: nginx turns compression off by default. Tried with {{advice.nginx.compression}}"
        }
        SoftwareKind::Stunnel => {
            "remove `compression` and `options = -NO_COMPRESSION` from the configuration, and leave securityLevel at 2. Tried with {{advice.stunnel.compression}}"
        }
        SoftwareKind::Haproxy => {
            "update HAProxy: it turns compression off by default. Tried at security level 0 with {{advice.haproxy.compression}}"
        }
        SoftwareKind::Hitch => {
            "update hitch: it turns compression off by default. Tried at security level 0 with {{advice.hitch.compression}}"
        }
        SoftwareKind::OpenSsl => {
            "leave SSL_OP_NO_COMPRESSION set, which is the default since OpenSSL 1.1.0, and the security level at 2. Tried with {{advice.openssl.compression}}"
        }
        SoftwareKind::Perl => {
            "leave SSL_OP_NO_COMPRESSION set, which is the default of IO::Socket::SSL. Not tried with IO::Socket::SSL; tried with {{advice.openssl.compression}}"
        }
        _ => return None,
    })
}

/// Advice on withdrawn TLS versions.
pub(in super::super) fn versions(kind: SoftwareKind) -> Option<&'static str> {
    match kind {
        SoftwareKind::Go => Some(
            "set tls.Config.MinVersion = tls.VersionTLS12, or write `go 1.22` or later in go.mod, which makes it the default. Tried: with `go 1.19` in go.mod, a server built by Go 1.26.8 accepts TLS 1.0",
        ),
        _ => None,
    }
}

/// Advice on renegotiation by clients.
pub(in super::super) fn renegotiation(kind: SoftwareKind) -> Option<&'static str> {
    match kind {
        SoftwareKind::Node => Some(
            "set minVersion to 'TLSv1.3', or set tls.CLIENT_RENEG_LIMIT = 0 and destroy the socket on its 'error' event, which closes the connection when a client starts to renegotiate (tried with Node.js 20.20.2). By default Node.js allows three renegotiations in ten minutes, and then only emits 'error'",
        ),
        SoftwareKind::Jvm | SoftwareKind::NettyJdk => Some(
            "start the JVM with -Djdk.tls.rejectClientInitiatedRenegotiation=true. Tried with Undertow 2.3.18 on OpenJDK 17.0.15, which then refused it",
        ),
        _ => None,
    }
}

/// Advice on handshakes that wait for each other.
pub(in super::super) fn at_a_time(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Python => {
            "accept on a plain listener, and call context.wrap_socket(connection, server_side=True) in the thread of each connection, after connection.settimeout(10): a listener that is wrapped itself, or wrap_socket in the accept loop, waits there for the client's handshake. Tried in lab/sick. For more than one core, start several processes"
        }
        SoftwareKind::Jvm | SoftwareKind::NettyJdk => {
            "call startHandshake, or the first read, in the thread of each connection and not in the accept loop, after setSoTimeout. Tried in lab/sick"
        }
        SoftwareKind::Node => {
            "start a process for each core (node:cluster), and move work that takes long out of SNICallback and ALPNCallback. Not tried in the lab"
        }
        _ => return None,
    })
}

/// Advice where OpenSSL 3 itself is the largest part of the CPU time of handshakes with a key that signs quickly.
pub(in super::super) const OPENSSL_3: &str = "the largest part is OpenSSL 3's own work, which no setting of the server is known to change. A build with another library needs less: tried with {{library.openssl}}. Or put `dormouse serve` in front to terminate TLS";

/// Advice where an interpreter takes the CPU time of handshakes, and no certificates are parsed.
pub(in super::super) const INTERPRETED: &str = "no connection parses certificates of its own: the time is the interpreter's, for accepting a connection and its first answer. Keep connections open and leave resumption on, so that there are fewer handshakes; several processes use more cores. Or put `dormouse serve` in front to terminate TLS. Not tried in the lab";

/// Advice on the CPU time of a server's handshakes.
pub(in super::super) fn server_cpu(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Node => {
            "create the secure context once (tls.createSecureContext), and do not pass `ca` to every connection. In the case that started this project (Node 0.4), one shared trust store raised 70 requests per second to 700"
        }
        SoftwareKind::Python | SoftwareKind::Twisted => {
            "create one SSLContext and share it: load_verify_locations for each connection parses all root certificates again. Tried with the ssl module and some 140 certificates, from a context for each connection to one: {{advice.python.context-cpu}}"
        }
        SoftwareKind::Nginx => {
            "use an ECDSA P-256 certificate beside RSA or instead of it, and leave tickets on, so that most handshakes are resumed. Tried with {{advice.nginx.keys}}"
        }
        SoftwareKind::Haproxy => {
            "use an ECDSA P-256 certificate beside RSA or instead of it, and leave tickets on, so that most handshakes are resumed. Tried with {{advice.haproxy.keys}}"
        }
        SoftwareKind::Hitch => {
            "use an ECDSA P-256 certificate instead of RSA, and leave tickets on, so that most handshakes are resumed. Tried with {{advice.hitch.keys}}"
        }
        SoftwareKind::Stunnel => {
            "use an ECDSA P-256 certificate instead of RSA, and leave tickets on, so that most handshakes are resumed. stunnel still starts a thread for each connection. Tried with {{advice.stunnel.keys}}"
        }
        SoftwareKind::Apache => {
            "use an ECDSA P-256 certificate beside RSA or instead of it, and leave tickets on, so that most handshakes are resumed. Tried with {{advice.apache.keys}}"
        }
        SoftwareKind::OpenSsl => {
            "use one SSL_CTX for all connections, and do not call SSL_CTX_load_verify_locations for each (tried with Python's ssl module and some 140 root certificates: {{advice.python.context-cpu}}). Use an ECDSA P-256 certificate (tried with {{advice.nginx.keys}})"
        }
        SoftwareKind::Jvm | SoftwareKind::NettyJdk | SoftwareKind::NettyTcnative => {
            "audit again after tens of thousands of handshakes: until then a JVM interprets and compiles its code. If the cost stays, use one SSLContext or SslContext for all connections. Tried with a client whose trust store has one certificate: {{advice.java.roots}}"
        }
        SoftwareKind::Dormouse => {
            "if the server behind Dormouse is in the same process tree, its CPU time is included: audit each alone"
        }
        _ => return None,
    })
}

/// Advice on the CPU time of a client.
pub(in super::super) fn client_cpu(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Python => {
            "create one ssl.SSLContext: each new context that trusts the system's authorities parses some 140 certificates. Tried with http.client and {{advice.http-client.roots}}"
        }
        SoftwareKind::Jvm | SoftwareKind::NettyJdk | SoftwareKind::NettyTcnative => {
            "create one SSLContext, and use one process for many requests: a JVM first loads and interprets its code. Tried with HttpsURLConnection, a trust store of one certificate, and {{advice.java.roots}}"
        }
        _ => return None,
    })
}
