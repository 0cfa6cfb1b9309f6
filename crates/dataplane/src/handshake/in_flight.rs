//! One connection that is not established yet: its stages, and the steps between them.
//!
//! ```text
//!   waiting ──> proxy header ──> choosing ──> known ──> shaking ──> established
//!             (from a trusted    (a route)                 └──failed──> lingering
//!                  proxy)
//! ```

use crate::door::client::Client;
use crate::door::proxy_header::{ProxyHeader, Received};
use crate::handshake::route_choice;
use crate::io::{Io, discard};
use crate::proxy_protocol::HeaderError;
use crate::scratch::RECEIVE_MAX;
use crate::workspace::Workspace;
use dormouse_engine::{Handshake, HandshakeFailure, Progress, UnixTime};
use dormouse_reactor::Fd;
use dormouse_reactor::poller::Interest;
use dormouse_reactor::socket::Attempt;
use std::io;
use std::rc::Rc;

/// How many times a failed peer's bytes are discarded before its connection is closed. It may have
/// bytes in flight, but a peer that keeps sending does not read our alert.
const LINGER_READS_MAX: u32 = 16;

/// A client that was just accepted.
pub(crate) struct NewConnection {
    pub(crate) fd: Fd,
    pub(crate) client: Client,
    /// The listener's first route.
    pub(crate) route: u16,
    /// The routes among which the ClientHello chooses, if it must be read.
    pub(crate) candidates: Option<Rc<[u16]>>,
}

/// One connection that is not established yet.
pub(crate) struct InFlight {
    pub(crate) fd: Fd,
    pub(crate) route: u16,
    pub(crate) client: Client,
    /// The routes among which the ClientHello chooses. `None`: the route is known.
    candidates: Option<Rc<[u16]>>,
    /// Time of the last step, or of the accept.
    stepped_ms: u64,
    pub(crate) accepted_ms: u64,
    stage: Stage,
    watch: Watch,
}

/// State of the socket in epoll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Watch {
    /// Never added.
    Unwatched,
    /// Armed for one event (EPOLLONESHOT).
    Armed(Interest),
    /// The event was reported, and the socket is not armed.
    Reported,
}

enum Stage {
    /// Accepted; nothing was received yet.
    Waiting,
    /// Receiving a trusted proxy's header.
    ProxyHeader(ProxyHeader),
    /// Receiving the ClientHello that chooses the route.
    Choosing {
        received: Vec<u8>,
        /// A proxy header came first, so the handshake has begun even if `received` is empty.
        has_header: bool,
    },
    /// Client and route are known; with the bytes received so far.
    Known(Vec<u8>),
    Shaking(Box<Handshake>),
    /// Failed: sends the rest of the output, then waits for the peer to close.
    Lingering {
        output: Vec<u8>,
        shut: bool,
        reads: u32,
    },
}

/// Result of a step on a handshake, and what the caller does next.
pub(crate) enum HandshakeStep {
    /// More bytes are needed.
    Continues,
    /// The handshake is done: the caller takes it out and creates the slot.
    Established,
    /// The proxy header is complete: the caller checks the client, then steps again.
    HeaderComplete,
    /// The ClientHello is complete: the caller chooses the route, then steps again.
    Hello,
    /// The route passes TLS through: the caller takes the handshake out and forwards the bytes.
    PassesThrough,
    /// The proxy header is invalid: the caller closes the connection.
    BadHeader(HeaderError),
    /// The proxy's client is refused: the caller closes the connection.
    Denied,
    /// The handshake has just failed; the entry lingers.
    Failed(HandshakeFailure),
    /// The client closed the connection while it was queued: the caller closes it, too.
    GivenUp,
    /// The connection has ended: the caller closes it.
    Ended,
    /// Epoll does not watch the socket: the caller closes the connection, and accepts no others for a while.
    NotWatched(io::Error),
}

/// The arguments of a step on a handshake.
pub(crate) struct Turn<'a, I> {
    pub(crate) work: &'a mut Workspace<I>,
    pub(crate) token: u64,
    pub(crate) now: UnixTime,
    pub(crate) timeout_ms: u64,
    /// Whether the handshake had to wait for its turn.
    pub(crate) waited: bool,
}

impl InFlight {
    /// Creates the entry of a connection that was just accepted. `is_proxy`: a proxy header comes
    /// first.
    pub(crate) fn new(accepted: NewConnection, is_proxy: bool, now_ms: u64) -> InFlight {
        let NewConnection {
            fd,
            client,
            route,
            candidates,
        } = accepted;
        InFlight {
            fd,
            route,
            client,
            stepped_ms: now_ms,
            accepted_ms: now_ms,
            stage: if is_proxy {
                Stage::ProxyHeader(ProxyHeader::default())
            } else if candidates.is_some() {
                Stage::Choosing {
                    received: Vec::new(),
                    has_header: false,
                }
            } else {
                Stage::Waiting
            },
            candidates,
            watch: Watch::Unwatched,
        }
    }

    /// Notes that epoll has reported the socket, which disarms it.
    pub(crate) fn note_reported(&mut self) {
        self.watch = Watch::Reported;
    }

    /// Whether the client has sent nothing since this time.
    pub(crate) fn is_silent_since(&self, before_ms: u64) -> bool {
        self.stepped_ms < before_ms
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
        self.stepped_ms = work.now_ms;
        let step = match &mut self.stage {
            Stage::Waiting => self.first_step(Vec::new(), work, now, waited, start),
            Stage::ProxyHeader(header) => {
                match header.receive(&work.io, self.fd, &mut work.scratch.opening) {
                    Received::Whole => self.end_header(),
                    Received::Part => HandshakeStep::Continues,
                    Received::Invalid(error) => HandshakeStep::BadHeader(error),
                    Received::Ended => HandshakeStep::Ended,
                }
            }
            Stage::Choosing { received, .. } => receive_hello(self.fd, received, work),
            Stage::Known(early) => {
                let early = std::mem::take(early);
                self.first_step(early, work, now, waited, start)
            }
            Stage::Shaking(handshake) => shake(self.fd, handshake, work, now),
            Stage::Lingering { reads, .. } if *reads >= LINGER_READS_MAX => HandshakeStep::Ended,
            Stage::Lingering {
                output,
                shut,
                reads,
            } => {
                *reads += 1;
                linger(&work.io, self.fd, output, shut, &mut work.scratch.opening)
            }
        };
        if let (HandshakeStep::Failed(_), Stage::Shaking(handshake)) = (&step, &self.stage) {
            let output = handshake.output().to_vec();
            self.begin_to_linger(output, &work.io, &mut work.scratch.opening);
        }
        match step {
            HandshakeStep::Continues => match self.watch(&work.io, token) {
                Ok(()) => step,
                Err(error) => HandshakeStep::NotWatched(error),
            },
            HandshakeStep::Failed(_) => {
                // The result does not matter: the deadline ends the entry.
                let _ = self.watch(&work.io, token);
                step
            }
            step => step,
        }
    }

    /// Takes the client's address from the complete header. From here on, the connection is handled
    /// as if the client had connected directly.
    fn end_header(&mut self) -> HandshakeStep {
        if let Stage::ProxyHeader(header) = &mut self.stage {
            let (ends, early) = std::mem::take(header).into_parts();
            self.client.proxied = ends;
            self.stage = match self.candidates {
                None => Stage::Known(early),
                Some(_) => Stage::Choosing {
                    received: early,
                    has_header: true,
                },
            };
        }
        HandshakeStep::HeaderComplete
    }

    /// While the route is not chosen: the received bytes and the candidate routes.
    pub(crate) fn hello(&self) -> Option<(&[u8], Rc<[u16]>)> {
        match (&self.stage, &self.candidates) {
            (Stage::Choosing { received, .. }, Some(candidates)) => {
                Some((received, Rc::clone(candidates)))
            }
            _ => None,
        }
    }

    /// Whether the ClientHello must be read to choose the route.
    pub(crate) fn has_choice(&self) -> bool {
        self.candidates.is_some()
    }

    /// Ends the choice of a route: the received bytes go into the handshake.
    pub(crate) fn end_choice(&mut self) {
        if let Stage::Choosing { received, .. } = &mut self.stage {
            self.stage = Stage::Known(std::mem::take(received));
            self.candidates = None;
        }
    }

    /// The bytes received before the handshake.
    pub(crate) fn into_received(self) -> Vec<u8> {
        match self.stage {
            Stage::Choosing { received, .. } | Stage::Known(received) => received,
            _ => Vec::new(),
        }
    }

    /// Refuses a client that matches no route: sends the alert and waits for the client to close.
    pub(crate) fn refuse(&mut self, alert: &[u8], io: &impl Io, token: u64, scratch: &mut [u8]) {
        self.begin_to_linger(alert.to_vec(), io, scratch);
        // As in a step.
        let _ = self.watch(io, token);
    }

    /// Sends the last output, which has the alert, at once. The result does not matter: the deadline
    /// ends the entry.
    fn begin_to_linger(&mut self, mut output: Vec<u8>, io: &impl Io, scratch: &mut [u8]) {
        let mut shut = false;
        linger(io, self.fd, &mut output, &mut shut, scratch);
        self.stage = Stage::Lingering {
            output,
            shut,
            reads: 0,
        };
    }

    /// Begins the handshake with the first bytes. A client that closed the connection while it was
    /// queued gets no answer.
    fn first_step(
        &mut self,
        early: Vec<u8>,
        work: &mut Workspace<impl Io>,
        now: UnixTime,
        waited: bool,
        start: impl FnOnce(u16) -> Option<Handshake>,
    ) -> HandshakeStep {
        let received = if early.is_empty() {
            match receive(self.fd, RECEIVE_MAX / 4, work) {
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
            return HandshakeStep::Ended;
        };
        let mut handshake = Box::new(handshake);
        let step = take(&work.io, self.fd, &mut handshake, received, now);
        self.stage = Stage::Shaking(handshake);
        step
    }

    /// The finished handshake. `None`: the handshake has not begun, or has failed.
    pub(crate) fn into_handshake(self) -> Option<Box<Handshake>> {
        match self.stage {
            Stage::Shaking(handshake) => Some(handshake),
            Stage::Waiting
            | Stage::ProxyHeader(_)
            | Stage::Choosing { .. }
            | Stage::Known(_)
            | Stage::Lingering { .. } => None,
        }
    }

    /// Whether the client may have sent its hello, and the worker has not read it yet.
    pub(crate) fn waits_for_turn(&self) -> bool {
        !self.has_begun() && !matches!(self.watch, Watch::Armed(_))
    }

    pub(crate) fn has_begun(&self) -> bool {
        match &self.stage {
            Stage::Waiting => false,
            Stage::ProxyHeader(header) => header.has_begun(),
            Stage::Choosing {
                received,
                has_header,
            } => *has_header || !received.is_empty(),
            Stage::Known(_) | Stage::Shaking(_) | Stage::Lingering { .. } => true,
        }
    }

    /// Whether the handshake has failed and waits for the peer to read our alert.
    pub(crate) fn is_lingering(&self) -> bool {
        matches!(self.stage, Stage::Lingering { .. })
    }

    /// Whether it has begun with the TLS context of its route.
    pub(crate) fn has_context(&self) -> bool {
        matches!(self.stage, Stage::Shaking(_))
    }

    /// Whether a trusted proxy sends a header, which names the client.
    pub(crate) fn expects_header(&self) -> bool {
        matches!(self.stage, Stage::ProxyHeader(_))
    }

    /// Whether the costly part is done. Also true for failed handshakes.
    pub(crate) fn has_answered(&self) -> bool {
        match &self.stage {
            Stage::Waiting | Stage::ProxyHeader(_) | Stage::Choosing { .. } | Stage::Known(_) => {
                false
            }
            Stage::Shaking(handshake) => handshake.has_answered(),
            Stage::Lingering { .. } => true,
        }
    }

    /// Whether the socket is in epoll.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch != Watch::Unwatched
    }

    fn watch(&mut self, io: &impl Io, token: u64) -> io::Result<()> {
        let blocked = match &self.stage {
            Stage::Waiting | Stage::ProxyHeader(_) | Stage::Choosing { .. } | Stage::Known(_) => {
                false
            }
            Stage::Shaking(handshake) => !handshake.output().is_empty(),
            Stage::Lingering { output, .. } => !output.is_empty(),
        };
        // A peer that does not read our flight is not read either: backpressure from the start.
        let interest = if blocked {
            Interest::WRITE
        } else {
            Interest::READ
        };
        match self.watch {
            Watch::Armed(armed) if armed == interest => return Ok(()),
            Watch::Unwatched => io.watch(self.fd, token, interest | Interest::ONCE)?,
            _ => io.rewatch(self.fd, token, interest | Interest::ONCE)?,
        }
        self.watch = Watch::Armed(interest);
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
        Err(_) => return HandshakeStep::Ended,
    }
    if work.may_read_ahead() {
        return receive_and_take(fd, handshake, RECEIVE_MAX / 4, work, now).1;
    }
    // The header of a record, then the record.
    for _ in 0..2 {
        let most = handshake.missing();
        let (received, step) = receive_and_take(fd, handshake, most, work, now);
        if received < most || !matches!(step, HandshakeStep::Continues) {
            return step;
        }
    }
    HandshakeStep::Continues
}

/// Passes at most `most` bytes to the handshake. Returns how many it has received.
fn receive_and_take(
    fd: Fd,
    handshake: &mut Handshake,
    most: usize,
    work: &mut Workspace<impl Io>,
    now: UnixTime,
) -> (usize, HandshakeStep) {
    match receive(fd, most, work) {
        Ok(Some(n)) => {
            let received = &work.scratch.opening[..n];
            (n, take(&work.io, fd, handshake, received, now))
        }
        Ok(None) => (0, HandshakeStep::Continues),
        Err(step) => (0, step),
    }
}

/// Receives more of a ClientHello, which may arrive in any number of pieces.
fn receive_hello(fd: Fd, received: &mut Vec<u8>, work: &mut Workspace<impl Io>) -> HandshakeStep {
    if !received.is_empty() && route_choice::can_choose(received) {
        return HandshakeStep::Hello;
    }
    match receive(fd, RECEIVE_MAX / 4, work) {
        Ok(Some(n)) => received.extend_from_slice(&work.scratch.opening[..n]),
        Ok(None) => return HandshakeStep::Continues,
        Err(step) => return step,
    }
    if route_choice::can_choose(received) {
        HandshakeStep::Hello
    } else {
        HandshakeStep::Continues
    }
}

/// Receives at most `most` bytes into the scratch buffer. `None`: no bytes are available.
fn receive(
    fd: Fd,
    most: usize,
    work: &mut Workspace<impl Io>,
) -> Result<Option<usize>, HandshakeStep> {
    let room = &mut work.scratch.opening[..most.min(RECEIVE_MAX / 4)];
    match work.io.recv(fd, room) {
        Ok(Attempt::Done(0)) | Err(_) => Err(HandshakeStep::Ended),
        Ok(Attempt::Done(n)) => Ok(Some(n)),
        Ok(Attempt::WouldBlock) => Ok(None),
    }
}

/// Passes received bytes to the handshake, and sends its output.
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
            Err(_) => HandshakeStep::Ended,
        },
        // Sends the tickets. Bytes that the socket does not take become pending bytes of the
        // connection.
        Ok(Progress::Established) => match flush(io, fd, handshake) {
            Ok(_) => HandshakeStep::Established,
            Err(_) => HandshakeStep::Ended,
        },
        Err(failure) => HandshakeStep::Failed(failure),
    }
}

/// Whether the client has closed or reset its connection after its hello, and so expects no answer.
fn has_given_up(io: &impl Io, fd: Fd) -> bool {
    matches!(io.peek(fd, &mut [0]), Ok(Attempt::Done(0)) | Err(_))
}

/// Sends the handshake's output. Returns `true` if the socket took all of it.
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

/// Sends the rest of the output, closes the sending direction, and discards what the peer sends.
fn linger(
    io: &impl Io,
    fd: Fd,
    output: &mut Vec<u8>,
    shut: &mut bool,
    scratch: &mut [u8],
) -> HandshakeStep {
    while !output.is_empty() {
        match io.send(fd, output) {
            Ok(Attempt::Done(n)) => drop(output.drain(..n)),
            Ok(Attempt::WouldBlock) => return HandshakeStep::Continues,
            Err(_) => return HandshakeStep::Ended,
        }
    }
    if !*shut {
        *shut = true;
        if io.shutdown_write(fd).is_err() {
            return HandshakeStep::Ended;
        }
    }
    if discard(io, fd, scratch) {
        HandshakeStep::Ended
    } else {
        HandshakeStep::Continues
    }
}
