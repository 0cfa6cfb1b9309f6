//! One TLS connection of the demo, seen from the client. At rest it is a record state and a
//! descriptor, as it is in the gateway; the handshake is the engine's.

use std::io;
use std::time::{Duration, Instant};

use dormouse_engine::stream::{Connection, End, Event as TlsEvent};
use dormouse_engine::{ClientContext, HandshakeLimits, UnixTime, alert_name};
use dormouse_reactor::poller::{Event, Interest, Poller};
use dormouse_reactor::socket::{self, Addr, Attempt, ConnectOptions};
use dormouse_reactor::{Fd, OnExec};
use dormouse_record::State;

use super::children::SERVER_NAME;

/// Room for what one receive brings.
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
    /// The socket did not take all that there was to send.
    is_blocked: bool,
    /// When the last echo was complete.
    pub(super) answered: Option<Instant>,
    /// The workers were killed, and it has not been heard of since.
    pub(super) unheard: bool,
}

/// How far a connection is.
pub(super) enum Phase {
    /// It does not exist yet.
    Unopened,
    Connecting,
    Handshaking,
    AtRest,
    /// It said something and waits for the echo.
    Awake(Box<Exchange>),
    /// It was lost, or its echo was wrong.
    Lost,
    /// It was closed in the end, as it should be.
    Closed,
}

/// A message on its way out and back.
pub(super) struct Exchange {
    message: Vec<u8>,
    heard: usize,
    pub(super) began: Instant,
}

/// What came of an event.
pub(super) enum Happened {
    /// Nothing that counts yet.
    Progress,
    /// The handshake is done.
    Established {
        /// What was agreed, in words.
        agreed: String,
    },
    /// The echo is complete, and right.
    Answered { began: Instant, bytes: usize },
}

/// What went wrong, in words.
pub(super) enum Mishap {
    /// The connection is gone, or could not be made.
    Gone(String),
    /// Something came that nobody said.
    Wrong(String),
}

type Outcome<T> = Result<T, Mishap>;

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
            .map_err(gone("connect"))?
            .fd();
        self.phase = Phase::Connecting;
        // Of a connection that is there already, the poller tells at once.
        tools
            .poller
            .add(self.fd, self.token, Interest::WRITE)
            .map_err(gone("epoll"))
    }

    /// Says something.
    pub(super) fn wake(&mut self, message: Vec<u8>, tools: &Tools) -> Outcome<()> {
        self.connection
            .send(&mut self.tls, &message)
            .map_err(gone("sealing"))?;
        let began = Instant::now();
        self.phase = Phase::Awake(Box::new(Exchange {
            message,
            heard: 0,
            began,
        }));
        self.flush(tools)
    }

    /// Something happened at the socket.
    pub(super) fn on_event(&mut self, event: Event, tools: &mut Tools) -> Outcome<Happened> {
        match self.phase {
            Phase::Unopened | Phase::Lost | Phase::Closed => Ok(Happened::Progress),
            Phase::Connecting => self.connected(tools),
            Phase::Handshaking | Phase::AtRest | Phase::Awake(_) => {
                if event.is_writable() {
                    self.flush(tools)?;
                }
                if event.is_readable() {
                    return self.receive(tools);
                }
                Ok(Happened::Progress)
            }
        }
    }

    /// Says goodbye if the connection stands, and closes it.
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

    fn connected(&mut self, tools: &Tools) -> Outcome<Happened> {
        socket::take_error(self.fd).map_err(gone("connect"))?;
        socket::set_nodelay(self.fd, true).map_err(gone("connect"))?;
        tools
            .poller
            .modify(self.fd, self.token, Interest::READ)
            .map_err(gone("epoll"))?;
        let connection =
            Connection::client(&tools.context, SERVER_NAME, HandshakeLimits::default());
        self.connection = connection.map_err(gone("handshake"))?;
        self.phase = Phase::Handshaking;
        self.take_received(&mut [])?;
        self.flush(tools)?;
        Ok(Happened::Progress)
    }

    fn receive(&mut self, tools: &mut Tools) -> Outcome<Happened> {
        let place = match self.phase {
            Phase::Handshaking => "handshake",
            _ => "lost",
        };
        let count = match socket::recv(self.fd, &mut tools.scratch).map_err(gone(place))? {
            Attempt::WouldBlock => return Ok(Happened::Progress),
            Attempt::Done(0) => return Err(gone(place)("the server closed the connection")),
            Attempt::Done(count) => count,
        };
        let received = tools.scratch.get_mut(..count).unwrap_or_default();
        let happened = self.take_received(received)?;
        self.flush(tools)?;
        Ok(happened)
    }

    fn take_received(&mut self, mut input: &mut [u8]) -> Outcome<Happened> {
        let mut established = None;
        loop {
            let now = UnixTime::now();
            match self.connection.handle(&mut self.tls, now, &mut input) {
                TlsEvent::InputUsed => break,
                TlsEvent::Established(info) => {
                    self.phase = Phase::AtRest;
                    let group = info.group.unwrap_or("no group");
                    let agreed = format!("{}, {}, {group}", info.protocol, info.suite);
                    established = Some(Happened::Established { agreed });
                }
                TlsEvent::Data(plaintext) => hear(&mut self.phase, plaintext)?,
                // Tickets are of no use here: every handshake is to be a full one.
                TlsEvent::Ticket(_) => {}
                TlsEvent::Ended(end) => return Err(lost(end)),
            }
        }
        Ok(established.unwrap_or_else(|| self.settle()))
    }

    /// Goes to rest when the echo is complete.
    fn settle(&mut self) -> Happened {
        let Phase::Awake(exchange) = &self.phase else {
            return Happened::Progress;
        };
        if exchange.heard < exchange.message.len() {
            return Happened::Progress;
        }
        let happened = Happened::Answered {
            began: exchange.began,
            bytes: exchange.message.len(),
        };
        self.phase = Phase::AtRest;
        self.answered = Some(Instant::now());
        self.unheard = false;
        happened
    }

    /// Sends what the socket takes.
    fn flush(&mut self, tools: &Tools) -> Outcome<()> {
        while !self.connection.output().is_empty() {
            match socket::send(self.fd, self.connection.output()).map_err(gone("lost"))? {
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
                .map_err(gone("epoll"))?;
            self.is_blocked = is_blocked;
        }
        Ok(())
    }
}

impl Exchange {
    /// How long the echo has been waited for.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }
}

/// Compares what came with what was said, byte for byte.
fn hear(phase: &mut Phase, plaintext: &[u8]) -> Outcome<()> {
    if plaintext.is_empty() {
        return Ok(());
    }
    let Phase::Awake(exchange) = phase else {
        let what = format!("{} bytes which nobody said", plaintext.len());
        return Err(Mishap::Wrong(what));
    };
    let end = exchange.heard + plaintext.len();
    match exchange.message.get(exchange.heard..end) {
        Some(said) if said == plaintext => {
            exchange.heard = end;
            Ok(())
        }
        Some(_) => Err(Mishap::Wrong("an echo is not what was said".to_owned())),
        None => Err(Mishap::Wrong(
            "an echo is longer than what was said".to_owned(),
        )),
    }
}

fn lost(end: End) -> Mishap {
    match end {
        End::Closed => gone("lost")("the server said goodbye".to_owned()),
        End::Truncated => gone("lost")(end.to_string()),
        End::Alert(number) => gone("lost")(format!("fatal alert: {}", alert_name(number))),
        End::Refused(refusal) => gone("record refused")(refusal.reason.to_string()),
        End::Handshake(failure) => gone("handshake")(failure.reason),
    }
}

/// Puts where it happened before what happened.
fn gone<E: std::fmt::Display>(place: &'static str) -> impl Fn(E) -> Mishap {
    move |error| Mishap::Gone(format!("{place}: {error}"))
}

/// Watches a descriptor which is no connection.
pub(super) fn watch(poller: &Poller, fd: Fd, token: u64) -> io::Result<()> {
    poller.add(fd, token, Interest::READ)
}
