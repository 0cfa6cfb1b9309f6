//! The choice of a certificate by the caller.

use std::fmt;

use crate::client_hello::first_flight::ClientHello;
use crate::x509::identity::Identity;

/// Chooses the certificate for a client, for programs that make or load certificates on demand.
pub trait ChooseIdentity: fmt::Debug + Send + Sync {
    /// Returns the certificate for the name and the protocols that the client asks for. `None`: the
    /// choice is made among the context's own certificates, as without this hook.
    ///
    /// Keep identities and return clones, which are cheap; making one parses a key.
    fn choose_identity(&self, hello: &ClientHello) -> Option<Identity>;
}
