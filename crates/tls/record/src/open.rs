//! Opening: `tls_in` becomes `plain_out`, one record at a time, in place.

use core::ops::Range;

use aws_lc_rs::aead::Aad;

use crate::error::{Reason, Refusal};
use crate::key::{OpenKey, unique};
use crate::layout::{FAILED, PEER_CLOSED};
use crate::limits::{
    CIPHERTEXT_MAX_TLS12, CIPHERTEXT_MAX_TLS13, CONTENT_MAX, EMPTY_RECORDS_MAX, EXPLICIT_NONCE_LEN,
    HEADER_LEN, TAG_LEN,
};
use crate::message;
use crate::peer_alert;
use crate::state::{Direction, State};
use crate::suite::{Suite, Version};

pub(crate) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const APPLICATION_DATA: u8 = 23;

/// Result of opening the record at the start of the buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Opened {
    /// An incomplete record: it needs `need` bytes with its header (5 until the header is complete). Nothing
    /// was changed.
    Partial {
        /// Bytes that the buffer must hold before [`open`] can proceed.
        need: usize,
    },
    /// Application data.
    Data {
        /// Length of the record.
        consumed: usize,
        /// Where its plaintext lies in the buffer; may be empty.
        plaintext: Range<usize>,
    },
    /// A record that needs no action: a KeyUpdate, a warning, part of a message, or anything after the end of
    /// the peer's direction.
    Handled {
        /// Bytes that were consumed.
        consumed: usize,
    },
    /// Client: bytes of NewSessionTicket messages, headers included, in order. A message may continue in the
    /// next record.
    Ticket {
        /// Length of the record.
        consumed: usize,
        /// Where these bytes lie in the buffer.
        fragment: Range<usize>,
    },
    /// TLS 1.2: the peer requested renegotiation. The caller seals [`crate::Alert::NO_RENEGOTIATION`].
    NoRenegotiation {
        /// Length of the record.
        consumed: usize,
    },
    /// close_notify: the peer will send nothing more.
    PeerClosed {
        /// Length of the record.
        consumed: usize,
    },
    /// A fatal alert: the connection is closed in both directions, and no reply is sent.
    PeerAlert {
        /// Length of the record.
        consumed: usize,
        /// The alert's number; [`crate::AlertDescription::from_code`] returns its name.
        description: u8,
    },
}

/// Opens the one record at the start of `buf`, in place.
///
/// Post-handshake messages are handled here; after a KeyUpdate, `key` is the new key. After a refusal the
/// caller seals the refusal's alert ([`crate::Alert::fatal`]), sends it and closes the connection; the record's
/// bytes in `buf` are then undefined.
pub fn open(state: &mut State, key: &mut OpenKey, buf: &mut [u8]) -> Result<Opened, Refusal> {
    open_record(state, key, buf).map_err(|reason| {
        state.set(FAILED);
        state.forget_partial_message();
        Refusal::new(reason)
    })
}

fn open_record(state: &mut State, key: &mut OpenKey, buf: &mut [u8]) -> Result<Opened, Reason> {
    let Some((version, suite)) = state.kind() else {
        return Err(Reason::NotEstablished);
    };
    // "Any data received after a closure alert has been received MUST be ignored" (RFC 8446 §6.1).
    if state.has(PEER_CLOSED) && !buf.is_empty() {
        return Ok(Opened::Handled {
            consumed: buf.len(),
        });
    }
    if state.has(FAILED) {
        return Err(Reason::AlreadyFailed);
    }
    let Some(header) = buf.first_chunk::<HEADER_LEN>() else {
        return Ok(Opened::Partial { need: HEADER_LEN });
    };
    let ciphertext_len = check_header(version, suite, header)?;
    let consumed = HEADER_LEN + ciphertext_len;
    let Some(record) = buf.get_mut(..consumed) else {
        return Ok(Opened::Partial { need: consumed });
    };
    let (content_type, plaintext) = match version {
        Version::Tls13 => unprotect_tls13(state, key, record)?,
        Version::Tls12 => unprotect_tls12(state, key, suite, record)?,
    };
    let content = &record[plaintext.clone()];
    dispatch(state, key, content_type, content, consumed, plaintext)
}

/// Checks a record's header before the rest has arrived. Returns the ciphertext's length.
///
/// The version bytes are ignored: they "MUST be ignored for all purposes" (RFC 8446 §5.1). They are part of the
/// authenticated data, so a change in transit makes the record fail authentication.
fn check_header(
    version: Version,
    suite: Suite,
    header: &[u8; HEADER_LEN],
) -> Result<usize, Reason> {
    let &[content_type, _, _, high, low] = header;
    let len = usize::from(u16::from_be_bytes([high, low]));
    let (expected, max, min) = match version {
        // "The outer opaque_type field of a TLSCiphertext record is always set to the value 23" (§5.2).
        Version::Tls13 => (
            content_type == APPLICATION_DATA,
            CIPHERTEXT_MAX_TLS13,
            TAG_LEN,
        ),
        Version::Tls12 => (
            matches!(content_type, ALERT | HANDSHAKE | APPLICATION_DATA),
            CIPHERTEXT_MAX_TLS12,
            explicit_nonce_len(suite) + TAG_LEN,
        ),
    };
    if !expected {
        return Err(unexpected(content_type));
    }
    if len > max {
        return Err(Reason::CiphertextTooLong(len));
    }
    if len < min {
        return Err(Reason::CiphertextTooShort(len));
    }
    Ok(len)
}

fn unexpected(content_type: u8) -> Reason {
    if content_type == CHANGE_CIPHER_SPEC {
        Reason::ChangeCipherSpec
    } else {
        Reason::RecordType(content_type)
    }
}

fn explicit_nonce_len(suite: Suite) -> usize {
    if suite.is_gcm() {
        EXPLICIT_NONCE_LEN
    } else {
        0
    }
}

/// Unprotects a record, removes the padding and finds the type (RFC 8446 §5.2, §5.4). Returns type and content.
fn unprotect_tls13(
    state: &mut State,
    key: &OpenKey,
    record: &mut [u8],
) -> Result<(u8, Range<usize>), Reason> {
    let (header, ciphertext) = split_header(record)?;
    let nonce = key.0.nonce(state.read_sequence);
    decrypt(state, key, nonce, &header, ciphertext)?;
    let inner = &ciphertext[..ciphertext.len() - TAG_LEN];
    // "the full encoded TLSInnerPlaintext MUST NOT exceed 2^14 + 1 octets" (§5.4), padding included.
    if inner.len() > CONTENT_MAX + 1 {
        return Err(Reason::PlaintextTooLong(inner.len()));
    }
    let content_len = inner
        .iter()
        .rposition(|&byte| byte != 0)
        .ok_or(Reason::NoContentType)?;
    let content_type = inner[content_len];
    if !matches!(content_type, ALERT | HANDSHAKE | APPLICATION_DATA) {
        return Err(unexpected(content_type));
    }
    Ok((content_type, HEADER_LEN..HEADER_LEN + content_len))
}

/// Unprotects a record (RFC 5246 §6.2.3.3). Returns type and content.
fn unprotect_tls12(
    state: &mut State,
    key: &OpenKey,
    suite: Suite,
    record: &mut [u8],
) -> Result<(u8, Range<usize>), Reason> {
    let (header, fragment) = split_header(record)?;
    let (explicit, ciphertext) = fragment.split_at_mut(explicit_nonce_len(suite));
    let nonce = match <&[u8; EXPLICIT_NONCE_LEN]>::try_from(&*explicit) {
        Ok(explicit) => key.0.nonce_with_explicit(explicit),
        Err(_) => key.0.nonce(state.read_sequence),
    };
    let content_len = ciphertext.len() - TAG_LEN;
    let aad = aad_tls12(state.read_sequence, &header, content_len);
    decrypt(state, key, nonce, &aad, ciphertext)?;
    // TLSPlaintext's "length MUST NOT exceed 2^14" (§6.2.1); a longer one is record_overflow (§7.2.2).
    if content_len > CONTENT_MAX {
        return Err(Reason::PlaintextTooLong(content_len));
    }
    let start = HEADER_LEN + explicit.len();
    Ok((header[0], start..start + content_len))
}

/// "additional_data = seq_num + TLSCompressed.type + TLSCompressed.version + TLSCompressed.length" (RFC 5246 §6.2.3.3).
pub(crate) fn aad_tls12(sequence: u64, header: &[u8; HEADER_LEN], content_len: usize) -> [u8; 13] {
    let mut aad = [0; 13];
    aad[..8].copy_from_slice(&sequence.to_be_bytes());
    aad[8..11].copy_from_slice(&header[..3]);
    // The length fits in two bytes because it is less than the header's own length field.
    aad[11..].copy_from_slice(&(content_len as u16).to_be_bytes());
    aad
}

fn split_header(record: &mut [u8]) -> Result<([u8; HEADER_LEN], &mut [u8]), Reason> {
    let (header, rest) = record
        .split_first_chunk_mut::<HEADER_LEN>()
        .ok_or(Reason::Cipher)?;
    Ok((*header, rest))
}

/// Decrypts `ciphertext || tag` in place and advances the sequence number. "If the decryption fails, the
/// receiver MUST terminate the connection with a "bad_record_mac" alert" (RFC 8446 §5.2).
fn decrypt(
    state: &mut State,
    key: &OpenKey,
    nonce: [u8; 12],
    aad: &[u8],
    ciphertext: &mut [u8],
) -> Result<(), Reason> {
    let aead = key
        .0
        .belongs_to(state, Direction::Read)
        .ok_or(Reason::WrongKey)?;
    // "Sequence numbers MUST NOT wrap" (RFC 8446 §5.3).
    let next = state
        .read_sequence
        .checked_add(1)
        .ok_or(Reason::SequenceExhausted)?;
    let (content, tag) = ciphertext.split_at_mut(ciphertext.len() - TAG_LEN);
    aead.open_in_place_separate_tag(unique(nonce), Aad::from(aad), tag, content)
        .map_err(|_| Reason::BadRecordMac)?;
    state.read_sequence = next;
    Ok(())
}

fn dispatch(
    state: &mut State,
    key: &mut OpenKey,
    content_type: u8,
    content: &[u8],
    consumed: usize,
    plaintext: Range<usize>,
) -> Result<Opened, Reason> {
    if content_type == APPLICATION_DATA {
        check_interleaving(state, content_type)?;
        count_data(state, content.len())?;
        return Ok(Opened::Data {
            consumed,
            plaintext,
        });
    }
    // Implementations "MUST NOT send Handshake and Alert records that have a zero-length TLSInnerPlaintext.content;
    // if such a message is received, the receiving implementation MUST terminate the connection with an
    // "unexpected_message" alert" (RFC 8446 §5.4; forbidden by RFC 5246 §6.2.1 too).
    if content.is_empty() {
        return Err(Reason::EmptyFragment(content_type));
    }
    if content_type == ALERT {
        return receive_alert(state, content, consumed);
    }
    let received = message::receive(state, key, content)?;
    Ok(if received.renegotiation {
        Opened::NoRenegotiation { consumed }
    } else if received.ticket_len > 0 {
        let fragment = plaintext.start..plaintext.start + received.ticket_len;
        Opened::Ticket { consumed, fragment }
    } else {
        Opened::Handled { consumed }
    })
}

fn receive_alert(state: &mut State, content: &[u8], consumed: usize) -> Result<Opened, Reason> {
    // An error alert ends the connection at once (RFC 8446 §6.2), even between two fragments; other alerts are
    // not allowed there.
    if !peer_alert::is_error(state.version(), content) {
        check_interleaving(state, ALERT)?;
    }
    Ok(match peer_alert::receive(state, content)? {
        peer_alert::Received::Failed(description) => Opened::PeerAlert {
            consumed,
            description,
        },
        peer_alert::Received::Closed => Opened::PeerClosed { consumed },
        peer_alert::Received::Warnings => Opened::Handled { consumed },
    })
}

/// "if a handshake message is split over two or more records, there MUST NOT be any other records between them"
/// (RFC 8446 §5.1). TLS 1.2 differs: "Recipients MUST receive and process interleaved application layer traffic
/// during handshakes subsequent to the first one on a connection" (RFC 5246 §6.2.1).
fn check_interleaving(state: &State, content_type: u8) -> Result<(), Reason> {
    if state.message_have > 0 && state.version() == Version::Tls13 {
        return Err(Reason::Interleaved(content_type));
    }
    Ok(())
}

/// Counts empty records in a row. Data resets this and the other "in a row" counters.
fn count_data(state: &mut State, len: usize) -> Result<(), Reason> {
    if len > 0 {
        state.empty_records = 0;
        state.key_updates = 0;
        state.warnings = 0;
    } else if state.empty_records >= EMPTY_RECORDS_MAX {
        return Err(Reason::TooManyEmptyRecords);
    } else {
        state.empty_records += 1;
    }
    Ok(())
}
