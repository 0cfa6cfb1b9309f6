//! One TLS connection of the demo, seen from the client. At rest it is a record state and a
//! descriptor, as in the gateway; the engine does the handshake.

use std::io;
use std::time::{Duration, Instant};

use dormouse_engine::stream::{Connection, End, Event as TlsEvent};
use dormouse_engine::{ClientContext, HandshakeLimits, UnixTime, alert_name};
use dormouse_reactor::poller::{Event, Interest, Poller};
use dormouse_reactor::socket::{self, Addr, Attempt, ConnectOptions};
use dormouse_reactor::{Fd, OnExec};
use dormouse_record::State;

use super::children::SERVER_NAME;

/// Room for the bytes of one receive.
pub(super) const SCRATCH_LEN: usize = 96 * 1024;

/// What all connections share.
pub(super) struct Tools {
    pub(super) poller: Poller,
    pub(super) context: ClientContext,
    pub(super) scratch: Vec<u8>,
}

/// A connection.
pub(super) struct Client {
    tls: State,
    fd: Fd,
    token: u64,
    pub(super) phase: Phase,
    /// Empty at rest.
    connection: Connection,
    /// Whether the socket did not take all bytes.
    is_blocked: bool,
    /// When the last echo was complete.
    pub(super) answered: Option<Instant>,
    /// Whether no echo has arrived since the workers were killed.
    pub(super) unheard: bool,
}

/// The phase of a connection.
pub(super) enum Phase {
    /// Not opened yet.
    Unopened,
    Connecting,
    Handshaking,
    AtRest,
    /// A message was sent; its echo is not complete.
    Awake(Box<Exchange>),
    /// Lost, or its echo was wrong.
    Lost,
    /// Closed at the end of the demo.
    Closed,
}

/// A message on its way out and back.
pub(super) struct Exchange {
    message: Vec<u8>,
    heard: usize,
    pub(super) began: Instant,
}

/// The result of an event.
pub(super) enum ClientEvent {
    /// Nothing to count yet.
    Progress,
    /// The handshake is done.
    Established {
        /// What was negotiated, in words.
        agreed: String,
    },
    /// The echo is complete and correct.
    Answered { began: Instant, bytes: usize },
}

/// A failure of a connection, in words.
pub(super) enum Failure {
    /// The connection was lost, or could not be established.
    Gone(String),
    /// Bytes arrived that were not sent.
    Wrong(String),
}

type Outcome<T> = Result<T, Failure>;

impl Client {
    pub(super) fn new(token: u64) -> Client {
        Client {
            tls: State::empty(),
            fd: Fd::NONE,
            token,
            phase: Phase::Unopened,
            connection: Connection::default(),
            is_blocked: false,
            answered: None,
            unheard: false,
        }
    }

    /// Begins to connect.
    pub(super) fn open(&mut self, target: &Addr, tools: &Tools) -> Outcome<()> {
        let options = ConnectOptions {
            on_exec: OnExec::Close,
            ..ConnectOptions::default()
        };
        self.fd = socket::connect(target, &options)
            .map_err(failed_at("connect"))?
            .fd();
        self.phase = Phase::Connecting;
        // The poller reports a connection at once that is established already.
        tools
            .poller
            .add(self.fd, self.token, Interest::WRITE)
            .map_err(failed_at("epoll"))
    }

    /// Sends a message.
    pub(super) fn wake(&mut self, message: Vec<u8>, tools: &Tools) -> Outcome<()> {
        self.connection
            .send(&mut self.tls, &message)
            .map_err(failed_at("sealing"))?;
        let began = Instant::now();
        self.phase = Phase::Awake(Box::new(Exchange {
            message,
            heard: 0,
            began,
        }));
        self.flush(tools)
    }

    /// Handles an event of the socket.
    pub(super) fn on_event(&mut self, event: Event, tools: &mut Tools) -> Outcome<ClientEvent> {
        match self.phase {
            Phase::Unopened | Phase::Lost | Phase::Closed => Ok(ClientEvent::Progress),
            Phase::Connecting => self.connected(tools),
            Phase::Handshaking | Phase::AtRest | Phase::Awake(_) => {
                if event.is_writable() {
                    self.flush(tools)?;
                }
                if event.is_readable() {
                    return self.receive(tools);
                }
                Ok(ClientEvent::Progress)
            }
        }
    }

    /// Closes the connection, with close_notify if it is established.
    pub(super) fn close(&mut self) {
        if matches!(self.phase, Phase::AtRest | Phase::Awake(_)) {
            self.connection.close(&mut self.tls);
            let _ = socket::send(self.fd, self.connection.output());
            self.phase = Phase::Closed;
        }
        self.tls.wipe();
        self.fd.close();
        self.fd = Fd::NONE;
    }

    fn connected(&mut self, tools: &Tools) -> Outcome<ClientEvent> {
        socket::take_error(self.fd).map_err(failed_at("connect"))?;
        socket::set_nodelay(self.fd, true).map_err(failed_at("connect"))?;
        tools
            .poller
            .modify(self.fd, self.token, Interest::READ)
            .map_err(failed_at("epoll"))?;
        let connection =
            Connection::client(&tools.context, SERVER_NAME, HandshakeLimits::default());
        self.connection = connection.map_err(failed_at("handshake"))?;
        self.phase = Phase::Handshaking;
        self.take_received(&mut [])?;
        self.flush(tools)?;
        Ok(ClientEvent::Progress)
    }

    fn receive(&mut self, tools: &mut Tools) -> Outcome<ClientEvent> {
        let place = match self.phase {
            Phase::Handshaking => "handshake",
            _ => "lost",
        };
        let count = match socket::recv(self.fd, &mut tools.scratch).map_err(failed_at(place))? {
            Attempt::WouldBlock => return Ok(ClientEvent::Progress),
            Attempt::Done(0) => return Err(failed_at(place)("the server closed the connection")),
            Attempt::Done(count) => count,
        };
        let received = tools.scratch.get_mut(..count).unwrap_or_default();
        let event_result = self.take_received(received)?;
        self.flush(tools)?;
        Ok(event_result)
    }

    fn take_received(&mut self, mut input: &mut [u8]) -> Outcome<ClientEvent> {
        let mut established = None;
        loop {
            let now = UnixTime::now();
            match self.connection.handle(&mut self.tls, now, &mut input) {
                TlsEvent::InputUsed => break,
                TlsEvent::Established(info) => {
                    self.phase = Phase::AtRest;
                    let group = info.group.unwrap_or("no group");
                    let agreed = format!("{}, {}, {group}", info.protocol, info.suite);
                    established = Some(ClientEvent::Established { agreed });
                }
                TlsEvent::Data(plaintext) => compare_echo(&mut self.phase, plaintext)?,
                // Tickets are ignored: every handshake must be a full one.
                TlsEvent::Ticket(_) => {}
                TlsEvent::Ended(end) => return Err(lost(end)),
            }
        }
        Ok(established.unwrap_or_else(|| self.settle()))
    }

    /// Goes to rest when the echo is complete.
    fn settle(&mut self) -> ClientEvent {
        let Phase::Awake(exchange) = &self.phase else {
            return ClientEvent::Progress;
        };
        if exchange.heard < exchange.message.len() {
            return ClientEvent::Progress;
        }
        let event_result = ClientEvent::Answered {
            began: exchange.began,
            bytes: exchange.message.len(),
        };
        self.phase = Phase::AtRest;
        self.answered = Some(Instant::now());
        self.unheard = false;
        event_result
    }

    /// Sends as much as the socket takes.
    fn flush(&mut self, tools: &Tools) -> Outcome<()> {
        while !self.connection.output().is_empty() {
            match socket::send(self.fd, self.connection.output()).map_err(failed_at("lost"))? {
                Attempt::Done(count) => self.connection.output_sent(count),
                Attempt::WouldBlock => break,
            }
        }
        let is_blocked = !self.connection.output().is_empty();
        if is_blocked != self.is_blocked {
            let interest = Interest::READ.with(Interest::WRITE, is_blocked);
            tools
                .poller
                .modify(self.fd, self.token, interest)
                .map_err(failed_at("epoll"))?;
            self.is_blocked = is_blocked;
        }
        Ok(())
    }
}

impl Exchange {
    /// Returns how long the exchange has taken.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }
}

/// Compares received bytes with the message, byte for byte.
fn compare_echo(phase: &mut Phase, plaintext: &[u8]) -> Outcome<()> {
    if plaintext.is_empty() {
        return Ok(());
    }
    let Phase::Awake(exchange) = phase else {
        let what = format!("received {} bytes that were not sent", plaintext.len());
        return Err(Failure::Wrong(what));
    };
    let end = exchange.heard + plaintext.len();
    match exchange.message.get(exchange.heard..end) {
        Some(said) if said == plaintext => {
            exchange.heard = end;
            Ok(())
        }
        Some(_) => Err(Failure::Wrong(
            "an echo differs from the message".to_owned(),
        )),
        None => Err(Failure::Wrong(
            "an echo is longer than the message".to_owned(),
        )),
    }
}

fn lost(end: End) -> Failure {
    match end {
        End::Closed => {
            failed_at("lost")("the server closed the connection with close_notify".to_owned())
        }
        End::Truncated => failed_at("lost")(end.to_string()),
        End::Alert(number) => failed_at("lost")(format!("fatal alert: {}", alert_name(number))),
        End::Refused(refusal) => failed_at("record refused")(refusal.reason.to_string()),
        End::Handshake(failure) => failed_at("handshake")(failure.reason),
    }
}

/// Returns a function that puts the place before an error.
fn failed_at<E: std::fmt::Display>(place: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure::Gone(format!("{place}: {error}"))
}

/// Watches a descriptor that is not a connection.
pub(super) fn watch(poller: &Poller, fd: Fd, token: u64) -> io::Result<()> {
    poller.add(fd, token, Interest::READ)
}
