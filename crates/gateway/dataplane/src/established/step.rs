//! A step: an event on one connection moves bytes, then the connection's new state is settled.
//!
//! ```text
//! (slot, event) ──act──> bytes move ──settle──> ends are passed on, or the connection drains ──> outcome
//! ```
//!
//! The caller marks the slot busy before the step. After the step it sets interest and timer, or frees
//! the slot.

use crate::bursts::{Place, Subject};
use crate::client::ConnectionId;
use crate::close_reason::CloseReason;
use crate::established::begin::{self, First};
use crate::established::close;
use crate::established::connect;
use crate::established::context::Context;
use crate::established::fault::{Fault, Flow};
use crate::established::flow;
use crate::established::interest::{self, may_read_plain, may_read_tls};
use crate::established::opening;
use crate::established::sealing;
use crate::established::starvation;
use crate::established::timers;
use crate::established::warm;
use crate::io::{Io, PeerName};
use crate::memory::backlog;
use crate::outcome::{LocalClient, Outcome};
use crate::token::Side;
use crate::workspace::Workspace;
use dormouse_config::Truncation;
use dormouse_handover::slot::{Flag, Phase, PlainEnd, Slot, TimerPurpose};
use dormouse_reactor::poller;
use dormouse_reactor::socket::Attempt;
use dormouse_record::Role;
use dormouse_tables::counters::Count;
use std::io;

/// Time by which the backend's half of a connection with TLS to its backend is idle later than the client's. So the
/// client's half is idle, too, when the backend's passes on an end: both halves move a byte within less.
const LATER_IDLE_MS: u64 = 2_000;

/// Event on a connection.
pub(crate) enum Event {
    /// A side is ready.
    Ready(Side, poller::Event),
    /// The timer has fired.
    Timer,
    /// The worker closes the connection.
    Close(CloseReason),
    /// The worker closes this connection, and the other half of it is not known.
    CloseOne(CloseReason),
    /// A reload no longer admits the client, which has no backend yet.
    Refuse,
    /// The connection has just got its slot.
    Begin(First),
    /// The warm connection will be given to a client if it has not ended.
    Probe,
    /// The warm connection is given to this client.
    Attach(LocalClient),
    /// The warm connection is not needed any more.
    Discard,
}

/// Handles `event` on the connection in `slot`.
pub(crate) fn step<I: Io>(slot: &mut Slot, event: Event, mut cx: Context<'_, I>) -> Outcome {
    let done = act(slot, event, &mut cx);
    let is_over = settle(slot, &mut cx, done);
    Outcome {
        is_over,
        ..cx.outcome
    }
}

pub(super) fn act<I: Io>(slot: &mut Slot, event: Event, cx: &mut Context<'_, I>) -> Flow {
    match event {
        Event::Ready(side, ready) => on_ready(slot, side, ready, cx),
        Event::Timer => on_timer(slot, cx),
        Event::Close(reason) => close(slot, cx, reason),
        Event::CloseOne(reason) => close_one(slot, cx, reason),
        Event::Refuse => {
            connect::refuse(slot, cx);
            Ok(())
        }
        Event::Begin(first) => begin::begin(slot, cx, first),
        Event::Probe => warm::probe(slot, cx),
        Event::Attach(client) => begin::attach(slot, cx, client),
        Event::Discard => Err(Fault::NotNeeded),
    }
}

// ---- readiness ----

fn on_ready<I: Io>(
    slot: &mut Slot,
    side: Side,
    ready: poller::Event,
    cx: &mut Context<'_, I>,
) -> Flow {
    match (slot.phase(), side) {
        (Phase::Established, Side::Plain) if slot.is_joined() => joint_ready(slot, ready, cx),
        (Phase::Established, _) => {
            slot.active_s = cx.now_s();
            let has_drained = ready.is_writable() && starvation::on_drained(slot, side);
            match side {
                Side::Tls => tls_ready(slot, ready, cx)?,
                Side::Plain => plain_ready(slot, ready, cx)?,
            }
            if has_drained {
                starvation::read_other(slot, side, cx)?;
            }
            Ok(())
        }
        (Phase::Warm, _) => match flush_and_read_tls(slot, ready, cx) {
            Some(done) => done,
            None if is_broken(ready) => Err(Fault::TlsTruncated),
            None => Ok(()),
        },
        (Phase::Connecting, Side::Plain) => connect::finish(slot, ready, cx),
        (Phase::Connecting, Side::Tls) if slot.awaits_client() => {
            tls_ready_before_connect(slot, ready, cx)
        }
        (Phase::Connecting, Side::Tls) => tls_ready_while_connecting(slot, ready, cx),
        // `settle` advances a draining connection after any event.
        (Phase::Draining | Phase::Free, _) => Ok(()),
    }
}

/// Sends the records pending for the TLS side, then reads that side. `None`: it may not be read now.
fn flush_and_read_tls<I: Io>(
    slot: &mut Slot,
    ready: poller::Event,
    cx: &mut Context<'_, I>,
) -> Option<Flow> {
    let work = &mut *cx.work;
    if ready.is_writable() && slot.sealing_pending.is_some() {
        let waiting = work.pending.len(slot.sealing_pending);
        if let Err(fault) = flow::flush_sealed(slot, &work.io, &mut work.pending) {
            return Some(Err(fault));
        }
        note_refusal(waiting, work.pending.len(slot.sealing_pending), work);
    }
    may_read_tls(slot).then(|| {
        opening::read_tls(slot, cx)?;
        if slot.has(Flag::AwaitsRecord) && ready.is_read_closed() {
            // All that the peer has sent is there, and the rest of the record is not.
            let error = cx.work.io.take_error(slot.tls_fd());
            return Err(error.map_or_else(Fault::TlsFailed, |()| Fault::TlsTruncated));
        }
        Ok(())
    })
}

/// The kernel has reported room for the bytes that wait, and has then taken none of them.
fn note_refusal<I>(waited: usize, waiting: usize, work: &mut Workspace<I>) {
    if waiting == waited {
        work.kernel.note_refused(work.now_ms);
    }
}

fn tls_ready<I: Io>(slot: &mut Slot, ready: poller::Event, cx: &mut Context<'_, I>) -> Flow {
    if let Some(done) = flush_and_read_tls(slot, ready, cx) {
        return done;
    }
    if ready.is_error() && slot.has_tls_ended() {
        // The peer has ended its direction, and no longer receives ours.
        let error = cx.work.io.take_error(slot.tls_fd()).err();
        let reset = || io::ErrorKind::ConnectionReset.into();
        return Err(Fault::TlsFailed(error.unwrap_or_else(reset)));
    }
    unwatch_if_broken(slot, Side::Tls, ready, cx)
}

fn plain_ready<I: Io>(slot: &mut Slot, ready: poller::Event, cx: &mut Context<'_, I>) -> Flow {
    if ready.is_writable() && slot.has(Flag::OpeningBlocked) {
        let waiting = backlog::opened(slot, &cx.work.pending).len();
        // Whole records may be stored behind a PROXY header that the socket did not take at once.
        connect::flush_and_open(slot, cx)?;
        let left = backlog::opened(slot, &cx.work.pending).len();
        note_refusal(waiting, left, cx.work);
    }
    if ready.is_readable() && may_read_plain(slot) {
        if slot.has(Flag::Untouched) {
            // Bytes must not be taken from the client if the server has ended the connection.
            warm::probe(slot, cx)?;
            if slot.tls.peer_closed() {
                return Ok(());
            }
        }
        return sealing::read_plain(slot, cx);
    }
    unwatch_if_broken(slot, Side::Plain, ready, cx)
}

/// As [`plain_ready`]. If the other half passes on an end when this half has outlived a timeout, that end comes from the
/// timeout, so this half ends, too.
fn joint_ready<I: Io>(slot: &mut Slot, ready: poller::Event, cx: &mut Context<'_, I>) -> Flow {
    let (former_s, now_s) = (slot.active_s, cx.now_s());
    let had_ended = slot.has(Flag::PlainEnded);
    slot.active_s = now_s;
    plain_ready(slot, ready, cx)?;
    if had_ended || !slot.has(Flag::PlainEnded) {
        return Ok(());
    }
    if slot.has(Flag::TlsEnded) && slot.tls.role() == Role::Server {
        // The client has not ended TLS, so it may still send.
        close::begin_close(slot, cx.work);
        cx.note_close(slot, CloseReason::Clean);
        return Ok(());
    }
    if cx.outcome.bytes.plain_in == 0 {
        slot.active_s = former_s;
    }
    match overdue(slot, cx) {
        Some(reason) => time_out(slot, cx, reason),
        None => slot.active_s = now_s,
    }
    Ok(())
}

/// Connects to a backend if the client has sent something.
fn tls_ready_before_connect<I: Io>(
    slot: &mut Slot,
    ready: poller::Event,
    cx: &mut Context<'_, I>,
) -> Flow {
    let work = &mut *cx.work;
    flow::flush_sealed(slot, &work.io, &mut work.pending)?;
    if !ready.is_readable() {
        return Ok(());
    }
    match work.io.peek(slot.tls_fd(), &mut [0]) {
        Ok(Attempt::Done(0)) => return Err(Fault::TlsTruncated),
        Ok(Attempt::Done(_)) => {}
        Ok(Attempt::WouldBlock) => return Ok(()),
        Err(e) => return Err(Fault::TlsFailed(e)),
    }
    slot.clear(Flag::AwaitsClient);
    slot.set(Flag::TlsWaits);
    slot.active_s = cx.now_s();
    connect::start_later(slot, cx)?;
    if may_read_tls(slot) {
        return opening::read_tls(slot, cx);
    }
    Ok(())
}

fn tls_ready_while_connecting<I: Io>(
    slot: &mut Slot,
    ready: poller::Event,
    cx: &mut Context<'_, I>,
) -> Flow {
    let work = &mut *cx.work;
    if is_broken(ready) {
        // The client has closed before a backend was connected.
        let error = work.io.take_error(slot.tls_fd());
        return Err(error.map_or_else(Fault::TlsFailed, |()| Fault::TlsTruncated));
    }
    slot.set(Flag::TlsWaits);
    flow::flush_sealed(slot, &work.io, &mut work.pending)?;
    Ok(())
}

fn unwatch_if_broken<I: Io>(
    slot: &mut Slot,
    side: Side,
    ready: poller::Event,
    cx: &mut Context<'_, I>,
) -> Flow {
    if !is_broken(ready) {
        return Ok(());
    }
    interest::unwatch(slot, &cx.work.io, side).map_err(Fault::NotWatched)
}

/// An error, or a hang-up in both directions. Epoll reports these whatever the interest.
fn is_broken(ready: poller::Event) -> bool {
    ready.is_error() || ready.is_hung_up()
}

// ---- timers ----

fn on_timer<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>) -> Flow {
    let purpose = slot.timer_purpose();
    slot.set_timer_purpose(TimerPurpose::None);
    match purpose {
        TimerPurpose::RetryConnect => return connect::start_later(slot, cx),
        TimerPurpose::Connect => return connect::time_out(slot, cx),
        // Another one replaces it: its server is silent, or it is too old for a local client.
        TimerPurpose::PartialRecord | TimerPurpose::Idle if slot.phase() == Phase::Warm => {
            return Err(Fault::NotNeeded);
        }
        TimerPurpose::PartialRecord => {
            cx.work.count.add(Count::PartialRecordTimeouts, 1);
            let peer = PeerName::new(&cx.work.io, slot.tls_fd());
            let id = ConnectionId::of(slot, cx.work.id_seed);
            let (place, now_ms) = (Place::Route(slot.route), cx.work.now_ms);
            cx.work.bursts.note(Subject::PartialRecord, place, now_ms, |more| {
                let route = cx.route.name.as_str();
                tracing::info!(route, %id, %peer, more, "partial record timed out; connection closed");
            });
            cx.note_close(slot, CloseReason::PartialRecord);
            close::begin_reset(slot);
        }
        TimerPurpose::Idle => {
            if let Some(reason) = overdue(slot, cx) {
                time_out(slot, cx, reason);
            }
        }
        // It does not lead to a step.
        TimerPurpose::Rest => {}
        TimerPurpose::Drain | TimerPurpose::None => {}
    }
    Ok(())
}

/// Ends a connection that has outlived a timeout. A half of one may have to wait for the other half, and its timer looks
/// again.
fn time_out<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>, reason: CloseReason) {
    close::begin_time_out(slot, cx.work);
    if slot.phase() == Phase::Draining {
        let count = match reason {
            CloseReason::TooOld => Count::TotalTimeouts,
            _ => Count::IdleTimeouts,
        };
        cx.work.count.add(count, 1);
        cx.note_close(slot, reason);
    }
}

/// The timeout that the connection has outlived.
fn overdue<I: Io>(slot: &Slot, cx: &Context<'_, I>) -> Option<CloseReason> {
    if is_idle(slot, cx) {
        return Some(CloseReason::Idle);
    }
    is_too_old(slot, cx).then_some(CloseReason::TooOld)
}

fn is_too_old<I>(slot: &Slot, cx: &Context<'_, I>) -> bool {
    let due_ms = timers::total_due_ms(slot, cx.times());
    due_ms.is_some_and(|due_ms| due_ms <= cx.work.now_ms)
}

fn is_idle<I: Io>(slot: &Slot, cx: &Context<'_, I>) -> bool {
    let later_ms = match close::is_backend_half(slot) {
        true => LATER_IDLE_MS,
        false => 0,
    };
    let due_ms = timers::idle_due_ms(slot, cx.times());
    !slot.has(Flag::Paced)
        && due_ms.is_some_and(|due_ms| due_ms + later_ms <= cx.work.now_ms)
        && !close::is_ahead(slot, &cx.work.io)
}

// ---- ends ----

/// Closes the connection for the worker: the client gets close_notify and the backend a FIN, unless one of them would take
/// that for the proper end of an incomplete message.
fn close<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>, reason: CloseReason) -> Flow {
    if slot.phase() == Phase::Draining {
        return Ok(());
    }
    drop_proxy_header(slot);
    close::begin_stop(slot, cx)?;
    if slot.phase() == Phase::Draining {
        cx.note_close(slot, reason);
    }
    Ok(())
}

/// As [`close()`], for one connection of many. If it has TLS to its backend, this is the client's half, and nothing leads
/// from here to the other one: the client's direction ends here, and the backend then ends the connection. If it has ended
/// already, the backend did not follow, and the connection is reset.
fn close_one<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>, reason: CloseReason) -> Flow {
    if !close::awaits_other_half(slot) || slot.has_tls_ended() {
        return close(slot, cx, reason);
    }
    close::end_request(slot, cx)?;
    match slot.phase() {
        Phase::Draining => cx.note_close(slot, reason),
        // It is counted when it has ended.
        _ => cx.outcome.closing = Some(reason),
    }
    Ok(())
}

/// Settles the connection's new state. Returns `true` if the connection is over.
fn settle<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>, mut done: Flow) -> bool {
    if slot.phase() == Phase::Warm {
        return warm::settle(slot, cx, &done);
    }
    if slot.phase() == Phase::Established && slot.has(Flag::Untouched) {
        let has_server_failed = !matches!(done, Ok(()) | Err(Fault::PlainFailed(_)));
        if has_server_failed || slot.tls.peer_closed() {
            return warm::replace(slot, cx, &done);
        }
    }
    // Passing on an end may fail, too. Each failure advances the phase, so the loop ends.
    loop {
        if let Err(fault) = done
            && !accept_truncation(slot, cx, &fault)
        {
            abort(slot, cx, &fault);
        }
        if slot.phase() != Phase::Established {
            break;
        }
        done = close::pass_ends(slot, cx.work, cx.route.half_close);
        if done.is_ok() {
            break;
        }
    }
    if slot.phase() == Phase::Draining {
        let over_ms = slot.active_until_ms() + cx.limits.drain_timeout_ms;
        return close::drain(slot, cx.work, over_ms <= cx.work.now_ms);
    }
    let is_over = close::is_over(slot);
    if is_over {
        cx.note_close(slot, CloseReason::Clean);
    }
    is_over
}

/// Accepts an end without close_notify as a proper end, if the route is configured to.
fn accept_truncation<I>(slot: &mut Slot, cx: &Context<'_, I>, fault: &Fault) -> bool {
    let accepts = matches!(fault, Fault::TlsTruncated)
        && cx.truncation(slot) == Truncation::Close
        && slot.phase() == Phase::Established;
    if accepts {
        slot.set(Flag::TlsEnded);
    }
    accepts
}

fn abort<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>, fault: &Fault) {
    if matches!(slot.phase(), Phase::Draining | Phase::Free) {
        return;
    }
    drop_proxy_header(slot);
    slot.clear(Flag::Paced);
    if let Fault::PlainFailed(_) = fault
        && may_read_plain(slot)
    {
        // Bytes that the plain side sent before it failed may still be in the receive queue.
        let _ = sealing::read_plain(slot, cx);
    }
    let reason = close::begin_abort(slot, cx.work, fault);
    if cx.truncation(slot) == Truncation::Close && reason != CloseReason::Refused {
        slot.set_plain_end(PlainEnd::Close);
    }
    let now_ms = cx.work.now_ms;
    let peer = PeerName::new(&cx.work.io, slot.tls_fd());
    let id = ConnectionId::of(slot, cx.work.id_seed);
    let place = Place::Route(slot.route);
    cx.work
        .bursts
        .note(reason.subject(), place, now_ms, |more| {
            let route = cx.route.name.as_str();
            tracing::info!(route, %id, %peer, error = %fault, more, "connection aborted");
        });
    cx.note_close(slot, reason);
}

/// Drops the PROXY header for a backend that is not connected yet.
fn drop_proxy_header(slot: &mut Slot) {
    if slot.phase() == Phase::Connecting {
        slot.clear(Flag::OpeningBlocked);
    }
}
