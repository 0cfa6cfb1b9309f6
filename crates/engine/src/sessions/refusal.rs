//! Why a session is not resumed.

use std::fmt;

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
pub(crate) struct ResumptionOutcome {
    /// A session was found good and given to rustls.
    pub(crate) accepted: bool,
    /// Why the last one that was looked at was refused.
    pub(crate) refused: Option<ResumptionRefused>,
    /// A client certificate was judged in this handshake, whether sent or out of a session.
    pub(crate) client_judged: bool,
    /// A ticket was not given out because the session is too large for one.
    pub(crate) withheld: bool,
}

impl ResumptionOutcome {
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
