//! One step of work on one connection: an event, a timer, an order to stop; and what follows from it.

use crate::config::Truncation;
use crate::counters::Count;
use crate::route::Route;
use crate::slot::{Flag, Phase, Slot, TimerPurpose};
use crate::worker::Limits;
use crate::worker::bursts::{Bursts, Subject, peer_name};
use crate::worker::door::listeners::Pause;
use crate::worker::established::close::{self, Ending};
use crate::worker::established::connect;
use crate::worker::established::flow::{self, Outcome, Tools};
use crate::worker::established::interest::{self, Side};
use crate::worker::established::opening;
use crate::worker::established::sealing;
use crate::worker::io::Io;
use crate::worker::outbound::originate::{Errand, Plain};
use dormouse_reactor::poller::Event;
use dormouse_reactor::socket::Peer;
use dormouse_record::Role;

/// What a step works with: everything but the slot, all of it the worker's.
pub(crate) struct Work<'a, I> {
    pub(crate) tools: &'a mut Tools<I>,
    pub(crate) route: &'a Route,
    pub(crate) bursts: &'a mut Bursts,
    pub(crate) limits: &'a Limits,
    pub(crate) now_ms: u64,
    /// Set when descriptors or ports have run out: accepting is to pause.
    pub(crate) pause: Option<Pause>,
    /// Set if a warm connection has ended: after how many seconds.
    pub(crate) warm_lost_after_s: Option<u32>,
    /// Set if the way to the backend is a joint: somebody has to go the rest of it.
    pub(crate) joined: Option<Errand>,
    /// A local client whose server has ended the connection before anything passed: it is to get
    /// another one.
    pub(crate) left_behind: Option<Plain>,
}

impl<I: Io> Work<'_, I> {
    /// A side of the connection is ready for something.
    pub(crate) fn event(&mut self, slot: &mut Slot, side: Side, event: Event) -> Outcome {
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
                let connect = connect::finish(slot, &self.tools.io);
                self.connected(slot, connect)
            }
            (Phase::Connecting, Side::Tls) => self.tls_event_while_connecting(slot, event),
            // `settle` looks at a draining connection, whatever the event was.
            (Phase::Draining | Phase::Free, _) => Outcome::Continues,
        }
    }

    /// Sends what waits for the TLS side, and reads it. `None`: it may not be read now.
    pub(crate) fn flush_and_read_tls(&mut self, slot: &mut Slot, event: Event) -> Option<Outcome> {
        if event.is_writable()
            && slot.sealing_pending.is_some()
            && let Err(outcome) = flow::flush_sealed(slot, &self.tools.io, &mut self.tools.pending)
        {
            return Some(outcome);
        }
        interest::reads_tls(slot).then(|| opening::tls_readable(slot, self.tools))
    }

    fn tls_event(&mut self, slot: &mut Slot, event: Event) -> Outcome {
        if let Some(outcome) = self.flush_and_read_tls(slot, event) {
            return outcome;
        }
        let ended = slot.tls.peer_closed() || slot.has(Flag::TlsEnded);
        if event.is_error() && ended {
            // It has nothing more to say, and no longer hears what is said to it.
            let error = self.tools.io.take_error(slot.tls_fd()).err();
            let reset = || std::io::ErrorKind::ConnectionReset.into();
            return Outcome::TlsFailed(error.unwrap_or_else(reset));
        }
        self.unwatch_if_broken(slot, Side::Tls, event)
    }

    fn plain_event(&mut self, slot: &mut Slot, event: Event) -> Outcome {
        if event.is_writable() && slot.has(Flag::OpeningBlocked) {
            // Whole records may lie behind an introduction that was not taken at once.
            match self.open_after_flush(slot) {
                Outcome::Continues => {}
                outcome => return outcome,
            }
        }
        if event.is_readable() && interest::reads_plain(slot) {
            if slot.has(Flag::Untouched) {
                // Nothing may be taken from the client for a server which has gone.
                match self.look_at_warm(slot) {
                    Outcome::Continues if !slot.tls.peer_closed() => {}
                    outcome => return outcome,
                }
            }
            return sealing::plain_readable(slot, self.tools);
        }
        self.unwatch_if_broken(slot, Side::Plain, event)
    }

    fn tls_event_while_connecting(&mut self, slot: &mut Slot, event: Event) -> Outcome {
        if is_broken(event) {
            // The client has gone before there was a backend for it.
            return match self.tools.io.take_error(slot.tls_fd()) {
                Ok(()) => Outcome::TlsTruncated,
                Err(e) => Outcome::TlsFailed(e),
            };
        }
        slot.set(Flag::TlsWaits);
        match flow::flush_sealed(slot, &self.tools.io, &mut self.tools.pending) {
            Ok(_) => Outcome::Continues,
            Err(outcome) => outcome,
        }
    }

    fn unwatch_if_broken(&mut self, slot: &mut Slot, side: Side, event: Event) -> Outcome {
        if !is_broken(event) {
            return Outcome::Continues;
        }
        match interest::unwatch(slot, &self.tools.io, side) {
            Ok(()) => Outcome::Continues,
            Err(e) => Outcome::NotWatched(e),
        }
    }

    /// What waits for the plain side goes first; then what came behind the handshake is opened.
    pub(crate) fn open_after_flush(&mut self, slot: &mut Slot) -> Outcome {
        match flow::flush_opened(slot, &self.tools.io, &mut self.tools.pending) {
            Ok(true) => opening::open_stored(slot, self.tools),
            Ok(false) => Outcome::Continues,
            Err(outcome) => outcome,
        }
    }

    /// The slot's timer has run out.
    pub(crate) fn timer(&mut self, slot: &mut Slot) -> Outcome {
        let purpose = slot.timer_purpose();
        slot.set_timer_purpose(TimerPurpose::None);
        match purpose {
            TimerPurpose::RetryConnect => {
                let client = match self.tools.io.peer(slot.tls_fd()) {
                    Ok(Peer::Tcp(address)) => Some(address.ip()),
                    _ => None,
                };
                let connect = self.start_connect(slot, client);
                return self.connected(slot, connect);
            }
            TimerPurpose::Connect => {
                let why = "no answer within backend_connect_timeout";
                match self.try_next(slot, why) {
                    Some(next) => return self.connected(slot, next),
                    None => self.backend_down(slot, why),
                }
            }
            TimerPurpose::PartialRecord => {
                self.tools.count.add(Count::PartialRecordTimeouts, 1);
                let fd = slot.tls_fd();
                self.bursts
                    .note(Subject::PartialRecord, self.now_ms, |more| {
                        tracing::info!(peer = %peer_name(&self.tools.io, fd), more,
                        "record not completed within partial_record_timeout; connection closed");
                    });
                self.end(slot, Ending::Limit);
                close::begin_reset(slot);
            }
            TimerPurpose::Idle if self.is_idle(slot) => {
                self.tools.count.add(Count::IdleTimeouts, 1);
                self.end(slot, Ending::Limit);
                close::begin_farewell(slot, self.tools);
            }
            TimerPurpose::Idle if self.is_too_old(slot) => {
                self.tools.count.add(Count::TotalTimeouts, 1);
                self.end(slot, Ending::Limit);
                close::begin_farewell(slot, self.tools);
            }
            TimerPurpose::Idle | TimerPurpose::Drain | TimerPurpose::None => {}
        }
        Outcome::Continues
    }

    fn is_too_old(&self, slot: &Slot) -> bool {
        let total_ms = self.limits.total_timeout_ms;
        total_ms.is_some_and(|total_ms| slot.opened_by_ms() + total_ms <= self.now_ms)
    }

    fn is_idle(&self, slot: &Slot) -> bool {
        !slot.has(Flag::Paced)
            && self
                .limits
                .idle_timeout_ms
                .is_some_and(|idle_ms| slot.active_until_ms() + idle_ms <= self.now_ms)
    }

    /// We close it: the client gets close_notify, the backend a FIN.
    pub(crate) fn close(&mut self, slot: &mut Slot, ending: Ending) -> Outcome {
        if slot.phase() != Phase::Draining {
            drop_introduction(slot);
            self.end(slot, ending);
            close::begin_farewell(slot, self.tools);
        }
        Outcome::Continues
    }

    /// What follows from the step. `true`: the connection is over.
    pub(crate) fn settle(&mut self, slot: &mut Slot, mut outcome: Outcome) -> bool {
        if slot.phase() == Phase::Warm {
            return self.settle_warm(slot, &outcome);
        }
        if slot.phase() == Phase::Established && slot.has(Flag::Untouched) {
            let of_plain = matches!(outcome, Outcome::Continues | Outcome::PlainFailed(_));
            if !of_plain || slot.tls.peer_closed() {
                return self.leave_behind(slot, &outcome);
            }
        }
        // Passing an end on may fail too; each failure moves the phase on, so this ends.
        loop {
            if matches!(outcome, Outcome::TlsTruncated)
                && self.truncation(slot) == Truncation::Close
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
            match close::pass_ends(slot, self.tools) {
                Ok(()) => break,
                Err(failed) => outcome = failed,
            }
        }
        if slot.phase() == Phase::Draining {
            let out_of_time = slot.active_until_ms() + self.limits.drain_timeout_ms <= self.now_ms;
            return close::drain(slot, self.tools, out_of_time);
        }
        let over = close::is_over(slot);
        if over {
            self.end(slot, Ending::Clean);
        }
        over
    }

    fn abort(&mut self, slot: &mut Slot, outcome: &Outcome) {
        if matches!(slot.phase(), Phase::Draining | Phase::Free) {
            return;
        }
        drop_introduction(slot);
        slot.clear(Flag::Paced);
        if let Outcome::PlainFailed(_) = outcome
            && interest::reads_plain(slot)
        {
            // What the plain side said before it failed may still be in the queue.
            let _ = sealing::plain_readable(slot, self.tools);
        }
        let ending = close::begin_abort(slot, self.tools, outcome);
        if self.truncation(slot) == Truncation::Close && ending != Ending::Refused {
            slot.clear(Flag::ResetPlain);
        }
        self.report(slot, outcome, ending);
        self.end(slot, ending);
    }

    /// What an end without close_notify means: by a client, or by a backend.
    fn truncation(&self, slot: &Slot) -> Truncation {
        match &self.route.backend_tls {
            Some(tls) if slot.tls.role() == Role::Client => tls.truncation,
            _ => self.route.truncation,
        }
    }

    fn report(&mut self, slot: &Slot, outcome: &Outcome, ending: Ending) {
        let fd = slot.tls_fd();
        let now_ms = self.now_ms;
        self.bursts.note(Subject::of(ending), now_ms, |more| {
            tracing::info!(peer = %peer_name(&self.tools.io, fd), more, "connection aborted: {outcome}");
        });
    }

    /// Counts how the connection ended; from now on it only drains.
    pub(crate) fn end(&mut self, slot: &mut Slot, ending: Ending) {
        self.tools.count.add(ending.count(), 1);
        slot.active_s = self.now_s();
    }

    pub(crate) fn now_s(&self) -> u32 {
        (self.now_ms / 1000) as u32
    }
}

/// An error, or a hang-up in both directions: reported whatever is waited for.
pub(crate) fn is_broken(event: Event) -> bool {
    event.is_error() || event.is_hung_up()
}

/// To a backend that is not connected yet nothing needs to be said any more.
fn drop_introduction(slot: &mut Slot) {
    if slot.phase() == Phase::Connecting {
        slot.clear(Flag::OpeningBlocked);
    }
}
