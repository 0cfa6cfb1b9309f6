//! One connection that is not established yet: its stages, and the steps which lead from one to the
//! next.
//!
//! ```text
//!   waiting ──> introducing ──> choosing ──> known ──> shaking ──> established
//!        (a proxy says who)  (which route)                └──failed──> lingering
//! ```

use crate::door::client::Client;
use crate::door::proxy_header::{ProxyHeader, Received};
use crate::handshake::route_choice;
use crate::io::{Io, discard};
use crate::proxy_protocol::Refused;
use crate::scratch::RECEIVE_MAX;
use crate::workspace::Workspace;
use dormouse_engine::{Handshake, HandshakeFailure, Progress, UnixTime};
use dormouse_reactor::Fd;
use dormouse_reactor::poller::Interest;
use dormouse_reactor::socket::Attempt;
use std::io;
use std::rc::Rc;

/// How often what a failed peer still sends is thrown away before it is cut off: it may have much
/// on the way, but a peer that goes on and on is not reading our alert.
const LINGER_LOOKS_MAX: u32 = 16;

/// One connection that is not established yet.
pub(crate) struct InFlight {
    pub(crate) fd: Fd,
    pub(crate) route: u16,
    pub(crate) generation: u32,
    pub(crate) client: Client,
    /// The routes of which it may be for any, until that is known.
    candidates: Option<Rc<[u16]>>,
    /// When it was accepted, or made a step.
    moved_ms: u64,
    pub(crate) accepted_ms: u64,
    stage: Stage,
    watch: Watch,
}

/// What epoll was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Watch {
    /// Nothing yet.
    Never,
    /// To tell once.
    Armed(Interest),
    /// It has told, and keeps silent now.
    Told,
}

enum Stage {
    /// Accepted; nothing was received yet.
    Waiting,
    /// A proxy says first who the client is.
    Introducing(ProxyHeader),
    /// Its hello is to tell which route it is for.
    Choosing {
        received: Vec<u8>,
        /// A proxy has introduced it: it has begun, though nothing came yet.
        introduced: bool,
    },
    /// Client and route are known; what the client said already.
    Known(Vec<u8>),
    Shaking(Box<Handshake>),
    /// Failed; what is left of the output to send, then the peer's end is awaited.
    Lingering {
        last_words: Vec<u8>,
        shut: bool,
        looks: u32,
    },
}

/// What a step on a handshake led to.
pub(crate) enum HandshakeStep {
    /// More is awaited.
    Continues,
    /// Done: take it out and let it rest.
    Established,
    /// The proxy has said who the client is: decide whether it may go on, then step again.
    Introduced,
    /// Enough of the hello is there: decide which route it is for, then step again.
    Hello,
    /// TLS is its backend's: take it out and pass on what came.
    PassesThrough,
    /// The proxy has not said it as it has to: take it out and close it.
    NotIntroduced(Refused),
    /// Whom the proxy speaks for may not come in: as `Gone`.
    Denied,
    /// Failed just now; the entry lingers.
    Failed(HandshakeFailure),
    /// The client gave up while it waited for its turn: as `Gone`.
    GivenUp,
    /// Nothing is left to do: take it out and close it.
    Gone,
}

/// What a step on a handshake works with.
pub(crate) struct Turn<'a, I> {
    pub(crate) work: &'a mut Workspace<I>,
    pub(crate) token: u64,
    pub(crate) now: UnixTime,
    pub(crate) timeout_ms: u64,
    /// Whether it had to wait for its turn.
    pub(crate) waited: bool,
}

impl InFlight {
    /// A connection that was accepted just now.
    pub(crate) fn new(
        (fd, client): (Fd, Client),
        introduced: bool,
        (route, candidates): (u16, Option<Rc<[u16]>>),
        generation: u32,
        now_ms: u64,
    ) -> InFlight {
        InFlight {
            fd,
            route,
            generation,
            client,
            moved_ms: now_ms,
            accepted_ms: now_ms,
            stage: if introduced {
                Stage::Introducing(ProxyHeader::default())
            } else if candidates.is_some() {
                Stage::Choosing {
                    received: Vec::new(),
                    introduced: false,
                }
            } else {
                Stage::Waiting
            },
            candidates,
            watch: Watch::Never,
        }
    }

    /// Epoll has told of it, and keeps silent now.
    pub(crate) fn note_reported(&mut self) {
        self.watch = Watch::Told;
    }

    /// Has its client said nothing since then?
    pub(crate) fn is_silent_since(&self, before_ms: u64) -> bool {
        self.moved_ms < before_ms
    }

    pub(crate) fn step(
        &mut self,
        turn: Turn<'_, impl Io>,
        start: impl FnOnce(u16) -> Option<Handshake>,
    ) -> HandshakeStep {
        let Turn {
            work,
            token,
            now,
            waited,
            ..
        } = turn;
        self.moved_ms = work.now_ms;
        let step = match &mut self.stage {
            Stage::Waiting => self.first_step(Vec::new(), work, now, waited, start),
            Stage::Introducing(header) => {
                match header.receive(&work.io, self.fd, &mut work.scratch.opening) {
                    Received::Whole => self.introduced(),
                    Received::Part => HandshakeStep::Continues,
                    Received::Refused(refused) => HandshakeStep::NotIntroduced(refused),
                    Received::Gone => HandshakeStep::Gone,
                }
            }
            Stage::Choosing { received, .. } => hear(self.fd, received, work),
            Stage::Known(early) => {
                let early = std::mem::take(early);
                self.first_step(early, work, now, waited, start)
            }
            Stage::Shaking(handshake) => shake(self.fd, handshake, work, now),
            Stage::Lingering { looks, .. } if *looks >= LINGER_LOOKS_MAX => HandshakeStep::Gone,
            Stage::Lingering {
                last_words,
                shut,
                looks,
            } => {
                *looks += 1;
                linger(
                    &work.io,
                    self.fd,
                    last_words,
                    shut,
                    &mut work.scratch.opening,
                )
            }
        };
        if let (HandshakeStep::Failed(_), Stage::Shaking(handshake)) = (&step, &self.stage) {
            let output = handshake.output().to_vec();
            self.stage = Stage::Lingering {
                last_words: output,
                shut: false,
                looks: 0,
            };
            if let Stage::Lingering {
                last_words, shut, ..
            } = &mut self.stage
            {
                // Tried at once; if the peer's end is there already, the deadline is soon enough.
                linger(
                    &work.io,
                    self.fd,
                    last_words,
                    shut,
                    &mut work.scratch.opening,
                );
            }
        }
        let goes_on = matches!(step, HandshakeStep::Continues | HandshakeStep::Failed(_));
        if goes_on && self.watch(&work.io, token).is_err() {
            return HandshakeStep::Gone;
        }
        step
    }

    /// From here on it is as if the client had connected itself.
    fn introduced(&mut self) -> HandshakeStep {
        if let Stage::Introducing(header) = &mut self.stage {
            let (ends, early) = std::mem::take(header).into_parts();
            self.client.introduced = ends;
            self.stage = match self.candidates {
                None => Stage::Known(early),
                Some(_) => Stage::Choosing {
                    received: early,
                    introduced: true,
                },
            };
        }
        HandshakeStep::Introduced
    }

    /// While its route is to be found: what came, and the routes of which it may be for any.
    pub(crate) fn hello(&self) -> Option<(&[u8], Rc<[u16]>)> {
        match (&self.stage, &self.candidates) {
            (Stage::Choosing { received, .. }, Some(candidates)) => {
                Some((received, Rc::clone(candidates)))
            }
            _ => None,
        }
    }

    /// Must its hello be read before its route is known?
    pub(crate) fn has_choice(&self) -> bool {
        self.candidates.is_some()
    }

    /// Its route is known: what came goes into the handshake.
    pub(crate) fn is_chosen(&mut self) {
        if let Stage::Choosing { received, .. } = &mut self.stage {
            self.stage = Stage::Known(std::mem::take(received));
            self.candidates = None;
        }
    }

    /// What came of one whose route was to be found.
    pub(crate) fn into_received(self) -> Vec<u8> {
        match self.stage {
            Stage::Choosing { received, .. } | Stage::Known(received) => received,
            _ => Vec::new(),
        }
    }

    /// It is for no route: the alert is sent, then its end is awaited.
    pub(crate) fn refuse(
        &mut self,
        alert: &[u8],
        io: &impl Io,
        token: u64,
        scratch: &mut [u8],
    ) -> io::Result<()> {
        let (mut last_words, mut shut) = (alert.to_vec(), false);
        linger(io, self.fd, &mut last_words, &mut shut, scratch);
        self.stage = Stage::Lingering {
            last_words,
            shut,
            looks: 0,
        };
        self.watch(io, token)
    }

    /// The hello, or its beginning. A client that gave up while it waited gets no answer.
    fn first_step(
        &mut self,
        early: Vec<u8>,
        work: &mut Workspace<impl Io>,
        now: UnixTime,
        waited: bool,
        start: impl FnOnce(u16) -> Option<Handshake>,
    ) -> HandshakeStep {
        let received = if early.is_empty() {
            match receive(self.fd, work) {
                Ok(Some(n)) => &work.scratch.opening[..n],
                Ok(None) => return HandshakeStep::Continues,
                Err(step) => return step,
            }
        } else {
            &early
        };
        if waited && has_given_up(&work.io, self.fd) {
            return HandshakeStep::GivenUp;
        }
        let Some(handshake) = start(self.route) else {
            return HandshakeStep::Gone;
        };
        let mut handshake = Box::new(handshake);
        let step = take(&work.io, self.fd, &mut handshake, received, now);
        self.stage = Stage::Shaking(handshake);
        step
    }

    /// The finished handshake. `None`: it had failed.
    pub(crate) fn into_handshake(self) -> Option<Box<Handshake>> {
        match self.stage {
            Stage::Shaking(handshake) => Some(handshake),
            Stage::Waiting
            | Stage::Introducing(_)
            | Stage::Choosing { .. }
            | Stage::Known(_)
            | Stage::Lingering { .. } => None,
        }
    }

    /// Is its hello there, and we have not come to it yet?
    pub(crate) fn waits_for_turn(&self) -> bool {
        !self.has_begun() && !matches!(self.watch, Watch::Armed(_))
    }

    pub(crate) fn has_begun(&self) -> bool {
        match &self.stage {
            Stage::Waiting => false,
            Stage::Introducing(header) => header.has_begun(),
            Stage::Choosing {
                received,
                introduced,
            } => *introduced || !received.is_empty(),
            Stage::Known(_) | Stage::Shaking(_) | Stage::Lingering { .. } => true,
        }
    }

    /// Is this one only waiting for its peer to have read our alert?
    pub(crate) fn is_lingering(&self) -> bool {
        matches!(self.stage, Stage::Lingering { .. })
    }

    /// Is the costly part behind us? True for those which failed, too.
    pub(crate) fn has_answered(&self) -> bool {
        match &self.stage {
            Stage::Waiting | Stage::Introducing(_) | Stage::Choosing { .. } | Stage::Known(_) => {
                false
            }
            Stage::Shaking(handshake) => handshake.has_answered(),
            Stage::Lingering { .. } => true,
        }
    }

    /// Does epoll know the socket?
    pub(crate) fn is_watched(&self) -> bool {
        self.watch != Watch::Never
    }

    fn watch(&mut self, io: &impl Io, token: u64) -> io::Result<()> {
        let blocked = match &self.stage {
            Stage::Waiting | Stage::Introducing(_) | Stage::Choosing { .. } | Stage::Known(_) => {
                false
            }
            Stage::Shaking(handshake) => !handshake.output().is_empty(),
            Stage::Lingering { last_words, .. } => !last_words.is_empty(),
        };
        // A peer that does not take our flight is not read either: backpressure from the start.
        let wanted = if blocked {
            Interest::WRITE
        } else {
            Interest::READ
        };
        match self.watch {
            Watch::Armed(armed) if armed == wanted => return Ok(()),
            Watch::Never => io.watch(self.fd, token, wanted | Interest::ONCE)?,
            _ => io.rewatch(self.fd, token, wanted | Interest::ONCE)?,
        }
        self.watch = Watch::Armed(wanted);
        Ok(())
    }
}

fn shake(
    fd: Fd,
    handshake: &mut Handshake,
    work: &mut Workspace<impl Io>,
    now: UnixTime,
) -> HandshakeStep {
    match flush(&work.io, fd, handshake) {
        Ok(true) => {}
        Ok(false) => return HandshakeStep::Continues,
        Err(_) => return HandshakeStep::Gone,
    }
    match receive(fd, work) {
        Ok(Some(n)) => take(&work.io, fd, handshake, &work.scratch.opening[..n], now),
        Ok(None) => HandshakeStep::Continues,
        Err(step) => step,
    }
}

/// Receives more of a hello. Nothing is lost when it is cut anywhere.
fn hear(fd: Fd, received: &mut Vec<u8>, work: &mut Workspace<impl Io>) -> HandshakeStep {
    if !received.is_empty() && route_choice::suffices(received) {
        return HandshakeStep::Hello;
    }
    match receive(fd, work) {
        Ok(Some(n)) => received.extend_from_slice(&work.scratch.opening[..n]),
        Ok(None) => return HandshakeStep::Continues,
        Err(step) => return step,
    }
    if route_choice::suffices(received) {
        HandshakeStep::Hello
    } else {
        HandshakeStep::Continues
    }
}

/// Receives into the scratch buffer. `None`: there is nothing.
fn receive(fd: Fd, work: &mut Workspace<impl Io>) -> Result<Option<usize>, HandshakeStep> {
    let room = &mut work.scratch.opening[..RECEIVE_MAX / 4];
    match work.io.recv(fd, room) {
        Ok(Attempt::Done(0)) | Err(_) => Err(HandshakeStep::Gone),
        Ok(Attempt::Done(n)) => Ok(Some(n)),
        Ok(Attempt::WouldBlock) => Ok(None),
    }
}

/// Shows the handshake what was received, and sends what it has to say.
fn take(
    io: &impl Io,
    fd: Fd,
    handshake: &mut Handshake,
    received: &[u8],
    now: UnixTime,
) -> HandshakeStep {
    match handshake.handle_input(now, received) {
        Ok(Progress::Handshaking) => match flush(io, fd, handshake) {
            Ok(_) => HandshakeStep::Continues,
            Err(_) => HandshakeStep::Gone,
        },
        // The tickets. What the socket does not take goes with the connection, as pending bytes.
        Ok(Progress::Established) => match flush(io, fd, handshake) {
            Ok(_) => HandshakeStep::Established,
            Err(_) => HandshakeStep::Gone,
        },
        Err(failure) => HandshakeStep::Failed(failure),
    }
}

/// Has the client ended or reset its connection behind its hello? Then it waits for no answer.
fn has_given_up(io: &impl Io, fd: Fd) -> bool {
    matches!(io.peek(fd, &mut [0]), Ok(Attempt::Done(0)) | Err(_))
}

/// `true`: all of its output went out.
pub(crate) fn flush(io: &impl Io, fd: Fd, handshake: &mut Handshake) -> io::Result<bool> {
    while !handshake.output().is_empty() {
        let sent = if handshake.output_can_wait() {
            io.send_before_more(fd, handshake.output())
        } else {
            io.send(fd, handshake.output())
        };
        match sent {
            Ok(Attempt::Done(n)) => handshake.output_sent(n),
            Ok(Attempt::WouldBlock) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

fn linger(
    io: &impl Io,
    fd: Fd,
    last_words: &mut Vec<u8>,
    shut: &mut bool,
    scratch: &mut [u8],
) -> HandshakeStep {
    while !last_words.is_empty() {
        match io.send(fd, last_words) {
            Ok(Attempt::Done(n)) => drop(last_words.drain(..n)),
            Ok(Attempt::WouldBlock) => return HandshakeStep::Continues,
            Err(_) => return HandshakeStep::Gone,
        }
    }
    if !*shut {
        *shut = true;
        if io.shutdown_write(fd).is_err() {
            return HandshakeStep::Gone;
        }
    }
    if discard(io, fd, scratch) {
        HandshakeStep::Gone
    } else {
        HandshakeStep::Continues
    }
}
