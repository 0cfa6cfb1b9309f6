//! Sealing: `plain_in` becomes `tls_out`. A record in memory is `[header room][content][trailer room]`.

use aws_lc_rs::aead::Aad;

use crate::alert::{Alert, AlertDescription, AlertLevel};
use crate::error::{Misuse, SealError};
use crate::key::{SealKey, unique};
use crate::layout::{CLOSED, FAILED, KEY_UPDATE_ASKED, KEY_UPDATE_REQUESTED};
use crate::limits::{Budget, CONTENT_MAX, EXPLICIT_NONCE_LEN, HEADER_LEN, TAG_LEN};
use crate::open::{ALERT, APPLICATION_DATA, HANDSHAKE, aad_tls12};
use crate::state::{Direction, State};
use crate::suite::Version;

/// The room that a record needs before and after its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordRoom {
    /// Before the content: record header, and the explicit nonce of TLS 1.2 AES-GCM.
    pub header: usize,
    /// After the content: the type byte of TLS 1.3, and the tag.
    pub trailer: usize,
}

impl RecordRoom {
    /// The longest header and trailer of any version and suite.
    pub const MAX: Self = Self {
        header: HEADER_LEN + EXPLICIT_NONCE_LEN,
        trailer: 1 + TAG_LEN,
    };
}

/// Returns the room that this connection's records need.
pub fn record_room(state: &State) -> RecordRoom {
    match state.version() {
        Version::Tls13 => RecordRoom {
            header: HEADER_LEN,
            trailer: 1 + TAG_LEN,
        },
        Version::Tls12 if state.suite().is_gcm() => RecordRoom {
            header: HEADER_LEN + EXPLICIT_NONCE_LEN,
            trailer: TAG_LEN,
        },
        Version::Tls12 => RecordRoom {
            header: HEADER_LEN,
            trailer: TAG_LEN,
        },
    }
}

/// Seals `content_len` bytes of application data at `buf[header..]`, with `header` and `trailer` from
/// [`record_room`]. Returns the record's length, counted from `buf[0]`.
///
/// The sequence number in `state` is advanced before anything is encrypted. If the peer requested a KeyUpdate,
/// the caller must send it first ([`SealError::KeyUpdateOwed`]).
pub fn seal_in_place(
    state: &mut State,
    key: &mut SealKey,
    buf: &mut [u8],
    content_len: usize,
) -> Result<usize, SealError> {
    check_open(state)?;
    // It "MUST send a KeyUpdate of its own with request_update set to "update_not_requested" prior to sending
    // its next Application Data record" (RFC 8446 §4.6.3).
    if state.has(KEY_UPDATE_REQUESTED) {
        return Err(SealError::KeyUpdateOwed);
    }
    if content_len > CONTENT_MAX {
        return Err(SealError::ContentTooLong(content_len));
    }
    protect(
        state,
        key,
        buf,
        APPLICATION_DATA,
        content_len,
        0,
        Budget::Data,
    )
}

/// Seals an alert into `out` ([`crate::SMALL_RECORD_MAX`] bytes are enough) and returns the record's length.
///
/// After a close_notify nothing more can be sealed; after a fatal alert nothing more can be opened either.
pub fn seal_alert(
    state: &mut State,
    key: &mut SealKey,
    alert: Alert,
    out: &mut [u8],
) -> Result<usize, SealError> {
    let Alert { level, description } = alert;
    let fatal = level == AlertLevel::Fatal;
    let last = fatal || description == AlertDescription::CloseNotify;
    if state.has(CLOSED) {
        return Err(SealError::Closed);
    }
    if state.has(FAILED) && !fatal {
        return Err(SealError::Failed);
    }
    let room = prepare(state, key, out, 2)?;
    // The last records under a key are reserved for the alert that ends the connection.
    let budget = if last { Budget::Last } else { Budget::Data };
    if !state.can_seal(2, budget) {
        return Err(SealError::KeyExhausted);
    }
    // Set before the record exists: a process that takes over this state must not seal after the alert.
    if last {
        state.set(CLOSED);
    }
    if fatal {
        state.set(FAILED);
    }
    out[room.header] = level as u8;
    out[room.header + 1] = description.code();
    protect(state, key, out, ALERT, 2, 0, budget)
}

/// Seals a KeyUpdate into `out` ([`crate::SMALL_RECORD_MAX`] bytes are enough), replaces the write secret with
/// its next generation, expands `key` again and returns the record's length. Afterwards
/// [`State::owes_key_update`] is false.
///
/// The peer is asked to update its own key only when that key nears its limit (RFC 8446 §5.5), and only once.
pub fn seal_key_update(
    state: &mut State,
    key: &mut SealKey,
    out: &mut [u8],
) -> Result<usize, SealError> {
    check_open(state)?;
    if state.version() != Version::Tls13 {
        return Err(SealError::Misuse(Misuse::NotTls13));
    }
    let room = prepare(state, key, out, KEY_UPDATE_LEN)?;
    let ask = state.should_ask_for_update();
    let message = [24, 0, 0, 1, u8::from(ask)];
    out[room.header..room.header + KEY_UPDATE_LEN].copy_from_slice(&message);
    let len = protect(state, key, out, HANDSHAKE, KEY_UPDATE_LEN, 0, Budget::Last)?;
    // All later messages "MUST be encrypted with the new keys" (RFC 8446 §4.6.3).
    if !state.replace_secret(Direction::Write) {
        state.set(FAILED);
        return Err(SealError::Cipher);
    }
    key.0.expand(state, Direction::Write);
    state.unset(KEY_UPDATE_REQUESTED);
    if ask {
        state.set(KEY_UPDATE_ASKED);
    }
    Ok(len)
}

/// type, length (3 bytes), request_update
const KEY_UPDATE_LEN: usize = 5;

/// Seals a record of any content type, with `padding` zero bytes after the content (TLS 1.3, RFC 8446 §5.4).
///
/// For tests and for testing other implementations: it makes records that no other function of this crate
/// makes. Content and padding together may exceed [`CONTENT_MAX`] here. The state's flags do not change.
pub fn seal_record(
    state: &mut State,
    key: &mut SealKey,
    buf: &mut [u8],
    content_type: u8,
    content_len: usize,
    padding: usize,
) -> Result<usize, SealError> {
    protect(
        state,
        key,
        buf,
        content_type,
        content_len,
        padding,
        Budget::Last,
    )
}

fn check_open(state: &State) -> Result<(), SealError> {
    if state.has(CLOSED) {
        return Err(SealError::Closed);
    }
    if state.has(FAILED) {
        return Err(SealError::Failed);
    }
    Ok(())
}

/// Checks everything that can refuse a record, before any of it is written.
fn prepare(state: &State, key: &SealKey, buf: &[u8], len: usize) -> Result<RecordRoom, SealError> {
    if state.kind().is_none() {
        return Err(SealError::Misuse(Misuse::NotEstablished));
    }
    if key.0.belongs_to(state, Direction::Write).is_none() {
        return Err(SealError::Misuse(Misuse::WrongKey));
    }
    let room = record_room(state);
    let need = room.header.saturating_add(len).saturating_add(room.trailer);
    // The header's length field has two bytes.
    if need - HEADER_LEN > usize::from(u16::MAX) {
        return Err(SealError::ContentTooLong(len));
    }
    if buf.len() < need {
        return Err(SealError::BufferTooSmall { need });
    }
    Ok(room)
}

/// Makes the record: takes a sequence number, writes the header, encrypts in place.
fn protect(
    state: &mut State,
    key: &SealKey,
    buf: &mut [u8],
    content_type: u8,
    content_len: usize,
    padding: usize,
    budget: Budget,
) -> Result<usize, SealError> {
    let inner_len = content_len.saturating_add(padding);
    let room = prepare(state, key, buf, inner_len)?;
    let sequence = state
        .take_write_sequence(inner_len, budget)
        .ok_or(SealError::KeyExhausted)?;
    // The sequence number is used from here on, even if sealing fails.
    let len = room.header + inner_len + room.trailer;
    let record = &mut buf[..len];
    let sealed = match state.version() {
        Version::Tls13 => {
            record[HEADER_LEN + content_len] = content_type;
            record[HEADER_LEN + content_len + 1..len - TAG_LEN].fill(0);
            encrypt_tls13(state, key, record, sequence)
        }
        Version::Tls12 => encrypt_tls12(state, key, record, room, content_type, sequence),
    };
    if sealed.is_none() {
        // Impossible with the lengths checked above; if it does happen, no plaintext may be sent as a record.
        record.fill(0);
        state.set(FAILED);
        return Err(SealError::Cipher);
    }
    Ok(len)
}

/// RFC 8446 §5.2: the outer type is always application data, and the header is the additional data.
fn encrypt_tls13(state: &State, key: &SealKey, record: &mut [u8], sequence: u64) -> Option<()> {
    let header = header(APPLICATION_DATA, record.len() - HEADER_LEN);
    let nonce = key.0.nonce(sequence);
    record[..HEADER_LEN].copy_from_slice(&header);
    encrypt(state, key, &mut record[HEADER_LEN..], nonce, &header)
}

/// RFC 5246 §6.2.3.3. The explicit nonce is the sequence number XORed with the IV (RFC 5288 §3 leaves the
/// choice open).
fn encrypt_tls12(
    state: &State,
    key: &SealKey,
    record: &mut [u8],
    room: RecordRoom,
    content_type: u8,
    sequence: u64,
) -> Option<()> {
    let header = header(content_type, record.len() - HEADER_LEN);
    let nonce = key.0.nonce(sequence);
    record[..HEADER_LEN].copy_from_slice(&header);
    let explicit_len = room.header - HEADER_LEN;
    record[HEADER_LEN..room.header].copy_from_slice(&nonce[4..4 + explicit_len]);
    let content_len = record.len() - room.header - room.trailer;
    let aad = aad_tls12(sequence, &header, content_len);
    encrypt(state, key, &mut record[room.header..], nonce, &aad)
}

fn header(content_type: u8, len: usize) -> [u8; HEADER_LEN] {
    // `prepare` checked that the length fits.
    let [high, low] = (len as u16).to_be_bytes();
    [content_type, 3, 3, high, low]
}

/// Encrypts the bytes before the tag's room in place, and writes the tag there.
fn encrypt(
    state: &State,
    key: &SealKey,
    content_and_tag: &mut [u8],
    nonce: [u8; 12],
    aad: &[u8],
) -> Option<()> {
    let aead = key.0.belongs_to(state, Direction::Write)?;
    let (content, tag) = content_and_tag.split_at_mut(content_and_tag.len() - TAG_LEN);
    aead.seal_in_place_scatter(unique(nonce), Aad::from(aad), content, &[], tag)
        .ok()
}
