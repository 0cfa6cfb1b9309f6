//! Functions that both flows share: sealing in the scratch buffer, and sending pending bytes.

use crate::established::context::Context;
use crate::established::fault::{Fault, Flow};
use crate::io::Io;
use crate::memory::backlog;
use crate::workspace::Workspace;
use dormouse_engine::stream::seal_batch;
use dormouse_handover::slot::{Flag, Slot};
use dormouse_reactor::pending::Pending;
use dormouse_reactor::socket::Attempt;
use dormouse_record::{Alert, SMALL_RECORD_MAX, SealKey};
use dormouse_tables::counters::Count;

/// Seals the `filled` bytes in the content ranges and sends them. Bytes that the TLS side does not
/// take become pending.
pub(crate) fn seal_and_send(
    slot: &mut Slot,
    cx: &mut Context<'_, impl Io>,
    key: &mut SealKey,
    filled: usize,
) -> Flow {
    let Workspace {
        scratch,
        pending,
        io,
        ..
    } = cx.work;
    let batch = seal_batch(&mut slot.tls, key, &mut scratch.sealing, filled)
        .map_err(|_| Fault::KeyExhausted)?;
    cx.outcome.bytes.tls_out += batch.len() as u64;
    send_sealed(slot, io, pending, &scratch.sealing[batch])
}

/// Seals an alert and sends it after the pending records.
pub(crate) fn send_alert(slot: &mut Slot, work: &mut Workspace<impl Io>, alert: Alert) -> Flow {
    let mut key = work.keys.take_seal(slot);
    let mut record = [0; SMALL_RECORD_MAX];
    let sealed = dormouse_record::seal_alert(&mut slot.tls, &mut key, alert, &mut record);
    work.keys.keep_seal(slot, key);
    let n = sealed.map_err(|_| Fault::KeyExhausted)?;
    let mut record = &record[..n];
    if slot.tls.closed() && slot.sealing_pending.is_none() {
        // The sending direction is closed next: one segment carries the alert and the FIN.
        match work.io.send_before_more(slot.tls_fd(), record) {
            Ok(Attempt::Done(sent)) => record = &record[sent..],
            Ok(Attempt::WouldBlock) => {}
            Err(e) => return Err(Fault::TlsFailed(e)),
        }
        if record.is_empty() {
            return Ok(());
        }
    }
    send_sealed(slot, &work.io, &mut work.pending, record)
}

/// Sends the key update that we owe, if no record is pending; otherwise it precedes the next data.
pub(crate) fn answer_key_update(slot: &mut Slot, work: &mut Workspace<impl Io>) -> Flow {
    if !slot.tls.owes_key_update() || slot.tls.closed() || slot.sealing_pending.is_some() {
        return Ok(());
    }
    let mut key = work.keys.take_seal(slot);
    let mut record = [0; SMALL_RECORD_MAX];
    let sealed = dormouse_record::seal_key_update(&mut slot.tls, &mut key, &mut record);
    work.keys.keep_seal(slot, key);
    let n = sealed.map_err(|_| Fault::KeyExhausted)?;
    work.count.add(Count::KeyUpdates, 1);
    send_sealed(slot, &work.io, &mut work.pending, &record[..n])
}

/// Sends sealed records in order: after the pending records, or at once if there are none.
pub(crate) fn send_sealed(
    slot: &mut Slot,
    io: &impl Io,
    pending: &mut Pending,
    records: &[u8],
) -> Flow {
    let mut rest = records;
    if slot.sealing_pending.is_none() {
        match io.send(slot.tls_fd(), records) {
            Ok(Attempt::Done(n)) => rest = &records[n..],
            Ok(Attempt::WouldBlock) => {}
            Err(e) => return Err(Fault::TlsFailed(e)),
        }
    }
    backlog::store_sealed(slot, pending, rest)?;
    Ok(())
}

/// Sends the records pending for the TLS side. Returns `true` if the socket took all of them.
pub(crate) fn flush_sealed(slot: &mut Slot, io: &impl Io, pending: &mut Pending) -> Flow<bool> {
    while slot.sealing_pending.is_some() {
        match io.send(slot.tls_fd(), pending.data(slot.sealing_pending)) {
            Ok(Attempt::Done(n)) => backlog::sealed_sent(slot, pending, n),
            Ok(Attempt::WouldBlock) => return Ok(false),
            Err(e) => return Err(Fault::TlsFailed(e)),
        }
    }
    Ok(true)
}

/// Sends the plaintext pending for the plain side. Returns `true` if the socket took all of it. A
/// partial record after it stays stored.
pub(crate) fn flush_opened(slot: &mut Slot, io: &impl Io, pending: &mut Pending) -> Flow<bool> {
    while slot.has(Flag::OpeningBlocked) {
        match io.send(slot.plain_fd(), backlog::opened(slot, pending)) {
            Ok(Attempt::Done(n)) => backlog::opened_sent(slot, pending, n),
            Ok(Attempt::WouldBlock) => return Ok(false),
            Err(e) => return Err(Fault::PlainFailed(e)),
        }
    }
    Ok(true)
}
