//! One connection that is not established yet: its stages, of which each is consumed by the next.
//!
//! ```text
//!   AwaitsHeader ──> Speaking ──> AwaitsHello ──> Known ──> Shaking ──> established
//!   (from a trusted  (until TLS    (chooses a         │        └──failed──> Lingering
//!        proxy)        begins)         route)         └──> passed through
//! ```
//!
//! While a handshake shakes hands, it may wait for a signature with a key in a token (Signing), and for nothing else.
//!
//! Only a trusted proxy sends a header, only clients of a listener with STARTTLS speak before TLS, and the hello is read
//! ahead only if it must choose among routes. A stage makes its step when the socket is ready, and goes on to the next
//! stage at once if it can. What ends a connection is counted and logged where it is found.

use crate::client::Client;
use crate::close_reason::Party;
use crate::door::admission;
use crate::door::proxy_header::{ProxyHeader, Received};
use crate::established::NewSocket;
use crate::handshake::lingering::Lingering;
use crate::handshake::route_choice::{self, RouteChoice};
use crate::handshake::signing::Signing;
use crate::handshake::turn::{Goal, Turn};
use crate::handshake_log::{self as log, ClientHandshake};
use crate::io::{Io, flush_handshake};
use crate::memory::allowance::RECEIVE_MAX;
use crate::settings::Settings;
use crate::starttls::{Prelude, Spoken};
use crate::workspace::Workspace;
use dormouse_config::Starttls;
use dormouse_engine::{Blame, FailureKind, Handshake, HandshakeFailure, Progress, ServerContext};
use dormouse_handover::signing::Signed;
use dormouse_reactor::Fd;
use dormouse_reactor::poller::Interest;
use dormouse_reactor::socket::Attempt;
use dormouse_routes::route::Direction;
use dormouse_tables::counters::Count;
use std::io;
use std::rc::Rc;

/// Maximum bytes received at a time.
const FLIGHT_MAX: usize = RECEIVE_MAX / 4;

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
    pub(crate) newcomer: Newcomer,
    /// `None` only during a step.
    stage: Option<Stage>,
}

/// What stays the same through all stages.
pub(crate) struct Newcomer {
    pub(crate) fd: Fd,
    pub(crate) client: Client,
    /// The listener's first route, which says whose PROXY headers are trusted.
    first_route: u16,
    /// Where the connection goes. `None`: the ClientHello has not chosen yet.
    pub(crate) goal: Option<Goal>,
    pub(crate) accepted_ms: u64,
    /// Time of the last step, or of the accept.
    stepped_ms: u64,
    watch: Watch,
    /// Whether its hello was looked at for a key agreement.
    pub(crate) looked_at: bool,
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

pub(crate) enum Stage {
    AwaitsHeader(AwaitsHeader),
    Speaking(Speaking),
    AwaitsHello(AwaitsHello),
    Known(Known),
    Shaking(Shaking),
    Signing(Signing),
    Lingering(Lingering),
}

/// Receives a trusted proxy's header.
pub(crate) struct AwaitsHeader {
    header: ProxyHeader,
    candidates: Option<Rc<[u16]>>,
}

/// Answers the client in plaintext until it starts TLS.
pub(crate) struct Speaking {
    prelude: Prelude,
    candidates: Option<Rc<[u16]>>,
    /// A proxy header came first, so the connection has begun even if the client has sent nothing.
    has_header: bool,
}

/// Receives the ClientHello that chooses the route.
pub(crate) struct AwaitsHello {
    received: Vec<u8>,
    candidates: Rc<[u16]>,
    /// Something else came first, so the connection has begun even if `received` is empty.
    has_begun: bool,
}

/// Client and route are known, and the handshake begins with the next bytes.
pub(crate) struct Known {
    /// The bytes received so far.
    received: Vec<u8>,
    /// Something was received before: a proxy header, plaintext, or these bytes.
    has_begun: bool,
}

/// Shakes hands.
pub(crate) struct Shaking {
    handshake: Box<Handshake>,
}

/// What has become of a connection after its step.
pub(crate) enum Next {
    /// It waits for its socket.
    Waits(Stage),
    /// It waits for a signature.
    AwaitsSignature(Signing),
    /// Its handshake has just failed, and it waits for the peer to read our alert.
    Lingers(Lingering),
    /// The handshake is done.
    Established(Box<Handshake>),
    /// The route passes TLS through; these bytes were received so far.
    PassesThrough(Vec<u8>),
    /// It must be closed.
    Over,
}

// ---- the stages ----

impl Stage {
    /// Makes a step.
    pub(crate) fn step<I: Io>(self, newcomer: &mut Newcomer, turn: &mut Turn<'_, I>) -> Next {
        newcomer.stepped_ms = turn.work.now_ms;
        match self {
            Stage::AwaitsHeader(stage) => stage.step(newcomer, turn),
            Stage::Speaking(stage) => stage.step(newcomer, turn),
            Stage::AwaitsHello(stage) => stage.step(newcomer, turn),
            Stage::Known(stage) => stage.step(newcomer, turn),
            Stage::Shaking(stage) => stage.step(newcomer, turn),
            Stage::Signing(stage) => {
                let (progress, handshake) = stage.sign();
                Shaking { handshake }.answer(progress, newcomer, turn)
            }
            Stage::Lingering(mut stage) => match stage.is_over(newcomer.fd, turn.work) {
                true => Next::Over,
                false => Next::Waits(Stage::Lingering(stage)),
            },
        }
    }

    /// Whether anything was received, so that the connection uses the heap.
    fn has_begun(&self) -> bool {
        match self {
            Stage::AwaitsHeader(stage) => stage.header.has_begun(),
            Stage::Speaking(stage) => stage.has_begun(),
            Stage::AwaitsHello(stage) => stage.has_begun(),
            Stage::Known(stage) => stage.has_begun,
            Stage::Shaking(_) | Stage::Signing(_) | Stage::Lingering(_) => true,
        }
    }

    /// Whether the peer must read before it may send. It is not read meanwhile: backpressure from the start.
    fn is_blocked(&self) -> bool {
        match self {
            Stage::AwaitsHeader(_) | Stage::AwaitsHello(_) | Stage::Known(_) => false,
            Stage::Signing(_) => false,
            Stage::Speaking(stage) => !stage.prelude.output().is_empty(),
            Stage::Shaking(stage) => !stage.handshake.output().is_empty(),
            Stage::Lingering(stage) => stage.is_blocked(),
        }
    }
}

impl AwaitsHeader {
    /// Receives more of the header. When it is complete, checks the client that it names before the client's first byte
    /// is read. From there on, the connection is handled as if the client had connected directly.
    fn step<I: Io>(mut self, newcomer: &mut Newcomer, turn: &mut Turn<'_, I>) -> Next {
        let Turn { settings, work, .. } = turn;
        let scratch = &mut work.scratch.opening;
        match self.header.receive(&work.io, newcomer.fd, scratch) {
            Received::Part => return Next::Waits(Stage::AwaitsHeader(self)),
            Received::Ended => return newcomer.end(self.header.has_begun(), turn),
            Received::Invalid(error) => {
                log::bad_header(&newcomer.client, error, work);
                return Next::Over;
            }
            Received::Whole => {}
        }
        let (endpoints, received) = self.header.into_parts();
        newcomer.client.proxied = endpoints;
        if !newcomer.admit(settings, work) {
            return Next::Over;
        }
        let protocol = newcomer.starttls(turn.settings);
        if protocol == Starttls::Off {
            return begin_tls(received, self.candidates, newcomer, turn);
        }
        let speaking = Speaking {
            prelude: Prelude::new(protocol),
            candidates: self.candidates,
            has_header: true,
        };
        speaking.continue_with(&received, newcomer, turn)
    }
}

/// Goes on with the handshake, with the bytes received so far, after a header or a plaintext dialogue.
fn begin_tls<I: Io>(
    received: Vec<u8>,
    candidates: Option<Rc<[u16]>>,
    newcomer: &mut Newcomer,
    turn: &mut Turn<'_, I>,
) -> Next {
    let has_begun = true;
    match candidates {
        None => Known {
            received,
            has_begun,
        }
        .step(newcomer, turn),
        Some(candidates) => AwaitsHello {
            received,
            candidates,
            has_begun,
        }
        .step(newcomer, turn),
    }
}

impl Speaking {
    fn has_begun(&self) -> bool {
        self.has_header || self.prelude.has_begun()
    }

    /// Sends what is to be said, then receives more.
    fn step<I: Io>(self, newcomer: &mut Newcomer, turn: &mut Turn<'_, I>) -> Next {
        self.continue_with(&[], newcomer, turn)
    }

    fn continue_with<I: Io>(
        mut self,
        received: &[u8],
        newcomer: &mut Newcomer,
        turn: &mut Turn<'_, I>,
    ) -> Next {
        let host = newcomer.host(turn.settings);
        let Workspace { io, scratch, .. } = &mut *turn.work;
        let spoken = (self.prelude).speak(received, host, io, newcomer.fd, &mut scratch.opening);
        match spoken {
            Spoken::Part => Next::Waits(Stage::Speaking(self)),
            Spoken::Whole => begin_tls(
                self.prelude.into_received(),
                self.candidates,
                newcomer,
                turn,
            ),
            Spoken::Ended => newcomer.end(self.has_begun(), turn),
            Spoken::Refused(reason) => {
                let failure = HandshakeFailure {
                    blame: Blame::Peer,
                    kind: FailureKind::NotTls,
                    reason: format!("STARTTLS: {reason}"),
                    alert_sent: None,
                };
                newcomer.fail(&failure, self.prelude.into_output(), turn)
            }
        }
    }
}

impl AwaitsHello {
    fn has_begun(&self) -> bool {
        self.has_begun || !self.received.is_empty()
    }

    /// Receives more of a ClientHello, which may arrive in any number of pieces.
    fn step<I: Io>(mut self, newcomer: &mut Newcomer, turn: &mut Turn<'_, I>) -> Next {
        if self.received.is_empty() || !route_choice::can_choose(&self.received) {
            match newcomer.receive(FLIGHT_MAX, turn.work) {
                Ok(Some(n)) => {
                    let received = &turn.work.scratch.opening[..n];
                    self.received.extend_from_slice(received);
                }
                Ok(None) => return Next::Waits(Stage::AwaitsHello(self)),
                Err(Gone) => return newcomer.end(self.has_begun(), turn),
            }
        }
        match route_choice::can_choose(&self.received) {
            true => self.choose(newcomer, turn),
            false => Next::Waits(Stage::AwaitsHello(self)),
        }
    }

    /// Chooses the route, and checks whether it allows the client.
    fn choose<I: Io>(self, newcomer: &mut Newcomer, turn: &mut Turn<'_, I>) -> Next {
        let Turn { settings, work, .. } = turn;
        let received = &self.received;
        match route_choice::choose(received, &self.candidates, settings, turn.challenges) {
            RouteChoice::Challenge(number) => {
                newcomer.goal = Some(Goal::Challenge(number));
                self.begin(newcomer, turn)
            }
            RouteChoice::None => newcomer.end(true, turn),
            RouteChoice::UnknownName(failure, alert) => {
                let (client, candidates) = (&newcomer.client, &self.candidates);
                if !admission::admit_network_of_any(candidates, client, settings, work) {
                    return Next::Over;
                }
                newcomer.fail(&failure, alert.to_vec(), turn)
            }
            RouteChoice::Route(number, server_name) => {
                newcomer.goal = Some(Goal::Route(number));
                let client = &newcomer.client;
                if !admission::admit_network(number, client, settings, work)
                    || !admission::admit_by_route(number, client, settings, work)
                {
                    return Next::Over;
                }
                let route = settings
                    .route(number)
                    .filter(|route| route.passes_through());
                let Some(route) = route else {
                    return self.begin(newcomer, turn);
                };
                let client = newcomer.client.ip();
                if settings.limits.log_handshakes || work.traces.takes(client, work.now_ms) {
                    log::passed_through(route, &newcomer.client, server_name.as_deref());
                }
                Next::PassesThrough(self.received)
            }
        }
    }

    fn begin<I: Io>(self, newcomer: &mut Newcomer, turn: &mut Turn<'_, I>) -> Next {
        let known = Known {
            received: self.received,
            has_begun: true,
        };
        known.step(newcomer, turn)
    }
}

impl Known {
    /// Begins the handshake with the first bytes. A client that closed the connection while it was
    /// queued gets no answer.
    fn step<I: Io>(self, newcomer: &mut Newcomer, turn: &mut Turn<'_, I>) -> Next {
        let n = match self.received.is_empty() {
            true => match newcomer.receive(FLIGHT_MAX, turn.work) {
                Ok(Some(n)) => n,
                Ok(None) => return Next::Waits(Stage::Known(self)),
                Err(Gone) => return newcomer.end(self.has_begun, turn),
            },
            false => 0,
        };
        if turn.waited && newcomer.has_given_up(&turn.work.io) {
            let reason = "the client closed the connection while it was queued";
            let handshake = newcomer.described(turn.settings, turn.work.now_ms);
            log::client_ended(Party::Client, reason, handshake, turn.work);
            turn.work.count.add(Count::HandshakesGivenUp, 1);
            return Next::Over;
        }
        let Some(handshake) = turn.start(newcomer.goal) else {
            return newcomer.end(self.has_begun, turn);
        };
        let mut handshake = Box::new(handshake);
        let received = match n {
            0 => self.received.as_slice(),
            n => &turn.work.scratch.opening[..n],
        };
        let progress = handshake.handle_input(turn.work.io.unix_time(), received);
        Shaking { handshake }.answer(progress, newcomer, turn)
    }
}

impl Shaking {
    fn step<I: Io>(mut self, newcomer: &mut Newcomer, turn: &mut Turn<'_, I>) -> Next {
        match flush_handshake(&turn.work.io, newcomer.fd, &mut self.handshake) {
            Ok(true) => {}
            Ok(false) => return Next::Waits(Stage::Shaking(self)),
            Err(_) => return newcomer.end(true, turn),
        }
        // While memory is short, nothing is read of what follows the record: it could not be stored.
        let most = match turn.work.may_read_ahead() {
            true => FLIGHT_MAX,
            false => self.handshake.missing(),
        };
        let n = match newcomer.receive(most, turn.work) {
            Ok(Some(n)) => n,
            Ok(None) => return Next::Waits(Stage::Shaking(self)),
            Err(Gone) => return newcomer.end(true, turn),
        };
        let received = &turn.work.scratch.opening[..n];
        let progress = (self.handshake).handle_input(turn.work.io.unix_time(), received);
        self.answer(progress, newcomer, turn)
    }

    /// Sends the handshake's output. Of a finished handshake that is the tickets; bytes that the socket does not take
    /// become pending bytes of the connection.
    fn answer<I: Io>(
        mut self,
        progress: Result<Progress, HandshakeFailure>,
        newcomer: &mut Newcomer,
        turn: &mut Turn<'_, I>,
    ) -> Next {
        let progress = match progress {
            Ok(progress) => progress,
            Err(failure) => {
                let output = self.handshake.output().to_vec();
                return newcomer.fail(&failure, output, turn);
            }
        };
        if flush_handshake(&turn.work.io, newcomer.fd, &mut self.handshake).is_err() {
            return newcomer.end(true, turn);
        }
        match progress {
            Progress::Handshaking if self.handshake.signature_request().is_some() => {
                Next::AwaitsSignature(Signing::new(self.handshake))
            }
            Progress::Handshaking => Next::Waits(Stage::Shaking(self)),
            Progress::Established => Next::Established(self.handshake),
        }
    }
}

// ---- the connection ----

/// The connection has ended or failed.
struct Gone;

impl Newcomer {
    /// Receives at most `most` bytes into the scratch buffer. `None`: no bytes are available.
    fn receive<I: Io>(&self, most: usize, work: &mut Workspace<I>) -> Result<Option<usize>, Gone> {
        let room = &mut work.scratch.opening[..most.min(FLIGHT_MAX)];
        match work.io.recv(self.fd, room) {
            Ok(Attempt::Done(0)) | Err(_) => Err(Gone),
            Ok(Attempt::Done(n)) => Ok(Some(n)),
            Ok(Attempt::WouldBlock) => Ok(None),
        }
    }

    /// Whether the client has closed or reset its connection after its hello, and so expects no answer.
    fn has_given_up(&self, io: &impl Io) -> bool {
        matches!(io.peek(self.fd, &mut [0]), Ok(Attempt::Done(0)) | Err(_))
    }

    /// Ends a connection whose client has ended it. One without a byte is a health check of TCP: it is no handshake.
    fn end<I: Io>(&self, has_begun: bool, turn: &mut Turn<'_, I>) -> Next {
        if has_begun {
            let handshake = self.described(turn.settings, turn.work.now_ms);
            let reason = "the client's connection ended";
            log::client_ended(Party::Client, reason, handshake, turn.work);
        }
        Next::Over
    }

    /// Ends a handshake with an alert, which is in `output`.
    fn fail<I: Io>(
        &self,
        failure: &HandshakeFailure,
        output: Vec<u8>,
        turn: &mut Turn<'_, I>,
    ) -> Next {
        let lingering = Lingering::begin(output, self.fd, turn.work);
        let handshake = self.described(turn.settings, turn.work.now_ms);
        log::client_failed(failure, handshake, turn.work);
        Next::Lingers(lingering)
    }

    /// Checks whether the client may begin a handshake. If the route is not chosen yet, its networks are
    /// checked after the choice.
    pub(crate) fn admit<I>(&self, settings: &Settings, work: &mut Workspace<I>) -> bool {
        match self.goal {
            Some(Goal::Route(route)) => admission::admit(route, &self.client, settings, work),
            Some(Goal::Challenge(_)) | None => {
                admission::admit_rate(&self.client, &settings.limits, work)
            }
        }
    }

    /// How clients of the listener ask for TLS.
    fn starttls(&self, settings: &Settings) -> Starttls {
        let route = settings.route(self.first_route);
        route.map_or(Starttls::Off, |route| route.starttls)
    }

    /// The name of the server, for clients that ask for TLS.
    fn host<'a>(&self, settings: &'a Settings) -> &'a str {
        settings.route_or_removed(self.first_route).filter.host()
    }

    /// What log lines say of the handshake.
    pub(crate) fn described<'a>(
        &'a self,
        settings: &'a Settings,
        now_ms: u64,
    ) -> ClientHandshake<'a> {
        let number = match self.goal {
            Some(Goal::Route(number)) => Some(number),
            Some(Goal::Challenge(_)) | None => None,
        };
        ClientHandshake {
            client: &self.client,
            route: number.and_then(|number| Some((number, settings.route(number)?))),
            took_ms: now_ms.saturating_sub(self.accepted_ms),
            log_each: settings.limits.log_handshakes,
        }
    }

    /// The route whose settings hold for the connection: the chosen one, or the listener's first. `None`: a challenge.
    pub(crate) fn route(&self) -> Option<u16> {
        match self.goal {
            None => Some(self.first_route),
            Some(Goal::Route(number)) => Some(number),
            Some(Goal::Challenge(_)) => None,
        }
    }

    /// The socket of a connection that gets a slot.
    pub(crate) fn socket(&self, route: u16, generation: u32) -> NewSocket {
        NewSocket {
            fd: self.fd,
            route,
            generation,
            is_watched: self.watch != Watch::Unwatched,
        }
    }

    fn watch(&mut self, stage: &Stage, io: &impl Io, token: u64) -> io::Result<()> {
        let interest = match stage.is_blocked() {
            true => Interest::WRITE,
            false => Interest::READ,
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

impl InFlight {
    /// Creates the entry of a connection that was just accepted. `is_proxy`: a proxy header comes
    /// first. `starttls`: how the client asks for TLS.
    pub(crate) fn new(
        accepted: NewConnection,
        is_proxy: bool,
        starttls: Starttls,
        now_ms: u64,
    ) -> InFlight {
        let NewConnection {
            fd,
            client,
            route,
            candidates,
        } = accepted;
        let goal = candidates.is_none().then_some(Goal::Route(route));
        let stage = match (is_proxy, candidates) {
            (false, candidates) if starttls != Starttls::Off => Stage::Speaking(Speaking {
                prelude: Prelude::new(starttls),
                candidates,
                has_header: false,
            }),
            (true, candidates) => Stage::AwaitsHeader(AwaitsHeader {
                header: ProxyHeader::default(),
                candidates,
            }),
            (false, Some(candidates)) => Stage::AwaitsHello(AwaitsHello {
                received: Vec::new(),
                candidates,
                has_begun: false,
            }),
            (false, None) => Stage::Known(Known {
                received: Vec::new(),
                has_begun: false,
            }),
        };
        let newcomer = Newcomer {
            fd,
            client,
            first_route: route,
            goal,
            accepted_ms: now_ms,
            stepped_ms: now_ms,
            watch: Watch::Unwatched,
            looked_at: false,
        };
        InFlight {
            newcomer,
            stage: Some(stage),
        }
    }

    /// Makes a step.
    pub(crate) fn step<I: Io>(&mut self, turn: &mut Turn<'_, I>) -> Next {
        let stage = self.stage.take();
        let stage = stage.expect("between two steps a connection has a stage");
        stage.step(&mut self.newcomer, turn)
    }

    /// Puts the connection into this stage, until its socket is ready.
    pub(crate) fn wait(&mut self, stage: Stage, io: &impl Io, token: u64) -> io::Result<()> {
        let watched = self.newcomer.watch(&stage, io, token);
        self.stage = Some(stage);
        watched
    }

    /// Puts the connection into the stage in which it waits for a signature. Its socket is not watched.
    pub(crate) fn await_signature(&mut self, stage: Signing) {
        self.stage = Some(Stage::Signing(stage));
    }

    /// Takes the signature. `false`: it is not awaited.
    pub(crate) fn take_signature(&mut self, signed: Signed) -> bool {
        match &mut self.stage {
            Some(Stage::Signing(stage)) => stage.take(signed),
            _ => false,
        }
    }

    /// Notes that epoll has reported the socket, which disarms it.
    pub(crate) fn note_reported(&mut self) {
        self.newcomer.watch = Watch::Reported;
    }

    /// Returns the context that a hello not looked at yet will probably use; before its choice, that of the first route.
    pub(crate) fn expected_context<'a>(&self, settings: &'a Settings) -> Option<&'a ServerContext> {
        let reads_hello = match &self.stage {
            Some(Stage::Known(Known { received, .. })) => received.is_empty(),
            Some(Stage::AwaitsHello(stage)) => stage.received.is_empty(),
            _ => false,
        };
        let is_new = reads_hello && !self.newcomer.looked_at;
        let route = self.newcomer.route().filter(|_| is_new)?;
        match &settings.route(route)?.direction {
            Direction::Terminate { context, .. } => context.as_ref(),
            Direction::PassThrough(_) | Direction::Originate(_) | Direction::Removed => None,
        }
    }

    /// Whether the client has sent nothing since this time.
    pub(crate) fn is_silent_since(&self, before_ms: u64) -> bool {
        let is_asked = !matches!(self.stage, Some(Stage::Signing(_)));
        is_asked && self.newcomer.stepped_ms < before_ms
    }

    /// Whether the client may have sent its hello, and the worker has not read it yet.
    pub(crate) fn waits_for_turn(&self) -> bool {
        !self.has_begun() && !matches!(self.newcomer.watch, Watch::Armed(_))
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.stage.as_ref().is_some_and(Stage::has_begun)
    }

    /// Whether the handshake has failed and waits for the peer to read our alert.
    pub(crate) fn is_lingering(&self) -> bool {
        matches!(self.stage, Some(Stage::Lingering(_)))
    }

    /// Whether it has begun with the TLS context of its route.
    pub(crate) fn has_context(&self) -> bool {
        matches!(self.stage, Some(Stage::Shaking(_) | Stage::Signing(_)))
    }

    /// Whether a trusted proxy sends a header, which names the client.
    pub(crate) fn expects_header(&self) -> bool {
        matches!(self.stage, Some(Stage::AwaitsHeader(_)))
    }

    /// Whether the costly part is done. Also true for failed handshakes.
    pub(crate) fn has_answered(&self) -> bool {
        match &self.stage {
            Some(Stage::Shaking(stage)) => stage.handshake.has_answered(),
            stage => matches!(stage, Some(Stage::Signing(_) | Stage::Lingering(_))),
        }
    }
}
