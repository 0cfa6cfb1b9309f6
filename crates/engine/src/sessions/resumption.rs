//! May this session be resumed? Why not?
//!
//! A refusal is never the client's fault and never ends its handshake: it gets a full one.

use std::fmt;

use rustls_pki_types::UnixTime;

use crate::handshake::call_scope::with_turn;
use crate::sessions::server_session::Session;
use crate::x509::client_auth::ClientAuth;

/// Why a session that a client offered was not resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ResumptionRefused {
    /// Its ticket was made with a key which is not known here: another machine's, or one that
    /// has been forgotten since.
    UnknownKey,
    /// Its ticket does not authenticate, or is no ticket of ours.
    Damaged,
    /// It is older than tickets may be.
    Expired,
    /// It is not in the session cache: it was used before, pushed out, or never there.
    NotCached,
    /// It was made for another server name (RFC 6066 §3).
    OtherServerName,
    /// It was made for another application protocol.
    OtherAlpn,
    /// It was made where client certificates are handled in another way.
    OtherClientPolicy,
    /// Its client's certificate would be refused today.
    ClientCertificate,
    /// It was made for another version or cipher suite than the one which was chosen now.
    OtherSuite,
}

impl ResumptionRefused {
    /// All reasons.
    pub const ALL: [ResumptionRefused; 9] = [
        ResumptionRefused::UnknownKey,
        ResumptionRefused::Damaged,
        ResumptionRefused::Expired,
        ResumptionRefused::NotCached,
        ResumptionRefused::OtherServerName,
        ResumptionRefused::OtherAlpn,
        ResumptionRefused::OtherClientPolicy,
        ResumptionRefused::ClientCertificate,
        ResumptionRefused::OtherSuite,
    ];
}

impl fmt::Display for ResumptionRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownKey => "made with a ticket key that is not known here",
            Self::Damaged => "the ticket does not authenticate",
            Self::Expired => "older than ticket_lifetime",
            Self::NotCached => "not in the session cache (used before, or pushed out)",
            Self::OtherServerName => "made for another server name",
            Self::OtherAlpn => "made for another application protocol",
            Self::OtherClientPolicy => "made under another rule for client certificates",
            Self::ClientCertificate => "the client's certificate would be refused today",
            Self::OtherSuite => "made for another version or cipher suite",
        })
    }
}

/// What a handshake learns about resumption on its way.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// A session was found good and given to rustls.
    pub(crate) accepted: bool,
    /// Why the last one that was looked at was refused.
    pub(crate) refused: Option<ResumptionRefused>,
    /// A client certificate was judged in this handshake, whether sent or out of a session.
    pub(crate) client_judged: bool,
    /// A ticket was not given out because the session is too large for one.
    pub(crate) withheld: bool,
}

impl Noted {
    /// Why nothing was resumed, at the end of a handshake that did not.
    pub(crate) fn reason(&self) -> Option<ResumptionRefused> {
        if self.accepted {
            // rustls looked at it last, and goes by suite and version.
            Some(ResumptionRefused::OtherSuite)
        } else {
            self.refused
        }
    }
}

/// Judges a session for the connection whose turn it is. The server name, the application
/// protocol and the client's certificate must be good *now*.
pub(crate) fn judge(
    session: &[u8],
    client_auth: Option<&ClientAuth>,
    now: UnixTime,
) -> Result<(), ResumptionRefused> {
    let session = Session::read(session).ok_or(ResumptionRefused::Damaged)?;
    let (name_fits, alpn_fits) = with_turn(|turn| {
        let asked = turn.server_name.as_deref().map(str::as_bytes);
        let name_fits = match (asked, session.server_name) {
            (Some(asked), Some(made_for)) => asked.eq_ignore_ascii_case(made_for),
            (None, None) => true,
            _ => false,
        };
        (name_fits, turn.alpn.as_deref() == session.alpn)
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

/// Notes the outcome for the connection whose turn it is.
pub(crate) fn note(outcome: Result<Vec<u8>, ResumptionRefused>) -> Option<Vec<u8>> {
    with_turn(|turn| match &outcome {
        Ok(_) => turn.resumption.accepted = true,
        Err(refused) => turn.resumption.refused = Some(*refused),
    });
    outcome.ok()
}
