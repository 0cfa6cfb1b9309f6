//! rustls' session values, restored from bytes.
//!
//! rustls keeps a session as a value which can be neither read nor made from outside (0.23: no
//! accessor, no constructor), so its stores end with the process. But it makes such a value in one
//! place, where a connection receives a ticket or finishes a handshake, and it asks the
//! cryptographic provider for the secret that belongs to it. The provider is ours to wrap
//! ([`scoped_suites`](crate::handshake::scoped_suites)):
//!
//! - *Capture*: while a real session begins, the secret that the provider derives is copied into
//!   the call's scope ([`Derivation::Captured`](crate::handshake::secrets::Derivation)).
//! - *Restore*: a connection of this process with itself ([`loopback`]) repeats that moment, and
//!   the provider gives it the captured secret in place of the derived one. What the connection
//!   then puts into its store is the session as it was.
//!
//! The loopback connections share verifier and client certificate with those that will use the
//! session, since rustls offers a session under the same ones only.

mod loopback;
pub(crate) mod tls12;
pub(crate) mod tls13;
