//! Advice by software: what handshakes allow and what they cost.

use crate::software::SoftwareKind;

/// Advice on compression. OpenSSL builds with compression still exist (Debian 13), but both an option and the security
/// level must enable it.
pub(in super::super) fn compression(kind: SoftwareKind) -> Option<&'static str> {
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

pub(in super::super) fn versions(kind: SoftwareKind) -> Option<&'static str> {
    match kind {
        SoftwareKind::Go => Some(
            "tls.Config.MinVersion = tls.VersionTLS12; or `go 1.22` or later in go.mod, from which on it is so by itself (tried: with `go 1.19` there, a server built by Go 1.26.8 accepts TLS 1.0)",
        ),
        _ => None,
    }
}

pub(in super::super) fn renegotiation(kind: SoftwareKind) -> Option<&'static str> {
    match kind {
        SoftwareKind::Node => Some(
            "set minVersion to TLSv1.3, or tls.CLIENT_RENEG_LIMIT = 0 and destroy the socket when it says 'error', which ends the connection as soon as a client begins (tried with Node 20.20.2); by itself Node allows three in ten minutes, and only says so then",
        ),
        _ => None,
    }
}

pub(in super::super) fn server_cpu(kind: SoftwareKind) -> Option<&'static str> {
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

pub(in super::super) fn client_cpu(kind: SoftwareKind) -> Option<&'static str> {
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
