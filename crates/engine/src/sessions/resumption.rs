//! Decides whether a session may be resumed.
//!
//! A refusal never ends a client's handshake: the client gets a full handshake.

use rustls_pki_types::UnixTime;

use crate::handshake::call_scope::in_scope;
use crate::sessions::refusal::ResumptionRefused;
use crate::sessions::server_session::Session;
use crate::x509::client_auth::ClientAuth;

/// Checks a session for the current connection. The server name, the application protocol and the client's
/// certificate must be valid *now*.
pub(crate) fn judge(
    session: &Session<'_>,
    client_auth: Option<&ClientAuth>,
    now: UnixTime,
) -> Result<(), ResumptionRefused> {
    let (name_fits, alpn_fits) = in_scope(|scope| {
        let requested = scope.server_name.as_deref().map(str::as_bytes);
        let name_fits = match (requested, session.server_name) {
            (Some(asked), Some(made_for)) => asked.eq_ignore_ascii_case(made_for),
            (None, None) => true,
            _ => false,
        };
        (name_fits, scope.alpn.as_deref() == session.alpn)
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
        Some(client_auth) => client_auth.judge_again(&session.client_chain, now),
    }
}

/// Records the outcome for the current connection.
pub(crate) fn note(outcome: Result<Vec<u8>, ResumptionRefused>) -> Option<Vec<u8>> {
    in_scope(|scope| match &outcome {
        Ok(_) => scope.resumption.accepted = true,
        Err(refused) => scope.resumption.refused = Some(*refused),
    });
    outcome.ok()
}
