//! A connection at rest in the caller's own memory and buffers.
//!
//! These functions take the 128 bytes of a [`State`] and nothing else: between two calls there is no
//! object, no key and no allocation. A record that is not whole stays in the caller's buffer.
//!
//! Each call expands its key once, which takes about a microsecond, so a call with all that was
//! received is cheaper than a call per record.

use dormouse_engine::stream::{End, Incoming, open_record};
use dormouse_engine::{TicketWatch, UnixTime};
use dormouse_record::{
    Alert, AlertDescription, CONTENT_MAX, OpenKey, SMALL_RECORD_MAX, SealError, SealKey, State,
    record_room, seal_alert, seal_in_place, seal_key_update,
};

/// Room that [`receive`] needs for its output: a KeyUpdate and an alert.
pub const ANSWER_MAX: usize = 2 * SMALL_RECORD_MAX;

/// Room that [`close`], [`abort`] and [`update_keys`] need.
pub const SMALL_OUTPUT_MAX: usize = SMALL_RECORD_MAX;

/// What [`receive`] made of a buffer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes of the buffer that are used up. What follows is the beginning of a record; call again
    /// with it and more behind it. After an end: the whole buffer.
    pub consumed: usize,
    /// Length of the plaintext, which lies at the start of the buffer.
    pub plaintext_len: usize,
    /// Length of the output, which is to be sent to the peer.
    pub output_len: usize,
    /// Bytes that the record behind `consumed` has in all, as far as is known; 0: nothing is left.
    pub need: usize,
    /// How the peer's direction has ended, if it has.
    pub end: Option<End>,
}

/// Opens all whole records in `buf`, in place, and moves their plaintext to its start. The answer to
/// the peer goes to `output`, which has room for [`ANSWER_MAX`] bytes.
///
/// `tickets` takes the tickets of a client; without it they are ignored.
///
/// An error means that the output has too little room; nothing was touched then.
pub fn receive(
    state: &mut State,
    now: UnixTime,
    buf: &mut [u8],
    output: &mut [u8],
    mut tickets: Option<&mut TicketWatch>,
) -> Result<Received, SealError> {
    if output.len() < ANSWER_MAX {
        return Err(SealError::BufferTooSmall { need: ANSWER_MAX });
    }
    let mut received = Received::default();
    let mut key = OpenKey::new(state);
    while received.end.is_none() {
        if state.peer_closed() {
            received.end = Some(End::Closed);
            break;
        }
        let at = received.consumed;
        let Some(record) = buf.get_mut(at..).filter(|rest| !rest.is_empty()) else {
            break;
        };
        match open_record(state, &mut key, record) {
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
                if let Some(watch) = &mut tickets {
                    // A ticket that can't be read is of no use; the connection goes on without it.
                    let _ = watch.handle_fragment(now, fragment);
                }
                received.consumed += consumed;
            }
            Incoming::Handled { consumed, answer } => {
                if let Some(alert) = answer.filter(|_| received.output_len == 0) {
                    received.output_len = put_alert(state, alert, output);
                }
                received.consumed += consumed;
            }
            Incoming::Ended(end) => {
                if let End::Refused(refusal) = &end {
                    let room = output.get_mut(received.output_len..).unwrap_or_default();
                    received.output_len += put_alert(state, refusal.answer(), room);
                }
                received.end = Some(end);
            }
        }
    }
    if received.end.is_some() {
        received.consumed = buf.len();
    } else if state.owes_key_update() {
        let room = output.get_mut(received.output_len..).unwrap_or_default();
        // Should it fail, the next data fails too, and says so.
        received.output_len += update_keys(state, room).unwrap_or_default();
    }
    Ok(received)
}

/// Once nothing may be sealed any more, there is no alert either.
fn put_alert(state: &mut State, alert: Alert, room: &mut [u8]) -> usize {
    let mut key = SealKey::new(state);
    seal_alert(state, &mut key, alert, room).unwrap_or_default()
}

/// Returns the room that [`seal`] needs for so much plaintext.
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

/// Seals all of `plaintext` into `output` and returns the length of the records, before which there is
/// the KeyUpdate that is owed, if one is. No plaintext makes no record.
///
/// `output` has room for [`sealed_len`] bytes; with less, nothing is touched. After any other error
/// nothing of the output may be sent.
pub fn seal(state: &mut State, plaintext: &[u8], output: &mut [u8]) -> Result<usize, SealError> {
    let need = sealed_len(state, plaintext.len());
    if output.len() < need {
        return Err(SealError::BufferTooSmall { need });
    }
    let mut key = SealKey::new(state);
    let mut len = 0;
    if state.owes_key_update() {
        len = seal_key_update(state, &mut key, output)?;
    }
    let header = record_room(state).header;
    for content in plaintext.chunks(CONTENT_MAX) {
        let record = output.get_mut(len..).unwrap_or_default();
        let room = record.get_mut(header..header + content.len());
        room.ok_or(SealError::BufferTooSmall { need })?
            .copy_from_slice(content);
        len += seal_in_place(state, &mut key, record, content.len())?;
    }
    Ok(len)
}

/// Seals close_notify: nothing more is sent. The peer's direction stays open. Returns its length.
pub fn close(state: &mut State, output: &mut [u8]) -> Result<usize, SealError> {
    let mut key = SealKey::new(state);
    seal_alert(state, &mut key, Alert::CLOSE_NOTIFY, output)
}

/// Seals a fatal alert: the connection is over in both directions. Returns its length.
pub fn abort(
    state: &mut State,
    why: AlertDescription,
    output: &mut [u8],
) -> Result<usize, SealError> {
    let mut key = SealKey::new(state);
    seal_alert(state, &mut key, Alert::fatal(why), output)
}

/// Replaces the key of our direction and seals the KeyUpdate that says so (TLS 1.3 only). Returns its
/// length. Keys near their limit are replaced without this.
pub fn update_keys(state: &mut State, output: &mut [u8]) -> Result<usize, SealError> {
    let mut key = SealKey::new(state);
    seal_key_update(state, &mut key, output)
}
