//! One TLS connection of the demo, seen from the client. At rest it is a record state and a
//! descriptor, as it is in the gateway; the handshake is the engine's.

use std::io;
use std::time::{Duration, Instant};

use dormouse_engine::{ClientContext, Handshake, HandshakeLimits, Progress, UnixTime, alert_name};
use dormouse_reactor::poller::{Event, Interest, Poller};
use dormouse_reactor::socket::{self, Addr, Attempt, ConnectOptions};
use dormouse_reactor::{Fd, OnExec};
use dormouse_record::{self as record, OpenKey, Opened, SealKey, State};

use super::children::SERVER_NAME;

/// Room for a partial record and for what one receive brings.
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
    /// The beginning of a record.
    partial: Vec<u8>,
    /// Ciphertext which the socket did not take.
    unsent: Vec<u8>,
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
    Handshaking(Box<Handshake>),
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

type ExitStatus<T> = Result<T, Mishap>;

impl Client {
    pub(super) fn new(token: u64) -> Client {
        Client {
            tls: State::empty(),
            fd: Fd::NONE,
            token,
            phase: Phase::Unopened,
            partial: Vec::new(),
            unsent: Vec::new(),
            answered: None,
            unheard: false,
        }
    }

    /// Begins to connect.
    pub(super) fn open(&mut self, target: &Addr, tools: &Tools) -> ExitStatus<()> {
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
    pub(super) fn wake(&mut self, message: Vec<u8>, tools: &Tools) -> ExitStatus<()> {
        let mut sealed = Vec::new();
        let mut key = SealKey::new(&self.tls);
        if self.tls.owes_key_update() {
            self.seal_small(&mut sealed, |tls, out| {
                record::seal_key_update(tls, &mut key, out)
            })?;
        }
        let room = record::record_room(&self.tls);
        for content in message.chunks(record::CONTENT_MAX) {
            let start = sealed.len();
            sealed.resize(start + room.header + content.len() + room.trailer, 0);
            let buf = sealed.get_mut(start..).unwrap_or_default();
            if let Some(place) = buf.get_mut(room.header..room.header + content.len()) {
                place.copy_from_slice(content);
            }
            let len = record::seal_in_place(&mut self.tls, &mut key, buf, content.len())
                .map_err(gone("sealing"))?;
            sealed.truncate(start + len);
        }
        let began = Instant::now();
        self.phase = Phase::Awake(Box::new(Exchange {
            message,
            heard: 0,
            began,
        }));
        self.send(&sealed, tools)
    }

    /// Something happened at the socket.
    pub(super) fn on_event(&mut self, event: Event, tools: &mut Tools) -> ExitStatus<Happened> {
        match self.phase {
            Phase::Unopened | Phase::Lost | Phase::Closed => Ok(Happened::Progress),
            Phase::Connecting => self.connected(tools),
            Phase::Handshaking(_) => self.handshake(event, tools),
            Phase::AtRest | Phase::Awake(_) => {
                if event.is_writable() {
                    self.send(&[], tools)?;
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
            let mut goodbye = Vec::new();
            let mut key = SealKey::new(&self.tls);
            let alert = record::Alert::CLOSE_NOTIFY;
            let sealed = self.seal_small(&mut goodbye, |tls, out| {
                record::seal_alert(tls, &mut key, alert, out)
            });
            if sealed.is_ok() {
                let _ = socket::send(self.fd, &goodbye);
            }
            self.phase = Phase::Closed;
        }
        self.tls.wipe();
        self.fd.close();
        self.fd = Fd::NONE;
    }

    fn connected(&mut self, tools: &Tools) -> ExitStatus<Happened> {
        socket::take_error(self.fd).map_err(gone("connect"))?;
        socket::set_nodelay(self.fd, true).map_err(gone("connect"))?;
        tools
            .poller
            .modify(self.fd, self.token, Interest::READ)
            .map_err(gone("epoll"))?;
        let handshake = Handshake::client(&tools.context, SERVER_NAME, HandshakeLimits::default());
        let mut handshake = Box::new(handshake.map_err(gone("handshake"))?);
        handshake
            .handle_input(UnixTime::now(), &[])
            .map_err(|failure| gone("handshake")(failure.reason))?;
        let flight = take_output(&mut handshake);
        self.phase = Phase::Handshaking(handshake);
        self.send(&flight, tools)?;
        Ok(Happened::Progress)
    }

    fn handshake(&mut self, event: Event, tools: &mut Tools) -> ExitStatus<Happened> {
        if event.is_writable() {
            self.send(&[], tools)?;
        }
        let count = match socket::recv(self.fd, &mut tools.scratch).map_err(gone("handshake"))? {
            Attempt::WouldBlock => return Ok(Happened::Progress),
            Attempt::Done(0) => return Err(gone("handshake")("the server closed the connection")),
            Attempt::Done(count) => count,
        };
        let received = tools.scratch.get(..count).unwrap_or_default();
        let Phase::Handshaking(handshake) = &mut self.phase else {
            return Ok(Happened::Progress);
        };
        let progress = handshake.handle_input(UnixTime::now(), received);
        let progress = progress.map_err(|failure| gone("handshake")(failure.reason))?;
        if progress == Progress::Handshaking {
            let flight = take_output(handshake);
            self.send(&flight, tools)?;
            return Ok(Happened::Progress);
        }
        let Phase::Handshaking(handshake) = std::mem::replace(&mut self.phase, Phase::AtRest)
        else {
            return Ok(Happened::Progress);
        };
        let rested = handshake
            .rest(&mut self.tls)
            .map_err(|failure| gone("handshake")(failure.reason))?;
        self.send(&rested.unsent, tools)?;
        self.partial = rested.leftover;
        self.take_received(0, tools)?;
        let group = rested.info.group.unwrap_or("no group");
        let agreed = format!("{}, {}, {group}", rested.info.protocol, rested.info.suite);
        Ok(Happened::Established { agreed })
    }

    fn receive(&mut self, tools: &mut Tools) -> ExitStatus<Happened> {
        let room = tools
            .scratch
            .get_mut(self.partial.len()..)
            .unwrap_or_default();
        match socket::recv(self.fd, room).map_err(gone("lost"))? {
            Attempt::WouldBlock => Ok(Happened::Progress),
            Attempt::Done(0) => Err(gone("lost")("the server closed the connection")),
            Attempt::Done(count) => self.take_received(count, tools),
        }
    }

    /// Opens what lies in the scratch buffer: the partial record, which is put there first, and
    /// `count` bytes behind it.
    fn take_received(&mut self, count: usize, tools: &mut Tools) -> ExitStatus<Happened> {
        let kept = self.partial.len();
        let Some(bytes) = tools.scratch.get_mut(..kept + count) else {
            return Err(gone("lost")("a record is longer than any may be"));
        };
        if let Some(head) = bytes.get_mut(..kept) {
            head.copy_from_slice(&self.partial);
        }
        let mut used = 0;
        let mut key = OpenKey::new(&self.tls);
        while let Some(rest) = bytes.get_mut(used..).filter(|rest| !rest.is_empty()) {
            match record::open(&mut self.tls, &mut key, rest)
                .map_err(|refusal| gone("record refused")(refusal.reason))?
            {
                Opened::Partial { .. } => break,
                Opened::Data {
                    consumed,
                    plaintext,
                } => {
                    used += consumed;
                    hear(&mut self.phase, rest.get(plaintext).unwrap_or_default())?;
                }
                // Tickets are of no use here: every handshake is to be a full one.
                Opened::Handled { consumed }
                | Opened::Ticket { consumed, .. }
                | Opened::NoRenegotiation { consumed } => used += consumed,
                Opened::PeerClosed { .. } => return Err(gone("lost")("the server said goodbye")),
                Opened::PeerAlert { description, .. } => {
                    return Err(gone("lost")(format!(
                        "fatal alert: {}",
                        alert_name(description)
                    )));
                }
            }
        }
        // A new one each time: a quiet connection has no buffer.
        self.partial = bytes.get(used..).unwrap_or_default().to_vec();
        Ok(self.settle())
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

    /// Sends what is left, then `bytes`, and keeps what the socket does not take.
    fn send(&mut self, bytes: &[u8], tools: &Tools) -> ExitStatus<()> {
        let was_blocked = !self.unsent.is_empty();
        let mut all = std::mem::take(&mut self.unsent);
        all.extend_from_slice(bytes);
        let mut sent = 0;
        while let Some(rest) = all.get(sent..).filter(|rest| !rest.is_empty()) {
            match socket::send(self.fd, rest).map_err(gone("lost"))? {
                Attempt::Done(count) => sent += count,
                Attempt::WouldBlock => break,
            }
        }
        self.unsent = all.get(sent..).unwrap_or_default().to_vec();
        let blocked = !self.unsent.is_empty();
        if blocked != was_blocked {
            let interest = Interest::READ.with(Interest::WRITE, blocked);
            tools
                .poller
                .modify(self.fd, self.token, interest)
                .map_err(gone("epoll"))?;
        }
        Ok(())
    }

    fn seal_small(
        &mut self,
        out: &mut Vec<u8>,
        seal: impl FnOnce(&mut State, &mut [u8]) -> Result<usize, record::SealError>,
    ) -> ExitStatus<()> {
        out.resize(record::SMALL_RECORD_MAX, 0);
        let len = seal(&mut self.tls, out).map_err(gone("sealing"))?;
        out.truncate(len);
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
fn hear(phase: &mut Phase, plaintext: &[u8]) -> ExitStatus<()> {
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

fn take_output(handshake: &mut Handshake) -> Vec<u8> {
    let flight = handshake.output().to_vec();
    handshake.output_sent(flight.len());
    flight
}

/// Puts where it happened before what happened.
fn gone<E: std::fmt::Display>(place: &'static str) -> impl Fn(E) -> Mishap {
    move |error| Mishap::Gone(format!("{place}: {error}"))
}

/// Watches a descriptor which is no connection.
pub(super) fn watch(poller: &Poller, fd: Fd, token: u64) -> io::Result<()> {
    poller.add(fd, token, Interest::READ)
}
