//! Connections at rest in the caller's own memory and buffers.
//!
//! These functions need only the 128 bytes of a [`State`]: between two calls there is no object, no key and no
//! allocation. An incomplete record stays in the caller's buffer.
//!
//! Each call expands its key once, which takes about a microsecond, so one call for all received bytes is
//! cheaper than one call per record.

use dormouse_engine::stream::{End, Incoming, open_record};
use dormouse_engine::{TicketWatch, UnixTime};
use dormouse_record::{
    Alert, AlertDescription, CONTENT_MAX, OpenKey, Reason, Refusal, SMALL_RECORD_MAX, SealError,
    SealKey, State, record_room, seal_alert, seal_in_place, seal_key_update,
};

/// Output room for [`receive`]: a KeyUpdate and an alert.
pub const ANSWER_MAX: usize = 2 * SMALL_RECORD_MAX;

/// Output room for [`close`], [`abort`] and [`update_keys`].
pub const SMALL_OUTPUT_MAX: usize = SMALL_RECORD_MAX;

/// Result of [`receive`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Consumed bytes of the buffer. The rest is the start of a record; call again with it and further bytes.
    /// After an end: the whole buffer.
    pub consumed: usize,
    /// Length of the plaintext at the start of the buffer.
    pub plaintext_len: usize,
    /// Length of the output to send to the peer.
    pub output_len: usize,
    /// Total length of the record after `consumed`, as far as it is known; 0 if nothing is left.
    pub need: usize,
    /// How the peer's direction ended, if it has.
    pub end: Option<End>,
}

/// Opens all complete records in `buf`, in place, and moves their plaintext to its start. Replies to the peer
/// go to `output`, which must have room for [`ANSWER_MAX`] bytes.
///
/// `tickets` receives a client's tickets; without it they are ignored.
///
/// Returns an error if the output has too little room; nothing has changed then.
pub fn receive(
    state: &mut State,
    now: UnixTime,
    buf: &mut [u8],
    output: &mut [u8],
    tickets: Option<&mut TicketWatch>,
) -> Result<Received, SealError> {
    let mut key = OpenKey::new(state);
    receive_with(state, &mut key, now, buf, output, tickets)
}

/// Does the same with an expanded key.
pub(crate) fn receive_with(
    state: &mut State,
    key: &mut OpenKey,
    now: UnixTime,
    buf: &mut [u8],
    output: &mut [u8],
    mut tickets: Option<&mut TicketWatch>,
) -> Result<Received, SealError> {
    if output.len() < ANSWER_MAX {
        return Err(SealError::BufferTooSmall { need: ANSWER_MAX });
    }
    let mut received = Received::default();
    while received.end.is_none() {
        if state.peer_closed() {
            received.end = Some(End::Closed);
            break;
        }
        // A failure lasts. Without bytes, or after the peer's alert, there would be no end to find.
        if state.failed() {
            received.end = Some(End::Refused(Refusal::new(Reason::AlreadyFailed)));
            break;
        }
        let at = received.consumed;
        let Some(record) = buf.get_mut(at..).filter(|rest| !rest.is_empty()) else {
            break;
        };
        match open_record(state, key, record) {
            Incoming::Partial { need } => {
                received.need = need;
                break;
            }
            Incoming::Data {
                consumed,
                plaintext,
            } => {
                let len = plaintext.len();
                buf.copy_within(
                    at + plaintext.start..at + plaintext.end,
                    received.plaintext_len,
                );
                received.plaintext_len += len;
                received.consumed += consumed;
            }
            Incoming::Ticket { consumed, fragment } => {
                let fragment = record.get(fragment).unwrap_or_default();
                let watch = tickets.as_deref_mut();
                let taken = watch.map_or(Ok(()), |watch| watch.handle_fragment(now, fragment));
                received.consumed += consumed;
                received.end = taken.err().map(End::Refused);
            }
            Incoming::Handled { consumed, answer } => {
                if let Some(alert) = answer.filter(|_| received.output_len == 0) {
                    received.output_len = put_alert(state, alert, output);
                }
                received.consumed += consumed;
            }
            Incoming::Ended(end) => received.end = Some(end),
        }
    }
    let room = output.get_mut(received.output_len..).unwrap_or_default();
    if let Some(End::Refused(refusal)) = &received.end {
        received.output_len += put_alert(state, refusal.answer(), room);
    } else if received.end.is_none() && state.owes_key_update() {
        // If it fails, the next data fails too and returns the error.
        received.output_len += update_keys(state, room).unwrap_or_default();
    }
    if received.end.is_some() {
        received.consumed = buf.len();
    }
    Ok(received)
}

/// Seals an alert, unless nothing may be sealed any more.
fn put_alert(state: &mut State, alert: Alert, room: &mut [u8]) -> usize {
    let mut key = SealKey::new(state);
    seal_alert(state, &mut key, alert, room).unwrap_or_default()
}

/// Returns the output room that [`seal`] needs for `plaintext_len` bytes.
pub fn sealed_len(state: &State, plaintext_len: usize) -> usize {
    let room = record_room(state);
    let records = plaintext_len.div_ceil(CONTENT_MAX);
    let key_update = match state.owes_key_update() {
        true => SMALL_RECORD_MAX,
        false => 0,
    };
    records
        .saturating_mul(room.header + room.trailer)
        .saturating_add(plaintext_len)
        .saturating_add(key_update)
}

/// Seals all of `plaintext` into `output` and returns the length of the records, including a KeyUpdate before
/// them if one is owed. Empty plaintext makes no record.
///
/// `output` must have room for [`sealed_len`] bytes; with less, nothing changes. After any other error no byte
/// of the output may be sent.
pub fn seal(state: &mut State, plaintext: &[u8], output: &mut [u8]) -> Result<usize, SealError> {
    let mut key = SealKey::new(state);
    seal_with(state, &mut key, plaintext, output)
}

/// Does the same with an expanded key.
pub(crate) fn seal_with(
    state: &mut State,
    key: &mut SealKey,
    plaintext: &[u8],
    output: &mut [u8],
) -> Result<usize, SealError> {
    let need = sealed_len(state, plaintext.len());
    if output.len() < need {
        return Err(SealError::BufferTooSmall { need });
    }
    let mut len = 0;
    if state.owes_key_update() {
        len = seal_key_update(state, key, output)?;
    }
    // All or nothing, as in a batch: the caller does not send records before an error.
    if state.records_left() < plaintext.len().div_ceil(CONTENT_MAX) as u64 {
        return Err(SealError::KeyExhausted);
    }
    let header = record_room(state).header;
    for content in plaintext.chunks(CONTENT_MAX) {
        let record = output.get_mut(len..).unwrap_or_default();
        let room = record.get_mut(header..header + content.len());
        room.ok_or(SealError::BufferTooSmall { need })?
            .copy_from_slice(content);
        len += seal_in_place(state, key, record, content.len())?;
    }
    Ok(len)
}

/// Seals close_notify, which ends our direction. The peer's direction stays open. Returns its length.
pub fn close(state: &mut State, output: &mut [u8]) -> Result<usize, SealError> {
    let mut key = SealKey::new(state);
    seal_alert(state, &mut key, Alert::CLOSE_NOTIFY, output)
}

/// Seals a fatal alert, which closes the connection in both directions. Returns its length.
pub fn abort(
    state: &mut State,
    why: AlertDescription,
    output: &mut [u8],
) -> Result<usize, SealError> {
    let mut key = SealKey::new(state);
    seal_alert(state, &mut key, Alert::fatal(why), output)
}

/// Replaces the key of our direction and seals the KeyUpdate for it (TLS 1.3 only). Returns its length. Keys
/// near their limit are replaced automatically.
pub fn update_keys(state: &mut State, output: &mut [u8]) -> Result<usize, SealError> {
    let mut key = SealKey::new(state);
    seal_key_update(state, &mut key, output)
}
