//! Sans-IO TLS: a handshake by rustls, then only a [`dormouse_record::State`].
//!
//! A context ([`ServerContext`], [`ClientContext`]) is made once: it parses certificates, keys, trust stores
//! and tickets, and all connections share it. A [`stream::Connection`] takes bytes and returns bytes; the
//! caller owns sockets, clocks and threads. Start with the documentation of [`stream`].
//!
//! Below that, a [`Handshake`] runs until it is done. [`Handshake::rest`] then writes the connection's secrets
//! and sequence numbers into a record state and drops every library object.
//!
//! ```text
//!  received ─▶ records ─ one at a time ─▶ driver (rustls) ─▶ output ─▶ to the peer
//!                 │                          │
//!                 │ after the handshake      │ rest()
//!                 ▼                          ▼
//!              leftover              record::State (128 bytes)
//! ```
//!
//! | folder | subject |
//! |---|---|
//! | [`stream`] | a connection from its first byte to its end; the main interface |
//! | `context` | settings of servers and clients, prepared once |
//! | `restore` | a client's sessions, made from bytes again |
//! | `handshake` | rustls, driven one record at a time, until the state is complete |
//! | `sessions` | resumption: tickets, caches, a client's sessions as bytes |
//! | `x509` | certificates: our own, trusted roots, client certificates |
//! | `client_hello` | what a ClientHello requests, read before its handshake begins |
//!
//! Each folder knows only those below it. Hooks, through which a program takes part in a handshake, are where they are
//! called: [`Connection::handle`](stream::Connection::handle) calls each on the caller's thread, and the hook must
//! return at once. It has no access to the connection that waits for it. Each hook's documentation says what it may
//! cost, and what happens when it fails.
//!
//! rustls reads the time and reports traffic secrets through shared objects. Both pass through a thread-local
//! slot that is set for one call: see `call_scope`.
#![forbid(unsafe_code)]

mod agreements;
mod alert_name;
mod call_scope;
mod client_hello;
mod context;
mod deferred;
mod failure;
#[doc(hidden)]
pub mod fuzzed;
mod handshake;
mod hmac;
#[doc(hidden)]
pub mod messages;
mod restore;
mod secrets;
mod sessions;
mod settings_error;
mod signature_name;
mod signing_scheme;
pub mod stream;
mod x509;

pub use agreements::{AgreementBatches, NoBatches, PreparedAgreement};
pub use alert_name::alert_name;
pub use client_hello::expected_handshake::ExpectedHandshake;
pub use client_hello::first_flight::{ClientHello, FirstFlight};
pub use client_hello::key_share::ClientShare;
pub use context::certificates::{Certificates, OfferedIdentity, RetiredCertificates, UnknownName};
pub use context::choose_identity::ChooseIdentity;
pub use context::client::{ClientContext, ClientSettings, ResumptionSettings};
pub use context::server::{ACME_TLS, ServerContext, ServerSettings};
pub use context::settings::{Group, Protocols};
pub use context::suites::Suite;
pub use deferred::SignatureRequest;
pub use dormouse_record::Version;
pub use failure::{Blame, CertificateProblem, FailureKind, HandshakeFailure};
pub use handshake::exporter::{ExportError, Exporter};
pub use handshake::info::{Flights, HandshakeInfo};
pub use handshake::rest::Rested;
pub use handshake::secret_log::{SecretLog, secret_log_line};
pub use handshake::{Handshake, HandshakeLimits, Progress};
pub use hmac::{HmacHash, HmacKey};
pub use rustls_pki_types::{CertificateDer, UnixTime};
pub use sessions::client_session::{Reuse, Session, SessionStore, digest};
pub use sessions::refusal::ResumptionRefused;
pub use sessions::server_sessions::ServerSessions;
pub use sessions::ticket_watch::TicketWatch;
pub use sessions::tickets::key_file::{TicketKeyBytes, TicketKeyFile, TicketKeyFileError};
pub use sessions::tickets::{TicketKeyring, TicketKeys, TicketSettings};
pub use settings_error::SettingsError;
pub use signing_scheme::SigningScheme;
pub use x509::chain::{DateProblem, IssuerProblem};
pub use x509::client_auth::{ClientCertificates, ClientVerifier};
pub use x509::client_rules::ClientRule;
pub use x509::identity::{Algorithms, Identity, IdentityWarning};
pub use x509::identity_error::{IdentityError, IdentityProblem};
pub use x509::issuers::Issuers;
pub use x509::judge_certificate::{
    CertificateRefusal, Finding, JudgeCertificate, ShownCertificates,
};
pub use x509::key_kind::KeyKind;
pub use x509::ocsp::{OcspProblem, OcspTimes, check_ocsp, ocsp_question};
pub use x509::outline::fingerprint;
pub use x509::pem::contents::certificates as pem_chain;
pub use x509::pem::file::PemFile;
pub use x509::sign::Sign;
pub use x509::spiffe::{ServerIds, pem_of_certificates, pem_of_key, spiffe_id};
pub use x509::standing::{ClientStanding, ClientStandings};
pub use x509::trust::{Roots, ServerCertificates, TrustStore};
