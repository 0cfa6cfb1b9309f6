//! The caller's choice of a certificate.

use std::fmt;

use crate::client_hello::first_flight::ClientHello;
use crate::x509::identity::Identity;

/// Chooses the certificate for a client, for programs that create or load certificates on demand.
pub trait ChooseIdentity: fmt::Debug + Send + Sync {
    /// Returns the certificate for the name and protocols that the client requests. `None`: the context's own
    /// certificates are used, as without this hook.
    ///
    /// Keep identities and return clones, which are cheap; creating one parses a key.
    fn choose_identity(&self, hello: &ClientHello) -> Option<Identity>;
}
