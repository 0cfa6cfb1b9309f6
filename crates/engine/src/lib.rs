//! Sans-IO TLS: a handshake by rustls, then a [`dormouse_record::State`] and nothing else.
//!
//! A context ([`ServerContext`], [`ClientContext`]) is made once: certificates, keys, trust
//! stores and tickets are parsed there and shared by all connections. A [`Handshake`] takes
//! bytes and gives bytes; sockets, clocks and threads are the caller's. When it is done,
//! [`Handshake::rest`] writes the connection's secrets and sequence numbers into a record
//! state, and every object of the library is dropped.
//!
//! ```text
//!  received ─▶ inbound ─ one record at a time ─▶ machine (rustls) ─▶ output ─▶ to the peer
//!                 │                                 │
//!                 │ behind the handshake            │ rest()
//!                 ▼                                 ▼
//!              leftover                    record::State (128 bytes)
//! ```
//!
//! What rustls asks of shared objects and tells them (the time, traffic secrets) passes through
//! a slot of the thread, set for the length of one call: see `turn`.
#![forbid(unsafe_code)]

mod asked;
mod client;
mod client_auth;
mod client_rules;
mod der;
mod failure;
mod first_bytes;
mod handshake;
mod hello;
mod identity;
mod inbound;
mod kept;
mod machine;
mod mint;
mod mint_tls12;
mod ocsp;
mod overheard;
mod pem;
mod rest;
mod resumption;
mod server;
mod server_session;
mod session;
mod settings;
mod store;
mod suites;
mod ticket_watch;
mod tickets;
mod turn;
mod verify;
mod warm_up;

pub use asked::{Asked, FirstFlight};
pub use client::{ClientContext, ClientSettings, ResumptionSettings, Reuse};
pub use client_auth::ClientCertificates;
pub use client_rules::ClientRule;
pub use failure::{Blame, CertificateProblem, FailureKind, HandshakeFailure, alert_name};
pub use handshake::{Handshake, HandshakeLimits, Progress};
pub use hello::Hello;
pub use identity::{
    Algorithms, Identity, IdentityError, IdentityProblem, IdentityWarning, KeyKind,
};
pub use ocsp::{OcspProblem, OcspTimes, check_ocsp, ocsp_question};
pub use pem::{certificates as pem_chain, read_file as read_pem_file};
pub use rest::{Flights, HandshakeInfo, Rested};
pub use resumption::ResumptionRefused;
pub use rustls_pki_types::{CertificateDer, UnixTime};
pub use server::{ACME_TLS, ServerContext, ServerSettings, UnknownName};
pub use session::{Session, SessionStore, digest};
pub use settings::{Group, Protocols, SettingsError, Version};
pub use store::ServerSessions;
pub use suites::Suite;
pub use ticket_watch::TicketWatch;
pub use tickets::{TicketKeys, TicketSettings};
pub use verify::{Roots, TrustStore};
