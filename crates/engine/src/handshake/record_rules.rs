//! What may come from the peer before the handshake is done, record by record.
//!
//! A record is judged by its header as soon as those five bytes are there, by its content when it
//! is whole, and, if it is protected, by what was in it, before rustls sees it
//! ([`record_protection`](super::record_protection)). rustls judges the messages.
//!
//! # What comes, and what is answered
//!
//! The first column is also the name of the test in `tests/engine/before_finished*.rs` that shows the row.
//! An alert is protected as soon as there are keys. `dormouse_record` has the table for the time
//! behind the handshake.
//!
//! | row | what came | what happens | alert | by |
//! |---|---|---|---|---|
//! | `unknown_record_type` | a type that does not exist, or that nobody speaks here (heartbeat) | refused by its header | unexpected_message | 8446 §5, 5246 §6 |
//! | `data_in_the_clear` | unprotected application data, or data first | refused by its header | unexpected_message | 8446 §5, 5246 §6 |
//! | `change_cipher_spec_first` | ChangeCipherSpec before any hello | refused by its header | unexpected_message | 8446 §5 |
//! | `change_cipher_spec_of_another_value` | one that is not the byte 1 | refused | unexpected_message | 8446 §5, 5246 §7.1 |
//! | `change_cipher_spec_any_number` | TLS 1.3: many of them between messages | dropped; they count as bytes of the handshake | – | 8446 §5, §D.4 |
//! | `change_cipher_spec_inside_a_message` | TLS 1.3: one between two fragments | refused | unexpected_message | 8446 §5.1 |
//! | `clear_record_too_long` | an unprotected record over 2^14 bytes | refused by its header | record_overflow | 8446 §5.1, 5246 §6.2.1 |
//! | `protected_record_too_long` | one over 2^14 + 256 (TLS 1.2: + 2048) | refused by its header | record_overflow | 8446 §5.2, 5246 §6.2.3 |
//! | `empty_record` | an alert, handshake or ChangeCipherSpec record without content | refused by its header | unexpected_message | 8446 §5.1, 5246 §6.2.1 |
//! | `protected_empty_record` | the same, protected | refused | unexpected_message | 8446 §5.4 |
//! | `protected_unknown_type` | a protected record of a type that does not exist | refused | unexpected_message | 8446 §5 |
//! | `protected_data` | protected application data before Finished | refused | unexpected_message | 8446 §4.4.4, 5246 §7.3 |
//! | `nothing_but_zeros` | TLS 1.3: no content type | refused | unexpected_message | 8446 §5.4 |
//! | `unprotected_finished` | TLS 1.3: a handshake record in the clear when keys are there | refused by its header | unexpected_message | 8446 §5 |
//! | `forged_record` | a protected record that does not authenticate | refused | bad_record_mac | 8446 §5.2, 5246 §6.2.3.3 |
//! | `wrong_finished` | a Finished that does not verify | refused | decrypt_error | 8446 §4.4.4, 5246 §7.4.9 |
//! | `message_across_keys` | TLS 1.3: a message behind Finished in the same record, or one cut by the change of keys | refused | unexpected_message | 8446 §5.1 |
//! | `close_notify`, `protected_close_notify` | close_notify | the handshake ends | (close_notify) | 8446 §6.1, 5246 §7.2.1 |
//! | `peer_alert`, `protected_alert` | an error alert | the handshake ends | none | 8446 §6.2, 5246 §7.2.2 |
//! | `ssl_3` | legacy_version 0x0300 in the first hello | refused | protocol_version | 8446 §D.5 |
//! | `old_client` | a hello of TLS 1.0 or 1.1 | refused | protocol_version | 8446 §D.2 |
//! | `no_key_share` | TLS 1.3: a hello without key_share | refused | missing_extension | 8446 §9.2 |
//! | `psk_modes_of_a_server`, `protected_psk_modes_of_a_server` | psk_key_exchange_modes in a ServerHello or in EncryptedExtensions | refused | illegal_parameter | 8446 §4.2, §4.2.9 |
//! | `message_that_cannot_be_decoded` | a hello cut short inside | refused | decode_error | 8446 §6.2 |
//! | `unexpected_message` | a handshake message out of order | refused | unexpected_message | 8446 §4, 5246 §7.4 |
//! | `more_bytes_than_allowed` | more than `handshake_bytes_max` | refused | illegal_parameter | our limit |
//!
//! # Where rustls decides otherwise
//!
//! See `docs/internals/conformance.md`.

use dormouse_record::{Alert, AlertDescription, CONTENT_MAX};

use super::{first_bytes, server_extensions};
use crate::failure::{Blame, FailureKind, HandshakeFailure};

pub(crate) const HEADER_LEN: usize = 5;

const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
const CLOSE_NOTIFY: u8 = 0;

/// What a ciphertext may be longer than its content: RFC 8446 §5.2, RFC 5246 §6.2.3.
const TLS13_EXPANSION_MAX: usize = 256;
const TLS12_EXPANSION_MAX: usize = 2_048;

/// How the peer's records are protected by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Not at all.
    Clear,
    /// TLS 1.2: not yet; from the peer's ChangeCipherSpec on.
    Tls12Keyed,
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3; ChangeCipherSpec, and alerts of a peer without keys, still come in the clear.
    Tls13,
}

impl Reading {
    fn is_clear(self) -> bool {
        matches!(self, Reading::Clear | Reading::Tls12Keyed)
    }
}

/// What a header is judged by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeaderRules {
    pub(crate) reading: Reading,
    pub(crate) is_server: bool,
    /// Nothing of the peer has been read yet.
    pub(crate) is_first: bool,
    /// Server: a HelloRetryRequest was sent, and early data may come before its answer.
    pub(crate) skips_early_data: bool,
}

/// A record that ends the handshake, and what the peer is told.
#[derive(Debug)]
pub(crate) struct RecordRefusal {
    pub(crate) failure: HandshakeFailure,
    pub(crate) alert: Option<Alert>,
}

/// A check of our own has failed.
impl From<HandshakeFailure> for RecordRefusal {
    fn from(failure: HandshakeFailure) -> RecordRefusal {
        RecordRefusal {
            failure,
            alert: Some(Alert::fatal(AlertDescription::InternalError)),
        }
    }
}

impl HeaderRules {
    /// Judges a record by its header, and returns how long its payload is.
    pub(crate) fn judge(&self, header: [u8; HEADER_LEN]) -> Result<usize, RecordRefusal> {
        if self.is_first {
            judge_first_bytes(header, self.is_server)?;
        }
        let [typ, major, _, high, low] = header;
        let len = usize::from(u16::from_be_bytes([high, low]));
        if !(CHANGE_CIPHER_SPEC..=APPLICATION_DATA).contains(&typ) {
            return Err(unexpected(format!("a record of the unknown type {typ}")));
        }
        if major != 3 {
            let what = format!("a record of the unknown version {major}");
            return Err(refused(AlertDescription::DecodeError, what));
        }
        if !self.may_come(typ) {
            let what = if self.reading.is_clear() {
                format!("an unprotected record of type {typ}, which can't come here")
            } else {
                format!("a record of type {typ} without protection")
            };
            return Err(unexpected(what));
        }
        let max = self.payload_max(typ);
        if len > max {
            let what = format!("a record of {len} bytes; at most {max} are allowed here");
            return Err(refused(AlertDescription::RecordOverflow, what));
        }
        if len == 0 && typ != APPLICATION_DATA {
            return Err(unexpected(format!("an empty record of type {typ}")));
        }
        Ok(len)
    }

    fn may_come(&self, typ: u8) -> bool {
        match self.reading {
            Reading::Clear | Reading::Tls12Keyed => {
                typ != APPLICATION_DATA || self.skips_early_data
            }
            Reading::Tls12 => true,
            Reading::Tls13 => typ != HANDSHAKE,
        }
    }

    fn payload_max(&self, typ: u8) -> usize {
        match self.reading {
            Reading::Tls12 => CONTENT_MAX + TLS12_EXPANSION_MAX,
            _ if typ == APPLICATION_DATA => CONTENT_MAX + TLS13_EXPANSION_MAX,
            _ => CONTENT_MAX,
        }
    }
}

/// Tells TLS from what is sent to a TLS port by mistake. What is like a record is told in TLS.
fn judge_first_bytes(header: [u8; HEADER_LEN], is_server: bool) -> Result<(), RecordRefusal> {
    let refusal = if is_server {
        first_bytes::refuse_client(&header)
    } else {
        first_bytes::refuse_server(&header)
    };
    let Some(failure) = refusal else {
        return Ok(());
    };
    let is_like_a_record = matches!(header, [_, 3, 0..=4, ..]);
    let alert = Alert::fatal(AlertDescription::UnexpectedMessage);
    Err(RecordRefusal {
        failure,
        alert: is_like_a_record.then_some(alert),
    })
}

/// Judges a whole record that is not protected.
pub(crate) fn judge_clear(reading: Reading, record: &[u8]) -> Result<(), RecordRefusal> {
    match record {
        _ if reading == Reading::Tls12 => Ok(()),
        [ALERT, _, _, _, _, _level, CLOSE_NOTIFY] => Err(closed()),
        [HANDSHAKE, _, _, _, _, content @ ..] => judge_handshake(content),
        [CHANGE_CIPHER_SPEC, _, _, _, _, content @ ..] if content != [1] => Err(unexpected(
            "a ChangeCipherSpec of another value than 1".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Judges what was in a protected record.
pub(crate) fn judge_content(typ: u8, content: &[u8]) -> Result<(), RecordRefusal> {
    match (typ, content) {
        (ALERT | HANDSHAKE, []) => Err(unexpected(format!("an empty record of type {typ}"))),
        (ALERT, [_level, CLOSE_NOTIFY]) => Err(closed()),
        (HANDSHAKE, _) => judge_handshake(content),
        (CHANGE_CIPHER_SPEC..=APPLICATION_DATA, _) => Ok(()),
        _ => Err(unexpected(format!("a record of the unknown type {typ}"))),
    }
}

/// Only servers send the messages that are looked at; from a client rustls refuses them.
fn judge_handshake(content: &[u8]) -> Result<(), RecordRefusal> {
    if server_extensions::has_psk_modes(content) {
        let what = "psk_key_exchange_modes, which only clients send".to_owned();
        return Err(refused(AlertDescription::IllegalParameter, what));
    }
    Ok(())
}

/// Whether the record is a ChangeCipherSpec as TLS 1.3 has it, which says nothing (RFC 8446 §D.4).
pub(crate) fn is_dummy_change_cipher_spec(record: &[u8]) -> bool {
    matches!(record, [CHANGE_CIPHER_SPEC, _, _, _, _, 1])
}

/// Whether the record changes the keys by which the peer's records are read.
pub(crate) fn changes_cipher(reading: Reading, record: &[u8]) -> bool {
    reading == Reading::Tls12Keyed && record.first() == Some(&CHANGE_CIPHER_SPEC)
}

/// The beginning of the first handshake message, however it is cut into records.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct FirstMessage {
    start: [u8; FirstMessage::LEN],
    len: usize,
}

impl FirstMessage {
    /// Type, length and version.
    const LEN: usize = 6;

    /// Takes what is missing from a record in the clear.
    pub(crate) fn take(&mut self, record: &[u8]) {
        let Some((&[HANDSHAKE, ..], content)) = record.split_first_chunk::<HEADER_LEN>() else {
            return;
        };
        let room = self.start.get_mut(self.len..).unwrap_or_default();
        for (to, from) in room.iter_mut().zip(content) {
            *to = *from;
            self.len += 1;
        }
    }

    /// A hello of SSL 3 or older, whatever else it offers (RFC 8446 §D.5).
    pub(crate) fn judge(&self) -> Result<(), RecordRefusal> {
        match (self.len, self.start) {
            (FirstMessage::LEN, [1 | 2, _, _, _, 3, 0]) => Err(RecordRefusal {
                failure: HandshakeFailure::new(
                    Blame::Peer,
                    FailureKind::NoCommonVersion,
                    "no common protocol version: the hello's version is SSL 3",
                ),
                alert: Some(Alert::fatal(AlertDescription::ProtocolVersion)),
            }),
            _ => Ok(()),
        }
    }

    /// Whether it is a ClientHello of TLS 1.0 or 1.1, by the version which clients of TLS 1.3 set to
    /// that of 1.2 (RFC 8446 §4.1.2).
    pub(crate) fn is_old_client(&self) -> bool {
        self.len == FirstMessage::LEN && matches!(self.start, [1, _, _, _, 3, 0..=2])
    }
}

/// The peer closes while nothing is established.
pub(crate) fn closed() -> RecordRefusal {
    RecordRefusal {
        failure: HandshakeFailure::new(
            Blame::Peer,
            FailureKind::PeerClosed,
            "the peer closed during the handshake",
        ),
        alert: Some(Alert::CLOSE_NOTIFY),
    }
}

fn unexpected(what: String) -> RecordRefusal {
    refused(AlertDescription::UnexpectedMessage, what)
}

fn refused(alert: AlertDescription, what: String) -> RecordRefusal {
    RecordRefusal {
        failure: HandshakeFailure::new(
            Blame::Peer,
            FailureKind::Malformed,
            format!("the peer sent {what}"),
        ),
        alert: Some(Alert::fatal(alert)),
    }
}
