//! A simulated tcp-repair: takes streams out of the kernel and brings them back, in the steps of the real one, and dies
//! between any two of them.

use super::Kernel;
use super::descriptors::File;
use super::errno::{self, error};
use super::repair::{CHANNEL, Death, Process, Repair};
use super::stream::{EndId, Phase as StreamPhase};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Attempt;
use dormouse_reactor::tcp_state::TcpState;
use dormouse_rest::{Detail, Message, Phase, Record, Subject};
use std::io;

/// Time until a peer repeats a packet.
const REPEAT_US: u64 = 200_000;

/// Calls of the worker.
impl Kernel {
    /// Notes the step of a worker's request.
    pub(crate) fn note_rest(&mut self, message: Message, step: u64) {
        if let Some(repair) = &mut self.repair
            && message.subject == Subject::Rest
            && repair.counts.worker_steps[0] == 0
        {
            repair.counts.worker_steps[0] = step;
        }
    }

    /// Notes the step at which a worker takes a message.
    pub(crate) fn note_taken(&mut self, step: u64) {
        if let Some(repair) = &mut self.repair {
            repair.counts.worker_steps[1] = step;
        }
    }

    fn repair_of(&mut self, channel: Fd) -> io::Result<&mut Repair> {
        match self.descriptors.get(channel)? {
            File::Repair => Ok(self.repair.as_mut().expect("the process of the channel")),
            _ => Err(error(errno::BAD_DESCRIPTOR)),
        }
    }

    pub(crate) fn send_to_repair(
        &mut self,
        channel: Fd,
        message: Message,
        fd: Option<Fd>,
    ) -> io::Result<Attempt<()>> {
        let end = fd.map(|fd| self.end_of(fd)).transpose()?;
        let refused = self.happens(self.faults.would_block);
        let repair = self.repair_of(channel)?;
        if refused || !repair.is_writable() {
            return Ok(Attempt::WouldBlock);
        }
        repair.to_repair.push_back((message, end));
        self.streams.changes += 1;
        Ok(Attempt::Done(()))
    }

    pub(crate) fn peek_from_repair(
        &mut self,
        channel: Fd,
    ) -> io::Result<Option<(Message, Option<Fd>)>> {
        let next = self.repair_of(channel)?.to_worker.front().copied();
        let Some((message, end)) = next else {
            return Ok(None);
        };
        let open = |end| self.descriptors.open(File::Stream(end)).ok();
        Ok(Some((message, end.and_then(open))))
    }

    pub(crate) fn take_from_repair(&mut self, channel: Fd) -> io::Result<()> {
        let taken = self.repair_of(channel)?.to_worker.pop_front();
        self.streams.changes += 1;
        if let Some((_, Some(end))) = taken {
            self.note_closed(end);
        }
        Ok(())
    }
}

/// The process.
impl Kernel {
    /// Opens the worker's channel.
    pub(crate) fn open_repair(&mut self) -> io::Result<Fd> {
        self.descriptors.open(File::Repair)
    }

    /// Whether somebody has a descriptor of this socket.
    pub(super) fn is_held(&self, end: EndId) -> bool {
        let mut all = self.descriptors.all();
        all.any(|(_, file)| file == File::Stream(end))
            || self
                .repair
                .as_ref()
                .is_some_and(|repair| repair.carries(end))
    }

    /// Notes that one descriptor of a silent socket is closed. With the last one a mute socket goes, without a packet.
    pub(super) fn note_closed(&mut self, end: EndId) {
        if self.is_held(end) {
            return;
        }
        let Some(repair) = &mut self.repair else {
            return;
        };
        if repair.mute.remove(&end) {
            match repair.table.contains(&end) {
                true => drop(repair.out.insert(end)),
                // Its packets meet nobody.
                false => self.streams.reset(end),
            }
        } else if !repair.out.contains(&end) {
            self.streams.close(end);
            self.note_undelivered(end);
            self.note_undelivered(end.other());
        }
    }

    /// Whether the socket of an end has no voice.
    pub(crate) fn is_silent(&self, end: EndId) -> bool {
        self.repair
            .as_ref()
            .is_some_and(|repair| repair.is_silent(end))
    }

    /// Lets the process handle what has come: messages, and packets for connections that rest.
    pub(crate) fn run_repair(&mut self) {
        let Some(mut repair) = self.repair.take() else {
            return;
        };
        let before = (repair.counts.steps, repair.to_repair.len());
        let done = self.turn_of_repair(&mut repair);
        if before != (repair.counts.steps, repair.to_repair.len()) {
            self.streams.changes += 1;
        }
        self.repair = Some(repair);
        if done.is_err() {
            self.replace_repair();
        }
    }

    fn turn_of_repair(&mut self, repair: &mut Repair) -> Result<(), Death> {
        repair.send_unsent()?;
        while repair.process.unsent.len() <= CHANNEL
            && let Some((message, end)) = repair.to_repair.pop_front()
        {
            let handled = self.handle(repair, message, end);
            // What came with the message is closed, also if the process dies.
            if let Some(end) = end {
                self.close_carried(repair, end);
            }
            handled?;
            repair.send_unsent()?;
        }
        let arrived: Vec<EndId> = self.undelivered.iter().map(|end| end.other()).collect();
        let resting: Vec<(u32, EndId)> = (repair.ends.iter())
            .map(|(record, end)| (*record, *end))
            .filter(|(record, end)| {
                repair.phase(*record) == Phase::Resting && repair.table.contains(end)
            })
            .collect();
        for (record, end) in resting {
            if self.streams.phase(end) == StreamPhase::Reset {
                repair.step()?;
                repair.set_phase(record, Phase::Gone);
                repair.out.remove(&end);
                repair.step()?;
                repair.table.remove(&end);
                repair.step()?;
                repair.send(Message::new(Subject::Gone, record));
            } else if arrived.contains(&end) {
                let has_room = repair.process.room.wrapping_sub(repair.process.woken) as i32 > 0;
                if has_room {
                    self.wake(repair, record, end)?;
                } else {
                    let at_us = *repair.repeat_us.get_or_insert(self.clock_us);
                    if at_us <= self.clock_us && repair.process.unsent.is_empty() {
                        repair.step()?;
                        repair.repeat_us = Some(self.clock_us + REPEAT_US);
                        repair.send(Message::new(Subject::Waits, record));
                    }
                }
            }
            repair.send_unsent()?;
        }
        Ok(())
    }

    /// Closes the process' own descriptor of a socket that came with a message.
    fn close_carried(&mut self, repair: &mut Repair, end: EndId) {
        let has_it = |(_, file): (Fd, File)| file == File::Stream(end);
        let is_held = self.descriptors.all().any(has_it) || repair.carries(end);
        if is_held || repair.out.contains(&end) {
            return;
        }
        if repair.mute.remove(&end) {
            match repair.table.contains(&end) {
                true => drop(repair.out.insert(end)),
                false => self.streams.reset(end),
            }
        } else {
            self.streams.close(end);
            self.note_undelivered(end);
            self.note_undelivered(end.other());
        }
    }

    fn handle(
        &mut self,
        repair: &mut Repair,
        message: Message,
        end: Option<EndId>,
    ) -> Result<(), Death> {
        let record = message.record;
        match (message.subject, end) {
            (Subject::Sync, _) => {
                (repair.process.woken, repair.process.room) = (0, 0);
                for record in repair.process.recalled.clone() {
                    repair.send(Message::new(Subject::Recall, record));
                }
                repair.send(Message::new(Subject::Synced, record));
            }
            (Subject::Room, _) => repair.process.room = record,
            (Subject::Rest, Some(end)) => {
                let detail = self.rest(repair, record, end)?;
                repair.step()?;
                repair.send(Message {
                    detail,
                    ..Message::new(Subject::Rested, record)
                });
            }
            (Subject::Wake, None) => {
                if repair.phase(record) == Phase::Resting
                    && let Some(end) = repair.ends.get(&record).copied()
                {
                    self.wake(repair, record, end)?;
                }
            }
            (Subject::Recalled, end)
                if repair.process.recalled.remove(&record)
                    && repair.phase(record) == Phase::Waking =>
            {
                match end {
                    Some(end) => {
                        repair.step()?;
                        repair.mute.remove(&end);
                        self.note_undelivered(end.other());
                        repair.step()?;
                        repair.table.remove(&end);
                        repair.step()?;
                        repair.send(Message::new(Subject::Go, record));
                    }
                    None if message.detail == Detail::Done => {
                        repair.step()?;
                        self.forget(repair, record);
                    }
                    None => repair.set_phase(record, Phase::Resting),
                }
            }
            (Subject::Forget, None) => {
                if let Phase::Resting | Phase::Gone = repair.phase(record) {
                    repair.step()?;
                    self.forget(repair, record);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Frees a record. Packets of a connection that rested are answered with a reset from then on.
    fn forget(&mut self, repair: &mut Repair, record: u32) {
        if let Some(end) = repair.ends.get(&record).copied() {
            repair.table.remove(&end);
            if repair.out.remove(&end) {
                self.streams.reset(end);
            }
        }
        repair.free(record);
    }

    fn rest(&mut self, repair: &mut Repair, record: u32, end: EndId) -> Result<Detail, Death> {
        let is_live = !repair.is_silent(end);
        if repair.phase(record) == Phase::Resting && is_live {
            // That of an earlier connection.
            self.forget(repair, record);
        }
        match repair.phase(record) {
            Phase::Waking | Phase::Gone => return Ok(Detail::NoRoom),
            Phase::Resting => {}
            Phase::Free => {
                let is_quiet = self.streams.is_quiet(end) && !self.happens(3);
                if is_live && !is_quiet {
                    return Ok(Detail::Busy);
                }
                repair.step()?;
                repair.mute.insert(end);
                repair.step()?;
                let [local, peer] = [end, end.other()].map(|end| self.streams.address(end));
                if let Some(place) = repair.records.get_mut(record) {
                    let state = TcpState::invented(local, peer, 1, 1);
                    *place = Record::resting(state, self.clock_us / 1000);
                }
                repair.ends.insert(record, end);
            }
        }
        repair.step()?;
        repair.table.insert(end);
        repair.step()?;
        if repair.mute.remove(&end) {
            repair.out.insert(end);
            repair.counts.rests += 1;
        }
        Ok(Detail::Done)
    }

    /// Makes a record into a socket. Its descriptor is with the worker before it can speak.
    fn wake(&mut self, repair: &mut Repair, record: u32, end: EndId) -> Result<(), Death> {
        if !repair.process.unsent.is_empty() || repair.to_worker.len() >= CHANNEL {
            return Ok(());
        }
        repair.step()?;
        repair.set_phase(record, Phase::Waking);
        repair.step()?;
        repair.out.remove(&end);
        repair.mute.insert(end);
        repair.step()?;
        let awake = Message::new(Subject::Awake, record);
        repair.to_worker.push_back((awake, Some(end)));
        repair.step()?;
        repair.mute.remove(&end);
        self.note_undelivered(end.other());
        repair.step()?;
        repair.table.remove(&end);
        repair.process.woken = repair.process.woken.wrapping_add(1);
        repair.counts.wakes += 1;
        repair.step()?;
        repair.send(Message::new(Subject::Go, record));
        Ok(())
    }

    /// The process dies. Its successor asks for what was waking, and tells again of what has ended.
    fn replace_repair(&mut self) {
        let Some(mut repair) = self.repair.take() else {
            return;
        };
        repair.counts.deaths += 1;
        repair.process = Process::default();
        // A socket that only the process had dies with it.
        let held: Vec<EndId> = repair.mute.iter().copied().collect();
        self.repair = Some(repair);
        let gone: Vec<EndId> = held.into_iter().filter(|end| !self.is_held(*end)).collect();
        let Some(repair) = &mut self.repair else {
            return;
        };
        for end in gone {
            repair.mute.remove(&end);
            repair.out.insert(end);
        }
        repair.send(Message::new(Subject::Begun, 0));
        let records: Vec<u32> = repair.ends.keys().copied().collect();
        for record in records {
            match repair.phase(record) {
                Phase::Gone => repair.send(Message::new(Subject::Gone, record)),
                Phase::Waking => {
                    repair.process.recalled.insert(record);
                    repair.send(Message::new(Subject::Recall, record));
                }
                _ => {}
            }
        }
        self.streams.changes += 1;
    }
}
