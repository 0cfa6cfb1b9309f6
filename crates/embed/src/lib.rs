//! TLS for programs and runtimes of others: what every host needs and none should write twice.
//!
//! The host moves bytes between its sockets and a [`Session`], which turns ciphertext into plaintext
//! and back. While a session is quiet it is 136 bytes: the 128 of its state, and an empty pointer.
//! The C ABI and the bindings of runtimes are thin layers over this crate.
//!
//! | | |
//! |---|---|
//! | [`ServerContext`], [`ClientContext`] | what connections share: certificates, trust, tickets; made once, cloned at will, used by any thread |
//! | [`Session`] | a connection, from its first byte to its end; one thread at a time |
//! | [`at_rest`] | the same for hosts that keep the 128 bytes and the buffers themselves |
//! | [`ChooseIdentity`], [`JudgeCertificate`], [`Sign`], [`SecretLog`], [`SessionStore`] | what a host can decide or learn |
//!
//! # A server, step by step
//!
//! ```
//! use dormouse_embed::{Event, Identity, ServerContext, ServerSettings, Session, UnixTime};
//!
//! let settings = ServerSettings::new(vec![Identity::self_signed("a.test")?]);
//! let server = ServerContext::new(settings)?;
//! let mut session = Session::accept(&server);
//! // Whenever bytes have come:
//! let mut received = *b"\x16\x03\x01 and so on";
//! session.feed(UnixTime::now(), &mut received, |event| match event {
//!     Event::ClientHello(_) => {} // only after `Session::listen`
//!     Event::Established(info) => println!("{} with {}", info.protocol, info.suite),
//!     Event::Data(plaintext) => println!("{} bytes", plaintext.len()),
//!     Event::Ended(end) => println!("{end}"),
//! })?;
//! // Then send what is to be sent:
//! let sent = session.output().len();
//! session.output_sent(sent);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Ends
//!
//! [`End`] says how the peer's direction ended. Only [`End::Closed`] means that all has arrived, and
//! our own direction is still open then. When the transport ends, [`Session::eof`] tells which it was.
//!
//! # Panics
//!
//! A panic in the engine, or in a hook of the host, ends its session alone: the call returns
//! [`SessionError::Poisoned`], the secrets are wiped, and so does every later call. That takes a build
//! with `panic = "unwind"`; this workspace's `embed` profile is the release profile with it.
//!
//! # Limits
//!
//! | | |
//! |---|---|
//! | a handshake | [`HandshakeLimits::bytes_max`] received, 64 KiB by default |
//! | a partial record | 18,437 bytes, held until it is whole |
//! | plaintext in one call | 1 GiB |
//! | output | grows with what is sent: send no more while there is enough of it |
#![forbid(unsafe_code)]

pub mod at_rest;
mod error;
mod exported;
mod session;

pub use dormouse_engine::stream::End;
pub use dormouse_engine::{
    Blame, CertificateProblem, ChooseIdentity, ClientCertificates, ClientContext, ClientHello,
    ClientSettings, ExportError, Exporter, FailureKind, Finding, Group, HandshakeFailure,
    HandshakeInfo, HandshakeLimits, Identity, IdentityError, JudgeCertificate, KeyKind, Protocols,
    ResumptionSettings, Reuse, Roots, SecretLog, ServerContext, ServerSettings,
    Session as ResumableSession, SessionStore, SettingsError, ShownCertificates, Sign,
    SigningScheme, Suite, TicketKeyFileError, TicketKeys, TicketSettings, TicketWatch, TrustStore,
    UnixTime, UnknownName, Version, alert_name, pem_chain, read_pem_file, secret_log_line,
};
pub use dormouse_record::{AlertDescription, Corrupt, Protocol, Role, SealError, State};
pub use error::{ImportError, SessionError};
pub use exported::{EXPORT_MAX, STATE_LEN};
pub use session::{Event, Session};
