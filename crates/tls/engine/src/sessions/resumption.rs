//! Decides whether a session may be resumed.
//!
//! A refusal never ends a client's handshake: the client gets a full handshake.

use rustls_pki_types::UnixTime;

use crate::call_scope::in_scope;
use crate::client_hello::requested::Requested;
use crate::sessions::refusal::{ResumptionRefused, ServerResumption};
use crate::sessions::server_session::Session;
use crate::x509::client_auth::ClientAuth;

/// Checks a session for the current connection. The server name, the application protocol and the client's
/// certificate must be valid *now*.
pub(crate) fn judge(
    session: &Session<'_>,
    client_auth: Option<&ClientAuth>,
    now: UnixTime,
) -> Result<(), ResumptionRefused> {
    let (name_fits, alpn_fits) = in_scope(|asked: &mut Requested| {
        let requested = asked.session_name().map(str::as_bytes);
        let name_fits = match (requested, session.server_name) {
            (Some(name), Some(made_for)) => name.eq_ignore_ascii_case(made_for),
            (None, None) => true,
            _ => false,
        };
        (name_fits, asked.alpn.as_deref() == session.alpn)
    })
    .unwrap_or_default();
    if !name_fits {
        return Err(ResumptionRefused::OtherServerName);
    }
    if !alpn_fits {
        return Err(ResumptionRefused::OtherAlpn);
    }
    match client_auth {
        None if session.client_chain.is_empty() => Ok(()),
        None => Err(ResumptionRefused::OtherClientPolicy),
        Some(client_auth) => match client_auth.accepts_again(&session.client_chain, now) {
            true => Ok(()),
            false => Err(ResumptionRefused::ClientCertificate),
        },
    }
}

/// Records the outcome for the current connection.
pub(crate) fn note(outcome: Result<Vec<u8>, ResumptionRefused>) -> Option<Vec<u8>> {
    in_scope(|resumption: &mut ServerResumption| match &outcome {
        Ok(_) => resumption.accepted = true,
        Err(refused) => resumption.refused = Some(*refused),
    });
    outcome.ok()
}
