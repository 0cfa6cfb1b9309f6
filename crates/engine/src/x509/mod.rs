//! Certificates: our own with their keys, whom we trust, and how clients' are judged.

pub(crate) mod client_auth;
pub(crate) mod client_rules;
pub(crate) mod der;
pub(crate) mod identity;
pub(crate) mod identity_error;
pub(crate) mod ocsp;
pub(crate) mod pem;
pub(crate) mod trust;
