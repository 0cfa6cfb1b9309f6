//! Opening a connection: connect, STARTTLS, handshake, negotiated parameters.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use dormouse_engine::stream::Connection;
use dormouse_engine::{HandshakeInfo, HandshakeLimits};
use dormouse_reactor::poller::{Event, Interest};
use dormouse_reactor::socket::{self, Attempt, ConnectOptions, Connecting, Shortage};
use dormouse_reactor::{Fd, OnExec};

use super::super::connection::{ActiveConnection, ConnectionState};
use super::super::job::Job;
use super::super::starttls::Dialogue;
use super::super::wire::{self, Received};
use super::Generator;
use super::outcome::{FlowResult, NextAction, connect_words, handshake_words, starttls_words};

impl Generator {
    /// Opens a connection. Returns `false` if no slot is left.
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
        let mut active = Box::new(ActiveConnection::connecting(now, self.deadline(now)));
        self.in_flight += 1;
        let mut connecting = self.connect(source);
        if let Err(error) = &connecting
            && Shortage::of(error) == Some(Shortage::Ports)
            && self.leave_usual_source()
        {
            connecting = self.connect(self.source());
        }
        let outcome = match connecting {
            Err(error) => Err(connect_words(&error)),
            Ok(connecting) => {
                if let Some(slot) = self.slots.get_mut(index) {
                    slot.fd = connecting.fd().0;
                }
                // Reading too: a stream may always have something to send, after which reading
                // would be added. The poller reports an established connection at once.
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

    fn connect(&self, source: Option<SocketAddr>) -> io::Result<Connecting> {
        let options = ConnectOptions {
            source,
            on_exec: OnExec::Close,
            ..ConnectOptions::default()
        };
        socket::connect(&self.target, &options)
    }

    pub(super) fn connected(&mut self, index: u32, active: &mut ActiveConnection) -> FlowResult {
        let now = Instant::now();
        let fd = self.fd(index)?;
        // A unix socket has no such option.
        let _ = socket::set_nodelay(fd, true);
        self.record("connect", now - active.began);
        (active.began, active.deadline) = (now, Some(self.deadline(now)));
        let Some(tls) = &self.setup.tls else {
            return self.established(index, active);
        };
        if let Some(protocol) = tls.starttls {
            active.step = ConnectionState::StartingTls(Dialogue::new(protocol, &tls.server_name));
            return self.starttls_step(index, active, false);
        }
        self.begin_handshake(index, active)
    }

    /// Continues the plaintext dialogue, and begins the handshake after it.
    pub(super) fn starttls_step(
        &mut self,
        index: u32,
        active: &mut ActiveConnection,
        is_readable: bool,
    ) -> FlowResult {
        let fd = self.fd(index)?;
        let ConnectionState::StartingTls(dialogue) = &mut active.step else {
            return Ok(NextAction::Wait);
        };
        if is_readable {
            match socket::recv(fd, &mut self.scratch).map_err(|error| starttls_words(&error))? {
                Attempt::WouldBlock => {}
                Attempt::Done(0) => {
                    return Err(starttls_words(&"the server closed the connection"));
                }
                Attempt::Done(count) => {
                    dialogue.handle_input(self.scratch.get(..count).unwrap_or_default())?;
                }
            }
        }
        let mut blocked = false;
        while !dialogue.output().is_empty() && !blocked {
            match socket::send(fd, dialogue.output()).map_err(|error| starttls_words(&error))? {
                Attempt::Done(count) => dialogue.output_sent(count),
                Attempt::WouldBlock => blocked = true,
            }
        }
        if dialogue.is_done() {
            self.record("starttls", active.began.elapsed());
            active.began = Instant::now();
            return self.begin_handshake(index, active);
        }
        self.watch(index, active, blocked)?;
        Ok(NextAction::Wait)
    }

    fn begin_handshake(&mut self, index: u32, active: &mut ActiveConnection) -> FlowResult {
        let lane = self.slots.get(index).map_or(0, |slot| slot.lane);
        let Some(contexts) = &mut self.tls else {
            return self.established(index, active);
        };
        let context = contexts.of_lane(lane)?;
        let connection =
            Connection::client(&context, contexts.server_name(), HandshakeLimits::default());
        active.tls = connection.map_err(|error| error.to_string())?;
        active.step = ConnectionState::Handshaking;
        self.take_handshake(index, active, 0)?;
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
            let count = match socket::recv(fd, &mut self.scratch)
                .map_err(|error| handshake_words(&error))?
            {
                Attempt::WouldBlock => return Ok(NextAction::Wait),
                Attempt::Done(0) => {
                    return Err("handshake: the server closed the connection".into());
                }
                Attempt::Done(count) => count,
            };
            if let Some(info) = self.take_handshake(index, active, count)? {
                return self.handshake_done(index, active, &info);
            }
        }
        self.send_handshake(index, active)
    }

    /// Takes `count` bytes from the scratch buffer. An alert to send goes out at once.
    fn take_handshake(
        &mut self,
        index: u32,
        active: &mut ActiveConnection,
        count: usize,
    ) -> Result<Option<Box<HandshakeInfo>>, String> {
        let fd = self.fd(index)?;
        let slot = self.slots.get_mut(index);
        let slot = slot.ok_or("the generator lost a slot")?;
        let bytes = self.scratch.get_mut(..count).unwrap_or_default();
        let taken = wire::receive(&mut active.tls, &mut slot.tls, bytes, |_| Ok(()));
        match taken {
            Ok(Received::Established(info)) => Ok(Some(info)),
            Ok(Received::All | Received::Ended) => Ok(None),
            Err(reason) => {
                let reason: String = reason;
                let _ = socket::send(fd, active.unsent());
                Err(handshake_words(&reason))
            }
        }
    }

    fn send_handshake(&mut self, index: u32, active: &mut ActiveConnection) -> FlowResult {
        let fd = self.fd(index)?;
        let mut blocked = false;
        while !active.unsent().is_empty() && !blocked {
            match socket::send(fd, active.unsent()).map_err(|error| handshake_words(&error))? {
                Attempt::Done(count) => active.sent(count),
                Attempt::WouldBlock => blocked = true,
            }
        }
        self.watch(index, active, blocked)?;
        Ok(NextAction::Wait)
    }

    fn handshake_done(
        &mut self,
        index: u32,
        active: &mut ActiveConnection,
        info: &HandshakeInfo,
    ) -> FlowResult {
        self.record("handshake", active.began.elapsed());
        // Only a cycle connects again and can use a ticket.
        if !matches!(self.job, Some(Job::Cycle(_))) {
            active.tls.ignore_tickets();
        }
        self.tally.resumed += u64::from(info.resumed);
        let group = info
            .group
            .map_or_else(String::new, |group| format!(" {group}"));
        let agreed = format!("{} {}{group}", info.protocol, info.suite);
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
            // The last flight of the handshake, without which the server does not complete it.
            self.push(index, active)?;
            return Ok(NextAction::Close);
        }
        // Bytes after the handshake.
        if self.tls.is_some() && self.take_received(index, active, 0)? == NextAction::Close {
            return Ok(NextAction::Close);
        }
        self.push(index, active)
    }
}
