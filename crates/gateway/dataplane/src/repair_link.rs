//! The worker's end of the channel to the repair process, and which connection has which record.
//!
//! A message is taken from the channel only when the slot says what follows from it, so a successor finds either the
//! message or its consequence. What a worker asks may be lost with the repair process. So each new one, on either side
//! of the channel, is followed by an exchange ([`Subject::Sync`]) after which everything that had no answer is asked again:
//! before that exchange a request could be on its way, and would be handled twice.

use crate::awake::Places;
use crate::io::Io;
use crate::own_ports::PortChoice;
use crate::token;
use dormouse_handover::RestDescriptors;
use dormouse_handover::slot::{SIDES, Side, SideRest, Slot};
use dormouse_reactor::poller::Interest;
use dormouse_reactor::sandbox::OwnPorts;
use dormouse_reactor::slab::Slab;
use dormouse_reactor::socket::{Addr, Attempt, Peer, Shortage};
use dormouse_reactor::{AdoptError, Fd};
use dormouse_rest::{Detail, Message, Phase, RecordsReader, Subject};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

/// Requests to rest that wait for room in the channel. Beyond it, connections stay awake for a while.
const RESTS_UNSENT_MAX: usize = 1024;

/// The way to the repair process.
#[derive(Debug)]
pub(crate) struct RepairLink {
    channel: Fd,
    records: RecordsReader,
    first: u32,
    /// For each record the slot that has it, plus one; 0: none. Unused parts take no memory.
    owners: Vec<u32>,
    /// Records that were used and are free.
    free: Vec<u32>,
    /// The record from which on none was used.
    unused: usize,
    /// Messages that wait until the channel has room.
    unsent: VecDeque<Message>,
    /// The number of the last [`Subject::Sync`].
    sync: u32,
    is_synced: bool,
    /// Whether epoll watches the channel, and for room.
    watched: Option<bool>,
    /// The number of sides abed.
    abed: u32,
    /// The number of sides that were asked to leave the kernel.
    bedding: u32,
    /// The connections that have sockets.
    pub(crate) places: Places,
    /// Ports of connections to backends.
    pub(crate) ports: PortChoice,
}

/// Both addresses of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}

/// The addresses of a TCP connection that has a socket.
pub(crate) fn ends(fd: Fd, io: &impl Io) -> Option<Ends> {
    match (io.local_address(fd), io.peer(fd)) {
        (Ok(Addr::Tcp(local)), Ok(Peer::Tcp(peer))) => Some(Ends { local, peer }),
        _ => None,
    }
}

impl RepairLink {
    /// Takes up the channel and the records of a worker. `started_ms` distinguishes it from its predecessors.
    pub(crate) fn adopt(
        rest: RestDescriptors,
        ports: OwnPorts,
        awake_max: u32,
        started_ms: u64,
    ) -> Result<RepairLink, AdoptError> {
        Ok(RepairLink {
            channel: Fd(rest.channel),
            records: RecordsReader::adopt(Fd(rest.records), rest.records_count)?,
            first: rest.first,
            owners: vec![0; rest.count as usize],
            free: Vec::new(),
            unused: 0,
            unsent: VecDeque::new(),
            sync: started_ms as u32,
            is_synced: false,
            watched: None,
            abed: 0,
            bedding: 0,
            places: Places::new(awake_max),
            ports: PortChoice::from(ports, started_ms),
        })
    }

    /// Finds the records of a predecessor's connections.
    pub(crate) fn restore(&mut self, slots: &Slab<Slot>, io: &impl Io) {
        for (index, slot) in slots.all() {
            if !slot.is_all_abed() {
                self.places.enter(index, slot.route);
            }
            for side in SIDES {
                let rest = slot.side_rest(side);
                self.abed += u32::from(rest == SideRest::Abed);
                self.bedding += u32::from(rest == SideRest::Bedding);
                if matches!(rest, SideRest::Bedding | SideRest::Abed | SideRest::Waking) {
                    self.own(slot.record(side), index);
                    let ends = match self.resting(slot.record(side)) {
                        None if rest != SideRest::Abed => ends(slot.side_fd(side), io),
                        ends => ends,
                    };
                    self.note_port(side, ends, true);
                }
            }
        }
        let used = self.owners.iter().rposition(|owner| *owner != 0);
        self.unused = used.map_or(0, |last| last + 1);
        let unused = self.owners.iter().take(self.unused).enumerate();
        let free = unused.filter(|(_, owner)| **owner == 0);
        self.free = free.map(|(place, _)| self.first + place as u32).collect();
    }

    /// The channel, to be watched.
    pub(crate) fn channel(&self) -> Fd {
        self.channel
    }

    /// Watches the channel: for messages, and for room while messages wait for it.
    pub(crate) fn watch(&mut self, io: &impl Io) -> io::Result<()> {
        let waits = !self.unsent.is_empty();
        let interest = Interest::READ.with(Interest::WRITE, waits);
        match self.watched {
            Some(watched) if watched == waits => return Ok(()),
            Some(_) => io.rewatch(self.channel, token::repair(), interest)?,
            None => match io.watch(self.channel, token::repair(), interest) {
                // A predecessor has watched it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    io.rewatch(self.channel, token::repair(), interest)?;
                }
                watched => watched?,
            },
        }
        self.watched = Some(waits);
        Ok(())
    }

    /// Whether messages wait for room in the channel.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// The number of sides abed.
    pub(crate) fn abed(&self) -> u32 {
        self.abed
    }

    /// Notes that a side has gone to bed, or has left it.
    pub(crate) fn count_abed(&mut self, has_left: bool) {
        self.abed = match has_left {
            true => self.abed.saturating_sub(1),
            false => self.abed + 1,
        };
    }

    /// The number of connections that are about to leave the kernel, if they may.
    pub(crate) fn leaving(&self) -> usize {
        self.bedding as usize
    }

    /// Notes that a side was asked to leave the kernel, or that this was answered.
    pub(crate) fn count_bedding(&mut self, is_answered: bool) {
        self.bedding = match is_answered {
            true => self.bedding.saturating_sub(1),
            false => self.bedding + 1,
        };
    }

    // ---- records ----

    /// The addresses of a connection that rests, or whose peer has reset it.
    pub(crate) fn resting(&self, record: u32) -> Option<Ends> {
        let record = self.records.get(record)?;
        let is_whole = matches!(record.phase(), Phase::Resting | Phase::Waking | Phase::Gone);
        is_whole.then(|| Ends {
            local: record.state.local(),
            peer: record.state.peer(),
        })
    }

    /// Notes whether the port of a connection to a backend rests.
    pub(crate) fn note_port(&mut self, side: Side, ends: Option<Ends>, rests: bool) {
        if let (Side::Plain, Some(Ends { local, peer })) = (side, ends) {
            match rests {
                true => self.ports.note(peer, local),
                false => self.ports.forget(peer, local),
            }
        }
    }

    /// Takes a record for a side of this slot. `None`: there is none, or the channel is not ready.
    pub(crate) fn take_record(&mut self, index: u32) -> Option<u32> {
        if !self.is_synced || self.unsent.len() >= RESTS_UNSENT_MAX {
            return None;
        }
        let record = match self.free.pop() {
            Some(record) => record,
            None if self.unused < self.owners.len() => {
                self.unused += 1;
                self.first + self.unused as u32 - 1
            }
            None => return None,
        };
        self.own(record, index);
        Some(record)
    }

    /// Notes which slot has a record.
    pub(crate) fn own(&mut self, record: u32, index: u32) {
        if let Some(owner) = self.owner_mut(record) {
            *owner = index + 1;
        }
    }

    /// Returns a record that the repair process has freed, or never used.
    pub(crate) fn release(&mut self, record: u32) {
        if let Some(owner) = self.owner_mut(record).filter(|owner| **owner != 0) {
            *owner = 0;
            self.free.push(record);
        }
    }

    /// Gives up the record of a connection that is over. `rest`: where its side is.
    pub(crate) fn forget(&mut self, side: Side, record: u32, rest: SideRest) {
        if rest == SideRest::Abed {
            self.note_port(side, self.resting(record), false);
        }
        self.send_later(Message::new(Subject::Forget, record));
        if rest == SideRest::Bedding {
            self.count_bedding(true);
        }
        match rest {
            SideRest::Abed => {
                self.count_abed(true);
                self.release(record);
            }
            // An answer is on its way, which must not meet another connection. So no other one gets this record.
            _ => self.own(record, u32::MAX - 1),
        }
    }

    /// The slot and the side that have a record.
    pub(crate) fn owner(&self, record: u32, slots: &Slab<Slot>) -> Option<(u32, Side)> {
        let place = record.checked_sub(self.first)? as usize;
        let index = self.owners.get(place)?.checked_sub(1)?;
        let slot = slots.get(index)?;
        let has_it =
            |side: &Side| slot.side_rest(*side) != SideRest::Awake && slot.record(*side) == record;
        SIDES.into_iter().find(has_it).map(|side| (index, side))
    }

    fn owner_mut(&mut self, record: u32) -> Option<&mut u32> {
        let place = record.checked_sub(self.first)? as usize;
        self.owners.get_mut(place)
    }

    // ---- messages ----

    /// Sends a message when the channel has room.
    pub(crate) fn send_later(&mut self, message: Message) {
        self.unsent.push_back(message);
    }

    /// Sends what waits, as far as there is room.
    pub(crate) fn send_unsent(&mut self, slots: &Slab<Slot>, io: &impl Io) -> io::Result<()> {
        if let Some(promise) = self.places.next_promise() {
            self.send_later(Message::new(Subject::Room, promise));
        }
        while let Some(message) = self.unsent.front() {
            let fd = match message.subject {
                Subject::Rest | Subject::Recalled => self.fd_for(message, slots),
                _ => None,
            };
            // The connection has ended since, and its record was given up.
            let is_void = message.subject == Subject::Rest && fd.is_none();
            if !is_void && self.send(*message, fd, io)? == Attempt::WouldBlock {
                break;
            }
            self.unsent.pop_front();
        }
        Ok(())
    }

    fn send(&self, message: Message, fd: Option<Fd>, io: &impl Io) -> io::Result<Attempt<()>> {
        match io.send_to_repair(self.channel, message, fd) {
            // Too many descriptors of this user are on their way, perhaps those of another program. A request to rest
            // without one is refused; the other messages wait.
            Err(error) if Shortage::of(&error).is_some() => match message.subject {
                Subject::Rest => io.send_to_repair(self.channel, message, None),
                _ => Ok(Attempt::WouldBlock),
            },
            sent => sent,
        }
    }

    /// The descriptor that goes with a message.
    fn fd_for(&self, message: &Message, slots: &Slab<Slot>) -> Option<Fd> {
        let (index, side) = self.owner(message.record, slots)?;
        let slot = slots.get(index)?;
        let has_it = match message.subject {
            Subject::Rest => slot.side_rest(side) == SideRest::Bedding,
            _ => message.detail == Detail::Busy && slot.side_rest(side) == SideRest::Waking,
        };
        has_it.then(|| slot.side_fd(side))
    }

    /// Begins an exchange, because one of both processes is new.
    pub(crate) fn begin_sync(&mut self) {
        self.is_synced = false;
        self.places.forget_promise();
        self.sync = self.sync.wrapping_add(1);
        self.send_later(Message::new(Subject::Sync, self.sync));
    }

    /// Ends an exchange. Returns `true` if everything that had no answer must be asked again.
    pub(crate) fn end_sync(&mut self, number: u32) -> bool {
        let is_last = number == self.sync && !self.is_synced;
        self.is_synced |= is_last;
        if is_last {
            self.places.begin_promises();
        }
        is_last
    }
}
