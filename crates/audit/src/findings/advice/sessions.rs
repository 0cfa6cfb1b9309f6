//! Advice by software: sessions that are not resumed and connections that are not kept open.

use crate::software::SoftwareKind;

/// Advice for a server that does not resume sessions.
pub(in super::super) fn server(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Nginx => {
            "leave `ssl_session_tickets on`, which is the default ({{advice.nginx.tickets}}). For clients without tickets add `ssl_session_cache shared:SSL:10m` (tried with {{advice.nginx.ids}}). Several machines need the same ssl_session_ticket_key file (tried with {{advice.nginx.shared}})"
        }
        SoftwareKind::Apache => {
            "set `SSLSessionTickets on` and `SSLSessionCache shmcb:/run/apache2/ssl_scache(512000)`, which all of Apache's processes share. Tried with {{advice.apache.cache}}; without tickets, by the cache alone, {{advice.apache.ids}}. In the case that started this project, a browser's share of the server's CPU fell from 6.83 % to under 1 %. Several machines need the same SSLSessionTicketKeyFile (tried with {{advice.apache.shared}})"
        }
        SoftwareKind::Haproxy => {
            "remove no-tls-tickets. All threads share the session cache (tune.ssl.cachesize, 20,000 by default). Several machines need the same tls-ticket-keys file on their bind lines (tried with {{advice.haproxy.shared}})"
        }
        SoftwareKind::Hitch => {
            "leave tickets on: hitch's workers share their keys. Several machines cannot share them: let `dormouse serve` terminate TLS"
        }
        SoftwareKind::Stunnel => {
            "leave `sessionResume = yes`, which is the default. Several machines need the same ticketKeySecret and ticketMacSecret (tried with {{advice.stunnel.shared}})"
        }
        SoftwareKind::Node => {
            "give all processes and machines the same ticketKeys (48 bytes) and the same sessionIdContext in the options of tls.createServer. By default sessionIdContext is derived from the command line, so the keys alone do not help where command lines differ. Tried with {{advice.node.shared}}; with the keys alone, {{advice.node.shared-alone}}"
        }
        SoftwareKind::Twisted => {
            "add enableSessionTickets=True: CertificateOptions turns sessions and tickets off. Tried with {{advice.twisted.sessions}}"
        }
        SoftwareKind::Python => {
            "use one SSLContext for all connections. Tried with {{advice.python.one-context}}. The ssl module cannot share ticket keys between processes: use one process, or let `dormouse serve` terminate TLS"
        }
        SoftwareKind::NettyJdk | SoftwareKind::Jvm => {
            "use one SSLContext for all connections. Tried with {{advice.netty-jdk.one-context}}. The JDK cannot share ticket keys between processes: let `dormouse serve` terminate TLS"
        }
        SoftwareKind::NettyTcnative => {
            "use one SslContext for all connections, and call OpenSslSessionContext.setTicketKeys with the same keys in all processes. Tried with {{advice.netty-tcnative.shared}}"
        }
        SoftwareKind::Go => {
            "use one tls.Config for all connections, and call SetSessionTicketKeys with the same keys in all processes. Tried with {{advice.go.shared}}"
        }
        SoftwareKind::Rustls => {
            "set ServerConfig.ticketer, with keys that all processes share. By default rustls issues no TLS 1.2 tickets, and its session cache belongs to one process. Tried in lab/sick with four processes: a quarter of the sessions was resumed with separate keys, all with shared keys"
        }
        SoftwareKind::OpenSsl => {
            "call SSL_CTX_set_session_id_context, leave tickets on, and set SSL_CTX_set_tlsext_ticket_key_evp_cb with keys that all processes share. Tried with a server on {{advice.openssl.shared}}"
        }
        SoftwareKind::Dormouse => {
            "set `tickets` above 0 in the configuration; several machines need the same ticket keys"
        }
        _ => return None,
    })
}

/// Advice for a server that ends connections which offer a session.
pub(in super::super) fn refused(kind: SoftwareKind) -> Option<&'static str> {
    match kind {
        SoftwareKind::OpenSsl => Some(
            "call SSL_CTX_set_session_id_context after SSL_CTX_set_verify: without it, OpenSSL ends each handshake that offers a session if the server asks for client certificates. Tried in lab/sick: no connection with a session is established without the call, all are resumed with it",
        ),
        _ => None,
    }
}

/// Advice for a client that offers no sessions, or always the same one.
pub(in super::super) fn client(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Perl => {
            "create one context for all connections: my $ctx = IO::Socket::SSL::SSL_Context->new(…, SSL_session_cache_size => 64), passed as ssl_opts => { SSL_reuse_ctx => $ctx }. Tried with {{advice.lwp.context}}. It does not help with TLS 1.2 ({{advice.lwp.context-12}}): LWP closes connections without close_notify, and OpenSSL then drops their sessions. Or leave the script unchanged and connect through `dormouse connect`: {{advice.lwp.connect}}. In the case that started this project, the script's share of the server's CPU fell from 20.5 % to under 1 %. If a session is never renewed, create a new context after a number of requests"
        }
        SoftwareKind::Python => {
            "pass session=previous.session to wrap_socket, read after the first answer has arrived: {{advice.python.session}}. One ssl.SSLContext for all connections is not enough, because http.client sets no session (tried with {{advice.http-client.context}}). Or keep connections open: http.client ({{advice.http-client.connection}}), requests ({{advice.requests.session}}). Or leave the client unchanged and connect through `dormouse connect`: {{advice.http-client.connect}}"
        }
        SoftwareKind::Node => {
            "use one https.Agent for all requests: it caches sessions per host. Tried with {{advice.agent.one}}; with keepAlive: true, {{advice.agent.keep-alive}}"
        }
        SoftwareKind::Go => {
            "set tls.Config.ClientSessionCache = tls.NewLRUClientSessionCache(64), and use one http.Transport for all requests. Tried with {{advice.go.cache}}"
        }
        SoftwareKind::Rustls => {
            "use one ClientConfig for all connections: it holds the session store. Tried in lab/sick: 0 of 12 connections resumed with a new one each time, 11 of 12 with one"
        }
        SoftwareKind::Jvm | SoftwareKind::NettyJdk => {
            "use one SSLContext for all connections: it holds the sessions, by host name and port. Tried with HttpsURLConnection and {{advice.java.context}}"
        }
        SoftwareKind::NettyTcnative => {
            "use one SslContext for all connections, and newHandler(allocator, host, port): sessions are stored by host and port. Tried with {{advice.netty-client.context}}; without host and port, {{advice.netty-client.unnamed}}"
        }
        SoftwareKind::OpenSsl => {
            "use one SSL_CTX for all connections, keep the session that the callback of SSL_CTX_sess_set_new_cb receives (in TLS 1.3 after the handshake), pass it to the next connection with SSL_set_session, and renew it. Tried with Python, which does this: {{advice.python.session}}"
        }
        _ => return None,
    })
}

/// Advice for a client that opens a connection for each request.
pub(in super::super) fn keep_alive(kind: SoftwareKind) -> Option<&'static str> {
    Some(match kind {
        SoftwareKind::Perl => {
            "use one LWP::UserAgent->new(keep_alive => 8) for all requests. Tried with {{advice.lwp.keep-alive}}"
        }
        SoftwareKind::Python => {
            "use one requests.Session or http.client.HTTPSConnection for all requests. Tried with {{advice.requests.session}}; {{advice.http-client.connection}}"
        }
        SoftwareKind::Node => {
            "use one https.Agent with keepAlive: true. Tried with {{advice.agent.keep-alive}}"
        }
        SoftwareKind::Go => {
            "use one http.Client, and read each body to its end and close it: otherwise the connection is not reused. Tried with {{advice.go.keep-alive}}"
        }
        SoftwareKind::Jvm | SoftwareKind::NettyJdk => {
            "read each answer to its end, and leave http.keepAlive on. Tried with HttpsURLConnection and {{advice.java.keep-alive}}"
        }
        _ => return None,
    })
}
