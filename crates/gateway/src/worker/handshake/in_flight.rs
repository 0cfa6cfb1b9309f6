//! One connection that is not established yet: its stages, and the steps which lead from one to the
//! next.
//!
//! ```text
//!   waiting ──> introducing ──> choosing ──> known ──> shaking ──> established
//!        (a proxy says who)  (which route)                └──failed──> lingering
//! ```

use crate::proxy_protocol::Refused;
use crate::worker::door::client::{Client, Introduction};
use crate::worker::established::close::discard;
use crate::worker::established::flow::Tools;
use crate::worker::handshake::route_choice;
use crate::worker::io::Io;
use dormouse_engine::{Handshake, HandshakeFailure, Progress, UnixTime};
use dormouse_reactor::Fd;
use dormouse_reactor::poller::Interest;
use dormouse_reactor::socket::Attempt;
use std::io;
use std::rc::Rc;

/// How often what a failed peer still sends is thrown away before it is cut off: it may have much
/// on the way, but who goes on and on is not listening.
const LINGER_LOOKS_MAX: u32 = 16;

/// One connection that is not established yet.
pub(crate) struct InFlight {
    pub(crate) fd: Fd,
    pub(crate) route: u16,
    pub(crate) generation: u32,
    pub(crate) client: Client,
    /// The routes of which it may be for any, until that is known.
    door: Option<Rc<[u16]>>,
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
    /// A proxy is to say first who the client is.
    Introducing(Introduction),
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
pub(crate) enum Step {
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

/// What a step works with.
pub(crate) struct With<'a, I> {
    pub(crate) tools: &'a mut Tools<I>,
    pub(crate) token: u64,
    pub(crate) now: UnixTime,
    pub(crate) now_ms: u64,
    pub(crate) timeout_ms: u64,
    /// Whether it had to wait for its turn.
    pub(crate) waited: bool,
}

impl InFlight {
    /// A connection that was accepted just now.
    pub(crate) fn new(
        (fd, client): (Fd, Client),
        introduced: bool,
        (route, door): (u16, Option<Rc<[u16]>>),
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
                Stage::Introducing(Introduction::default())
            } else if door.is_some() {
                Stage::Choosing {
                    received: Vec::new(),
                    introduced: false,
                }
            } else {
                Stage::Waiting
            },
            door,
            watch: Watch::Never,
        }
    }

    /// Epoll has told of it, and keeps silent now.
    pub(crate) fn has_been_told(&mut self) {
        self.watch = Watch::Told;
    }

    /// Has its client said nothing since then?
    pub(crate) fn is_silent_since(&self, before_ms: u64) -> bool {
        self.moved_ms < before_ms
    }

    pub(crate) fn step(
        &mut self,
        with: With<'_, impl Io>,
        start: impl FnOnce(u16) -> Option<Handshake>,
    ) -> Step {
        let With {
            tools,
            token,
            now,
            now_ms,
            waited,
            ..
        } = with;
        self.moved_ms = now_ms;
        let step = match &mut self.stage {
            Stage::Waiting => self.first_step(Vec::new(), tools, now, waited, start),
            Stage::Introducing(introduction) => {
                match introduction.step(&tools.io, self.fd, &mut tools.scratch.opening) {
                    Step::Introduced => self.introduced(),
                    step => step,
                }
            }
            Stage::Choosing { received, .. } => hear(self.fd, received, tools),
            Stage::Known(early) => {
                let early = std::mem::take(early);
                self.first_step(early, tools, now, waited, start)
            }
            Stage::Shaking(handshake) => shake(self.fd, handshake, tools, now),
            Stage::Lingering { looks, .. } if *looks >= LINGER_LOOKS_MAX => Step::Gone,
            Stage::Lingering {
                last_words,
                shut,
                looks,
            } => {
                *looks += 1;
                linger(
                    &tools.io,
                    self.fd,
                    last_words,
                    shut,
                    &mut tools.scratch.opening,
                )
            }
        };
        if let (Step::Failed(_), Stage::Shaking(handshake)) = (&step, &self.stage) {
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
                    &tools.io,
                    self.fd,
                    last_words,
                    shut,
                    &mut tools.scratch.opening,
                );
            }
        }
        let goes_on = matches!(step, Step::Continues | Step::Failed(_));
        if goes_on && self.watch(&tools.io, token).is_err() {
            return Step::Gone;
        }
        step
    }

    /// From here on it is as if the client had connected itself.
    fn introduced(&mut self) -> Step {
        if let Stage::Introducing(introduction) = &mut self.stage {
            let (ends, early) = std::mem::take(introduction).into_parts();
            self.client.introduced = ends;
            self.stage = match self.door {
                None => Stage::Known(early),
                Some(_) => Stage::Choosing {
                    received: early,
                    introduced: true,
                },
            };
        }
        Step::Introduced
    }

    /// While its route is to be found: what came, and the routes of which it may be for any.
    pub(crate) fn hello(&self) -> Option<(&[u8], Rc<[u16]>)> {
        match (&self.stage, &self.door) {
            (Stage::Choosing { received, .. }, Some(door)) => Some((received, Rc::clone(door))),
            _ => None,
        }
    }

    /// Must its hello be read before its route is known?
    pub(crate) fn is_for_door(&self) -> bool {
        self.door.is_some()
    }

    /// Its route is known: what came goes into the handshake.
    pub(crate) fn is_chosen(&mut self) {
        if let Stage::Choosing { received, .. } = &mut self.stage {
            self.stage = Stage::Known(std::mem::take(received));
            self.door = None;
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

    /// The hello, or its beginning. Whoever gave up while waiting for this turn gets no answer.
    fn first_step(
        &mut self,
        early: Vec<u8>,
        tools: &mut Tools<impl Io>,
        now: UnixTime,
        waited: bool,
        start: impl FnOnce(u16) -> Option<Handshake>,
    ) -> Step {
        let received = if early.is_empty() {
            match receive(self.fd, tools) {
                Ok(Some(n)) => &tools.scratch.opening[..n],
                Ok(None) => return Step::Continues,
                Err(step) => return step,
            }
        } else {
            &early
        };
        if waited && has_given_up(&tools.io, self.fd) {
            return Step::GivenUp;
        }
        let Some(handshake) = start(self.route) else {
            return Step::Gone;
        };
        let mut handshake = Box::new(handshake);
        let step = take(&tools.io, self.fd, &mut handshake, received, now);
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
            Stage::Introducing(introduction) => introduction.has_begun(),
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

fn shake(fd: Fd, handshake: &mut Handshake, tools: &mut Tools<impl Io>, now: UnixTime) -> Step {
    match flush(&tools.io, fd, handshake) {
        Ok(true) => {}
        Ok(false) => return Step::Continues,
        Err(_) => return Step::Gone,
    }
    match receive(fd, tools) {
        Ok(Some(n)) => take(&tools.io, fd, handshake, &tools.scratch.opening[..n], now),
        Ok(None) => Step::Continues,
        Err(step) => step,
    }
}

/// Receives more of a hello. Nothing is lost when it is cut anywhere.
fn hear(fd: Fd, received: &mut Vec<u8>, tools: &mut Tools<impl Io>) -> Step {
    if !received.is_empty() && route_choice::suffices(received) {
        return Step::Hello;
    }
    match receive(fd, tools) {
        Ok(Some(n)) => received.extend_from_slice(&tools.scratch.opening[..n]),
        Ok(None) => return Step::Continues,
        Err(step) => return step,
    }
    if route_choice::suffices(received) {
        Step::Hello
    } else {
        Step::Continues
    }
}

/// Receives into the scratch buffer. `None`: there is nothing.
fn receive(fd: Fd, tools: &mut Tools<impl Io>) -> Result<Option<usize>, Step> {
    let room = &mut tools.scratch.opening[..crate::worker::established::flow::RECEIVE_MAX / 4];
    match tools.io.recv(fd, room) {
        Ok(Attempt::Done(0)) | Err(_) => Err(Step::Gone),
        Ok(Attempt::Done(n)) => Ok(Some(n)),
        Ok(Attempt::WouldBlock) => Ok(None),
    }
}

/// Shows the handshake what was received, and sends what it has to say.
fn take(io: &impl Io, fd: Fd, handshake: &mut Handshake, received: &[u8], now: UnixTime) -> Step {
    match handshake.handle_input(now, received) {
        Ok(Progress::Handshaking) => match flush(io, fd, handshake) {
            Ok(_) => Step::Continues,
            Err(_) => Step::Gone,
        },
        // The tickets. What the socket does not take goes with the connection, as pending bytes.
        Ok(Progress::Established) => match flush(io, fd, handshake) {
            Ok(_) => Step::Established,
            Err(_) => Step::Gone,
        },
        Err(failure) => Step::Failed(failure),
    }
}

/// Has the client ended or reset its connection behind its hello? Then nobody waits for an answer.
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
) -> Step {
    while !last_words.is_empty() {
        match io.send(fd, last_words) {
            Ok(Attempt::Done(n)) => drop(last_words.drain(..n)),
            Ok(Attempt::WouldBlock) => return Step::Continues,
            Err(_) => return Step::Gone,
        }
    }
    if !*shut {
        *shut = true;
        if io.shutdown_write(fd).is_err() {
            return Step::Gone;
        }
    }
    if discard(io, fd, scratch) {
        Step::Gone
    } else {
        Step::Continues
    }
}
