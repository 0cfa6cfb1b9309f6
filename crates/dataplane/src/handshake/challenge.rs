//! The challenge by which an ACME server verifies that we control a name (RFC 8737 §3).
//!
//! A client that requests the name and offers only the protocol acme-tls/1 gets the challenge
//! certificate. Main opens a challenge in all workers, because any of them may accept the ACME
//! server's connection. While a challenge is open, the worker reads every ClientHello before its
//! handshake begins. The connection ends with the handshake, so nothing reaches a backend. While no
//! challenge is open, `engine` refuses such clients on every route.

use dormouse_engine::{
    ACME_TLS, ClientHello, Handshake, HandshakeLimits, Identity, ServerContext, ServerSettings,
    UnknownName,
};

/// An open challenge.
pub(crate) struct Challenge {
    name: String,
    context: ServerContext,
}

impl Challenge {
    /// Parses a challenge: a line with the name, then a certificate and its key as PEM.
    pub(crate) fn new(text: &str) -> Result<Challenge, String> {
        let (name, pem) = text.split_once('\n').ok_or("the challenge has no name")?;
        let identity = Identity::from_acme_challenge_pem(pem, name);
        let mut settings = ServerSettings::new(vec![identity.map_err(|e| e.to_string())?]);
        settings.alpn = vec![ACME_TLS.to_vec()];
        settings.tickets = None;
        settings.unknown_name = UnknownName::Refuse;
        let context = ServerContext::new(settings).map_err(|e| e.to_string())?;
        Ok(Challenge {
            name: name.to_owned(),
            context,
        })
    }

    /// Whether the client requests this challenge.
    pub(crate) fn matches(&self, hello: &ClientHello) -> bool {
        hello.alpn == [ACME_TLS] && hello.server_name.as_deref() == Some(self.name.as_str())
    }

    pub(crate) fn handshake(&self, limits: HandshakeLimits) -> Handshake {
        Handshake::server(&self.context, limits)
    }
}
