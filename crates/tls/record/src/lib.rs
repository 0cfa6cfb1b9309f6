//! TLS record protection for a connection at rest.
//!
//! After the handshake, TLS needs only two secrets, two sequence numbers and the suite. A connection keeps
//! exactly that: a [`State`] of 128 bytes, plain data without pointers, which can lie in shared memory and
//! outlive the process. Keys are expanded from the state when a record arrives, and dropped after it.
//!
//! TLS 1.3 (RFC 8446), and TLS 1.2 (RFC 5246) with AEAD suites. No sockets, no clocks, no threads, no handshake.
//!
//! # Ownership
//!
//! * The caller owns the state, the keys and every buffer. This crate keeps no reference and no copy.
//! * [`open()`] works in place: ciphertext in, plaintext in the same bytes. It handles one record at a time.
//!   While a record is incomplete ([`Opened::Partial`]), neither buffer nor state changes.
//! * [`seal_in_place`] seals the content where the caller put it, between the room for header and trailer
//!   ([`record_room`]).
//! * A key ([`OpenKey`], [`SealKey`]) belongs to one secret. Once that secret is replaced, the key is refused.
//! * Only the expansion of a key allocates (one block of some 600 bytes in the cryptographic library, which is
//!   wiped and freed with the key).
//!
//! # Invariants
//!
//! * A sequence number is advanced in the state before anything is encrypted with it. It never decreases while
//!   the secret stays the same; only a new secret resets it. No (key, nonce) pair is used twice, wherever the
//!   process is killed (the layout of [`State`] says what each kill leaves behind).
//! * After a refusal, a fatal alert or our own close_notify, nothing is sealed that the RFC forbids there.
//! * Input from the network never causes a panic or unbounded work, and the state stores at most six bytes of
//!   it.
//!
//! # Reactions to records
//!
//! The first column is also the name of the test in `tests/record/answers*.rs` for that row. [`open()`] refuses
//! with the named alert; without one, the connection continues.
//!
//! | row | received | reaction | alert | source |
//! |---|---|---|---|---|
//! | `data` | application data | [`Opened::Data`]; resets every "in a row" limit | – | 8446 §5.2, 5246 §6.2.3.3 |
//! | `longest_record` | 2^14 bytes of content | [`Opened::Data`] | – | 8446 §5.1, 5246 §6.2.1 |
//! | `empty_data` | a data record without content | [`Opened::Data`], empty | – | 8446 §5.1, 5246 §6.2.1: "MAY be sent" |
//! | `too_many_empty_records` | more than [`EMPTY_RECORDS_MAX`] empty data records in a row | refused | unexpected_message | our limit |
//! | `partial_record` | a record cut anywhere | [`Opened::Partial`], nothing changed | – | – |
//! | `unknown_record_type` | an unknown outer type | refused at the header | unexpected_message | 8446 §5, 5246 §6 |
//! | `change_cipher_spec` | ChangeCipherSpec after the handshake, unprotected or protected | refused | unexpected_message | 8446 §5, 5246 §7.1 |
//! | `ciphertext_too_long` | a length over 2^14 + 256 (TLS 1.2: + 2048) | refused at the header | record_overflow | 8446 §5.2, 5246 §6.2.3 |
//! | `ciphertext_too_short` | a length too short for nonce and tag | refused at the header | bad_record_mac | 8446 §5.2, 5246 §6.2.3.3 |
//! | `changed_record` | any bit of the protected part changed | refused | bad_record_mac | 8446 §5.2, 5246 §6.2.3.3 |
//! | `changed_version` | other version bytes in the header | ignored in the header, but authenticated: refused | bad_record_mac | 8446 §5.1, §5.2 |
//! | `plaintext_too_long` | content over 2^14 bytes | refused | record_overflow | 8446 §5.2, 5246 §6.2.1 |
//! | `empty_fragment` | an alert or handshake record without content | refused | unexpected_message | 8446 §5.4, 5246 §6.2.1 |
//! | `close_notify` | close_notify of any level | [`Opened::PeerClosed`]; our direction stays open | – | 8446 §6.1, see below |
//! | `data_after_close_notify` | anything after close_notify | ignored unread: [`Opened::Handled`] | – | 8446 §6.1 |
//! | `fatal_alert` | an error alert | [`Opened::PeerAlert`]; both directions are closed | – | 8446 §6.2, 5246 §7.2.2 |
//! | `too_many_warnings` | more than [`WARNINGS_MAX`] warnings in a row | refused | unexpected_message | our limit |
//! | `sequence_exhausted` | a record after the last sequence number | refused | internal_error | 8446 §5.3: "MUST NOT wrap" |
//! | `after_a_refusal` | anything after a refusal | refused; only a fatal alert can be sealed | internal_error | 8446 §6.2 |
//! | **TLS 1.3** | | | | |
//! | `padding` | zeros after the content | removed | – | 8446 §5.4 |
//! | `padding_too_long` | content, type and padding over 2^14 + 1 bytes | refused | record_overflow | 8446 §5.4 |
//! | `nothing_but_zeros` | no content type | refused | unexpected_message | 8446 §5.4 |
//! | `unprotected_record` | an alert or handshake record without protection | refused at the header | unexpected_message | 8446 §5, §5.2 |
//! | `unknown_inner_type` | an unknown protected type | refused | unexpected_message | 8446 §5 |
//! | `user_canceled` | user_canceled | a warning: [`Opened::Handled`] | – | 8446 §6.1 |
//! | `alert_level_is_ignored` | an error alert with level warning or an unknown level | [`Opened::PeerAlert`] | – | 8446 §6 |
//! | `unknown_alert` | an unknown alert | [`Opened::PeerAlert`] | – | 8446 §6 |
//! | `alert_of_wrong_length` | an alert record that is not two bytes long | refused | decode_error | 8446 §5.1, §6.2 |
//! | `key_update` | KeyUpdate | read key replaced: [`Opened::Handled`] | – | 8446 §4.6.3 |
//! | `key_update_requested` | KeyUpdates with update_requested, one or several | one KeyUpdate of ours is owed before the next data | – | 8446 §4.6.3 |
//! | `key_update_in_fragments` | a KeyUpdate in several records | as in one record | – | 8446 §5.1 |
//! | `key_update_not_at_boundary` | a KeyUpdate followed by other bytes in its record | refused | unexpected_message | 8446 §5.1 |
//! | `key_update_of_unknown_value` | request_update other than 0 and 1 | refused | illegal_parameter | 8446 §4.6.3 |
//! | `key_update_of_wrong_length` | a KeyUpdate whose body is not one byte long | refused | decode_error | 8446 §6.2 |
//! | `too_many_key_updates` | more than [`KEY_UPDATES_MAX`] KeyUpdates in a row | refused | unexpected_message | our limit |
//! | `interleaved_records` | another record between two fragments of a handshake message | refused | unexpected_message | 8446 §5.1 |
//! | `fatal_alert_between_fragments` | an error alert between two fragments | [`Opened::PeerAlert`] | – | 8446 §6.2 |
//! | `tickets` | client: NewSessionTicket, coalesced or in fragments | [`Opened::Ticket`] | – | 8446 §4.6.1 |
//! | `ticket_to_a_server` | server: NewSessionTicket | refused | unexpected_message | 8446 §4.6, §6.2 |
//! | `unexpected_message_tls13` | ClientHello, CertificateRequest (we never offer post_handshake_auth), any other | refused at the type byte | unexpected_message | 8446 §4.1.2, §4.6.2, §6.2 |
//! | `message_too_long` | a message over [`HANDSHAKE_MESSAGE_MAX`] bytes | refused at the message header | illegal_parameter | our limit |
//! | **TLS 1.2** | | | | |
//! | `renegotiation` | server: ClientHello, also in fragments with data between them | [`Opened::NoRenegotiation`] at the end of the message | (warning no_renegotiation) | 5246 §7.2.2, §6.2.1 |
//! | `hello_request` | client: HelloRequest | [`Opened::NoRenegotiation`] | (warning no_renegotiation) | 5246 §7.4.1.1 |
//! | `hello_request_of_wrong_length` | HelloRequest with a body | refused | decode_error | 5246 §7.2.2 |
//! | `unexpected_message_tls12` | any other handshake message, including KeyUpdate | refused at the type byte | unexpected_message | 5246 §7.2.2 |
//! | `warnings` | warning alerts | [`Opened::Handled`] | – | 5246 §7.2.2 |
//! | `split_and_coalesced_alerts` | alerts coalesced in a record or split over two | handled one by one | – | 5246 §6.2.1 |
//! | `unknown_alert_level` | an alert level other than 1 and 2 | refused | decode_error | 5246 §7.2, §7.2.2 |
//!
//! # Deviations from the RFCs
//!
//! * **Half-close in TLS 1.2.** RFC 5246 §7.2.1 requires an immediate reply to close_notify, "discarding any
//!   pending writes". RFC 8446 §6.1 dropped that rule because it "could cause truncation in the read side".
//!   Here each direction ends independently, in both versions.
//! * **A peer that seals more records under one key than RFC 8446 §5.5 advises is not refused.** The sender is
//!   responsible for that limit. When the peer's key nears it, our next KeyUpdate requests another (§4.6.3).
//!
//! # Limits
//!
//! | limit | value | when reached |
//! |---|---|---|
//! | [`CONTENT_MAX`] | 2^14 bytes | record_overflow; [`SealError::ContentTooLong`] |
//! | [`GCM_REKEY_AT`] | 2^23 records under an AES-GCM key | [`State::owes_key_update`] (TLS 1.3) |
//! | [`GCM_RECORDS_MAX`] | 2^24 records under an AES-GCM key (TLS 1.3) | [`SealError::KeyExhausted`]; a KeyUpdate is still possible |
//! | [`GCM_UNITS_MAX`] | 256 GiB, or 2^32 small records, under an AES-GCM key (TLS 1.2) | [`SealError::KeyExhausted`]: the connection closes; two records are reserved for alerts |
//! | [`EMPTY_RECORDS_MAX`], [`KEY_UPDATES_MAX`], [`WARNINGS_MAX`] | 32, 32, 4 in a row | unexpected_message |
//! | [`HANDSHAKE_MESSAGE_MAX`] | 65,535 bytes | illegal_parameter |
#![forbid(unsafe_code)]

mod alert;
mod derive;
mod error;
mod kept_keys;
mod key;
mod layout;
mod limits;
mod message;
mod open;
mod peer_alert;
mod seal;
mod state;
mod suite;
#[cfg(test)]
mod test_hex;

pub use alert::{Alert, AlertDescription, AlertLevel};
pub use error::{Corrupt, Misuse, Reason, Refusal, SealError};
pub use kept_keys::KeptKeys;
pub use key::{BothKeys, OpenKey, SealKey};
pub use layout::LAYOUT_VERSION;
pub use limits::{
    CONTENT_MAX, EMPTY_RECORDS_MAX, GCM_RECORDS_MAX, GCM_REKEY_AT, GCM_UNITS_MAX,
    HANDSHAKE_MESSAGE_MAX, KEY_UPDATES_MAX, RECORD_MAX, SMALL_RECORD_MAX, WARNINGS_MAX,
};
pub use open::{Opened, open};
pub use seal::{RecordRoom, record_room, seal_alert, seal_in_place, seal_key_update, seal_record};
pub use state::{KeyIv, State};
pub use suite::{Role, Suite, Version};
