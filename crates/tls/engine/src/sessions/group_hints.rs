//! The groups that servers chose, for the key shares of a client's next handshakes.

use rustls::NamedGroup;

/// The groups of which a client sends key shares to a server that it does not know.
///
/// A server may have been replaced since it chose one of them. If the client sent only that share, the new server might
/// ask for another, and the client might have to withdraw its session for that ([RFC 8446 §4.1.2]); and a connection
/// would never be safe against quantum computers again.
///
/// [RFC 8446 §4.1.2]: https://www.rfc-editor.org/rfc/rfc8446#section-4.1.2
#[derive(Debug)]
pub(crate) struct FirstShares(pub(crate) Vec<NamedGroup>);

impl FirstShares {
    /// Returns the group that a server chose, unless its share is sent without this hint.
    pub(crate) fn hint(&self, chosen: Option<NamedGroup>) -> Option<NamedGroup> {
        chosen.filter(|group| !self.0.contains(group))
    }
}
