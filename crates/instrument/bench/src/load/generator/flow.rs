//! The life of one established connection: exchanges, rest, close.

use std::time::{Duration, Instant};

use dormouse_reactor::Fd;
use dormouse_reactor::poller::{Event, Interest};
use dormouse_reactor::socket::{self, Attempt};

use super::super::connection::{ActiveConnection, ConnectionState};
use super::super::exchange::{Exchange, ExchangeState};
use super::super::job::Job;
use super::super::orders::Traffic;
use super::super::wire::{self, Received};
use super::Generator;
use super::outcome::{FlowResult, NextAction, connect_words};

/// Maximum receives and sends per event, so that a busy connection does not starve others.
const ROUNDS_PER_EVENT: usize = 8;
/// How long a connection without an exchange is kept for a ticket.
const TICKET_WAIT: Duration = Duration::from_secs(1);
/// The same after the server has answered something: servers send tickets before that, or not at
/// all.
const LATE_TICKET_WAIT: Duration = Duration::from_millis(50);

impl Generator {
    /// Handles an event of a connection.
    pub(super) fn on_event(&mut self, index: u32, event: Event) {
        if !self.slots.is_live(index) {
            return;
        }
        let active = self.active.get_mut(index as usize).and_then(Option::take);
        let mut active =
            active.unwrap_or_else(|| Box::new(ActiveConnection::at_rest(Instant::now())));
        let outcome = self.step(index, &mut active, event);
        self.settle(index, active, outcome);
    }

    fn step(&mut self, index: u32, active: &mut ActiveConnection, event: Event) -> FlowResult {
        match active.step {
            ConnectionState::Connecting => {
                let fd = self.fd(index)?;
                socket::take_error(fd).map_err(|error| connect_words(&error))?;
                self.connected(index, active)
            }
            ConnectionState::StartingTls(_) => {
                self.starttls_step(index, active, event.is_readable())
            }
            ConnectionState::Handshaking => self.handshake_step(index, active, event),
            ConnectionState::Established | ConnectionState::AwaitingTicket => {
                if event.is_readable() && self.read(index, active)? == NextAction::Close {
                    return Ok(NextAction::Close);
                }
                self.push(index, active)
            }
        }
    }

    /// Decides what a connection does next, when it is established and after each exchange.
    pub(super) fn next_exchange(&mut self, active: &mut ActiveConnection) -> FlowResult {
        let now = Instant::now();
        active.deadline = Some(self.deadline(now));
        if !active.greeted && matches!(self.setup.talk, Traffic::Message { greeting: true, .. }) {
            active.exchange = Some(Exchange::greeting(now));
            return Ok(NextAction::Wait);
        }
        let cycles = matches!(self.job, Some(Job::Cycle(_)));
        if !active.greeted
            && !cycles
            && let Traffic::Http { any_status, .. } = self.setup.talk
        {
            // To an HTTP server, a connection without a request is not quiet but late: Apache keeps
            // a thread for it, others a timer. So a held connection has had its first answer.
            active.exchange =
                Some(Exchange::http(self.message.clone(), any_status, now).of_opening());
            return Ok(NextAction::Wait);
        }
        let (wanted, bulk_bytes) = match &mut self.job {
            Some(Job::Cycle(cycle)) => {
                let wanted = match cycle.spec.exchanges {
                    None => !cycle.is_enough(&self.tally, now),
                    Some(exchanges) => active.exchanges_done < exchanges,
                };
                cycle.exchanges_begun += u64::from(wanted);
                (wanted, cycle.spec.bulk_bytes)
            }
            // Held connections rest.
            _ => {
                active.deadline = None;
                return Ok(NextAction::Wait);
            }
        };
        if wanted {
            active.exchange = self.exchange(bulk_bytes, now);
        } else if active.tls.awaits_tickets() {
            active.step = ConnectionState::AwaitingTicket;
            let wait = match active.exchanges_done {
                0 => TICKET_WAIT,
                _ => LATE_TICKET_WAIT,
            };
            active.deadline = Some(self.deadline(now).min(now + wait));
        } else {
            return Ok(NextAction::Close);
        }
        Ok(NextAction::Wait)
    }

    /// Receives and handles bytes.
    fn read(&mut self, index: u32, active: &mut ActiveConnection) -> FlowResult {
        let fd = self.fd(index)?;
        for _ in 0..ROUNDS_PER_EVENT {
            let count = match socket::recv(fd, &mut self.scratch) {
                Ok(Attempt::WouldBlock) => break,
                Ok(Attempt::Done(0)) => {
                    return self.ended(active, "the server closed the connection");
                }
                Ok(Attempt::Done(count)) => count,
                Err(error) => return self.ended(active, &format!("connection lost: {error}")),
            };
            if self.take_received(index, active, count)? == NextAction::Close {
                return Ok(NextAction::Close);
            }
            if count < self.scratch.len() {
                break;
            }
        }
        Ok(NextAction::Wait)
    }

    /// Takes `count` new bytes from the scratch buffer.
    pub(super) fn take_received(
        &mut self,
        index: u32,
        active: &mut ActiveConnection,
        count: usize,
    ) -> FlowResult {
        let Some(slot) = self.slots.get_mut(index) else {
            return Ok(NextAction::Wait);
        };
        let bytes = self.scratch.get_mut(..count).unwrap_or_default();
        let mut plaintext = ReceivedPlaintext::default();
        let exchange = &mut active.exchange;
        let received = if self.tls.is_some() {
            wire::receive(&mut active.tls, &mut slot.tls, bytes, |plain| {
                plaintext.take(exchange, plain)
            })?
        } else {
            plaintext.take(exchange, bytes)?;
            Received::All
        };
        self.tally.bytes_heard += plaintext.bytes;
        if active.deadline.is_some() {
            active.deadline = Some(self.deadline(Instant::now()));
        }
        let awaits = matches!(active.step, ConnectionState::AwaitingTicket);
        if awaits && !active.tls.awaits_tickets() {
            return Ok(NextAction::Close);
        }
        if let Some(reusable) = plaintext.done {
            self.exchange_done(active);
            if !reusable && !matches!(self.job, Some(Job::Messages(_))) {
                return Ok(NextAction::Close);
            }
            if self.next_exchange(active)? == NextAction::Close {
                return Ok(NextAction::Close);
            }
        }
        if matches!(received, Received::Ended) {
            return self.ended(active, "the server closed the connection");
        }
        Ok(NextAction::Wait)
    }

    fn exchange_done(&mut self, active: &mut ActiveConnection) {
        let Some(exchange) = active.exchange.take() else {
            return;
        };
        let latency = exchange.started.elapsed();
        if exchange.opening {
            active.greeted = true;
            let name = match &self.setup.talk {
                Traffic::Http { .. } => "first request",
                Traffic::Message { .. } => "greeting",
            };
            return self.record(name, latency);
        }
        active.exchanges_done += 1;
        self.tally.answers += 1;
        self.failures_in_row = 0;
        let name = match &mut self.job {
            Some(Job::Messages(speak)) => {
                speak.unanswered = speak.unanswered.saturating_sub(1);
                speak.spec.name.clone()
            }
            _ if matches!(self.setup.talk, Traffic::Http { .. }) => "request".to_owned(),
            _ => "exchange".to_owned(),
        };
        self.record(&name, latency);
    }

    /// Handles the end of the connection by the server.
    fn ended(&mut self, active: &mut ActiveConnection, words: &str) -> FlowResult {
        if matches!(active.step, ConnectionState::AwaitingTicket) {
            return Ok(NextAction::Close);
        }
        let Some(exchange) = &mut active.exchange else {
            return Err(words.to_owned());
        };
        match exchange.take_end() {
            Ok(ExchangeState::Done { .. }) => {
                self.exchange_done(active);
                Ok(NextAction::Close)
            }
            Ok(ExchangeState::Open) => Err(words.to_owned()),
            Err(reason) if words.starts_with("the server closed") => Err(reason),
            Err(_) => Err(words.to_owned()),
        }
    }

    /// Sends as much as the socket takes.
    pub(super) fn push(&mut self, index: u32, active: &mut ActiveConnection) -> FlowResult {
        for _ in 0..ROUNDS_PER_EVENT {
            if active.unsent().is_empty() && !self.queue_more(index, active)? {
                break;
            }
            match socket::send(self.fd(index)?, active.unsent()) {
                Ok(Attempt::WouldBlock) => {
                    self.watch(index, active, true)?;
                    return Ok(NextAction::Wait);
                }
                Ok(Attempt::Done(count)) => active.sent(count),
                Err(error) => return Err(format!("connection lost: {error}")),
            }
        }
        let more = !active.unsent().is_empty()
            || active
                .exchange
                .as_ref()
                .is_some_and(|exchange| exchange.bytes_to_send() > 0);
        self.watch(index, active, more)?;
        let state_when_sent = active.unsent().is_empty()
            && active.exchange.as_ref().map(Exchange::state_when_sent)
                == Some(ExchangeState::Done { reusable: true });
        if state_when_sent {
            self.exchange_done(active);
            return self.next_exchange(active);
        }
        Ok(NextAction::Wait)
    }

    /// Puts the next bytes to send into `out`. Returns `false` if there are none.
    fn queue_more(&mut self, index: u32, active: &mut ActiveConnection) -> Result<bool, String> {
        let Some(exchange) = &mut active.exchange else {
            return Ok(false);
        };
        let left = exchange.bytes_to_send();
        if left == 0 {
            return Ok(false);
        }
        if active.deadline.is_some() {
            active.deadline = Some(self.deadline(Instant::now()));
        }
        let some = left.min(wire::SEAL_AHEAD as u64) as usize;
        if self.tls.is_some() {
            let Some(slot) = self.slots.get_mut(index) else {
                return Ok(false);
            };
            let sealed = active
                .tls
                .send_with(&mut slot.tls, some, &mut |room| exchange.write_next(room));
            sealed.map_err(|error| format!("sealing: {error}"))?;
        } else {
            exchange.write_next(active.plain_out.grow(some));
        }
        self.tally.bytes_said += left - exchange.bytes_to_send();
        Ok(true)
    }

    /// Stores a connection again, or ends it.
    pub(super) fn settle(
        &mut self,
        index: u32,
        mut active: Box<ActiveConnection>,
        outcome: FlowResult,
    ) {
        let established = self
            .slots
            .get(index)
            .is_some_and(|slot| slot.established != 0);
        let opening = !established
            || active
                .exchange
                .as_ref()
                .is_some_and(|exchange| exchange.opening);
        if let (Ok(NextAction::Wait), Some(place)) = (&outcome, self.active.get_mut(index as usize))
        {
            *place = (!active.can_rest()).then_some(active);
            return self.count_in_flight(index, opening);
        }
        self.count_in_flight(index, false);
        // While all connections close, it does not matter which side closes first: Apache closes
        // idle connections when its threads are busy with closing ones.
        let outcome = match self.job {
            Some(Job::Close) => Ok(NextAction::Close),
            _ => outcome,
        };
        match &outcome {
            Ok(_) => self.tally.closed += 1,
            Err(_) if established => self.tally.lost += 1,
            Err(_) => self.tally.failed += 1,
        }
        self.tally.alive -= u64::from(established);
        if outcome.is_err() {
            self.failures_in_row += 1;
            if let (Some(Job::Messages(speak)), Some(_)) = (&mut self.job, &active.exchange) {
                speak.unanswered = speak.unanswered.saturating_sub(1);
            }
        }
        self.close(index, &mut active, outcome.is_ok());
        if let Err(reason) = outcome {
            self.count_failure(reason);
        }
    }

    /// A connection counts as in flight from its start until it is open, greeting included.
    fn count_in_flight(&mut self, index: u32, opening: bool) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        if !opening && slot.opened == 0 {
            slot.opened = 1;
            self.in_flight = self.in_flight.saturating_sub(1);
        }
    }

    fn close(&mut self, index: u32, active: &mut ActiveConnection, politely: bool) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let (fd, lane) = (slot.fd(), slot.lane);
        if politely && self.tls.is_some() && active.unsent().is_empty() {
            active.tls.close(&mut slot.tls);
            let _ = socket::send(fd, active.unsent());
        }
        slot.tls.wipe();
        if fd.is_some() {
            fd.close();
        }
        self.slots.free(index);
        if let Some(Job::Cycle(cycle)) = &mut self.job {
            cycle.free_lane(lane);
        }
    }

    /// Tells the poller whether to report room to send.
    pub(super) fn watch(
        &mut self,
        index: u32,
        active: &mut ActiveConnection,
        writing: bool,
    ) -> Result<(), String> {
        if writing == active.writing {
            return Ok(());
        }
        let interest = Interest::READ.with(Interest::WRITE, writing);
        let fd = self.fd(index)?;
        self.poller
            .modify(fd, u64::from(index), interest)
            .map_err(|error| format!("epoll: {error}"))?;
        active.writing = writing;
        Ok(())
    }

    pub(super) fn fd(&self, index: u32) -> Result<Fd, String> {
        self.slots
            .get(index)
            .map(super::super::connection::Slot::fd)
            .ok_or_else(|| "the generator lost a slot".into())
    }
}

/// The result of an exchange after plaintext.
#[derive(Default)]
struct ReceivedPlaintext {
    bytes: u64,
    done: Option<bool>,
}

impl ReceivedPlaintext {
    fn take(&mut self, exchange: &mut Option<Exchange>, plain: &[u8]) -> Result<(), String> {
        self.bytes += plain.len() as u64;
        // Unrequested bytes of a server are counted but not checked; after an answer they are an
        // error.
        let Some(exchange) = exchange.as_mut() else {
            return Ok(());
        };
        if plain.is_empty() || (self.done.is_some() && exchange.is_greeting()) {
            return Ok(());
        }
        if let ExchangeState::Done { reusable } = exchange.take_plaintext(plain)? {
            self.done = Some(reusable);
        }
        Ok(())
    }
}
