//! TLS for other programs and language runtimes: the common part that every host needs.
//!
//! The host moves bytes between its sockets and a [`Session`], which turns ciphertext into plaintext and back.
//! A session at rest takes 136 bytes: the 128 of its state, and an empty pointer. The C ABI and the bindings
//! for other runtimes are thin layers over this crate.
//!
//! | | |
//! |---|---|
//! | [`ServerContext`], [`ClientContext`] | shared by connections: certificates, roots, tickets; made once, cheap to clone, usable from any thread |
//! | [`Session`] | a connection, from its first byte to its end; one thread at a time |
//! | [`KeptKeys`], [`SharedKeys`] | expanded keys of the busy connections, for hosts with many: of a thread, of a process |
//! | [`at_rest`] | the same for hosts that own the 128 bytes and the buffers |
//! | [`ChooseIdentity`], [`JudgeCertificate`], [`Sign`], [`SecretLog`], [`SessionStore`] | hooks for the host |
//!
//! # A server, step by step
//!
//! ```
//! use dormouse_embed::{Event, Identity, ServerContext, ServerSettings, Session, UnixTime};
//!
//! let settings = ServerSettings::new(vec![Identity::self_signed("a.test")?]);
//! let server = ServerContext::new(settings)?;
//! let mut session = Session::accept(&server);
//! // Whenever bytes have arrived:
//! let mut received = *b"\x16\x03\x01 and so on";
//! session.feed(UnixTime::now(), &mut received, |event| match event {
//!     Event::ClientHello(_) => {} // only after `Session::listen`
//!     Event::Established(info) => println!("{} with {}", info.protocol, info.suite),
//!     Event::Data(plaintext) => println!("{} bytes", plaintext.len()),
//!     Event::Ended(end) => println!("{end}"),
//! })?;
//! // Then send the output:
//! let sent = session.output().len();
//! session.output_sent(sent);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Ends
//!
//! [`End`] says how the peer's direction ended. Only [`End::Closed`] means that everything has arrived; our own
//! direction is then still open. When the transport ends, call [`Session::eof`] to learn how the session ended.
//!
//! # Panics
//!
//! A panic in the engine, or in a hook of the host, ends only its own session: the call and all later calls
//! return [`SessionError::Poisoned`], and the secrets are wiped. This requires a build with `panic = "unwind"`,
//! such as this workspace's `embed` profile (the release profile with unwinding).
//!
//! # Limits
//!
//! | | |
//! |---|---|
//! | a handshake | [`HandshakeLimits::bytes_max`] received, 64 KiB by default |
//! | a partial record | 18,437 bytes, held until it is complete |
//! | plaintext in one call | 1 GiB |
//! | output | grows with sent data; wait with further data while much output is unsent |
#![forbid(unsafe_code)]

pub mod at_rest;
mod error;
mod exported;
mod groups;
mod kept_keys;
mod named_alerts;
mod named_suites;
mod session;
mod shared_keys;

pub use dormouse_engine::stream::{BATCH_START, End};
pub use dormouse_engine::{
    Blame, CertificateProblem, CertificateRefusal, ChooseIdentity, ClientCertificates,
    ClientContext, ClientHello, ClientSettings, ExportError, Exporter, FailureKind, Finding, Group,
    HandshakeFailure, HandshakeInfo, HandshakeLimits, Identity, IdentityError, IdentityProblem,
    Issuers, JudgeCertificate, KeyKind, PemFile, Protocols, ResumptionSettings, Reuse, Roots,
    SecretLog, ServerContext, ServerSettings, Session as ResumableSession, SessionStore,
    SettingsError, ShownCertificates, Sign, SigningScheme, Suite, TicketKeyFileError, TicketKeys,
    TicketSettings, TicketWatch, TrustStore, UnixTime, UnknownName, alert_name, pem_chain,
    secret_log_line,
};
pub use dormouse_record::{AlertDescription, Corrupt, Role, SealError, State, Version};
pub use error::{ImportError, SessionError};
pub use exported::{EXPORT_MAX, STATE_LEN};
pub use groups::{UnknownGroup, groups_by_name};
pub use kept_keys::KeptKeys;
pub use named_alerts::openssl_reason;
pub use named_suites::{NAMED_SUITES, NamedSuite};
pub use session::{Event, Session};
pub use shared_keys::SharedKeys;
