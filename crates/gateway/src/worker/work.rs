//! One step of work on one connection: an event, a timer, an order to stop; and what follows from it.

use super::Limits;
use super::accepting::Pause;
use super::backlog;
use super::bursts::{Bursts, Subject, peer_name};
use super::closing::{self, Ending};
use super::connecting::{self, Connect};
use super::flow::{self, Outcome, Tools};
use super::interest::{self, Side};
use super::originating::Plain;
use super::{opening, sealing};
use crate::config::Truncation;
use crate::counters::Count;
use crate::route::{Direction, Route};
use crate::slot::{Flag, Phase, Slot, TimerPurpose};
use dormouse_engine::{HandshakeInfo, Rested};
use dormouse_reactor::poller::{Event, Poller};
use dormouse_reactor::socket::{self, Shortage};
use dormouse_record::Alert;

/// What a step works with: everything but the slot, all of it the worker's.
pub(super) struct Work<'a> {
    pub(super) tools: &'a mut Tools,
    pub(super) route: &'a Route,
    pub(super) poller: &'a Poller,
    pub(super) bursts: &'a mut Bursts,
    pub(super) limits: &'a Limits,
    pub(super) now_ms: u64,
    /// Set when descriptors or ports have run out: accepting is to pause.
    pub(super) pause: Option<Pause>,
    /// Set if a warm connection has ended: after how many seconds.
    pub(super) warm_lost_after_s: Option<u32>,
}

impl Work<'_> {
    /// A side of the connection is ready for something.
    pub(super) fn event(&mut self, slot: &mut Slot, side: Side, event: Event) -> Outcome {
        match (slot.phase(), side) {
            (Phase::Established, _) => {
                slot.active_s = self.now_s();
                match side {
                    Side::Tls => self.tls_event(slot, event),
                    Side::Plain => self.plain_event(slot, event),
                }
            }
            (Phase::Warm, _) => self.warm_event(slot, event),
            (Phase::Connecting, Side::Plain) => {
                let connect = connecting::finish(slot);
                self.connected(slot, connect)
            }
            (Phase::Connecting, Side::Tls) => self.tls_event_while_connecting(slot, event),
            // `settle` looks at a draining connection, whatever the event was.
            (Phase::Draining | Phase::Free, _) => Outcome::Continues,
        }
    }

    fn tls_event(&mut self, slot: &mut Slot, event: Event) -> Outcome {
        if event.is_writable() && slot.sealing_pending.is_some() {
            match flow::flush_sealed(slot, &mut self.tools.pending) {
                Ok(_) => {}
                Err(outcome) => return outcome,
            }
        }
        if interest::reads_tls(slot) {
            return opening::tls_readable(slot, self.tools);
        }
        let ended = slot.tls.peer_closed() || slot.has(Flag::TlsEnded);
        if event.is_error() && ended {
            // It has nothing more to say, and no longer hears what is said to it.
            let error = socket::take_error(slot.tls_fd()).err();
            let reset = || std::io::ErrorKind::ConnectionReset.into();
            return Outcome::TlsFailed(error.unwrap_or_else(reset));
        }
        self.unwatch_if_broken(slot, Side::Tls, event)
    }

    fn plain_event(&mut self, slot: &mut Slot, event: Event) -> Outcome {
        if event.is_writable() && slot.has(Flag::OpeningBlocked) {
            match flow::flush_opened(slot, &mut self.tools.pending) {
                Ok(_) => {}
                Err(outcome) => return outcome,
            }
        }
        if event.is_readable() && interest::reads_plain(slot) {
            return sealing::plain_readable(slot, self.tools);
        }
        self.unwatch_if_broken(slot, Side::Plain, event)
    }

    fn tls_event_while_connecting(&mut self, slot: &mut Slot, event: Event) -> Outcome {
        if is_broken(event) {
            // The client has gone before there was a backend for it.
            return match socket::take_error(slot.tls_fd()) {
                Ok(()) => Outcome::TlsTruncated,
                Err(e) => Outcome::TlsFailed(e),
            };
        }
        slot.set(Flag::TlsWaits);
        match flow::flush_sealed(slot, &mut self.tools.pending) {
            Ok(_) => Outcome::Continues,
            Err(outcome) => outcome,
        }
    }

    fn unwatch_if_broken(&mut self, slot: &mut Slot, side: Side, event: Event) -> Outcome {
        if !is_broken(event) {
            return Outcome::Continues;
        }
        match interest::unwatch(slot, self.poller, side) {
            Ok(()) => Outcome::Continues,
            Err(e) => Outcome::NotWatched(e),
        }
    }

    fn warm_event(&mut self, slot: &mut Slot, event: Event) -> Outcome {
        if event.is_writable() && slot.sealing_pending.is_some() {
            match flow::flush_sealed(slot, &mut self.tools.pending) {
                Ok(_) => {}
                Err(outcome) => return outcome,
            }
        }
        if interest::reads_tls(slot) {
            return opening::tls_readable(slot, self.tools);
        }
        if is_broken(event) {
            return Outcome::TlsTruncated;
        }
        Outcome::Continues
    }

    /// Before a warm connection is given away: what it has received tells whether it has ended.
    pub(super) fn look_at_warm(&mut self, slot: &mut Slot) -> Outcome {
        if interest::reads_tls(slot) {
            return opening::tls_readable(slot, self.tools);
        }
        // It has spoken already, and waits to be heard.
        match socket::take_error(slot.tls_fd()) {
            Ok(()) => Outcome::Continues,
            Err(e) => Outcome::TlsFailed(e),
        }
    }

    /// The handshake with a server is done and the state at rest written. Without a local client
    /// the connection is a warm one.
    pub(super) fn begin_originated(
        &mut self,
        slot: &mut Slot,
        rested: Rested,
        plain: Option<Plain>,
    ) -> Outcome {
        slot.set_phase(Phase::Warm);
        let Rested {
            unsent,
            leftover,
            info,
            tickets,
        } = rested;
        let count = if info.resumed {
            Count::ConnectHandshakesResumed
        } else {
            Count::ConnectHandshakesFull
        };
        self.tools.count.add(count, 1);
        log_handshake(slot, &info);
        if let (Some(watch), Direction::Originate(origin)) = (tickets, &self.route.direction) {
            let until_ms = self.now_ms + origin.ticket_wait_ms;
            self.tools.tickets.expect(slot.generation, watch, until_ms);
        }
        if let Some(plain) = plain {
            attach_plain(slot, plain);
        }
        let pending = &mut self.tools.pending;
        if !unsent.is_empty() && !backlog::store_sealed(slot, pending, &unsent) {
            return Outcome::NoPendingMemory;
        }
        if !leftover.is_empty()
            && !backlog::store_opening(slot, pending, &leftover, &[], 0..leftover.len(), 0)
        {
            return Outcome::NoPendingMemory;
        }
        opening::open_stored(slot, self.tools)
    }

    /// A warm connection gets its local client.
    pub(super) fn attach(&mut self, slot: &mut Slot, plain: Plain) -> Outcome {
        attach_plain(slot, plain);
        slot.active_s = self.now_s();
        match flow::flush_opened(slot, &mut self.tools.pending) {
            Ok(_) => Outcome::Continues,
            Err(outcome) => outcome,
        }
    }

    /// The handshake is done and the state at rest written: what belongs to the rest of the slot.
    pub(super) fn begin(&mut self, slot: &mut Slot, rested: Rested) -> Outcome {
        slot.set_phase(Phase::Connecting);
        let resumed = rested.info.resumed;
        self.tools.count.add(
            if resumed {
                Count::HandshakesResumed
            } else {
                Count::HandshakesFull
            },
            1,
        );
        let pending = &mut self.tools.pending;
        let (unsent, leftover) = (&rested.unsent, &rested.leftover);
        if !unsent.is_empty() && !backlog::store_sealed(slot, pending, unsent) {
            return Outcome::NoPendingMemory;
        }
        if !leftover.is_empty()
            && !backlog::store_opening(slot, pending, leftover, &[], 0..leftover.len(), 0)
        {
            return Outcome::NoPendingMemory;
        }
        log_handshake(slot, &rested.info);
        let connect = connecting::start(slot, self.route, self.limits.sources);
        self.connected(slot, connect)
    }

    fn connected(&mut self, slot: &mut Slot, connect: Connect) -> Outcome {
        match connect {
            Connect::Done => opening::open_stored(slot, self.tools),
            Connect::UnderWay => Outcome::Continues,
            Connect::TryAgain(e) if self.may_retry(slot) => {
                self.pause = match Shortage::of(&e) {
                    Some(Shortage::Descriptors) => Some(Pause::Descriptors),
                    Some(Shortage::Ports) => Some(Pause::Ports),
                    // A backend whose queue is full, or kernel memory: not for us to pause.
                    _ => None,
                };
                Outcome::Continues
            }
            Connect::TryAgain(e) | Connect::Failed(e) => {
                self.backend_down(slot, &e.to_string());
                Outcome::Continues
            }
        }
    }

    fn may_retry(&self, slot: &Slot) -> bool {
        let began_ms = u64::from(slot.opened_s) * 1000;
        self.now_ms < began_ms + self.limits.backend_connect_timeout_ms
    }

    /// The client is told in order that there is nothing behind this connection.
    fn backend_down(&mut self, slot: &mut Slot, why: &str) {
        let fd = slot.detach_plain();
        if fd != dormouse_reactor::Fd::NONE {
            fd.close();
        }
        let backend = &self.route.backend_name;
        self.bursts.note(Subject::BackendDown, self.now_ms, |more| {
            tracing::warn!(%backend, error = why, more,
                "backend can't be reached; its clients get close_notify");
        });
        self.end(slot, Ending::BackendDown);
        closing::begin_farewell(slot, self.tools);
    }

    /// The slot's timer has run out.
    pub(super) fn timer(&mut self, slot: &mut Slot) -> Outcome {
        let purpose = slot.timer_purpose();
        slot.set_timer_purpose(TimerPurpose::None);
        match purpose {
            TimerPurpose::RetryConnect => {
                let connect = connecting::start(slot, self.route, self.limits.sources);
                return self.connected(slot, connect);
            }
            TimerPurpose::Connect => {
                self.backend_down(slot, "no answer within backend_connect_timeout");
            }
            TimerPurpose::PartialRecord => {
                self.tools.count.add(Count::PartialRecordTimeouts, 1);
                let fd = slot.tls_fd();
                self.bursts
                    .note(Subject::PartialRecord, self.now_ms, |more| {
                        tracing::info!(peer = %peer_name(fd), more,
                        "record not completed within partial_record_timeout; connection closed");
                    });
                self.end(slot, Ending::Limit);
                closing::begin_reset(slot);
            }
            TimerPurpose::Idle if self.is_idle(slot) => {
                self.tools.count.add(Count::IdleTimeouts, 1);
                self.end(slot, Ending::Limit);
                closing::begin_farewell(slot, self.tools);
            }
            TimerPurpose::Idle | TimerPurpose::Drain | TimerPurpose::None => {}
        }
        Outcome::Continues
    }

    fn is_idle(&self, slot: &Slot) -> bool {
        self.limits
            .idle_timeout_ms
            .is_some_and(|idle_ms| slot.active_until_ms() + idle_ms <= self.now_ms)
    }

    /// We close it: the client gets close_notify, the backend a FIN.
    pub(super) fn close(&mut self, slot: &mut Slot, ending: Ending) -> Outcome {
        if slot.phase() != Phase::Draining {
            self.end(slot, ending);
            closing::begin_farewell(slot, self.tools);
        }
        Outcome::Continues
    }

    /// What follows from the step. `true`: the connection is over.
    pub(super) fn settle(&mut self, slot: &mut Slot, mut outcome: Outcome) -> bool {
        if slot.phase() == Phase::Warm {
            return self.settle_warm(slot, &outcome);
        }
        // Passing an end on may fail too; each failure moves the phase on, so this ends.
        loop {
            if matches!(outcome, Outcome::TlsTruncated)
                && self.route.truncation == Truncation::Close
                && slot.phase() == Phase::Established
            {
                slot.set(Flag::TlsEnded);
                outcome = Outcome::Continues;
            }
            if !matches!(outcome, Outcome::Continues) {
                self.abort(slot, &outcome);
            }
            if slot.phase() != Phase::Established {
                break;
            }
            match closing::pass_ends(slot, self.tools) {
                Ok(()) => break,
                Err(failed) => outcome = failed,
            }
        }
        if slot.phase() == Phase::Draining {
            let out_of_time = slot.active_until_ms() + self.limits.drain_timeout_ms <= self.now_ms;
            return closing::drain(slot, self.tools, out_of_time);
        }
        let over = closing::is_over(slot);
        if over {
            self.end(slot, Ending::Clean);
        }
        over
    }

    /// Nobody has been given a warm connection yet, so its end is nobody's loss.
    fn settle_warm(&mut self, slot: &mut Slot, outcome: &Outcome) -> bool {
        let continues = matches!(outcome, Outcome::Continues);
        if continues && !slot.tls.peer_closed() {
            return false;
        }
        self.tools.count.add(Count::WarmLost, 1);
        let lasted_s = self.now_s().saturating_sub(slot.opened_s);
        self.warm_lost_after_s = Some(lasted_s);
        let fd = slot.tls_fd();
        tracing::debug!(peer = %peer_name(fd), lasted_s, "a warm connection has ended: {outcome}");
        if !slot.tls.closed() {
            let _ = self.tools.send_alert(slot, Alert::CLOSE_NOTIFY);
        }
        true
    }

    fn abort(&mut self, slot: &mut Slot, outcome: &Outcome) {
        if matches!(slot.phase(), Phase::Draining | Phase::Free) {
            return;
        }
        if let Outcome::PlainFailed(_) = outcome
            && interest::reads_plain(slot)
        {
            // What the plain side said before it failed may still be in the queue.
            let _ = sealing::plain_readable(slot, self.tools);
        }
        let ending = closing::begin_abort(slot, self.tools, outcome);
        if self.route.truncation == Truncation::Close && ending != Ending::Refused {
            slot.clear(Flag::ResetPlain);
        }
        self.report(slot, outcome, ending);
        self.end(slot, ending);
    }

    fn report(&mut self, slot: &Slot, outcome: &Outcome, ending: Ending) {
        let fd = slot.tls_fd();
        let now_ms = self.now_ms;
        self.bursts.note(Subject::of(ending), now_ms, |more| {
            tracing::info!(peer = %peer_name(fd), more, "connection aborted: {outcome}");
        });
    }

    /// Counts how the connection ended; from now on it only drains.
    fn end(&mut self, slot: &mut Slot, ending: Ending) {
        self.tools.count.add(ending.count(), 1);
        slot.active_s = self.now_s();
    }

    fn now_s(&self) -> u32 {
        (self.now_ms / 1000) as u32
    }
}

/// An error, or a hang-up in both directions: reported whatever is waited for.
fn is_broken(event: Event) -> bool {
    event.is_error() || event.is_hung_up()
}

fn attach_plain(slot: &mut Slot, plain: Plain) {
    let cookie = socket::cookie(plain.fd).unwrap_or(0) as u32;
    slot.attach_plain(plain.fd, cookie);
    if plain.is_unix {
        slot.set(Flag::PlainIsUnix);
    }
    slot.set_phase(Phase::Established);
}

fn log_handshake(slot: &Slot, info: &HandshakeInfo) {
    tracing::debug!(
        peer = %peer_name(slot.tls_fd()),
        version = %info.protocol,
        suite = info.suite,
        group = info.group,
        sni = info.sni,
        alpn = info.alpn.as_deref().map(|name| name.escape_ascii().to_string()),
        resumed = info.resumed,
        flights = ?info.flights.bytes(),
        "handshake done"
    );
}
