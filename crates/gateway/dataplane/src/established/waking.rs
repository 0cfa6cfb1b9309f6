//! Deep rest: quiet connections leave the kernel, and come back when a packet arrives or the worker needs them.
//!
//! ```text
//!          go_to_bed             Rested               Awake             Go
//!  Awake ────────────> Bedding ─────────> Abed ─────────────> Waking ───────> Awake
//!                         │ refused         │ Gone
//!                         └───> Awake       └──────> Gone: the connection is reset
//! ```
//!
//! Each side of a connection has a state of its own ([`SideRest`]); the client's side goes to bed first. Steps are made
//! only on connections of which all sides are awake. Any other event makes the connection *wanted*, so that its sides are
//! woken; the side that is awake is not watched until then. What the worker wanted to do is done when it is possible:
//! events of sockets and timers come again, and the others are in [`Later`](super::later::Later).
//!
//! No slot is marked busy here. Each change leaves a slot with which a successor can continue, and the repair process'
//! message stays in the channel until then.

use crate::close_reason::CloseReason;
use crate::established::deep_rest::{NEVER, next_side, put_off};
use crate::established::step::Event;
use crate::established::{Connections, interest};
use crate::io::Io;
use crate::repair_link::{RepairLink, ends};
use crate::settings::Settings;
use crate::token::Side;
use crate::traffic;
use crate::workspace::Workspace;
use dormouse_handover::slot::{PlainEnd, SIDES, SideRest, Slot, TimerPurpose, TlsEnd};
use dormouse_reactor::Fd;
use dormouse_rest::{Detail, Message, Subject};
use dormouse_tables::counters::Count;
use std::io;

/// Messages handled per turn.
const MESSAGES_PER_TURN: u32 = 256;

impl Connections {
    /// Notes that a connection needs its sockets, because of an event that cannot be handled now.
    pub(super) fn rouse<I: Io>(
        &mut self,
        index: u32,
        event: &Event,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        let slot = self.slots.at_mut(index);
        self.later.note(index, slot.generation, event);
        if matches!(event, Event::Timer) {
            slot.set_timer_purpose(TimerPurpose::None);
        }
        if !slot.is_wanted() {
            slot.want();
            ask_for_wakes(index, slot, work);
        }
        self.set_timer(index, settings, work.now_ms);
        self.apply_interest(index, work);
        self.send_to_repair(work);
    }

    /// Takes connections that are quiet out of the kernel before their time, while few places are free.
    pub(super) fn rest_early<I: Io>(&mut self, settings: &Settings, work: &mut Workspace<I>) {
        let Some(link) = &mut work.repair else {
            return;
        };
        let (candidates, mut missing) = link.places.candidates(link.leaving(), work.now_ms);
        if candidates.is_empty() {
            return;
        }
        let patience_s = link.places.patience_s();
        let quiet_since_s = work.now_s().saturating_sub(patience_s);
        for index in candidates {
            if missing == 0 {
                break;
            }
            let Some(side) = self.rests_early(index, quiet_since_s, settings, work) else {
                continue;
            };
            if self.verify(index, work) {
                self.put_to_bed(index, side, work);
                if self.slots.get(index).is_some_and(Slot::is_dormant) {
                    missing -= 1;
                    work.count.add(Count::RestsEarly, 1);
                    note_found(work);
                }
            }
            if self.slots.get(index).is_some() {
                self.set_timer(index, settings, work.now_ms);
            }
        }
        self.send_to_repair(work);
    }

    /// The side of a connection that may rest before its time.
    fn rests_early<I>(
        &self,
        index: u32,
        quiet_since_s: u32,
        settings: &Settings,
        work: &Workspace<I>,
    ) -> Option<Side> {
        let slot = self.slots.get(index)?;
        settings
            .route_or_removed(slot.route)
            .lifetime
            .rest_after_ms?;
        let link = work.repair.as_ref()?;
        let is_due = slot.active_s <= quiet_since_s && link.places.is_tried(slot.tried());
        is_due.then(|| next_side(slot)).flatten()
    }

    /// Handles the timer of a connection that may go to bed, or waits to be woken.
    pub(super) fn on_rest_timer<I: Io>(
        &mut self,
        index: u32,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        if !self.verify(index, work) {
            return;
        }
        let slot = self.slots.at_mut(index);
        slot.set_timer_purpose(TimerPurpose::None);
        if slot.is_wanted() {
            // If messages wait for room, so may the last request. The repair process ignores one about a connection that
            // wakes already.
            if !work.repair.as_ref().is_some_and(RepairLink::has_unsent) {
                ask_for_wakes(index, slot, work);
            }
        } else {
            let lifetime = settings.route_or_removed(slot.route).lifetime;
            let is_due = (lifetime.rest_after_ms)
                .is_some_and(|after_ms| u64::from(slot.active_s) * 1000 + after_ms <= work.now_ms);
            if is_due && let Some(side) = next_side(slot) {
                self.put_to_bed(index, side, work);
            }
        }
        self.set_timer(index, settings, work.now_ms);
        self.send_to_repair(work);
    }

    /// Asks the repair process to take a side.
    fn put_to_bed<I: Io>(&mut self, index: u32, side: Side, work: &mut Workspace<I>) {
        let slot = self.slots.at_mut(index);
        let Some(link) = &mut work.repair else {
            slot.set_tried(NEVER);
            return;
        };
        let ends = ends(slot.side_fd(side), &work.io);
        if side == Side::Plain
            && !ends.is_some_and(|ends| link.ports.own.contains(ends.local.port()))
        {
            // No port of ours was free when it was made.
            slot.set_tried(NEVER);
            return;
        }
        let Some(record) = link.take_record(index) else {
            put_off(slot);
            return;
        };
        link.note_port(side, ends, true);
        link.count_bedding(false);
        interest::go_to_bed(slot, &work.io, side, record);
        send(work, Message::new(Subject::Rest, record));
    }

    // ---- messages ----

    /// Handles messages of the repair process.
    pub(crate) fn on_repair<I: Io>(&mut self, settings: &Settings, work: &mut Workspace<I>) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(channel) = work.repair.as_ref().map(RepairLink::channel) else {
                return;
            };
            match work.io.peek_from_repair(channel) {
                Ok(Some((message, fd))) => self.on_message(message, fd, settings, work),
                Ok(None) => break,
                Err(error) => {
                    note_broken(&error, work);
                    return;
                }
            }
            // The slots say by now what follows from it.
            if let Err(error) = work.io.take_from_repair(channel) {
                note_broken(&error, work);
                return;
            }
        }
        self.send_to_repair(work);
    }

    fn on_message<I: Io>(
        &mut self,
        message: Message,
        fd: Option<Fd>,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        let record = message.record;
        let owner = work.repair.as_ref().and_then(|link| {
            let (index, side) = link.owner(record, &self.slots)?;
            Some((index, side, self.slots.at(index).side_rest(side)))
        });
        match (message.subject, owner, fd) {
            (Subject::Awake, Some((index, side, SideRest::Abed)), Some(fd)) => {
                let slot = self.slots.at_mut(index);
                slot.begin_wake(side, fd);
                count_abed(work, true);
                note_woken(Some((index, slot.route)), work);
                // What woke it is a step, and steps need all sides: the other one becomes a socket while this one does.
                if !slot.is_wanted() {
                    slot.want();
                    ask_for_wakes(index, slot, work);
                }
            }
            (Subject::Awake, Some((index, side, SideRest::Abed)), None) => {
                // This process had no room for a descriptor.
                let route = self.slots.at(index).route;
                note_woken(Some((index, route)), work);
                self.lose(index, side, record, settings, work);
            }
            // A predecessor died before it took the message. This is another descriptor of the slot's socket.
            (Subject::Awake, Some((.., SideRest::Waking)), Some(fd)) => {
                note_woken(None, work);
                work.io.close(fd);
            }
            // The connection has ended meanwhile.
            (Subject::Awake, _, Some(fd)) => {
                note_woken(None, work);
                work.io.reset_on_close(fd);
                work.io.close(fd);
            }
            (Subject::Rested, Some((index, side, SideRest::Bedding)), _) => match message.detail {
                Detail::Done => self.on_rested(index, side, settings, work),
                _ => self.on_refused((index, side), message, settings, work),
            },
            (Subject::Go, Some((index, side, SideRest::Waking)), _) => {
                let slot = self.slots.at(index);
                set_options(slot, side, settings, work);
                work.count.add(Count::Wakes, 1);
                self.come_awake(index, side, work);
                self.slots.at_mut(index).set_tried(1);
                self.on_changed(index, settings, work);
            }
            (Subject::Gone, Some((index, side, SideRest::Abed)), _) => {
                self.lose(index, side, record, settings, work);
            }
            (Subject::Recall, owner, _) => {
                let detail = match owner {
                    Some((.., SideRest::Waking | SideRest::Abed)) => Detail::Busy,
                    _ => Detail::Done,
                };
                let recalled = Message::new(Subject::Recalled, record);
                send(work, Message { detail, ..recalled });
            }
            (Subject::Waits, owner, _) => {
                work.count.add(Count::WakesWaited, 1);
                if let Some((index, _, SideRest::Abed)) = owner {
                    self.on_wait(index, settings, work);
                }
            }
            (Subject::Begun, ..) => begin_sync(work),
            (Subject::Synced, ..) => self.on_synced(record, work),
            // About a connection that has ended, or what this worker knows already.
            _ => {}
        }
    }

    /// A side has not left the kernel.
    fn on_refused<I: Io>(
        &mut self,
        (index, side): (u32, Side),
        message: Message,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        count_bedding_answered(work);
        self.come_awake(index, side, work);
        let slot = self.slots.at_mut(index);
        match message.detail {
            Detail::Unable => slot.set_tried(NEVER),
            _ => put_off(slot),
        }
        if message.detail == Detail::NoRoom {
            // Perhaps the record of a connection that was given up with a former repair process.
            send(work, Message::new(Subject::Forget, message.record));
        }
        self.on_changed(index, settings, work);
    }

    /// A side has left the kernel.
    fn on_rested<I: Io>(
        &mut self,
        index: u32,
        side: Side,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        count_bedding_answered(work);
        let slot = self.slots.at_mut(index);
        slot.set_side_rest(side, SideRest::Abed);
        let fd = slot.take_side_fd(side);
        work.io.close(fd);
        count_abed(work, false);
        work.count.add(Count::Rests, 1);
        work.forget_held((index, slot.route));
        if slot.is_wanted() {
            ask_for_wakes(index, slot, work);
        } else {
            slot.set_tried(0);
            if let Some(side) = next_side(slot) {
                self.put_to_bed(index, side, work);
            }
        }
        self.leave_if_abed(index, work);
        self.on_changed(index, settings, work);
    }

    /// Takes the place of a connection that has no socket, unless it waits for one.
    fn leave_if_abed<I>(&self, index: u32, work: &mut Workspace<I>) {
        let is_abed = |slot: &Slot| slot.is_all_abed() && !slot.is_wanted();
        if let Some(link) = &mut work.repair
            && self.slots.get(index).is_some_and(is_abed)
        {
            link.places.leave(index);
        }
    }

    /// A packet has found no place for its connection. If the other side has one, the connection is woken: its place is
    /// there.
    fn on_wait<I: Io>(&mut self, index: u32, settings: &Settings, work: &mut Workspace<I>) {
        let slot = self.slots.at_mut(index);
        let has_place = |link: &RepairLink| link.places.has(index);
        if work.repair.as_ref().is_some_and(has_place) && !slot.is_wanted() {
            slot.want();
            ask_for_wakes(index, slot, work);
            self.on_changed(index, settings, work);
        }
    }

    /// A side has its socket again.
    fn come_awake<I: Io>(&mut self, index: u32, side: Side, work: &mut Workspace<I>) {
        let slot = self.slots.at_mut(index);
        let record = slot.record(side);
        let fd = slot.side_fd(side);
        let cookie = work.io.cookie(fd).unwrap_or(0) as u32;
        slot.wake_up(side, cookie);
        if let Some(link) = &mut work.repair {
            link.note_port(side, ends(fd, &work.io), false);
            link.release(record);
        }
    }

    /// Continues with a connection of which a side has changed.
    fn on_changed<I: Io>(&mut self, index: u32, settings: &Settings, work: &mut Workspace<I>) {
        let Some(slot) = self.slots.get(index) else {
            return;
        };
        if is_over(slot) {
            self.abort(index, work);
            return;
        }
        let later = match slot.is_dormant() {
            true => None,
            false => self.later.take(index, slot.generation),
        };
        self.set_timer(index, settings, work.now_ms);
        self.apply_interest(index, work);
        if let Some(event) = later
            && self.slots.get(index).is_some()
        {
            self.step(index, event, settings, work);
        }
    }

    /// A side is gone for good. The other one is woken to be reset.
    fn lose<I: Io>(
        &mut self,
        index: u32,
        side: Side,
        record: u32,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        let slot = self.slots.at_mut(index);
        slot.set_side_rest(side, SideRest::Gone);
        slot.want();
        if let Some(link) = &mut work.repair {
            link.forget(side, record, SideRest::Abed);
        }
        ask_for_wakes(index, slot, work);
        self.on_changed(index, settings, work);
    }

    /// Ends a connection of which a side is gone: the other one is reset.
    fn abort<I: Io>(&mut self, index: u32, work: &mut Workspace<I>) {
        let slot = self.slots.at_mut(index);
        let reason = match slot.side_rest(Side::Tls) {
            SideRest::Gone => CloseReason::TlsFailed,
            _ => CloseReason::PlainFailed,
        };
        traffic::count_sudden_close(slot, reason, work);
        slot.set_tls_end(TlsEnd::Reset);
        slot.set_plain_end(PlainEnd::Reset);
        self.remove(index, Some(reason), work);
    }

    // ---- after the start of either process ----

    /// Begins the exchange after which everything is asked that had no answer.
    pub(crate) fn greet_repair<I: Io>(&mut self, work: &mut Workspace<I>) {
        if let Some(link) = &mut work.repair {
            link.restore(&self.slots, &work.io);
            begin_sync(work);
            self.send_to_repair(work);
        }
    }

    /// Ends the exchange with this number, and asks everything again that had no answer.
    fn on_synced<I: Io>(&mut self, number: u32, work: &mut Workspace<I>) {
        // Only connections with places can be on their way. One that waits for a place has a timer, which asks.
        let with_places = work.repair.as_mut().and_then(|link| {
            let is_ended = link.end_sync(number);
            is_ended.then(|| link.places.all().to_vec())
        });
        for index in with_places.into_iter().flatten() {
            let slot = self.slots.at(index);
            if !slot.is_dormant() {
                continue;
            }
            for side in SIDES {
                if slot.side_rest(side) == SideRest::Bedding {
                    send(work, Message::new(Subject::Rest, slot.record(side)));
                }
            }
            if slot.is_wanted() {
                ask_for_wakes(index, slot, work);
            }
        }
    }

    /// Sends what waits for room in the channel, and watches for room if some is left.
    fn send_to_repair<I: Io>(&mut self, work: &mut Workspace<I>) {
        let Some(link) = &mut work.repair else {
            return;
        };
        let sent = link.send_unsent(&self.slots, &work.io);
        let watched = sent.and_then(|()| link.watch(&work.io));
        if let Err(error) = watched {
            note_broken(&error, work);
        }
    }
}

/// Whether nothing is left to wait for: a side is gone, and the other one is awake, absent or gone.
fn is_over(slot: &Slot) -> bool {
    let rests = SIDES.map(|side| slot.side_rest(side));
    let is_settled = |rest| matches!(rest, SideRest::Awake | SideRest::Gone);
    rests.contains(&SideRest::Gone) && rests.into_iter().all(is_settled)
}

/// Applies the options of the route, which a new socket does not have.
fn set_options<I: Io>(slot: &Slot, side: Side, settings: &Settings, work: &Workspace<I>) {
    let route = settings.route_or_removed(slot.route);
    let fd = slot.side_fd(side);
    work.io.set_buffers(&route.sockets, fd);
    match side {
        Side::Tls => {
            work.io.set_server_options(&route.sockets, fd);
            work.io.set_client_options(&route.sockets, fd);
        }
        Side::Plain => {
            if let Ok(dormouse_reactor::socket::Peer::Tcp(peer)) = work.io.peer(fd) {
                let backend = dormouse_reactor::socket::Addr::Tcp(peer);
                work.io.set_backend_options(&route.sockets, fd, &backend);
            }
        }
    }
}

/// Asks for the sockets of a connection, if it has a place or one is free. If not, its timer asks again.
fn ask_for_wakes<I>(index: u32, slot: &Slot, work: &mut Workspace<I>) {
    let may_wake = |link: &mut RepairLink| link.places.try_enter(index, slot.route);
    if !work.repair.as_mut().is_some_and(may_wake) {
        return;
    }
    for side in SIDES {
        if slot.side_rest(side) == SideRest::Abed {
            send(work, Message::new(Subject::Wake, slot.record(side)));
        }
    }
}

fn begin_sync<I>(work: &mut Workspace<I>) {
    if let Some(link) = &mut work.repair {
        link.begin_sync();
    }
}

fn send<I>(work: &mut Workspace<I>, message: Message) {
    if let Some(link) = &mut work.repair {
        link.send_later(message);
    }
}

fn count_abed<I>(work: &mut Workspace<I>, has_left: bool) {
    if let Some(link) = &mut work.repair {
        link.count_abed(has_left);
    }
}

fn count_bedding_answered<I>(work: &mut Workspace<I>) {
    if let Some(link) = &mut work.repair {
        link.count_bedding(true);
    }
}

/// Notes that the repair process has made a socket: for this slot, or for one that has ended.
fn note_woken<I>(at: Option<(u32, u16)>, work: &mut Workspace<I>) {
    if let Some(link) = &mut work.repair {
        link.places.note_woken();
        if let Some((index, route)) = at {
            link.places.enter(index, route);
        }
    }
}

fn note_found<I>(work: &mut Workspace<I>) {
    if let Some(link) = &mut work.repair {
        link.places.note_found();
    }
}

/// Main holds both ends of the channel, so this does not happen while it lives.
fn note_broken<I>(error: &io::Error, work: &mut Workspace<I>) {
    tracing::error!(%error, "channel to tcp-repair broken; no connection rests or wakes any more");
    work.repair = None;
}
