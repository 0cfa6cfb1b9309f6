//! All clients of the demo: one thread, one epoll.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use dormouse_engine::{ClientContext, ClientSettings, Roots};
use dormouse_reactor::poller::{Events, Poller};
use dormouse_reactor::socket::Addr;
use dormouse_reactor::{Fd, OnExec};

use super::client::{self, Client, ClientEvent, Failure, Phase, SCRATCH_LEN, Tools};
use super::random::Random;

/// Longer than an echo can take, even on a machine that is busy with other things.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of different reasons that are kept.
const REASONS_MAX: usize = 8;
/// The token of the signals.
const SIGNALS: u64 = u64::MAX;

/// The connections and their results.
pub(super) struct Fleet {
    target: Addr,
    tools: Tools,
    events: Events,
    pub(super) random: Random,
    pub(super) clients: Vec<Client>,
    /// Number of connections that were begun; they are opened in order.
    pub(super) begun: usize,
    pub(super) tally: Tally,
    /// What the handshakes negotiated.
    pub(super) agreed: BTreeMap<String, u64>,
    /// What went wrong, and how often.
    pub(super) reasons: BTreeMap<String, u64>,
    /// Facts since the workers were killed.
    pub(super) kill: Option<Kill>,
}

/// Counts since the beginning.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tally {
    /// Connections that could not be established.
    pub(super) failed: u64,
    /// Established connections that were lost.
    pub(super) lost: u64,
    /// Connections with a wrong echo.
    pub(super) wrong: u64,
    /// Correct echoes.
    pub(super) echoes: u64,
    /// Bytes in them.
    pub(super) echo_bytes: u64,
    /// The longest time until an echo was complete.
    pub(super) slowest: Duration,
}

/// Facts since the workers were killed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kill {
    pub(super) at: Instant,
    /// The first echo of a message that was sent after the kill.
    pub(super) first_echo: Option<Duration>,
    /// Connections that waited for an echo at that moment.
    pub(super) awake: u64,
    /// Losses before.
    pub(super) lost_before: u64,
}

/// How many connections are in which phase.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Census {
    pub(super) handshaking: u64,
    pub(super) at_rest: u64,
    pub(super) awake: u64,
    pub(super) lost: u64,
    pub(super) unheard: u64,
    pub(super) closed: u64,
}

impl Fleet {
    /// Returns a fleet without open connections. `certificate` is the one that the server must
    /// have; `signals` becomes readable when the fleet should return early.
    pub(super) fn new(
        count: u32,
        address: &str,
        certificate: &str,
        signals: Fd,
    ) -> Result<Fleet, String> {
        let target = address.parse::<Addr>().map_err(|error| error.to_string())?;
        let mut settings = ClientSettings::new(Roots::Pem(certificate.as_bytes().to_vec()));
        settings.resumption = None;
        let context = ClientContext::new(settings).map_err(|error| error.to_string())?;
        let in_words = |error: io::Error| format!("epoll: {error}");
        let poller = Poller::create(OnExec::Close).map_err(in_words)?;
        client::watch(&poller, signals, SIGNALS).map_err(in_words)?;
        Ok(Fleet {
            target,
            tools: Tools {
                poller,
                context,
                scratch: vec![0; SCRATCH_LEN],
            },
            events: Events::with_capacity(256),
            random: Random::new(),
            clients: (0..u64::from(count)).map(Client::new).collect(),
            begun: 0,
            tally: Tally::default(),
            agreed: BTreeMap::new(),
            reasons: BTreeMap::new(),
            kill: None,
        })
    }

    /// Waits for events for a moment, and handles them.
    pub(super) fn turn(&mut self, timeout_ms: u64) -> io::Result<()> {
        self.tools.poller.wait(&mut self.events, Some(timeout_ms))?;
        for at in 0..self.events.len() {
            let Some(event) = self.events.get(at) else {
                break;
            };
            let index = usize::try_from(event.token()).unwrap_or(usize::MAX);
            let Some(client) = self.clients.get_mut(index) else {
                continue;
            };
            let outcome = client.on_event(event, &mut self.tools);
            self.settle(index, outcome);
        }
        Ok(())
    }

    /// Begins the next connection.
    pub(super) fn open_next(&mut self) {
        let Some(client) = self.clients.get_mut(self.begun) else {
            return;
        };
        let outcome = client
            .open(&self.target, &self.tools)
            .map(|()| ClientEvent::Progress);
        self.settle(self.begun, outcome);
        self.begun += 1;
    }

    /// Sends a message on a connection. Returns false if the connection is not at rest.
    pub(super) fn wake(&mut self, index: usize) -> bool {
        let Some(client) = self
            .clients
            .get_mut(index)
            .filter(|client| matches!(client.phase, Phase::AtRest))
        else {
            return false;
        };
        let outcome = client
            .wake(self.random.message(), &self.tools)
            .map(|()| ClientEvent::Progress);
        self.settle(index, outcome);
        true
    }

    /// Sends a message on a random connection.
    pub(super) fn wake_any(&mut self) -> bool {
        let index = self.random.below(self.begun);
        self.wake(index)
    }

    /// Closes a connection properly.
    pub(super) fn close(&mut self, index: usize) {
        if let Some(client) = self.clients.get_mut(index) {
            client.close();
        }
    }

    /// Marks all connections as not heard from, until their next echo.
    pub(super) fn expect_all(&mut self) {
        for client in &mut self.clients {
            client.unheard = matches!(client.phase, Phase::AtRest | Phase::Awake(_));
        }
    }

    /// Records that all workers are dead now.
    pub(super) fn note_kill(&mut self, at: Instant) {
        let (awake, lost_before) = (self.census().awake, self.tally.lost);
        self.expect_all();
        self.kill = Some(Kill {
            at,
            first_echo: None,
            awake,
            lost_before,
        });
    }

    /// Gives up connections that have waited for too long.
    pub(super) fn give_up_late(&mut self, now: Instant) {
        for index in 0..self.clients.len() {
            let late = self.clients.get(index).is_some_and(
                |client| matches!(&client.phase, Phase::Awake(exchange) if exchange.age(now) > ANSWER_TIMEOUT),
            );
            if late {
                let words = format!("lost: no echo within {} s", ANSWER_TIMEOUT.as_secs());
                self.settle(index, Err(Failure::Gone(words)));
            }
        }
    }

    pub(super) fn census(&self) -> Census {
        let mut census = Census::default();
        for client in &self.clients {
            match client.phase {
                Phase::Unopened => {}
                Phase::Connecting | Phase::Handshaking => census.handshaking += 1,
                Phase::AtRest => census.at_rest += 1,
                Phase::Awake(_) => census.awake += 1,
                Phase::Lost => census.lost += 1,
                Phase::Closed => census.closed += 1,
            }
            census.unheard += u64::from(client.unheard);
        }
        census
    }

    /// Counts the result of an action.
    fn settle(&mut self, index: usize, outcome: Result<ClientEvent, Failure>) {
        match outcome {
            Ok(ClientEvent::Progress) => {}
            Ok(ClientEvent::Established { agreed }) => *self.agreed.entry(agreed).or_default() += 1,
            Ok(ClientEvent::Answered { began, bytes }) => self.count_echo(began, bytes),
            Err(failure) => self.count_failure(index, failure),
        }
    }

    fn count_echo(&mut self, began: Instant, bytes: usize) {
        let now = Instant::now();
        self.tally.echoes += 1;
        self.tally.echo_bytes += bytes as u64;
        self.tally.slowest = self.tally.slowest.max(now - began);
        if let Some(kill) = self.kill.as_mut().filter(|kill| began >= kill.at) {
            kill.first_echo.get_or_insert(now - kill.at);
        }
    }

    fn count_failure(&mut self, index: usize, failure: Failure) {
        let Some(client) = self.clients.get_mut(index) else {
            return;
        };
        let established = !matches!(
            client.phase,
            Phase::Unopened | Phase::Connecting | Phase::Handshaking
        );
        let reason = match failure {
            Failure::Wrong(reason) => {
                self.tally.wrong += 1;
                reason
            }
            Failure::Gone(reason) if established => {
                self.tally.lost += 1;
                reason
            }
            Failure::Gone(reason) => {
                self.tally.failed += 1;
                reason
            }
        };
        client.phase = Phase::Lost;
        client.unheard = false;
        client.close();
        if self.reasons.len() < REASONS_MAX || self.reasons.contains_key(&reason) {
            *self.reasons.entry(reason).or_default() += 1;
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.clients.iter_mut().for_each(Client::close);
    }
}
