//! The challenge by which an ACME server verifies that a name is ours (RFC 8737 §3).
//!
//! A client that asks for that name and offers the protocol acme-tls/1, and nothing else, is shown
//! the certificate of the challenge. Main opens a challenge in all workers, because any of them may
//! accept the ACME server. While it is open every ClientHello is read before its handshake begins.
//! The connection ends with the handshake, so nothing of it reaches a backend. At any other time
//! `engine` refuses such a client, whatever the route.

use dormouse_engine::{
    ACME_TLS, ClientHello, Handshake, HandshakeLimits, Identity, ServerContext, ServerSettings,
    UnknownName,
};

/// The challenge that is open.
pub(crate) struct Challenge {
    name: String,
    context: ServerContext,
}

impl Challenge {
    /// `told`: a line with the name, then a certificate and its key as PEM.
    pub(crate) fn new(told: &str) -> Result<Challenge, String> {
        let (name, pem) = told.split_once('\n').ok_or("the challenge has no name")?;
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

    /// Is it this that the client wants to see?
    pub(crate) fn is_asked_for(&self, hello: &ClientHello) -> bool {
        hello.alpn == [ACME_TLS] && hello.server_name.as_deref() == Some(self.name.as_str())
    }

    pub(crate) fn handshake(&self, limits: HandshakeLimits) -> Handshake {
        Handshake::server(&self.context, limits)
    }
}
