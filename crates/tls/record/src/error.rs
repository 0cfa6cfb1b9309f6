//! Errors.

use core::fmt;

use crate::alert::{Alert, AlertDescription};
use crate::layout::LAYOUT_VERSION;
use crate::limits::{
    CIPHERTEXT_MAX_TLS12, CIPHERTEXT_MAX_TLS13, CONTENT_MAX, EMPTY_RECORDS_MAX,
    HANDSHAKE_MESSAGE_MAX, KEY_UPDATES_MAX, WARNINGS_MAX,
};

/// A refused record. The connection has failed; `alert` tells the peer why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The alert that the RFC requires as a reply.
    pub alert: AlertDescription,
    /// What was wrong with the record.
    pub reason: Reason,
}

impl Refusal {
    /// Returns the refusal for this reason.
    pub fn new(reason: Reason) -> Self {
        Self {
            alert: reason.alert(),
            reason,
        }
    }

    /// Returns the alert, ready for [`crate::seal_alert`].
    pub fn answer(&self) -> Alert {
        Alert::fatal(self.alert)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (alert {})", self.reason, self.alert)
    }
}

impl core::error::Error for Refusal {}

/// Why a record was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// A record type that is unknown or not allowed here.
    RecordType(u8),
    /// ChangeCipherSpec after the handshake.
    ChangeCipherSpec,
    /// The header announces more ciphertext than the RFC allows.
    CiphertextTooLong(usize),
    /// The header announces less ciphertext than a nonce and a tag need.
    CiphertextTooShort(usize),
    /// The record failed authentication.
    BadRecordMac,
    /// The record decrypts to more than 2^14 bytes (in TLS 1.3 with padding and type: 2^14 + 1).
    PlaintextTooLong(usize),
    /// TLS 1.3: the plaintext contains only zeros.
    NoContentType,
    /// A handshake or alert record without content.
    EmptyFragment(u8),
    /// TLS 1.3: another record between two fragments of a handshake message.
    Interleaved(u8),
    /// TLS 1.3: an alert record that does not contain exactly one alert.
    AlertLength(usize),
    /// TLS 1.2: an unknown alert level.
    AlertLevel(u8),
    /// A handshake message that is not allowed after the handshake.
    HandshakeType(u8),
    /// A KeyUpdate or HelloRequest of the wrong length.
    HandshakeLength(u8, u32),
    /// A KeyUpdate that is not the last message of its record.
    KeyUpdateNotAtBoundary,
    /// A KeyUpdate whose request_update is neither 0 nor 1.
    KeyUpdateValue(u8),
    /// A handshake message longer than our limit.
    HandshakeTooLong(u8, u32),
    /// A NewSessionTicket that cannot be decoded. [`crate::open()`] does not parse tickets; the code that
    /// stores them reports this.
    TicketMalformed,
    /// More empty records in a row than our limit.
    TooManyEmptyRecords,
    /// More KeyUpdates in a row than our limit.
    TooManyKeyUpdates,
    /// More warnings in a row than our limit.
    TooManyWarnings,
    /// The read sequence number would wrap around.
    SequenceExhausted,
    /// The state holds no connection, or a crash interrupted the replacement of its secret.
    NotEstablished,
    /// The key was not derived from this state's current secret.
    WrongKey,
    /// The connection failed earlier.
    AlreadyFailed,
    /// The cryptographic library reported an error.
    Cipher,
}

impl Reason {
    /// Returns the alert that this reason requires.
    pub const fn alert(&self) -> AlertDescription {
        match self {
            Self::RecordType(_)
            | Self::ChangeCipherSpec
            | Self::NoContentType
            | Self::EmptyFragment(_)
            | Self::Interleaved(_)
            | Self::HandshakeType(_)
            | Self::KeyUpdateNotAtBoundary
            | Self::TooManyEmptyRecords
            | Self::TooManyKeyUpdates
            | Self::TooManyWarnings => AlertDescription::UnexpectedMessage,
            Self::CiphertextTooShort(_) | Self::BadRecordMac => AlertDescription::BadRecordMac,
            Self::CiphertextTooLong(_) | Self::PlaintextTooLong(_) => {
                AlertDescription::RecordOverflow
            }
            Self::AlertLength(_)
            | Self::AlertLevel(_)
            | Self::HandshakeLength(..)
            | Self::TicketMalformed => AlertDescription::DecodeError,
            Self::KeyUpdateValue(_) | Self::HandshakeTooLong(..) => {
                AlertDescription::IllegalParameter
            }
            Self::SequenceExhausted
            | Self::NotEstablished
            | Self::WrongKey
            | Self::AlreadyFailed
            | Self::Cipher => AlertDescription::InternalError,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RecordType(kind) => write!(
                f,
                "peer sent a record of type {kind} where only protected records are allowed (RFC 8446 §5, RFC 5246 §6)"
            ),
            Self::ChangeCipherSpec => {
                f.write_str("peer sent ChangeCipherSpec after the handshake (RFC 8446 §5)")
            }
            Self::CiphertextTooLong(len) => write!(
                f,
                "peer announced a record of {len} bytes; the limit is {CIPHERTEXT_MAX_TLS13} ({CIPHERTEXT_MAX_TLS12} in TLS 1.2) (RFC 8446 §5.2, RFC 5246 §6.2.3)"
            ),
            Self::CiphertextTooShort(len) => write!(
                f,
                "peer announced a record of {len} bytes, too short to be authenticated (RFC 8446 §5.2, RFC 5246 §6.2.3.3)"
            ),
            Self::BadRecordMac => f.write_str(
                "a record failed authentication: it was changed in transit, or the keys differ (RFC 8446 §5.2, RFC 5246 §6.2.3.3)",
            ),
            Self::PlaintextTooLong(len) => write!(
                f,
                "peer sent a record that decrypts to {len} bytes; the limit is {CONTENT_MAX} bytes of content (RFC 8446 §5.4, RFC 5246 §6.2.1)"
            ),
            Self::NoContentType => {
                f.write_str("peer sent a record that contains only zeros (RFC 8446 §5.4)")
            }
            Self::EmptyFragment(kind) => write!(
                f,
                "peer sent an empty record of type {kind}; only application data may be empty (RFC 8446 §5.4, RFC 5246 §6.2.1)"
            ),
            Self::Interleaved(kind) => write!(
                f,
                "peer sent a record of type {kind} between two fragments of a handshake message (RFC 8446 §5.1)"
            ),
            Self::AlertLength(len) => write!(
                f,
                "peer sent an alert record of {len} bytes; it must contain one alert of 2 bytes (RFC 8446 §5.1)"
            ),
            Self::AlertLevel(level) => write!(
                f,
                "peer sent an alert of level {level}; only 1 and 2 are defined (RFC 5246 §7.2)"
            ),
            Self::HandshakeType(kind) => write!(
                f,
                "peer sent handshake message {kind}, which is not allowed after the handshake (RFC 8446 §4.6, RFC 5246 §7.4)"
            ),
            Self::HandshakeLength(kind, len) => write!(
                f,
                "peer sent handshake message {kind} with a wrong length, {len} bytes (RFC 8446 §4.6.3, RFC 5246 §7.4.1.1)"
            ),
            Self::KeyUpdateNotAtBoundary => f.write_str(
                "peer sent a KeyUpdate that is not the last message of its record (RFC 8446 §5.1)",
            ),
            Self::KeyUpdateValue(value) => write!(
                f,
                "peer sent a KeyUpdate with request_update {value}; only 0 and 1 are defined (RFC 8446 §4.6.3)"
            ),
            Self::HandshakeTooLong(kind, len) => write!(
                f,
                "peer sent handshake message {kind} with {len} bytes; the limit is {HANDSHAKE_MESSAGE_MAX}"
            ),
            Self::TicketMalformed => f.write_str(
                "peer sent a NewSessionTicket that cannot be decoded (RFC 8446 §4.6.1, §6.2)",
            ),
            Self::TooManyEmptyRecords => write!(
                f,
                "peer sent more than {EMPTY_RECORDS_MAX} empty records without data between them"
            ),
            Self::TooManyKeyUpdates => write!(
                f,
                "peer sent more than {KEY_UPDATES_MAX} KeyUpdates without data between them"
            ),
            Self::TooManyWarnings => write!(
                f,
                "peer sent more than {WARNINGS_MAX} warnings or requests for renegotiation without data between them"
            ),
            Self::SequenceExhausted => f.write_str(
                "the peer used all sequence numbers (RFC 8446 §5.3)",
            ),
            Self::NotEstablished => {
                f.write_str("misuse: the state holds no usable connection")
            }
            Self::WrongKey => {
                f.write_str("misuse: the key was not derived from this state's current secret")
            }
            Self::AlreadyFailed => {
                f.write_str("misuse: the connection failed earlier; no more records can be opened")
            }
            Self::Cipher => f.write_str("the cryptographic library reported an error"),
        }
    }
}

/// Why nothing was sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SealError {
    /// A close_notify or fatal alert was sent, or a fatal alert was received.
    Closed,
    /// The connection failed; only a fatal alert can still be sealed.
    Failed,
    /// The peer requested a KeyUpdate, which must be sealed before any data.
    KeyUpdateOwed,
    /// The write key reached its limit. In TLS 1.3 a KeyUpdate is long overdue; in TLS 1.2 the connection must
    /// close.
    KeyExhausted,
    /// More content than a record can hold.
    ContentTooLong(usize),
    /// The buffer has no room for the record.
    BufferTooSmall {
        /// Bytes that the record needs, including header and trailer.
        need: usize,
    },
    /// The caller used this crate incorrectly.
    Misuse(Misuse),
    /// The cryptographic library reported an error.
    Cipher,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => {
                f.write_str("misuse: the connection is closed for sending; nothing can follow its last alert")
            }
            Self::Failed => {
                f.write_str("misuse: the connection failed; only a fatal alert can still be sent")
            }
            Self::KeyUpdateOwed => f.write_str(
                "misuse: the peer requested a KeyUpdate; seal it before any data (RFC 8446 §4.6.3)",
            ),
            Self::KeyExhausted => f.write_str(
                "limit: this key cannot seal any more records (RFC 8446 §5.5); a TLS 1.2 connection must close",
            ),
            Self::ContentTooLong(len) => write!(
                f,
                "misuse: {len} bytes do not fit in one record; the limit is {CONTENT_MAX} (RFC 8446 §5.1)"
            ),
            Self::BufferTooSmall { need } => {
                write!(f, "misuse: the buffer is too small; the record needs {need} bytes")
            }
            Self::Misuse(misuse) => misuse.fmt(f),
            Self::Cipher => f.write_str("the cryptographic library reported an error"),
        }
    }
}

impl core::error::Error for SealError {}

/// An error of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Misuse {
    /// The length of a secret, key or IV does not match the suite.
    SecretLength {
        /// Length that the suite requires.
        expected: usize,
        /// Length that was passed.
        found: usize,
    },
    /// The arguments do not make a valid state.
    Unfit(Corrupt),
    /// The state holds no connection, or a crash interrupted the replacement of its secret.
    NotEstablished,
    /// The key was not derived from this state's current secret.
    WrongKey,
    /// TLS 1.2 has no KeyUpdate.
    NotTls13,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SecretLength { expected, found } => write!(
                f,
                "misuse: a secret, key or IV has {found} bytes; the suite requires {expected}"
            ),
            Self::Unfit(corrupt) => write!(
                f,
                "misuse: the arguments do not make a valid state: {corrupt}"
            ),
            Self::NotEstablished => f.write_str("misuse: the state holds no usable connection"),
            Self::WrongKey => {
                f.write_str("misuse: the key was not derived from this state's current secret")
            }
            Self::NotTls13 => f.write_str("misuse: only TLS 1.3 has a KeyUpdate"),
        }
    }
}

impl core::error::Error for Misuse {}

/// Why a state that another process left cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Corrupt {
    /// All zero: the state holds no connection.
    Empty,
    /// A layout version other than ours.
    Layout(u8),
    /// No such TLS version.
    Version(u8),
    /// No such suite.
    Suite(u8),
    /// No such role.
    Role(u8),
    /// Contradictory flags.
    Flags(u8),
    /// The process was killed while it replaced a secret.
    Replacing,
    /// A sequence number beyond the key's limit.
    Sequence,
    /// A counter beyond its limit.
    Counters,
    /// An impossible partial message.
    Message,
    /// A secret that is all zero, or nonzero bytes after it.
    Secret,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the state is empty"),
            Self::Layout(found) => write!(
                f,
                "the state has layout version {found}; this program supports {}",
                LAYOUT_VERSION
            ),
            Self::Version(code) => {
                write!(f, "the state has an unknown TLS version, {code}")
            }
            Self::Suite(code) => write!(f, "the state has an unknown suite, {code}"),
            Self::Role(code) => write!(f, "the state has an unknown role, {code}"),
            Self::Flags(flags) => {
                write!(f, "the state's flags {flags:#010b} contradict each other")
            }
            Self::Replacing => {
                f.write_str("the state was left in the middle of replacing a secret")
            }
            Self::Sequence => f.write_str("the state's sequence number exceeds its key's limit"),
            Self::Counters => f.write_str("a counter of the state exceeds its limit"),
            Self::Message => f.write_str("the state's partial handshake message is impossible"),
            Self::Secret => {
                f.write_str("a secret of the state is all zero, or longer than the suite allows")
            }
        }
    }
}

impl core::error::Error for Corrupt {}
