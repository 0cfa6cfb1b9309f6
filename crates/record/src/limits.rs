//! Every limit of this crate, in one place, with its reason.

use crate::suite::Suite;

/// Longest content of one record: 2^14 bytes (RFC 8446 §5.1, RFC 5246 §6.2.1).
pub const CONTENT_MAX: usize = 16_384;

/// Longest record there can be, header included: a TLS 1.2 ciphertext of 2^14 + 2048 bytes
/// (RFC 5246 §6.2.3). TLS 1.3 allows 2^14 + 256 (RFC 8446 §5.2). A buffer of this size holds any record.
pub const RECORD_MAX: usize = HEADER_LEN + CIPHERTEXT_MAX_TLS12;

/// Room enough for any alert or key update record: header, explicit nonce, content, type, tag.
pub const SMALL_RECORD_MAX: usize = 32;

/// Empty application data records in a row, without a byte of data between them.
/// RFC 8446 §5.1 allows them as cover traffic; each costs us a decryption and brings nothing.
pub const EMPTY_RECORDS_MAX: u8 = 32;

/// KeyUpdates in a row, without a byte of data between them. Each costs two key expansions.
pub const KEY_UPDATES_MAX: u8 = 32;

/// Warning alerts and requests for renegotiation in a row, without a byte of data between them.
pub const WARNINGS_MAX: u8 = 4;

/// Longest body of a post-handshake message (a ticket, a ClientHello that asks for renegotiation).
/// It is never stored; the limit bounds how long a message may keep other records out.
pub const HANDSHAKE_MESSAGE_MAX: usize = u16::MAX as usize;

pub(crate) const HEADER_LEN: usize = 5;
pub(crate) const TAG_LEN: usize = 16;
pub(crate) const EXPLICIT_NONCE_LEN: usize = 8;
pub(crate) const CIPHERTEXT_MAX_TLS12: usize = CONTENT_MAX + 2048;
pub(crate) const CIPHERTEXT_MAX_TLS13: usize = CONTENT_MAX + 256;

/// Records sealed or opened under one AES-GCM key. RFC 8446 §5.5 puts the limit at 2^24.5 records of full size.
pub const GCM_RECORDS_MAX: u64 = 1 << 24;

/// From here on our own key is owed an update (TLS 1.3), long before the limit.
pub const GCM_REKEY_AT: u64 = 1 << 23;

/// Records kept back at the end of a key's life, so that what ends it can still be said: a KeyUpdate,
/// or close_notify and perhaps a fatal alert. Data never takes them.
const RESERVE: u64 = 2;

/// First sequence number that application data may not use any more.
pub(crate) const fn data_limit(suite: Suite) -> u64 {
    record_limit(suite) - RESERVE
}

/// First sequence number that nothing may use any more.
/// For ChaCha20-Poly1305 "the record sequence number would wrap before the safety limit is reached" (RFC 8446 §5.5).
pub(crate) const fn record_limit(suite: Suite) -> u64 {
    if suite.is_gcm() {
        GCM_RECORDS_MAX
    } else {
        u64::MAX
    }
}

/// Sequence number from which a new key is owed.
pub(crate) const fn rekey_at(suite: Suite) -> u64 {
    if suite.is_gcm() {
        GCM_REKEY_AT
    } else {
        1 << 63
    }
}

const _: () = {
    assert!(GCM_REKEY_AT * 2 <= GCM_RECORDS_MAX);
    // Header, explicit nonce, a KeyUpdate (5 bytes), content type, tag.
    assert!(HEADER_LEN + 5 + 1 + TAG_LEN <= SMALL_RECORD_MAX);
    assert!(HEADER_LEN + EXPLICIT_NONCE_LEN + 2 + TAG_LEN <= SMALL_RECORD_MAX);
    assert!(CIPHERTEXT_MAX_TLS12 <= u16::MAX as usize);
};
