//! rustls' session values, restored from bytes.
//!
//! rustls keeps a session as a value that cannot be read or made from outside (0.23: no accessor, no
//! constructor), so its stores end with the process. But rustls makes such a value in only one place, where a
//! connection receives a ticket or finishes a handshake, and asks the cryptographic provider for the session's
//! secret. We wrap the provider ([`scoped_suites`](crate::handshake::scoped_suites)):
//!
//! - *Capture*: while a real session starts, the secret that the provider derives is copied into the call scope
//!   ([`Derivation::Captured`](crate::secrets::Derivation)).
//! - *Restore*: a connection of this process with itself ([`loopback`]) repeats that step, and the provider
//!   returns the captured secret instead of the derived one. The connection then stores the original session.
//!
//! The loopback connections share verifier and client certificate with the connections that will use the
//! session, because rustls offers a session only under the same ones.

pub(crate) mod client_store;
pub(crate) mod loopback;
pub(crate) mod tls12;
pub(crate) mod tls13;
