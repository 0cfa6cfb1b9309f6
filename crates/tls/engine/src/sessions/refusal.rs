//! Whether a server resumes the session that a client offers, and why not.

use std::fmt;

use crate::call_scope::{Facts, Subject};
use crate::sessions::server_sessions::StoredSession;
use crate::sessions::ticket_messages::TicketMessages;

/// Why a session that a client offered was not resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ResumptionRefused {
    /// Its ticket was sealed with an unknown key: another machine's key, or one that has been dropped since.
    UnknownKey,
    /// Its ticket failed authentication, or is not one of ours.
    Damaged,
    /// It is older than `ticket_lifetime`, or its full handshake was too long ago.
    Expired,
    /// It is not in the session cache: already used, evicted, or never stored.
    NotCached,
    /// It was made for another server name (RFC 6066 §3), or with a certificate for other names.
    OtherServerName,
    /// It was made for another application protocol.
    OtherAlpn,
    /// It was made under a different client certificate policy.
    OtherClientPolicy,
    /// Its client's certificate is refused now.
    ClientCertificate,
    /// It was made for a version or cipher suite other than the negotiated one.
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
            Self::UnknownKey => "the ticket was sealed with an unknown key",
            Self::Damaged => "the ticket failed authentication",
            Self::Expired => "the session is older than ticket_lifetime",
            Self::NotCached => "the session is not in the cache (already used, or evicted)",
            Self::OtherServerName => "the session belongs to another server name",
            Self::OtherAlpn => "the session belongs to another application protocol",
            Self::OtherClientPolicy => {
                "the session was made under a different client certificate policy"
            }
            Self::ClientCertificate => "the client's certificate is refused now",
            Self::OtherSuite => "the session belongs to another TLS version or cipher suite",
        })
    }
}

/// Length of the digest of a certificate's names in a ticket.
pub(crate) const NAMES_LEN: usize = 8;

/// Server side: what a handshake has to do with sessions.
#[derive(Debug, Default)]
pub(crate) struct ServerResumption {
    /// Whether a session was accepted and passed to rustls.
    pub(crate) accepted: bool,
    /// When the full handshake was from which the accepted session comes, in seconds of Unix time.
    pub(crate) begun_at_s: Option<u64>,
    /// The digest of our certificate's names, to which the session is bound; zero if they cover the requested name.
    pub(crate) certificate_names: [u8; NAMES_LEN],
    /// Why the last checked session was refused.
    pub(crate) refused: Option<ResumptionRefused>,
    /// Whether a ticket was not issued because the session is too large for one.
    pub(crate) withheld: bool,
    /// Whether the client supports tickets.
    pub(crate) knows_tickets: bool,
    /// TLS 1.2: the stored session that this connection began or resumes.
    pub(crate) stored: Option<StoredSession>,
    /// The TLS 1.3 tickets to send. `None` on the client side.
    pub(crate) tickets: Option<TicketMessages>,
}

impl Facts for ServerResumption {
    const SUBJECT: Subject = Subject::ServerSessions;
}

impl ServerResumption {
    /// Returns why nothing was resumed, at the end of a full handshake.
    pub(crate) fn reason(&self) -> Option<ResumptionRefused> {
        if self.accepted {
            // rustls checks suite and version last.
            Some(ResumptionRefused::OtherSuite)
        } else {
            self.refused
        }
    }
}
