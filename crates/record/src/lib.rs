//! TLS record protection for a connection at rest.
//!
//! After the handshake, all that TLS needs to go on is two secrets, two sequence numbers and the suite. So that is
//! all a connection keeps: a [`State`] of 128 bytes, plain data without pointers, which may lie in shared memory
//! and outlive the process. Keys are expanded from it when a record comes, and thrown away behind it.
//!
//! TLS 1.3 (RFC 8446), and TLS 1.2 (RFC 5246) with AEAD suites. No sockets, no clocks, no threads, no handshake.
//!
//! # Who owns what
//!
//! * The caller owns the state, the keys and every buffer. Nothing here keeps a reference or a copy.
//! * [`open()`] works in place: ciphertext in, plaintext in the same bytes. It looks at one record at a time.
//!   As long as a record is not whole ([`Opened::Partial`]) nothing is touched, neither buffer nor state.
//! * [`seal_in_place`] takes the content where the caller put it, between the room for header and trailer
//!   ([`record_room`]).
//! * A key ([`OpenKey`], [`SealKey`]) belongs to one secret and knows it. A key that has been overtaken is refused.
//! * Nothing allocates but the expansion of a key (one block of some 600 bytes in the cryptographic library, freed
//!   and wiped with the key).
//!
//! # Invariants
//!
//! * A sequence number is advanced in the state before anything is encrypted with it. It never goes back while
//!   the secret stays, and the secret never stays when it goes back. No (key, nonce) pair is used twice, whatever line
//!   the process is killed at (the layout of [`State`] says what each kill leaves behind).
//! * Behind a refusal, a fatal alert or our own close_notify nothing is sealed that the RFC does not allow there.
//! * Whatever comes from the network: no panic, no unbounded work, nothing stored but six bytes of the state.
//!
//! # What comes, and what is answered
//!
//! The first column is also the name of the test in `tests/answers*.rs` which shows it. [`open()`] refuses with the alert
//! named here; where there is none, the connection goes on.
//!
//! | row | what came | what happens | alert | by |
//! |---|---|---|---|---|
//! | `data` | application data | [`Opened::Data`]; ends every row that has a limit | – | 8446 §5.2, 5246 §6.2.3.3 |
//! | `longest_record` | 2^14 bytes of content | [`Opened::Data`] | – | 8446 §5.1, 5246 §6.2.1 |
//! | `empty_data` | data without a byte | [`Opened::Data`], empty | – | 8446 §5.1, 5246 §6.2.1: "MAY be sent" |
//! | `too_many_empty_records` | more than [`EMPTY_RECORDS_MAX`] of them in a row | refused | unexpected_message | our limit |
//! | `partial_record` | a record cut anywhere | [`Opened::Partial`], nothing touched | – | – |
//! | `unknown_record_type` | an outer type that does not exist | refused by its header | unexpected_message | 8446 §5, 5246 §6 |
//! | `change_cipher_spec` | ChangeCipherSpec after the handshake, plain or protected | refused | unexpected_message | 8446 §5, 5246 §7.1 |
//! | `ciphertext_too_long` | a length over 2^14 + 256 (TLS 1.2: + 2048) | refused by its header | record_overflow | 8446 §5.2, 5246 §6.2.3 |
//! | `ciphertext_too_short` | a length which nonce and tag don't fit in | refused by its header | bad_record_mac | 8446 §5.2, 5246 §6.2.3.3 |
//! | `changed_record` | any bit of the protected part changed | refused | bad_record_mac | 8446 §5.2, 5246 §6.2.3.3 |
//! | `changed_version` | other version bytes in the header | not looked at, but authenticated: refused | bad_record_mac | 8446 §5.1, §5.2 |
//! | `plaintext_too_long` | content over 2^14 bytes | refused | record_overflow | 8446 §5.2, 5246 §6.2.1 |
//! | `empty_fragment` | an alert or handshake record without content | refused | unexpected_message | 8446 §5.4, 5246 §6.2.1 |
//! | `close_notify` | close_notify, of any level | [`Opened::PeerClosed`]; our direction stays open | – | 8446 §6.1, see below |
//! | `data_behind_close_notify` | anything after it | ignored unread: [`Opened::Handled`] | – | 8446 §6.1 |
//! | `fatal_alert` | an error alert | [`Opened::PeerAlert`]; nothing goes either way any more | – | 8446 §6.2, 5246 §7.2.2 |
//! | `too_many_warnings` | more than [`WARNINGS_MAX`] warnings in a row | refused | unexpected_message | our limit |
//! | `sequence_exhausted` | a record behind the last sequence number | refused | internal_error | 8446 §5.3: "MUST NOT wrap" |
//! | `behind_a_refusal` | anything after a refusal | refused; only a fatal alert is sealed | internal_error | 8446 §6.2 |
//! | **TLS 1.3** | | | | |
//! | `padding` | zeros behind the content | taken off | – | 8446 §5.4 |
//! | `padding_too_long` | content, type and padding over 2^14 + 1 bytes | refused | record_overflow | 8446 §5.4 |
//! | `nothing_but_zeros` | no content type | refused | unexpected_message | 8446 §5.4 |
//! | `unprotected_record` | an alert or handshake record in the clear | refused by its header | unexpected_message | 8446 §5, §5.2 |
//! | `unknown_inner_type` | a protected type that does not exist | refused | unexpected_message | 8446 §5 |
//! | `user_canceled` | user_canceled | a warning: [`Opened::Handled`] | – | 8446 §6.1 |
//! | `alert_level_is_ignored` | an error alert of level warning, or of none | [`Opened::PeerAlert`] | – | 8446 §6 |
//! | `unknown_alert` | an alert that does not exist | [`Opened::PeerAlert`] | – | 8446 §6 |
//! | `alert_of_wrong_length` | an alert record of other than two bytes | refused | decode_error | 8446 §5.1, §6.2 |
//! | `key_update` | KeyUpdate | read key replaced: [`Opened::Handled`] | – | 8446 §4.6.3 |
//! | `key_update_requested` | the same with update_requested, once or more often | one KeyUpdate is owed before the next data | – | 8446 §4.6.3 |
//! | `key_update_in_fragments` | a KeyUpdate in several records | the same as in one | – | 8446 §5.1 |
//! | `key_update_not_at_boundary` | a KeyUpdate with something behind it in its record | refused | unexpected_message | 8446 §5.1 |
//! | `key_update_of_unknown_value` | request_update neither 0 nor 1 | refused | illegal_parameter | 8446 §4.6.3 |
//! | `key_update_of_wrong_length` | a KeyUpdate of other than one byte | refused | decode_error | 8446 §6.2 |
//! | `too_many_key_updates` | more than [`KEY_UPDATES_MAX`] in a row | refused | unexpected_message | our limit |
//! | `interleaved_records` | another record between two fragments | refused | unexpected_message | 8446 §5.1 |
//! | `fatal_alert_between_fragments` | an error alert there | [`Opened::PeerAlert`] | – | 8446 §6.2 |
//! | `tickets` | client: NewSessionTicket, coalesced or in fragments | [`Opened::Ticket`] | – | 8446 §4.6.1 |
//! | `ticket_to_a_server` | server: NewSessionTicket | refused | unexpected_message | 8446 §4.6, §6.2 |
//! | `unexpected_message_tls13` | ClientHello, CertificateRequest (we never offer post_handshake_auth), any other | refused by its type | unexpected_message | 8446 §4.1.2, §4.6.2, §6.2 |
//! | `message_too_long` | a message over [`HANDSHAKE_MESSAGE_MAX`] bytes | refused by its header | illegal_parameter | our limit |
//! | **TLS 1.2** | | | | |
//! | `renegotiation` | server: ClientHello, in fragments, data between them | [`Opened::NoRenegotiation`] at its end | (warning no_renegotiation) | 5246 §7.2.2, §6.2.1 |
//! | `hello_request` | client: HelloRequest | [`Opened::NoRenegotiation`] | (warning no_renegotiation) | 5246 §7.4.1.1 |
//! | `hello_request_of_wrong_length` | HelloRequest with a body | refused | decode_error | 5246 §7.2.2 |
//! | `unexpected_message_tls12` | any other handshake message, KeyUpdate too | refused by its type | unexpected_message | 5246 §7.2.2 |
//! | `warnings` | warning alerts | [`Opened::Handled`] | – | 5246 §7.2.2 |
//! | `alerts_in_any_cut` | alerts coalesced in a record or split over two | judged one by one | – | 5246 §6.2.1 |
//! | `unknown_alert_level` | a level other than 1 and 2 | refused | decode_error | 5246 §7.2, §7.2.2 |
//!
//! # Where this departs from the letter
//!
//! * **Half-close in TLS 1.2.** RFC 5246 §7.2.1 wants close_notify answered at once, "discarding any pending writes".
//!   RFC 8446 §6.1 gave that up for every version's good: it "could cause truncation in the read side". Each direction ends
//!   for itself here, in both versions.
//! * **A peer that seals more records under one key than RFC 8446 §5.5 advises is not refused.** The limit is the
//!   sender's to keep. When the peer's key nears it, our next KeyUpdate asks for another (§4.6.3).
//!
//! # Limits
//!
//! | limit | value | reached |
//! |---|---|---|
//! | [`CONTENT_MAX`] | 2^14 bytes | record_overflow; [`SealError::ContentTooLong`] |
//! | [`GCM_REKEY_AT`] | 2^23 records under an AES-GCM key | [`State::owes_key_update`] (TLS 1.3) |
//! | [`GCM_RECORDS_MAX`] | 2^24 records under an AES-GCM key | [`SealError::KeyExhausted`]: TLS 1.2 closes; alerts keep two records |
//! | [`EMPTY_RECORDS_MAX`], [`KEY_UPDATES_MAX`], [`WARNINGS_MAX`] | 32, 32, 4 in a row | unexpected_message |
//! | [`HANDSHAKE_MESSAGE_MAX`] | 65,535 bytes | illegal_parameter |
#![forbid(unsafe_code)]

mod alert;
mod derive;
mod error;
mod key;
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
pub use derive::secret_yields;
pub use error::{Blame, Corrupt, Misuse, Reason, Refusal, SealError};
pub use key::{OpenKey, SealKey};
pub use limits::{
    CONTENT_MAX, EMPTY_RECORDS_MAX, GCM_RECORDS_MAX, GCM_REKEY_AT, HANDSHAKE_MESSAGE_MAX,
    KEY_UPDATES_MAX, RECORD_MAX, SMALL_RECORD_MAX, WARNINGS_MAX,
};
pub use open::{Opened, open};
pub use seal::{RecordRoom, record_room, seal_alert, seal_in_place, seal_key_update, seal_record};
pub use state::{KeyIv, LAYOUT_VERSION, State};
pub use suite::{Protocol, Role, Suite};
