//! While an ACME server looks whether a name is ours: whoever asks for that name and offers the
//! protocol acme-tls/1, and nothing else, is shown the certificate which says so (RFC 8737 §3).
//!
//! Main says when, and to all workers, because any of them may accept the one who looks. Meanwhile
//! every ClientHello is read before its handshake begins. There is no connection after such a
//! handshake, so none of it ever reaches a backend. At any other time such a client is refused
//! (`engine`), whatever the route.

use dormouse_engine::{
    ACME_TLS, Asked, Handshake, HandshakeLimits, Identity, ServerContext, ServerSettings,
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
        let (name, pem) = told.split_once('\n').ok_or("there is no name")?;
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
    pub(crate) fn is_asked_for(&self, asked: &Asked) -> bool {
        asked.alpn == [ACME_TLS] && asked.server_name.as_deref() == Some(self.name.as_str())
    }

    pub(crate) fn handshake(&self, limits: HandshakeLimits) -> Handshake {
        Handshake::server(&self.context, limits)
    }
}
