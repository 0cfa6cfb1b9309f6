//! Rules for the peer's records before the handshake is done.
//!
//! A record's header is checked as soon as its five bytes have arrived, its content when it is complete, and
//! the content of a protected record after decryption, before rustls sees it
//! ([`record_protection`](super::record_protection)). rustls checks the messages.
//!
//! # Reactions to records
//!
//! The first column is also the name of the test in `tests/engine/before_finished*.rs` for that row. Alerts are
//! protected as soon as there are keys. `dormouse_record` has the table for records after the handshake.
//!
//! | row | received | reaction | alert | source |
//! |---|---|---|---|---|
//! | `unknown_record_type` | an unknown or unsupported type (heartbeat) | refused at the header | unexpected_message | 8446 §5, 5246 §6 |
//! | `data_in_the_clear` | unprotected application data, or data as the first record | refused at the header | unexpected_message | 8446 §5, 5246 §6 |
//! | `change_cipher_spec_first` | ChangeCipherSpec before any hello | refused at the header | unexpected_message | 8446 §5 |
//! | `change_cipher_spec_of_another_value` | a ChangeCipherSpec whose content is not the byte 1 | refused | unexpected_message | 8446 §5, 5246 §7.1 |
//! | `change_cipher_spec_any_number` | TLS 1.3: any number of ChangeCipherSpecs between messages | dropped, but counted against the byte limit | – | 8446 §5, §D.4 |
//! | `change_cipher_spec_inside_a_message` | TLS 1.3: a ChangeCipherSpec between two fragments | refused | unexpected_message | 8446 §5.1 |
//! | `second_change_cipher_spec` | TLS 1.2: a ChangeCipherSpec after the first, with or without protection | refused at the header | unexpected_message | 5246 §7.1 |
//! | `clear_record_too_long` | an unprotected record over 2^14 bytes | refused at the header | record_overflow | 8446 §5.1, 5246 §6.2.1 |
//! | `protected_record_too_long` | a protected record over 2^14 + 256 bytes (TLS 1.2: + 2048) | refused at the header | record_overflow | 8446 §5.2, 5246 §6.2.3 |
//! | `empty_record` | an alert, handshake or ChangeCipherSpec record without content | refused at the header | unexpected_message | 8446 §5.1, 5246 §6.2.1 |
//! | `protected_empty_record` | a protected alert or handshake record without content | refused | unexpected_message | 8446 §5.4 |
//! | `protected_unknown_type` | a protected record of unknown type | refused | unexpected_message | 8446 §5 |
//! | `protected_data` | protected application data before Finished | refused | unexpected_message | 8446 §4.4.4, 5246 §7.3 |
//! | `nothing_but_zeros` | TLS 1.3: no content type | refused | unexpected_message | 8446 §5.4 |
//! | `unprotected_finished` | TLS 1.3: an unprotected handshake record after keys are established | refused at the header | unexpected_message | 8446 §5 |
//! | `forged_record` | a protected record that fails authentication | refused | bad_record_mac | 8446 §5.2, 5246 §6.2.3.3 |
//! | `wrong_finished` | a Finished that does not verify | refused | decrypt_error | 8446 §4.4.4, 5246 §7.4.9 |
//! | `message_across_keys` | TLS 1.3: a message after Finished in the same record, or a message split by the change of keys | refused | unexpected_message | 8446 §5.1 |
//! | `close_notify`, `protected_close_notify` | close_notify | the handshake ends | (close_notify) | 8446 §6.1, 5246 §7.2.1 |
//! | `peer_alert`, `protected_alert` | an error alert | the handshake ends | none | 8446 §6.2, 5246 §7.2.2 |
//! | `ssl_3` | legacy_version 0x0300 in the first hello | refused | protocol_version | 8446 §D.5 |
//! | `old_client` | a hello of TLS 1.0 or 1.1 | refused | protocol_version | 8446 §D.2 |
//! | `no_key_share` | TLS 1.3: a hello without key_share | refused | missing_extension | 8446 §9.2 |
//! | `psk_modes_of_a_server`, `protected_psk_modes_of_a_server` | psk_key_exchange_modes in a ServerHello or in EncryptedExtensions | refused | illegal_parameter | 8446 §4.2, §4.2.9 |
//! | `message_that_cannot_be_decoded` | a truncated hello | refused | decode_error | 8446 §6.2 |
//! | `unexpected_message` | a handshake message out of order | refused | unexpected_message | 8446 §4, 5246 §7.4 |
//! | `more_bytes_than_allowed` | more than `handshake_bytes_max` | refused | illegal_parameter | our limit |
//!
//! # Deviations of rustls
//!
//! See `docs/internals/conformance.md`.

use dormouse_record::{Alert, AlertDescription, CONTENT_MAX};

use super::{first_bytes, server_extensions};
use crate::failure::{Blame, FailureKind, HandshakeFailure};
use crate::messages::content_type::{ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HANDSHAKE};
use crate::messages::handshake_type::{CLIENT_HELLO, SERVER_HELLO};

pub(crate) const HEADER_LEN: usize = 5;

const CLOSE_NOTIFY: u8 = AlertDescription::CloseNotify.code();

/// Maximum expansion of a ciphertext over its content: RFC 8446 §5.2, RFC 5246 §6.2.3.
const TLS13_EXPANSION_MAX: usize = 256;
const TLS12_EXPANSION_MAX: usize = 2_048;

/// The current protection of the peer's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Reading {
    /// Unprotected.
    #[default]
    Clear,
    /// TLS 1.2 with keys, but unprotected until the peer's ChangeCipherSpec.
    Tls12Keyed,
    /// Protected by TLS 1.2.
    Tls12,
    /// Protected by TLS 1.3; ChangeCipherSpec, and alerts of a peer without keys, are still unprotected.
    Tls13,
}

/// State that decides which record headers are allowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeaderRules {
    pub(crate) reading: Reading,
    pub(crate) is_server: bool,
    /// Nothing has been received from the peer before.
    pub(crate) is_first: bool,
    /// Server: a HelloRetryRequest was sent, and early data may precede the reply to it.
    pub(crate) skips_early_data: bool,
}

/// A record that ends the handshake, and the alert for the peer.
#[derive(Debug)]
pub(crate) struct RecordRefusal {
    pub(crate) failure: HandshakeFailure,
    pub(crate) alert: Option<Alert>,
}

/// The refusal for a failed internal check.
impl From<HandshakeFailure> for RecordRefusal {
    fn from(failure: HandshakeFailure) -> RecordRefusal {
        RecordRefusal {
            failure,
            alert: Some(Alert::fatal(AlertDescription::InternalError)),
        }
    }
}

impl HeaderRules {
    /// Checks a record's header and returns the payload length.
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
        if !self.is_allowed(typ) {
            return Err(unexpected(match self.reading {
                Reading::Clear | Reading::Tls12Keyed => {
                    format!("an unprotected record of type {typ}, which is not allowed here")
                }
                Reading::Tls12 => "a second ChangeCipherSpec".to_owned(),
                Reading::Tls13 => format!("a record of type {typ} without protection"),
            }));
        }
        let max = self.payload_max(typ);
        if len > max {
            let what = format!("a record of {len} bytes; the limit here is {max}");
            return Err(refused(AlertDescription::RecordOverflow, what));
        }
        if len == 0 && typ != APPLICATION_DATA {
            return Err(unexpected(format!("an empty record of type {typ}")));
        }
        Ok(len)
    }

    fn is_allowed(&self, typ: u8) -> bool {
        match self.reading {
            Reading::Clear | Reading::Tls12Keyed => {
                typ != APPLICATION_DATA || self.skips_early_data
            }
            Reading::Tls12 => typ != CHANGE_CIPHER_SPEC,
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

/// Checks that the first bytes are TLS. Only input that resembles a record is answered with an alert.
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

/// Checks a complete unprotected record.
pub(crate) fn judge_clear(reading: Reading, record: &[u8]) -> Result<(), RecordRefusal> {
    match record {
        _ if reading == Reading::Tls12 => Ok(()),
        [ALERT, _, _, _, _, _level, CLOSE_NOTIFY] => Err(closed()),
        [HANDSHAKE, _, _, _, _, content @ ..] => judge_handshake(content),
        [CHANGE_CIPHER_SPEC, _, _, _, _, content @ ..] if content != [1] => Err(unexpected(
            "a ChangeCipherSpec with a value other than 1".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Checks the content of a protected record.
pub(crate) fn judge_content(typ: u8, content: &[u8]) -> Result<(), RecordRefusal> {
    match (typ, content) {
        (ALERT | HANDSHAKE, []) => Err(unexpected(format!("an empty record of type {typ}"))),
        (ALERT, [_level, CLOSE_NOTIFY]) => Err(closed()),
        (HANDSHAKE, _) => judge_handshake(content),
        (CHANGE_CIPHER_SPEC..=APPLICATION_DATA, _) => Ok(()),
        _ => Err(unexpected(format!("a record of the unknown type {typ}"))),
    }
}

/// Only servers send the messages that are checked here; rustls refuses them from a client.
fn judge_handshake(content: &[u8]) -> Result<(), RecordRefusal> {
    if server_extensions::has_psk_modes(content) {
        let what = "psk_key_exchange_modes, which only clients send".to_owned();
        return Err(refused(AlertDescription::IllegalParameter, what));
    }
    Ok(())
}

/// Whether the record is a ChangeCipherSpec of TLS 1.3, which has no meaning (RFC 8446 §D.4).
pub(crate) fn is_dummy_change_cipher_spec(record: &[u8]) -> bool {
    matches!(record, [CHANGE_CIPHER_SPEC, _, _, _, _, 1])
}

/// Whether the record changes the keys for reading the peer's records.
pub(crate) fn changes_cipher(reading: Reading, record: &[u8]) -> bool {
    reading == Reading::Tls12Keyed && record.first() == Some(&CHANGE_CIPHER_SPEC)
}

/// The start of the first handshake message, however it is split into records.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct FirstMessage {
    start: [u8; FirstMessage::LEN],
    len: usize,
}

impl FirstMessage {
    /// Type, length and version.
    const LEN: usize = 6;

    /// Takes the missing bytes from an unprotected record.
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

    /// Refuses a hello of SSL 3 or older, whatever else it offers (RFC 8446 §D.5).
    pub(crate) fn judge(&self) -> Result<(), RecordRefusal> {
        match (self.len, self.start) {
            (FirstMessage::LEN, [CLIENT_HELLO | SERVER_HELLO, _, _, _, 3, 0]) => {
                Err(RecordRefusal {
                    failure: HandshakeFailure::new(
                        Blame::Peer,
                        FailureKind::NoCommonVersion,
                        "no common protocol version: the hello's version is SSL 3",
                    ),
                    alert: Some(Alert::fatal(AlertDescription::ProtocolVersion)),
                })
            }
            _ => Ok(()),
        }
    }

    /// Whether this is a ClientHello of TLS 1.0 or 1.1. TLS 1.3 clients set its legacy version to 1.2 (RFC 8446
    /// §4.1.2).
    pub(crate) fn is_old_client(&self) -> bool {
        self.len == FirstMessage::LEN && matches!(self.start, [CLIENT_HELLO, _, _, _, 3, 0..=2])
    }
}

/// The refusal for a peer that closes before the connection is established.
pub(crate) fn closed() -> RecordRefusal {
    RecordRefusal {
        failure: HandshakeFailure::new(
            Blame::Peer,
            FailureKind::PeerClosed,
            "the peer closed the connection during the handshake",
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
