//! One step of work on one connection: an event, a timer, an order to stop; and what follows from it.

use super::Limits;
use super::accepting::Pause;
use super::backlog;
use super::bursts::{Bursts, Subject, peer_name};
use super::closing::{self, Ending};
use super::connecting::{self, Connect, Way};
use super::flow::{self, Outcome, Tools};
use super::interest::{self, Side};
use super::introducing::Client;
use super::originating::{Errand, Plain};
use super::reporting::{self, Whose};
use super::{opening, sealing};
use crate::backend_tls::TICKET_WAIT_MS;
use crate::backends::Change;
use crate::config::Truncation;
use crate::counters::Count;
use crate::latency::Latency;
use crate::route::{Direction, Route};
use crate::slot::{Flag, Phase, Slot, TimerPurpose};
use dormouse_engine::Rested;
use dormouse_reactor::Fd;
use dormouse_reactor::poller::{Event, Poller};
use dormouse_reactor::socket::{self, Peer, Shortage};
use dormouse_record::{Alert, Role};
use std::net::IpAddr;
use std::slice::from_ref;

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
    /// Set if the way to the backend is a joint: somebody has to go the rest of it.
    pub(super) joined: Option<Errand>,
    /// A local client whose server has ended the connection before anything passed: it is to get
    /// another one.
    pub(super) left_behind: Option<Plain>,
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
        took_ms: u64,
    ) -> Outcome {
        slot.set_phase(Phase::Warm);
        let Rested {
            unsent,
            leftover,
            info,
            tickets,
        } = rested;
        reporting::count_originated(&info, &self.tools.count);
        let (peer, each) = (peer_name(slot.tls_fd()), self.limits.log_handshakes);
        let whose = Whose {
            peer: &peer,
            id: None,
        };
        reporting::log_done(&info, whose, took_ms, each);
        let wait_ms = match (&self.route.direction, &self.route.backend_tls) {
            (Direction::Originate(origin), _) => Some(origin.ticket_wait_ms),
            (_, Some(_)) => Some(TICKET_WAIT_MS),
            _ => None,
        };
        if let (Some(watch), Some(wait_ms)) = (tickets, wait_ms) {
            let until_ms = self.now_ms + wait_ms;
            self.tools.tickets.expect(slot.generation, watch, until_ms);
        }
        if let Some(plain) = plain {
            attach_plain(slot, plain);
            if plain.is_joined
                && let Err(e) = socket::send(plain.fd, &connecting::CONNECTED)
            {
                return Outcome::PlainFailed(e);
            }
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
        if !slot.has(Flag::OpeningBlocked) {
            slot.set(Flag::Untouched);
        }
        slot.active_s = self.now_s();
        match flow::flush_opened(slot, &mut self.tools.pending) {
            Ok(_) => Outcome::Continues,
            Err(outcome) => outcome,
        }
    }

    /// The handshake is done and the state at rest written: what belongs to the rest of the slot.
    pub(super) fn begin(
        &mut self,
        slot: &mut Slot,
        rested: Rested,
        client: &Client,
        took_ms: u64,
    ) -> Outcome {
        slot.set_phase(Phase::Connecting);
        let id = client.id(self.tools.id_seed, slot);
        let whose = Whose {
            peer: client,
            id: Some(id),
        };
        let each = self.limits.log_handshakes;
        reporting::log_done(&rested.info, whose, took_ms, each);
        // Before the first byte of the client the backend hears who that is.
        let mut first = client.introduction(self.route, slot, &rested.info, id);
        let introduced = first.len();
        first.extend_from_slice(&rested.leftover);
        let pending = &mut self.tools.pending;
        let unsent = &rested.unsent;
        if !unsent.is_empty() && !backlog::store_sealed(slot, pending, unsent) {
            return Outcome::NoPendingMemory;
        }
        let (introduction, rest) = (0..introduced, introduced..first.len());
        if !first.is_empty()
            && !backlog::store_opening(slot, pending, &first, from_ref(&introduction), rest, 0)
        {
            return Outcome::NoPendingMemory;
        }
        if introduced > 0 {
            slot.set(Flag::OpeningBlocked);
        }
        let connect = self.start_connect(slot, client.ip());
        self.connected(slot, connect)
    }

    /// A connection whose TLS is the backend's: what was received goes there first.
    pub(super) fn begin_passing_through(
        &mut self,
        slot: &mut Slot,
        received: &[u8],
        client: &Client,
    ) -> Outcome {
        slot.set(Flag::PassThrough);
        slot.set_phase(Phase::Connecting);
        let mut first = client.bare_introduction(self.route, slot);
        first.extend_from_slice(received);
        let (all, none) = (0..first.len(), first.len()..first.len());
        let pending = &mut self.tools.pending;
        if !backlog::store_opening(slot, pending, &first, from_ref(&all), none, 0) {
            return Outcome::NoPendingMemory;
        }
        slot.set(Flag::OpeningBlocked);
        let connect = self.start_connect(slot, client.ip());
        self.connected(slot, connect)
    }

    fn start_connect(&mut self, slot: &mut Slot, client: Option<IpAddr>) -> Connect {
        self.tools.connects.began(slot.generation, self.now_ms);
        connecting::start(slot, self.way(), client)
    }

    fn way(&self) -> Way<'_> {
        Way {
            route: self.route,
            known: &self.tools.backends,
            own_sources: self.limits.sources,
            now_ms: self.now_ms,
        }
    }

    /// The backend can't be connected to: the next one, if there is one.
    fn try_next(&mut self, slot: &mut Slot, why: &str) -> Option<Connect> {
        self.tools.count.add(Count::BackendConnectsFailed, 1);
        let fd = slot.detach_plain();
        if fd != Fd::NONE {
            fd.close();
        }
        let targets = self.route.targets()?;
        let (known, now_ms) = (&self.tools.backends, self.now_ms);
        // With one backend there is nothing to choose, so its failures change nothing.
        if let Some((_, target)) =
            connecting::current(slot, targets).filter(|_| targets.all.len() > 1)
        {
            let (most, pause_ms) = (targets.failures_max, targets.pause_ms);
            if known.failed(target.place, most, pause_ms, now_ms) == Change::Down {
                tracing::warn!(
                    backend = target.name,
                    error = why,
                    pause_ms,
                    "backend has failed {most} times in a row; it is passed over"
                );
            }
        }
        let next = connecting::next(slot, self.way())?;
        self.tools.count.add(Count::BackendFailovers, 1);
        Some(next)
    }

    fn note_connected(&mut self, slot: &Slot) {
        let took_ms = self.tools.connects.done(slot.generation, self.now_ms);
        if let Some(took_ms) = took_ms.filter(|_| !slot.has(Flag::Echo)) {
            let count = &self.tools.count;
            count.observe(Latency::BackendConnect, took_ms.saturating_mul(1000));
        }
        let Some(targets) = self.route.targets().filter(|targets| targets.all.len() > 1) else {
            return;
        };
        if let Some((_, target)) = connecting::current(slot, targets)
            && self.tools.backends.succeeded(target.place, self.now_ms) == Change::Up
        {
            tracing::info!(backend = target.name, "backend serves again");
        }
    }

    fn connected(&mut self, slot: &mut Slot, mut connect: Connect) -> Outcome {
        // Each backend is tried once at most, so this ends.
        loop {
            let failure = match connect {
                Connect::Done => {
                    self.note_connected(slot);
                    if slot.has(Flag::Joined) && slot.has(Flag::OpeningBlocked) {
                        // The introduction went before the handshake with the backend.
                        let pending = &mut self.tools.pending;
                        let introduced = backlog::opened(slot, pending).len();
                        backlog::opened_sent(slot, pending, introduced);
                    }
                    return self.open_after_flush(slot);
                }
                Connect::UnderWay => return Outcome::Continues,
                Connect::Joined(end) => {
                    self.joined = self.errand(slot, end);
                    return Outcome::Continues;
                }
                Connect::TryAgain(e) if self.may_retry(slot) => {
                    self.pause = match Shortage::of(&e) {
                        Some(Shortage::Descriptors) => Some(Pause::Descriptors),
                        Some(Shortage::Ports) => Some(Pause::Ports),
                        // A backend whose queue is full, or kernel memory: not for us to pause.
                        _ => None,
                    };
                    return Outcome::Continues;
                }
                Connect::TryAgain(e) => {
                    self.backend_down(slot, &e.to_string());
                    return Outcome::Continues;
                }
                Connect::Failed(e) => e.to_string(),
            };
            match self.try_next(slot, &failure) {
                Some(next) => connect = next,
                None => {
                    self.backend_down(slot, &failure);
                    return Outcome::Continues;
                }
            }
        }
    }

    /// What has to be known to connect the other end of a joint with the backend.
    fn errand(&self, slot: &Slot, end: Fd) -> Option<Errand> {
        let known = self
            .route
            .targets()
            .and_then(|targets| connecting::current(slot, targets));
        let name = known.and_then(|(_, target)| {
            let tls = self.route.backend_tls.as_ref()?;
            Some((target, tls.server_name(&target.address)?))
        });
        let Some((target, server_name)) = name else {
            // This end hears of it at once.
            end.close();
            return None;
        };
        Some(Errand {
            end,
            route: slot.route,
            address: target.address.clone(),
            server_name,
            preface: if slot.has(Flag::OpeningBlocked) {
                backlog::opened(slot, &self.tools.pending).to_vec()
            } else {
                Vec::new()
            },
        })
    }

    /// What waits for the plain side goes first; then what came behind the handshake is opened.
    fn open_after_flush(&mut self, slot: &mut Slot) -> Outcome {
        match flow::flush_opened(slot, &mut self.tools.pending) {
            Ok(true) => opening::open_stored(slot, self.tools),
            Ok(false) => Outcome::Continues,
            Err(outcome) => outcome,
        }
    }

    fn may_retry(&self, slot: &Slot) -> bool {
        let began_ms = u64::from(slot.opened_s) * 1000;
        self.now_ms < began_ms + self.limits.backend_connect_timeout_ms
    }

    /// The client is told in order that there is nothing behind this connection.
    fn backend_down(&mut self, slot: &mut Slot, why: &str) {
        let fd = slot.detach_plain();
        if fd != Fd::NONE {
            fd.close();
        }
        let backend = &self.route.backend_name;
        let told = if slot.has(Flag::PassThrough) {
            "are reset"
        } else {
            "get close_notify"
        };
        self.bursts.note(Subject::BackendDown, self.now_ms, |more| {
            tracing::warn!(%backend, error = why, more,
                "backend can't be reached; its clients {told}");
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
                let client = match Peer::of(slot.tls_fd()) {
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
            TimerPurpose::Idle if self.is_too_old(slot) => {
                self.tools.count.add(Count::TotalTimeouts, 1);
                self.end(slot, Ending::Limit);
                closing::begin_farewell(slot, self.tools);
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
    pub(super) fn close(&mut self, slot: &mut Slot, ending: Ending) -> Outcome {
        if slot.phase() != Phase::Draining {
            drop_introduction(slot);
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

    /// The server has ended a connection in the moment in which it was given away. Nothing was
    /// taken from the client, so it gets another.
    fn leave_behind(&mut self, slot: &mut Slot, outcome: &Outcome) -> bool {
        let plain = Plain {
            fd: slot.plain_fd(),
            is_joined: false,
            is_unix: slot.has(Flag::PlainIsUnix),
        };
        if interest::unwatch(slot, self.poller, Side::Plain).is_ok() {
            slot.detach_plain();
            self.left_behind = Some(plain);
            self.tools.count.add(Count::WarmReplaced, 1);
        }
        self.settle_warm(slot, outcome)
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
        let ending = closing::begin_abort(slot, self.tools, outcome);
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

/// To a backend that is not connected yet nothing needs to be said any more.
fn drop_introduction(slot: &mut Slot) {
    if slot.phase() == Phase::Connecting {
        slot.clear(Flag::OpeningBlocked);
    }
}

fn attach_plain(slot: &mut Slot, plain: Plain) {
    let cookie = socket::cookie(plain.fd).unwrap_or(0) as u32;
    slot.attach_plain(plain.fd, cookie);
    if plain.is_unix {
        slot.set(Flag::PlainIsUnix);
    }
    if plain.is_joined {
        slot.set(Flag::Joined);
    }
    slot.set_phase(Phase::Established);
}
