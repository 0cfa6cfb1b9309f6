//! What the client of the current handshake requests.

use std::borrow::Cow;

use crate::call_scope::{Facts, Subject, if_in_scope};
use crate::failure::NoCertificate;

/// Server side: what the client requests, and whether we have it.
#[derive(Default)]
pub(crate) struct Requested {
    /// The requested server name.
    pub(crate) server_name: Option<String>,
    /// A server name that rustls does not see.
    pub(crate) odd_name: Option<OddName>,
    /// Set if rustls does not see some of the extensions.
    pub(crate) hidden: Option<Hidden>,
    /// The application protocol that will be negotiated.
    pub(crate) alpn: Option<Vec<u8>>,
    /// Why the client gets no certificate, if it gets none.
    pub(crate) no_certificate: Option<NoCertificate>,
}

/// A server name that rustls does not see.
pub(crate) struct OddName {
    /// `None`: it is too long, or not printable.
    pub(crate) text: Option<String>,
}

/// Extensions that rustls does not see: the beginning of the ClientHello, up to the type of the last of them.
pub(crate) struct Hidden {
    /// As the client has sent it.
    pub(crate) sent: Vec<u8>,
    /// As rustls sees it, with other types.
    pub(crate) seen: Vec<u8>,
}

impl Requested {
    /// The server name by which rustls knows the client's session.
    pub(crate) fn session_name(&self) -> Option<&str> {
        match self.odd_name {
            Some(_) => None,
            None => self.server_name.as_deref(),
        }
    }
}

/// Returns these bytes of the transcript as the client has sent them.
pub(crate) fn as_sent(bytes: &[u8]) -> Cow<'_, [u8]> {
    let restored = if_in_scope(|requested: &mut Requested| {
        let hidden = requested.hidden.as_ref()?;
        let rest = bytes.strip_prefix(hidden.seen.as_slice())?;
        Some([&hidden.sent, rest].concat())
    });
    restored.flatten().map_or(Cow::Borrowed(bytes), Cow::Owned)
}

impl Facts for Requested {
    const SUBJECT: Subject = Subject::Request;
}
