//! What can go wrong, and who is to blame for it.

use core::fmt;

use crate::alert::{Alert, AlertDescription};
use crate::limits::{
    CIPHERTEXT_MAX_TLS12, CONTENT_MAX, EMPTY_RECORDS_MAX, HANDSHAKE_MESSAGE_MAX, KEY_UPDATES_MAX,
    WARNINGS_MAX,
};

/// A record that was refused. The connection is over; `alert` tells the peer why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// What the RFC demands to answer.
    pub alert: AlertDescription,
    /// What was wrong.
    pub reason: Reason,
}

impl Refusal {
    /// The refusal that this reason demands.
    pub fn new(reason: Reason) -> Self {
        Self {
            alert: reason.alert(),
            reason,
        }
    }

    /// The answer, ready for [`crate::seal_alert`].
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

/// Who is to blame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blame {
    /// The peer broke the protocol, or somebody on the way changed its bytes.
    Peer,
    /// The peer kept to the protocol, but used up one of our limits.
    Limit,
    /// The caller used this crate wrongly.
    Misuse,
}

/// Why a record was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// A record type which may not come here, or which does not exist.
    RecordType(u8),
    /// ChangeCipherSpec after the handshake.
    ChangeCipherSpec,
    /// The header announces more ciphertext than the RFC allows.
    CiphertextTooLong(usize),
    /// The header announces less ciphertext than a nonce and a tag take.
    CiphertextTooShort(usize),
    /// The record could not be authenticated.
    BadRecordMac,
    /// The record decrypts to more than 2^14 bytes (in TLS 1.3 with its padding and type: 2^14 + 1).
    PlaintextTooLong(usize),
    /// TLS 1.3: nothing but zeros inside.
    NoContentType,
    /// A handshake or alert record without content.
    EmptyFragment(u8),
    /// TLS 1.3: another record between two fragments of a handshake message.
    Interleaved(u8),
    /// TLS 1.3: an alert record that does not hold exactly one alert.
    AlertLength(usize),
    /// TLS 1.2: an alert level that does not exist.
    AlertLevel(u8),
    /// A handshake message which may not come after the handshake.
    HandshakeType(u8),
    /// A KeyUpdate or HelloRequest of the wrong length.
    HandshakeLength(u8, u32),
    /// A KeyUpdate which does not end its record.
    KeyUpdateNotAtBoundary,
    /// A KeyUpdate whose request_update is neither 0 nor 1.
    KeyUpdateValue(u8),
    /// A handshake message longer than our limit.
    HandshakeTooLong(u8, u32),
    /// A NewSessionTicket that can't be read. [`crate::open()`] does not look into tickets: who takes
    /// them finds this.
    TicketMalformed,
    /// More empty records in a row than our limit.
    TooManyEmptyRecords,
    /// More KeyUpdates in a row than our limit.
    TooManyKeyUpdates,
    /// More warnings in a row than our limit.
    TooManyWarnings,
    /// The read sequence number would wrap.
    SequenceExhausted,
    /// The state holds no connection, or one whose secret was being replaced in a crash.
    NotEstablished,
    /// The key was not made from this state's present secret.
    WrongKey,
    /// The connection had failed before.
    AlreadyFailed,
    /// The cryptographic library refused to work.
    Cipher,
}

impl Reason {
    /// The alert which this reason demands.
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

    /// Who is to blame.
    pub const fn blame(&self) -> Blame {
        match self {
            Self::HandshakeTooLong(..)
            | Self::TooManyEmptyRecords
            | Self::TooManyKeyUpdates
            | Self::TooManyWarnings
            | Self::SequenceExhausted => Blame::Limit,
            Self::NotEstablished | Self::WrongKey | Self::AlreadyFailed | Self::Cipher => {
                Blame::Misuse
            }
            _ => Blame::Peer,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RecordType(kind) => write!(
                f,
                "peer sent a record of type {kind} where only protected records may come (RFC 8446 §5, RFC 5246 §6)"
            ),
            Self::ChangeCipherSpec => {
                f.write_str("peer sent ChangeCipherSpec after the handshake (RFC 8446 §5)")
            }
            Self::CiphertextTooLong(len) => write!(
                f,
                "peer announced a record of {len} bytes; 16640 are allowed, {CIPHERTEXT_MAX_TLS12} in TLS 1.2 (RFC 8446 §5.2, RFC 5246 §6.2.3)"
            ),
            Self::CiphertextTooShort(len) => write!(
                f,
                "peer announced a record of {len} bytes, too short to be authenticated (RFC 8446 §5.2, RFC 5246 §6.2.3.3)"
            ),
            Self::BadRecordMac => f.write_str(
                "a record could not be authenticated: changed on the way, or keys do not match (RFC 8446 §5.2, RFC 5246 §6.2.3.3)",
            ),
            Self::PlaintextTooLong(len) => write!(
                f,
                "a record of the peer decrypts to {len} bytes; {CONTENT_MAX} of content are allowed (RFC 8446 §5.4, RFC 5246 §6.2.1)"
            ),
            Self::NoContentType => {
                f.write_str("a record of the peer holds nothing but zeros (RFC 8446 §5.4)")
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
                "peer sent an alert record of {len} bytes; it must hold one alert of 2 bytes (RFC 8446 §5.1)"
            ),
            Self::AlertLevel(level) => write!(
                f,
                "peer sent an alert of level {level}; 1 and 2 exist (RFC 5246 §7.2)"
            ),
            Self::HandshakeType(kind) => write!(
                f,
                "peer sent handshake message {kind}, which may not come after the handshake (RFC 8446 §4.6, RFC 5246 §7.4)"
            ),
            Self::HandshakeLength(kind, len) => write!(
                f,
                "peer sent handshake message {kind} with {len} bytes, the wrong length (RFC 8446 §4.6.3, RFC 5246 §7.4.1.1)"
            ),
            Self::KeyUpdateNotAtBoundary => f.write_str(
                "peer sent a KeyUpdate that does not end its record (RFC 8446 §5.1)",
            ),
            Self::KeyUpdateValue(value) => write!(
                f,
                "peer sent a KeyUpdate with request_update {value}; 0 and 1 exist (RFC 8446 §4.6.3)"
            ),
            Self::HandshakeTooLong(kind, len) => write!(
                f,
                "peer sent handshake message {kind} with {len} bytes; our limit is {HANDSHAKE_MESSAGE_MAX}"
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
                "the sequence numbers of the peer's records are used up (RFC 8446 §5.3)",
            ),
            Self::NotEstablished => {
                f.write_str("misuse: the state holds no connection that can be worked with")
            }
            Self::WrongKey => {
                f.write_str("misuse: the key was not made from this state's present secret")
            }
            Self::AlreadyFailed => {
                f.write_str("misuse: the connection had failed before; nothing more is opened")
            }
            Self::Cipher => f.write_str("the cryptographic library refused to work"),
        }
    }
}

/// Why nothing was sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SealError {
    /// close_notify or a fatal alert has gone out before, or a fatal one came in.
    Closed,
    /// The connection has failed; only a fatal alert may still be sealed.
    Failed,
    /// The peer asked for a KeyUpdate, and it must go before any data.
    KeyUpdateOwed,
    /// The write key has reached its limit. TLS 1.3: a KeyUpdate was due long ago. TLS 1.2: the connection has to end.
    KeyExhausted,
    /// More content than a record can hold.
    ContentTooLong(usize),
    /// The buffer has no room for the record.
    BufferTooSmall {
        /// Bytes the record needs, header and trailer included.
        need: usize,
    },
    /// The caller used this crate wrongly.
    Misuse(Misuse),
    /// The cryptographic library refused to work.
    Cipher,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => {
                f.write_str("misuse: the connection is closed for sending; nothing goes behind its last alert")
            }
            Self::Failed => {
                f.write_str("misuse: the connection has failed; only a fatal alert may still be sent")
            }
            Self::KeyUpdateOwed => f.write_str(
                "misuse: the peer asked for a KeyUpdate; seal it before any data (RFC 8446 §4.6.3)",
            ),
            Self::KeyExhausted => f.write_str(
                "limit: no more records may be sealed under this key (RFC 8446 §5.5); TLS 1.2 has to close here",
            ),
            Self::ContentTooLong(len) => write!(
                f,
                "misuse: {len} bytes are too long for one record; {CONTENT_MAX} are allowed (RFC 8446 §5.1)"
            ),
            Self::BufferTooSmall { need } => {
                write!(f, "misuse: the buffer is too small; the record takes {need} bytes")
            }
            Self::Misuse(misuse) => misuse.fmt(f),
            Self::Cipher => f.write_str("the cryptographic library refused to work"),
        }
    }
}

impl core::error::Error for SealError {}

/// A mistake of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Misuse {
    /// A secret, key or IV does not have the length that the suite demands.
    SecretLength {
        /// What the suite demands.
        expected: usize,
        /// What was given.
        found: usize,
    },
    /// What was given does not make a valid state.
    Unfit(Corrupt),
    /// The state holds no connection, or one whose secret was being replaced in a crash.
    NotEstablished,
    /// The key was not made from this state's present secret.
    WrongKey,
    /// TLS 1.2 has no KeyUpdate.
    NotTls13,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SecretLength { expected, found } => write!(
                f,
                "misuse: a secret, key or IV has {found} bytes where the suite takes {expected}"
            ),
            Self::Unfit(corrupt) => write!(f, "misuse: what was given makes no state: {corrupt}"),
            Self::NotEstablished => {
                f.write_str("misuse: the state holds no connection that can be worked with")
            }
            Self::WrongKey => {
                f.write_str("misuse: the key was not made from this state's present secret")
            }
            Self::NotTls13 => f.write_str("misuse: only TLS 1.3 has a KeyUpdate"),
        }
    }
}

impl core::error::Error for Misuse {}

/// Why a state that another process left is not to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Corrupt {
    /// All zero: there is no connection.
    Empty,
    /// Another layout version than ours.
    Layout(u8),
    /// No such protocol version.
    Protocol(u8),
    /// No such suite.
    Suite(u8),
    /// No such role.
    Role(u8),
    /// Flags that do not go together.
    Flags(u8),
    /// The process died while it replaced a secret.
    Replacing,
    /// A sequence number behind the key's limit.
    Sequence,
    /// A counter behind its limit.
    Counters,
    /// A partial message that cannot be.
    Message,
    /// A secret that is all zero, or bytes beside it.
    Secret,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the state is empty"),
            Self::Layout(found) => write!(
                f,
                "the state has layout version {found}; this program knows {}",
                crate::LAYOUT_VERSION
            ),
            Self::Protocol(code) => {
                write!(f, "the state names protocol {code}, which does not exist")
            }
            Self::Suite(code) => write!(f, "the state names suite {code}, which does not exist"),
            Self::Role(code) => write!(f, "the state names role {code}, which does not exist"),
            Self::Flags(flags) => write!(f, "the state's flags {flags:#010b} do not go together"),
            Self::Replacing => f.write_str("the state was left while a secret was being replaced"),
            Self::Sequence => f.write_str("the state's sequence number is behind its key's limit"),
            Self::Counters => f.write_str("a counter of the state is behind its limit"),
            Self::Message => f.write_str("the state's partial handshake message cannot be"),
            Self::Secret => {
                f.write_str("a secret of the state is all zero, or longer than the suite's")
            }
        }
    }
}

impl core::error::Error for Corrupt {}
