//! Bytes of an established connection, with TLS or without.

use dormouse_engine::{TicketWatch, UnixTime};
use dormouse_record::{self as record, OpenKey, Opened, SealKey, State};

use super::connection::SendBuffer;

/// How much plaintext is sealed before it is sent.
pub(super) const SEAL_AHEAD: usize = 4 * record::CONTENT_MAX;

/// What was in the bytes that were received.
#[derive(Default)]
pub(super) struct Received {
    /// Bytes used up.
    pub(super) used: usize,
    /// The peer will send nothing more.
    pub(super) ended: bool,
    /// A session ticket came, whole.
    pub(super) ticket: bool,
}

/// Opens all whole records in `bytes` and passes their plaintext to `hear`.
pub(super) fn open_all<E: From<String>>(
    tls: &mut State,
    tickets: &mut Option<TicketWatch>,
    bytes: &mut [u8],
    mut hear: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<Received, E> {
    let mut received = Received::default();
    let mut key = OpenKey::new(tls);
    while let Some(rest) = bytes
        .get_mut(received.used..)
        .filter(|rest| !rest.is_empty())
    {
        let opened = record::open(tls, &mut key, rest)
            .map_err(|refusal| format!("record refused: {refusal}"))?;
        received.used += match opened {
            Opened::Partial { .. } => break,
            Opened::Data {
                consumed,
                plaintext,
            } => {
                hear(rest.get(plaintext).unwrap_or_default())?;
                consumed
            }
            Opened::Ticket { consumed, fragment } => {
                if let Some(watch) = tickets {
                    let fragment = rest.get(fragment).unwrap_or_default();
                    watch
                        .handle_fragment(UnixTime::now(), fragment)
                        .map_err(|failure| failure.reason)?;
                    received.ticket |= watch.received() > 0;
                }
                consumed
            }
            Opened::Handled { consumed } | Opened::NoRenegotiation { consumed } => consumed,
            Opened::PeerClosed { consumed } => {
                received.ended = true;
                consumed
            }
            Opened::PeerAlert { description, .. } => {
                let name = dormouse_engine::alert_name(description);
                return Err(format!("the server sent a fatal alert: {name}").into());
            }
        };
    }
    Ok(received)
}

/// Seals up to [`SEAL_AHEAD`] of `len` bytes, which `write` gives.
pub(super) fn seal_some(
    tls: &mut State,
    out: &mut SendBuffer,
    len: u64,
    mut write: impl FnMut(&mut [u8]),
) -> Result<(), String> {
    let mut key = SealKey::new(tls);
    if tls.owes_key_update() {
        seal_small(out, |room| record::seal_key_update(tls, &mut key, room))?;
    }
    let mut left = usize::try_from(len).unwrap_or(usize::MAX).min(SEAL_AHEAD);
    while left > 0 {
        let content = left.min(record::CONTENT_MAX);
        let room = record::record_room(tls);
        let whole = room.header + content + room.trailer;
        let buf = out.grow(whole);
        write(&mut buf[room.header..room.header + content]);
        let sealed = record::seal_in_place(tls, &mut key, buf, content);
        let sealed = sealed.map_err(|error| format!("sealing: {error}"))?;
        out.shrink(whole - sealed);
        left -= content;
    }
    Ok(())
}

/// Says goodbye; best effort.
pub(super) fn seal_close(tls: &mut State, out: &mut SendBuffer) {
    let mut key = SealKey::new(tls);
    let _ = seal_small(out, |room| {
        record::seal_alert(tls, &mut key, record::Alert::CLOSE_NOTIFY, room)
    });
}

fn seal_small(
    out: &mut SendBuffer,
    seal: impl FnOnce(&mut [u8]) -> Result<usize, record::SealError>,
) -> Result<(), String> {
    match seal(out.grow(record::SMALL_RECORD_MAX)) {
        Ok(len) => {
            out.shrink(record::SMALL_RECORD_MAX - len);
            Ok(())
        }
        Err(error) => {
            out.shrink(record::SMALL_RECORD_MAX);
            Err(format!("sealing: {error}"))
        }
    }
}
