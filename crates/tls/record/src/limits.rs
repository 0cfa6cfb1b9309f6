//! All limits of this crate, with their reasons.

use crate::suite::Suite;

/// Longest content of one record: 2^14 bytes (RFC 8446 §5.1, RFC 5246 §6.2.1).
pub const CONTENT_MAX: usize = 16_384;

/// Maximum record length, header included: a TLS 1.2 ciphertext of 2^14 + 2048 bytes (RFC 5246 §6.2.3). TLS 1.3
/// allows 2^14 + 256 (RFC 8446 §5.2). A buffer of this size holds any record.
pub const RECORD_MAX: usize = HEADER_LEN + CIPHERTEXT_MAX_TLS12;

/// Buffer size for any alert or key update record: header, explicit nonce, content, type, tag.
pub const SMALL_RECORD_MAX: usize = 32;

/// Maximum number of empty application data records in a row, with no data between them. RFC 8446 §5.1 allows
/// them as cover traffic; each costs a decryption.
pub const EMPTY_RECORDS_MAX: u8 = 32;

/// Maximum number of KeyUpdates in a row, with no data between them. Each costs two key expansions.
pub const KEY_UPDATES_MAX: u8 = 32;

/// Maximum number of warning alerts and renegotiation requests in a row, with no data between them.
pub const WARNINGS_MAX: u8 = 4;

/// Maximum body of a post-handshake message (a ticket, or a ClientHello that requests renegotiation). The body
/// is never stored; the limit bounds how long a message may block other records.
pub const HANDSHAKE_MESSAGE_MAX: usize = u16::MAX as usize;

pub(crate) const HEADER_LEN: usize = 5;
pub(crate) const TAG_LEN: usize = 16;
pub(crate) const EXPLICIT_NONCE_LEN: usize = 8;
pub(crate) const CIPHERTEXT_MAX_TLS12: usize = CONTENT_MAX + 2048;
pub(crate) const CIPHERTEXT_MAX_TLS13: usize = CONTENT_MAX + 256;

/// Maximum number of records under one AES-GCM key of TLS 1.3, and of full records in TLS 1.2. RFC 8446 §5.5
/// sets the limit at 2^24.5 records of full size.
pub const GCM_RECORDS_MAX: u64 = 1 << 24;

/// Sequence number from which our own key is due for an update (TLS 1.3), well before the limit.
pub const GCM_REKEY_AT: u64 = 1 << 23;

/// Maximum use of an AES-GCM key of TLS 1.2, in units of 64 bytes: 2^24 full records, or 2^32 small ones. TLS 1.2
/// cannot replace its key, so a count of records alone would end a connection with small messages after days.
///
/// The limit of RFC 8446 §5.5 results from the number of blocks that the cipher encrypts, and 2^24.5 full
/// records are 2^34.5 blocks. A unit is four blocks.
pub const GCM_UNITS_MAX: u32 = u32::MAX;

/// Units that a full record uses.
pub(crate) const UNITS_OF_FULL_RECORD: u32 = units(CONTENT_MAX);

/// Returns the units that a record with this content uses: a block for every 16 bytes, and one for the tag.
pub(crate) const fn units(content_len: usize) -> u32 {
    (content_len.div_ceil(16) + 1).div_ceil(4) as u32
}

/// The part of a key's life that a record may use.
#[derive(Clone, Copy)]
pub(crate) enum Budget {
    /// All but the reserve.
    Data,
    /// The reserve too: a final KeyUpdate, or close_notify and a fatal alert.
    Last,
}

impl Budget {
    /// Records (in TLS 1.2 units) at the end of a key's life that this budget leaves.
    pub(crate) const fn reserve(self) -> u32 {
        match self {
            Self::Data => 2,
            Self::Last => 0,
        }
    }
}

/// First sequence number that no record may use, if the key's use is not counted in units. For ChaCha20-Poly1305
/// "the record sequence number would wrap before the safety limit is reached" (RFC 8446 §5.5).
pub(crate) const fn record_limit(suite: Suite) -> u64 {
    if suite.is_gcm() {
        GCM_RECORDS_MAX
    } else {
        u64::MAX
    }
}

/// Sequence number from which a new key is due.
pub(crate) const fn rekey_at(suite: Suite) -> u64 {
    if suite.is_gcm() {
        GCM_REKEY_AT
    } else {
        1 << 63
    }
}

const _: () = {
    assert!(GCM_REKEY_AT * 2 <= GCM_RECORDS_MAX);
    assert!(UNITS_OF_FULL_RECORD == 257 && units(48) == 1 && units(49) == 2);
    // An alert uses one unit, so the reserve is the same in records and in units.
    assert!(units(2) == 1);
    // Header, explicit nonce, a KeyUpdate (5 bytes), content type, tag.
    assert!(HEADER_LEN + 5 + 1 + TAG_LEN <= SMALL_RECORD_MAX);
    assert!(HEADER_LEN + EXPLICIT_NONCE_LEN + 2 + TAG_LEN <= SMALL_RECORD_MAX);
    assert!(CIPHERTEXT_MAX_TLS12 <= u16::MAX as usize);
};
