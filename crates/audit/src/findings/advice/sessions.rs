//! Advice by software: sessions that are not resumed and connections that are not kept open.

use crate::software::SoftwareKind;

/// Advice for a server that does not resume sessions.
pub(in super::super) fn server(kind: SoftwareKind) -> Option<&'static str> {
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

/// Advice for a client that offers no sessions, or always the same one.
pub(in super::super) fn client(kind: SoftwareKind) -> Option<&'static str> {
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

pub(in super::super) fn keep_alive(kind: SoftwareKind) -> Option<&'static str> {
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
