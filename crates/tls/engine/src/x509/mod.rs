//! Certificates: our own with their keys, the authorities we trust, and the rules for clients.
//!
//! | file | subject |
//! |---|---|
//! | `identity`, `identity_error` | a chain with its key, and the errors for both |
//! | `pem`, `der` | files and encodings |
//! | `outline`, `chain` | a certificate without its extensions, and what is wrong with a chain |
//! | `anchors` | the certificates that the operator trusts |
//! | `trust` | roots, and the verification of a server's certificate |
//! | `revocation_list`, `revocation` | revocation lists: the newest, and the expired; verification with them |
//! | `client_auth`, `client_rules`, `authority_names` | the verification of a client's certificate, which clients are allowed, and the request for a certificate |
//! | `spiffe` | ids of workloads in place of names |
//! | `standing` | what admitted a client, for connections that keep nothing else of its certificate |
//! | `issuers` | the issuers that a chain lacks |
//! | `unsupported` | what a certificate demands that is not supported |
//! | `path` | which of a peer's certificates a verification needs |
//! | `ocsp`, `stapled` | responses that say a certificate is not revoked: our own, and those of servers |

pub(crate) mod anchors;
pub(crate) mod authority_names;
pub(crate) mod chain;
pub(crate) mod client_auth;
pub(crate) mod client_rules;
pub(crate) mod der;
pub(crate) mod facts;
pub(crate) mod identity;
pub(crate) mod identity_error;
pub(crate) mod issuers;
pub(crate) mod judge_certificate;
pub(crate) mod judgement;
pub(crate) mod key_kind;
pub(crate) mod ocsp;
pub(crate) mod outline;
pub(crate) mod path;
pub(crate) mod pem;
pub(crate) mod revocation;
pub(crate) mod revocation_list;
pub(crate) mod sign;
pub(crate) mod spiffe;
pub(crate) mod standing;
pub(crate) mod stapled;
pub(crate) mod trust;
pub(crate) mod unsupported;
