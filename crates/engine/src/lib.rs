//! Sans-IO TLS: a handshake by rustls, then a [`dormouse_record::State`] and nothing else.
//!
//! A context ([`ServerContext`], [`ClientContext`]) is made once: certificates, keys, trust
//! stores and tickets are parsed there and shared by all connections. A
//! [`stream::Connection`] takes bytes and gives bytes; sockets, clocks and threads are the
//! caller's. Begin with the page of [`stream`].
//!
//! Under it, a [`Handshake`] runs until it is done. [`Handshake::rest`] then writes the connection's
//! secrets and sequence numbers into a record state, and every object of the library is dropped.
//!
//! ```text
//!  received ─▶ records ─ one at a time ─▶ driver (rustls) ─▶ output ─▶ to the peer
//!                 │                          │
//!                 │ behind the handshake     │ rest()
//!                 ▼                          ▼
//!              leftover              record::State (128 bytes)
//! ```
//!
//! | folder | subject |
//! |---|---|
//! | [`stream`] | a connection from its first byte to its end: what everybody uses |
//! | `handshake` | rustls, driven one record at a time, until the state has all that it needs |
//! | `hooks` | what the caller decides or learns during a handshake |
//! | `context` | settings of servers and clients, made ready once |
//! | `sessions` | resumption: tickets, caches, a client's sessions as bytes |
//! | `x509` | certificates: our own, whom we trust, what clients show |
//! | `client_hello` | a look at a ClientHello before its handshake begins |
//!
//! rustls asks shared objects for the time and tells them traffic secrets. Both pass through a slot
//! of the thread, which is set for the length of one call: see `handshake::call_scope`.
#![forbid(unsafe_code)]

mod alert_name;
mod client_hello;
mod context;
mod failure;
#[doc(hidden)]
pub mod fuzzed;
mod handshake;
mod hooks;
mod reader;
mod sessions;
mod signature_name;
pub mod stream;
mod x509;

pub use alert_name::alert_name;
pub use client_hello::expected_handshake::ExpectedHandshake;
pub use client_hello::first_flight::{ClientHello, FirstFlight};
pub use context::client::{ClientContext, ClientSettings, ResumptionSettings};
pub use context::server::{ACME_TLS, ServerContext, ServerSettings, UnknownName};
pub use context::settings::{Group, Protocols, SettingsError, Version};
pub use context::suites::Suite;
pub use failure::{Blame, CertificateProblem, FailureKind, HandshakeFailure};
pub use handshake::info::{Flights, HandshakeInfo};
pub use handshake::rest::Rested;
pub use handshake::{Handshake, HandshakeLimits, Progress};
pub use hooks::choose_identity::ChooseIdentity;
pub use hooks::exporter::{ExportError, Exporter};
pub use hooks::judge_certificate::{Finding, JudgeCertificate, ShownCertificates};
pub use hooks::secret_log::{SecretLog, secret_log_line};
pub use hooks::sign::{Sign, SigningScheme};
pub use rustls_pki_types::{CertificateDer, UnixTime};
pub use sessions::client_session::{Reuse, Session, SessionStore, digest};
pub use sessions::refusal::ResumptionRefused;
pub use sessions::server_store::ServerSessions;
pub use sessions::ticket_watch::TicketWatch;
pub use sessions::tickets::key_file::{TicketKeyBytes, TicketKeyFile, TicketKeyFileError};
pub use sessions::tickets::{TicketKeys, TicketSettings};
pub use x509::client_auth::ClientCertificates;
pub use x509::client_rules::ClientRule;
pub use x509::identity::{Algorithms, Identity, IdentityWarning};
pub use x509::identity_error::{IdentityError, IdentityProblem};
pub use x509::key_kind::KeyKind;
pub use x509::ocsp::{OcspProblem, OcspTimes, check_ocsp, ocsp_question};
pub use x509::pem::{certificates as pem_chain, read_file as read_pem_file};
pub use x509::trust::{Roots, TrustStore};
