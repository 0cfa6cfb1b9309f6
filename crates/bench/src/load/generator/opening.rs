//! The beginning of a connection: connect, handshake, and what was agreed on.

use std::time::Instant;

use dormouse_engine::{Handshake, HandshakeLimits, Progress, UnixTime};
use dormouse_reactor::poller::{Event, Interest};
use dormouse_reactor::socket::{self, Attempt, ConnectOptions};
use dormouse_reactor::{Fd, OnExec};

use super::super::connection::{ActiveConnection, ConnectionState, SendBuffer};
use super::super::job::Job;
use super::Generator;
use super::outcome::{FlowResult, NextAction, connect_words, handshake_words};

impl Generator {
    /// Begins a connection; false when there is no slot left.
    pub(super) fn begin(&mut self, lane: u32, now: Instant) -> bool {
        let Some(index) = self.slots.insert() else {
            return false;
        };
        self.tally.begun += 1;
        let source = self.source();
        self.serial += 1;
        if let Some(slot) = self.slots.get_mut(index) {
            (slot.fd, slot.lane, slot.serial) = (Fd::NONE.0, lane, self.serial);
        }
        let options = ConnectOptions {
            source,
            on_exec: OnExec::Close,
            ..ConnectOptions::default()
        };
        let mut active = Box::new(ActiveConnection::connecting(now, now + self.timeout));
        self.in_flight += 1;
        let outcome = match socket::connect(&self.target, &options) {
            Err(error) => Err(connect_words(&error)),
            Ok(connecting) => {
                if let Some(slot) = self.slots.get_mut(index) {
                    slot.fd = connecting.fd().0;
                }
                // Reading too: a stream may never have a moment with nothing to send, after which
                // reading would be added. If it is established already, the poller says so at once.
                let interest = Interest::READ.with(Interest::WRITE, true);
                let watched = self.poller.add(connecting.fd(), u64::from(index), interest);
                active.writing = true;
                watched
                    .map(|()| NextAction::Wait)
                    .map_err(|error| format!("epoll: {error}"))
            }
        };
        self.settle(index, active, outcome);
        true
    }

    pub(super) fn connected(&mut self, index: u32, active: &mut ActiveConnection) -> FlowResult {
        let now = Instant::now();
        let fd = self.fd(index)?;
        // A unix socket has no such option.
        let _ = socket::set_nodelay(fd, true);
        self.record("connect", now - active.began);
        (active.began, active.deadline) = (now, Some(now + self.timeout));
        let lane = self.slots.get(index).map_or(0, |slot| slot.lane);
        let Some(contexts) = &mut self.tls else {
            return self.established(index, active);
        };
        let context = contexts.of_lane(lane)?;
        let handshake =
            Handshake::client(&context, contexts.server_name(), HandshakeLimits::default());
        let mut handshake = Box::new(handshake.map_err(|error| error.to_string())?);
        handshake
            .handle_input(UnixTime::now(), &[])
            .map_err(|failure| handshake_words(&failure.reason))?;
        active.step = ConnectionState::Handshaking(handshake);
        self.send_handshake(index, active)
    }

    pub(super) fn handshake_step(
        &mut self,
        index: u32,
        active: &mut ActiveConnection,
        event: Event,
    ) -> FlowResult {
        let fd = self.fd(index)?;
        if event.is_readable() {
            let ConnectionState::Handshaking(handshake) = &mut active.step else {
                return Ok(NextAction::Wait);
            };
            let count = match socket::recv(fd, &mut self.scratch)
                .map_err(|error| handshake_words(&error))?
            {
                Attempt::WouldBlock => return Ok(NextAction::Wait),
                Attempt::Done(0) => {
                    return Err("handshake: the server closed the connection".into());
                }
                Attempt::Done(count) => count,
            };
            let received = self.scratch.get(..count).unwrap_or_default();
            match handshake.handle_input(UnixTime::now(), received) {
                Ok(Progress::Established) => return self.handshake_done(index, active),
                Ok(Progress::Handshaking) => {}
                Err(failure) => {
                    let _ = socket::send(fd, handshake.output());
                    return Err(handshake_words(&failure.reason));
                }
            }
        }
        self.send_handshake(index, active)
    }

    fn send_handshake(&mut self, index: u32, active: &mut ActiveConnection) -> FlowResult {
        let fd = self.fd(index)?;
        let ConnectionState::Handshaking(handshake) = &mut active.step else {
            return Ok(NextAction::Wait);
        };
        let mut blocked = false;
        while !handshake.output().is_empty() && !blocked {
            match socket::send(fd, handshake.output()).map_err(|error| handshake_words(&error))? {
                Attempt::Done(count) => handshake.output_sent(count),
                Attempt::WouldBlock => blocked = true,
            }
        }
        self.watch(index, active, blocked)?;
        Ok(NextAction::Wait)
    }

    fn handshake_done(&mut self, index: u32, active: &mut ActiveConnection) -> FlowResult {
        self.record("handshake", active.began.elapsed());
        let step = std::mem::replace(&mut active.step, ConnectionState::Established);
        let (ConnectionState::Handshaking(handshake), Some(slot)) =
            (step, self.slots.get_mut(index))
        else {
            return Err("the generator lost a handshake".into());
        };
        let rested = handshake
            .rest(&mut slot.tls)
            .map_err(|failure| handshake_words(&failure.reason))?;
        active.out = SendBuffer::new(rested.unsent);
        active.partial = rested.leftover;
        // Only a cycle comes again and can use a ticket.
        active.tickets = rested
            .tickets
            .filter(|_| matches!(self.job, Some(Job::Cycle(_))));
        self.tally.resumed += u64::from(rested.info.resumed);
        let group = rested
            .info
            .group
            .map_or_else(String::new, |group| format!(" {group}"));
        let agreed = format!("{} {}{group}", rested.info.protocol, rested.info.suite);
        *self.agreed.entry(agreed).or_default() += 1;
        self.established(index, active)
    }

    fn established(&mut self, index: u32, active: &mut ActiveConnection) -> FlowResult {
        active.step = ConnectionState::Established;
        if let Some(slot) = self.slots.get_mut(index) {
            slot.established = 1;
        }
        self.tally.established += 1;
        self.tally.alive += 1;
        if self.next_exchange(active)? == NextAction::Close {
            return Ok(NextAction::Close);
        }
        if !active.partial.is_empty() && self.take_received(index, active, 0)? == NextAction::Close
        {
            return Ok(NextAction::Close);
        }
        self.push(index, active)
    }
}
