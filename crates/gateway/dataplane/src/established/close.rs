//! The ends of connections.
//!
//! Each direction ends separately, as in TCP: the TLS peer's close_notify becomes a FIN to the plain
//! side; the plain side's FIN becomes close_notify and a FIN to the TLS peer. The connection is over
//! when both have happened. Any other end is an abort, and an abort must not look like a proper end:
//! the worker delivers the bytes received before, then *resets* the other side. A reset discards what
//! the kernel has not sent yet, so the worker first waits until the send queue is empty, for a
//! bounded time.
//!
//! A socket that must be reset is prepared for it before its slot forgets it. If the worker dies in between, its
//! successor closes the socket like any other that no slot names, and the peer still sees an abort.

use crate::close_reason::CloseReason;
use crate::established::context::Context;
use crate::established::fault::{Fault, Flow};
use crate::established::flow::{self, flush_opened, flush_sealed};
use crate::established::interest::{may_read_plain, may_read_tls};
use crate::established::{opening, sealing};
use crate::io::{Io, discard};
use crate::memory::backlog;
use crate::workspace::Workspace;
use dormouse_config::BackendDown;
use dormouse_engine::ServerSessions as _;
use dormouse_handover::slot::{Flag, Phase, PlainEnd, PlainSide, Slot, TlsEnd};
use dormouse_reactor::Fd;
use dormouse_record::{Alert, AlertDescription, Role};
use dormouse_tables::counters::Count;
use std::io;

/// Passes on the end of each direction that has ended. Without `half_close`, the TLS peer's end also ends
/// the plain side's direction.
pub(crate) fn pass_ends(slot: &mut Slot, work: &mut Workspace<impl Io>, half_close: bool) -> Flow {
    if slot.has_tls_ended() && !slot.has(Flag::OpeningBlocked) && !slot.has(Flag::PlainShut) {
        slot.set(Flag::PlainShut);
        // A reload may have changed the route of a connection: a joint must get its mark, and pass-through forwards each end.
        let ends_both = !half_close && !slot.is_joined() && !slot.has(Flag::PassThrough);
        if slot.is_echo() || ends_both {
            // The plain side is closed with the connection.
            slot.set(Flag::PlainEnded);
        } else if let Err(e) = end_plain(slot, work) {
            return Err(Fault::PlainFailed(e));
        }
    }
    if slot.has(Flag::PlainEnded) && !slot.sealing_over() {
        flow::send_alert(slot, work, Alert::CLOSE_NOTIFY)?;
    }
    if slot.sealing_over() && slot.sealing_pending.is_none() && !slot.has(Flag::TlsShut) {
        slot.set(Flag::TlsShut);
        // If the peer has already closed, this fails and nothing is lost.
        let _ = work.io.shutdown_write(slot.tls_fd());
    }
    Ok(())
}

/// Closes the sending direction of the plain side.
fn end_plain(slot: &Slot, work: &Workspace<impl Io>) -> io::Result<()> {
    if slot.is_joined() {
        // Any descriptor will do; this process has this one open anyway.
        work.io
            .end_joint(slot.plain_fd(), work.backends.fds().marks)?;
    }
    work.io.shutdown_write(slot.plain_fd())
}

/// Whether both directions have ended and everything is delivered.
pub(crate) fn is_over(slot: &Slot) -> bool {
    slot.phase() == Phase::Established && slot.has(Flag::TlsShut) && slot.has(Flag::PlainShut)
}

/// Aborts a connection: sets what is left to deliver, and which sides to reset afterwards.
pub(crate) fn begin_abort(
    slot: &mut Slot,
    work: &mut Workspace<impl Io>,
    fault: &Fault,
) -> CloseReason {
    slot.set_phase(Phase::Draining);
    if matches!(fault, Fault::Refused(_) | Fault::TlsAlert(_)) {
        forget_session(slot, work);
    }
    match fault {
        Fault::PlainFailed(_) => {
            slot.set_tls_end(TlsEnd::Reset);
            CloseReason::PlainFailed
        }
        Fault::TlsTruncated => {
            slot.set_plain_end(PlainEnd::Reset);
            CloseReason::TlsTruncated
        }
        Fault::Refused(refusal) => {
            slot.set_plain_end(PlainEnd::Reset);
            farewell(slot, work, Alert::fatal(refusal.alert));
            CloseReason::Refused
        }
        // All sealed records go out before the alert. The plain side has more to send, so this is not a proper end, for
        // either side.
        Fault::KeyExhausted => {
            slot.set_plain_end(PlainEnd::Reset);
            forget_session(slot, work);
            farewell(slot, work, Alert::fatal(AlertDescription::InternalError));
            CloseReason::Limit
        }
        Fault::NoPendingMemory | Fault::NotNeeded | Fault::NotWatched(_) => {
            begin_reset(slot);
            CloseReason::Limit
        }
        Fault::TlsFailed(_) | Fault::TlsAlert(_) => {
            slot.set_plain_end(PlainEnd::Reset);
            CloseReason::TlsFailed
        }
    }
}

/// Ends the session of a connection with a fatal alert: it "MUST NOT" be resumed by its id (RFC 5246
/// §7.2.2). TLS 1.3 dropped the rule, and a ticket cannot be withdrawn.
fn forget_session(slot: &Slot, work: &Workspace<impl Io>) {
    let mark = slot.tls.session_mark();
    if let Some(sessions) = work.sessions.as_ref().filter(|_| mark != 0) {
        sessions.forget(mark);
    }
}

/// Resets both sides, once each has taken its pending bytes.
pub(crate) fn begin_reset(slot: &mut Slot) {
    slot.set_phase(Phase::Draining);
    slot.set_plain_end(PlainEnd::Reset);
    slot.set_tls_end(TlsEnd::Reset);
}

/// Closes the connection for a stop or a drain, as [`end`]. What has arrived since the last step is read first, because it
/// may be a side's own end.
pub(crate) fn begin_stop(slot: &mut Slot, cx: &mut Context<'_, impl Io>) -> Flow {
    let was_late = awaits_other_half(slot);
    // A pass-through connection is reset in any case.
    let is_whole = !slot.has(Flag::PassThrough) && read_rest(slot, cx)?;
    if was_late || !awaits_other_half(slot) {
        end(slot, cx.work, is_whole);
    }
    Ok(())
}

/// Closes the connection for a timeout, as [`end`]. A half that must wait for the other one is left alone: the other
/// half has the same timeouts. If this half cannot read the end that it waits for, both are reset.
pub(crate) fn begin_time_out(slot: &mut Slot, work: &mut Workspace<impl Io>) {
    if !awaits_other_half(slot) || is_stuck(slot, &work.io) {
        let is_whole = !lacks_request(slot, &work.io) && !lacks_answer(slot, &work.io);
        end(slot, work, is_whole);
    }
}

/// Reads each side that has sent more. Returns whether no side is cut off: what it has sent has ended, or there is no more.
fn read_rest(slot: &mut Slot, cx: &mut Context<'_, impl Io>) -> Flow<bool> {
    let mut is_whole = read_request(slot, cx)?;
    if lacks_answer(slot, &cx.work.io) {
        // The end behind the last bytes takes a call of its own.
        for _ in 0..2 {
            if may_read_plain(slot) {
                sealing::read_plain(slot, cx)?;
            }
        }
        is_whole &= slot.has(Flag::PlainEnded);
    }
    Ok(is_whole)
}

/// Reads the TLS side, if it has sent more. Returns whether it is not cut off.
fn read_request(slot: &mut Slot, cx: &mut Context<'_, impl Io>) -> Flow<bool> {
    if !lacks_request(slot, &cx.work.io) {
        return Ok(true);
    }
    if may_read_tls(slot) {
        opening::read_tls(slot, cx)?;
    }
    Ok(slot.has_tls_ended())
}

/// Ends the client's direction of a connection with TLS to its backend, as if the client had ended here, or resets the
/// connection if the client is in the middle of a request.
pub(crate) fn end_request(slot: &mut Slot, cx: &mut Context<'_, impl Io>) -> Flow {
    match read_request(slot, cx)? {
        true => slot.set(Flag::TlsEnded),
        false => begin_reset(slot),
    }
    Ok(())
}

/// Closes the connection with close_notify and a FIN. If one side has sent bytes that the other one will not get, both are
/// reset instead: they must not take this for a proper end. So is a pass-through connection, where we can't send an alert.
///
/// A connection with TLS to its backend is two slots, of which neither sees what the other one has still to pass on. So each
/// passes on an end when it has nothing left: the backend's half that of the answer, then the client's half that of the
/// request.
fn end(slot: &mut Slot, work: &mut Workspace<impl Io>, is_whole: bool) {
    // An end that is still awaited did not come in time.
    if !is_whole || awaits_other_half(slot) || slot.has(Flag::PassThrough) {
        begin_reset(slot);
    } else if is_half_without_end(slot) {
        // As if the backend had ended here.
        slot.set(Flag::TlsEnded);
    } else {
        begin_close(slot, work);
    }
}

/// Whether a stop, a drain or a timeout leaves this slot alone for now, because the other half of its connection passes on an end first.
pub(crate) fn awaits_other_half(slot: &Slot) -> bool {
    is_half_without_end(slot) && (slot.tls.role() == Role::Server || slot.has_tls_ended())
}

/// Whether this is a half of a connection with TLS to its backend that has not got the other half's end.
fn is_half_without_end(slot: &Slot) -> bool {
    slot.phase() == Phase::Established && slot.is_joined() && !slot.has(Flag::PlainEnded)
}

/// Whether this is a half of a connection with TLS to its backend whose direction from the backend has ended here, and the
/// other one has not: the connection is about to end.
pub(crate) fn is_half_ended(slot: &Slot) -> bool {
    let has_ended = || match slot.tls.role() {
        Role::Client => slot.has_tls_ended(),
        Role::Server => slot.has(Flag::PlainEnded),
    };
    // The rarest first: every step asks this.
    slot.is_joined() && slot.phase() == Phase::Established && has_ended()
}

/// Whether this is the half of a connection with TLS to its backend that has the backend.
pub(crate) fn is_backend_half(slot: &Slot) -> bool {
    slot.is_joined() && slot.tls.role() == Role::Client
}

/// Whether the other half has not yet taken all bytes that this half has passed on: then the connection is idle when the
/// other half is. But if this half is stuck as well, neither would be.
pub(crate) fn is_ahead(slot: &Slot, io: &impl Io) -> bool {
    slot.phase() == Phase::Established
        && slot.is_joined()
        && io.unsent(slot.plain_fd()).is_ok_and(|unsent| unsent > 0)
        && !is_stuck(slot, io)
}

/// Whether the TLS peer of this half does not take the bytes that the other half has passed on.
fn is_stuck(slot: &Slot, io: &impl Io) -> bool {
    slot.sealing_pending.is_some() || has_unread(slot, io)
}

/// Whether the plain side has sent bytes that are not read yet. A joint's mark of a proper end is a byte, too.
fn has_unread(slot: &Slot, io: &impl Io) -> bool {
    let of_mark = usize::from(slot.is_joined());
    io.received_unread(slot.plain_fd())
        .is_ok_and(|unread| unread > of_mark)
}

pub(crate) fn begin_close(slot: &mut Slot, work: &mut Workspace<impl Io>) {
    slot.set_phase(Phase::Draining);
    farewell(slot, work, Alert::CLOSE_NOTIFY);
}

/// Whether the TLS side has sent bytes that are not read yet, or a part of a record. (Bytes still on their way to us can't
/// be seen.)
fn lacks_request(slot: &Slot, io: &impl Io) -> bool {
    let has_more = |fd| io.received_unread(fd).is_ok_and(|unread| unread > 0);
    slot.phase() != Phase::Warm
        && !slot.has_tls_ended()
        && (slot.partial_len > 0 || has_more(slot.tls_fd()))
}

/// Whether the plain side has sent bytes that are not read yet.
fn lacks_answer(slot: &Slot, io: &impl Io) -> bool {
    slot.phase() == Phase::Established
        && !slot.has(Flag::PlainEnded)
        && slot.plain_fd() != Fd::NONE
        && has_unread(slot, io)
}

/// Ends a connection for which no backend could be reached, as `backend_down` says.
pub(crate) fn begin_refusal(slot: &mut Slot, work: &mut Workspace<impl Io>, how: BackendDown) {
    match how {
        BackendDown::Alert => {
            slot.set_phase(Phase::Draining);
            forget_session(slot, work);
            farewell(slot, work, Alert::fatal(AlertDescription::InternalError));
        }
        BackendDown::Reset => begin_reset(slot),
        BackendDown::Close => begin_close(slot, work),
    }
}

fn farewell(slot: &mut Slot, work: &mut Workspace<impl Io>, alert: Alert) {
    slot.set_tls_end(TlsEnd::Linger);
    // If the alert can't be sealed or sent, the FIN after it still ends the connection.
    if !slot.tls.closed() && flow::send_alert(slot, work, alert).is_err() {
        slot.set_tls_end(TlsEnd::Close);
    }
}

/// Advances a draining connection. Returns `true` when it is over and can be freed.
pub(crate) fn drain(slot: &mut Slot, work: &mut Workspace<impl Io>, out_of_time: bool) -> bool {
    let plain_done = drain_plain(slot, work, out_of_time);
    let tls_done = drain_tls(slot, work, out_of_time);
    plain_done && tls_done
}

fn drain_plain(slot: &mut Slot, work: &mut Workspace<impl Io>, out_of_time: bool) -> bool {
    let fd = slot.plain_fd();
    if fd == Fd::NONE {
        return true;
    }
    // Before a reset, the kernel's send queue must be empty. After a close, the kernel empties it.
    let delivered = match flush_opened(slot, &work.io, &mut work.pending) {
        Ok(true) => {
            slot.plain_end() == PlainEnd::Close || work.io.unsent(fd).map_or(true, |n| n == 0)
        }
        Ok(false) => false,
        Err(_) => true,
    };
    if !delivered && !out_of_time {
        return false;
    }
    let reset = must_reset_plain(slot);
    if slot.is_joined() && !reset && !slot.has(Flag::PlainShut) {
        // If the other end has been closed, nothing is lost.
        let _ = end_plain(slot, work);
    }
    if reset && slot.plain_side() == PlainSide::Unix {
        work.count.add(Count::UnixTruncations, 1);
    }
    prepare_plain_reset(slot, &work.io);
    slot.detach_plain();
    work.io.close(fd);
    true
}

/// Whether the plain side must be reset. It must not take its end for a proper one while it lacks bytes.
fn must_reset_plain(slot: &Slot) -> bool {
    slot.plain_end() == PlainEnd::Reset || slot.has(Flag::OpeningBlocked)
}

/// Makes the close of the plain side a reset, if it must be one. Unix sockets have none.
fn prepare_plain_reset(slot: &Slot, io: &impl Io) {
    let is_socket = slot.plain_side() == PlainSide::Tcp && slot.plain_fd() != Fd::NONE;
    if is_socket && must_reset_plain(slot) {
        io.reset_on_close(slot.plain_fd());
    }
}

fn drain_tls(slot: &mut Slot, work: &mut Workspace<impl Io>, out_of_time: bool) -> bool {
    let is_done = out_of_time || has_left_tls(slot, work);
    if is_done {
        // The plain side may need more time. Meanwhile the TLS side must not be watched: if its peer is gone, epoll would
        // report that in every turn.
        prepare_tls_reset(slot, &work.io);
        slot.set_tls_end(TlsEnd::Close);
        backlog::free_sealed(slot, &mut work.pending);
    }
    is_done
}

/// Delivers the last records. Returns `true` if the TLS side is done.
fn has_left_tls(slot: &mut Slot, work: &mut Workspace<impl Io>) -> bool {
    let end = slot.tls_end();
    if end == TlsEnd::Close {
        return true;
    }
    match flush_sealed(slot, &work.io, &mut work.pending) {
        Ok(true) => {}
        Ok(false) => return false,
        Err(_) => return true,
    }
    if end == TlsEnd::Reset {
        return work.io.unsent(slot.tls_fd()).map_or(true, |n| n == 0);
    }
    if !slot.has(Flag::TlsShut) {
        slot.set(Flag::TlsShut);
        if work.io.shutdown_write(slot.tls_fd()).is_err() {
            return true;
        }
    }
    discard(&work.io, slot.tls_fd(), &mut work.scratch.opening)
}

/// Makes the close of the TLS side a reset, if it must be one: the peer must not take its end for a proper one while it
/// lacks records.
fn prepare_tls_reset(slot: &Slot, io: &impl Io) {
    let must_reset = slot.tls_end() == TlsEnd::Reset || slot.sealing_pending.is_some();
    if must_reset && slot.tls_fd() != Fd::NONE {
        io.reset_on_close(slot.tls_fd());
    }
}

/// Whether everything is in the kernel's hands, and the connection only waits for the client's end.
pub(crate) fn only_lingers(slot: &Slot) -> bool {
    slot.phase() == Phase::Draining
        && slot.tls_end() == TlsEnd::Linger
        && slot.has(Flag::TlsShut)
        && slot.plain_fd() == Fd::NONE
}

/// The descriptors of a connection that is over, to be closed after its slot is cleared.
pub(crate) struct Remains {
    tls_fd: Fd,
    plain_fd: Fd,
}

/// Frees the pending memory, drops the keys and takes the descriptors out of the slot. The caller frees
/// the slot, then calls [`Remains::close`]: a slot must never name a closed descriptor.
pub(crate) fn dismantle(slot: &mut Slot, work: &mut Workspace<impl Io>) -> Remains {
    prepare_plain_reset(slot, &work.io);
    prepare_tls_reset(slot, &work.io);
    backlog::free_opening(slot, &mut work.pending);
    backlog::free_sealed(slot, &mut work.pending);
    work.keys.forget(slot);
    Remains {
        tls_fd: slot.tls_fd(),
        plain_fd: slot.plain_fd(),
    }
}

impl Remains {
    pub(crate) fn close(self, io: &impl Io) {
        if self.plain_fd != Fd::NONE {
            io.close(self.plain_fd);
        }
        // In deep rest it has none.
        if self.tls_fd != Fd::NONE {
            io.close(self.tls_fd);
        }
    }
}
