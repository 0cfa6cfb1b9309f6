//! Handshakes with clients: from the accepted socket to the record at rest.
//!
//! A turn gives handshakes their turns for a bounded time, so that a storm of newcomers does not
//! slow down established connections. A handshake that is done becomes a slot at once.

pub(crate) mod challenge;
pub(crate) mod in_flight;
pub(crate) mod log;
pub(crate) mod queue;
pub(crate) mod route_choice;
pub(crate) mod table;

use crate::bursts::Subject;
use crate::context::WorkerContext;
use crate::door::admission;
use crate::door::client::Client;
use crate::established::NewSocket;
use crate::established::step::Event;
use crate::io::Io;
use crate::proxy_protocol::Refused;
use crate::settings::Settings;
use crate::token::{self, Id};
use crate::traffic;
use crate::workspace::Workspace;
use challenge::Challenge;
use dormouse_engine::{ExpectedHandshake, Handshake, HandshakeLimits};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Attempt;
use dormouse_routes::route::{Direction, Route};
use dormouse_tables::counters::Count;
use dormouse_tables::latency::Latency;
use in_flight::{HandshakeStep, InFlight, Turn};
use queue::Queue;
use route_choice::RouteChoice;
use std::rc::Rc;
use table::HandshakeTable;

/// Looked at of a hello, to see whether its client resumes a session: tickets are at the end.
const HELLO_MAX: usize = 4096;

/// When `max_handshakes` have begun and others wait, handshakes make room whose client has been
/// silent for this part of `handshake_timeout`.
const SILENT_PART: u64 = 4;

/// How often that is looked at.
const SILENT_LOOK_MS: u64 = 100;

/// The number of the route of a handshake that answers a challenge. No route has it.
const CHALLENGE_ROUTE: u16 = u16::MAX;

/// A client that was accepted.
pub(crate) struct Newcomer {
    pub(crate) fd: Fd,
    pub(crate) client: Client,
    /// Of several routes, the first.
    pub(crate) route: u16,
    /// The routes it may be for, if its hello must tell.
    pub(crate) candidates: Option<Rc<[u16]>>,
}

/// Handshakes with clients.
pub(crate) struct Handshakes {
    table: HandshakeTable,
    queue: Queue,
    /// The challenge that is open.
    challenge: Option<Challenge>,
    /// When to look next for silent clients, while every handshake's place is taken.
    silent_look_ms: u64,
}

impl Handshakes {
    /// No handshakes.
    pub(crate) fn new() -> Handshakes {
        Handshakes {
            table: HandshakeTable::new(),
            queue: Queue::default(),
            challenge: None,
            silent_look_ms: 0,
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.table.live()
    }

    /// A challenge is open from now on, or none is.
    pub(crate) fn set_challenge(&mut self, challenge: Option<Challenge>) {
        self.challenge = challenge;
    }

    /// Must the hello be read before the route of a client is known?
    pub(crate) fn has_challenge(&self) -> bool {
        self.challenge.is_some()
    }

    /// Does a client wait that has not begun?
    pub(crate) fn has_newcomers(&self) -> bool {
        self.queue.has_newcomers()
    }

    /// Has a burst ended since this was last asked? Its memory is freed here.
    pub(crate) fn burst_ended(&mut self) -> bool {
        let Some(was_burst) = self.table.burst_ended() else {
            return false;
        };
        self.queue = Queue::default();
        was_burst
    }

    /// When to look again; `others`: see [`Handshakes::turn`].
    pub(crate) fn next_deadline_ms(
        &self,
        others: usize,
        settings: &Settings,
        now_ms: u64,
    ) -> Option<u64> {
        let may_begin = self.may_begin(others, settings);
        if self.queue.is_ready(may_begin) {
            return Some(now_ms);
        }
        let waits = self.queue.has_newcomers() && !may_begin;
        let deadlines = [
            waits.then_some(self.silent_look_ms),
            self.table.next_deadline_ms(),
        ];
        deadlines.into_iter().flatten().min()
    }

    // ---- accepted ----

    /// Takes a newcomer in, if it may connect. It waits for its turn, with nothing in the heap.
    pub(crate) fn begin<I: Io>(&mut self, newcomer: Newcomer, cx: &mut WorkerContext<I>) {
        let Newcomer {
            fd,
            client,
            route,
            candidates,
        } = newcomer;
        cx.work.count.add(Count::Accepted, 1);
        let configured = cx.settings.route(route);
        let is_proxy = configured.is_some_and(|r| client.is_proxy(&r.access.accept_proxy_from));
        if !is_proxy
            && !admit(
                route,
                candidates.is_some(),
                &client,
                &cx.settings,
                &mut cx.work,
            )
        {
            return cx.work.io.close(fd);
        }
        if let Some(route) = configured {
            cx.work.io.set_client_options(&route.sockets, fd);
        }
        let generation = cx.work.next_generation();
        let deadline_ms = cx.work.now_ms + cx.settings.limits.handshake_timeout_ms;
        let id = self.table.begin(
            (fd, client),
            is_proxy,
            (route, candidates),
            generation,
            cx.work.now_ms,
            deadline_ms,
        );
        // Often the ClientHello is there already; epoll is told when it is not.
        self.queue.push_new(id, cx.work.now_ms);
    }

    /// Epoll has reported a handshake: it waits for its turn.
    pub(crate) fn on_ready(&mut self, id: Id, now_ms: u64) {
        let Some(entry) = self.table.entry(id) else {
            return;
        };
        entry.note_reported();
        if entry.has_answered() {
            self.queue.push_known(id);
        } else {
            self.queue.push_new(id, now_ms);
        }
    }

    // ---- turns ----

    /// Gives turns to handshakes until the time is up; the first step is always made. `others` are
    /// handshakes with servers, which count towards the same limit.
    pub(crate) fn turn<I: Io>(&mut self, until_us: u64, others: usize, cx: &mut WorkerContext<I>) {
        if self.queue.has_newcomers() {
            self.sort_newcomers(&mut cx.work);
            self.evict_silent(others, cx);
        }
        loop {
            let may_begin = self.may_begin(others, &cx.settings);
            let next = self.queue.next(cx.work.now_ms, may_begin);
            let Some((id, waited)) = next else {
                return;
            };
            self.advance(id, waited, cx);
            if cx.work.io.monotonic_us() >= until_us {
                return;
            }
        }
    }

    /// Is there a place for a handshake that has not begun?
    fn may_begin(&self, others: usize, settings: &Settings) -> bool {
        self.table.begun() + others < settings.limits.handshakes_max
    }

    /// Every place is taken and a client waits: handshakes whose client has been silent for long
    /// lose theirs.
    fn evict_silent<I: Io>(&mut self, others: usize, cx: &mut WorkerContext<I>) {
        if self.may_begin(others, &cx.settings) || cx.work.now_ms < self.silent_look_ms {
            return;
        }
        self.silent_look_ms = cx.work.now_ms + SILENT_LOOK_MS;
        cx.work.count.add(Count::PausedHandshakes, 1);
        cx.work
            .bursts
            .note(Subject::Paused, cx.work.now_ms, |more| {
                tracing::warn!(more, "handshakes queued: max_handshakes reached");
            });
        let silent_ms = cx.settings.limits.handshake_timeout_ms / SILENT_PART;
        let before_ms = cx.work.now_ms.saturating_sub(silent_ms);
        while let Some(id) = self.table.oldest_silent(before_ms) {
            cx.work.count.add(Count::HandshakesSilent, 1);
            self.drop_handshake(id, &mut cx.work);
        }
    }

    /// Finds out which clients resume a session, by a look at hellos that stay in the kernel.
    fn sort_newcomers<I: Io>(&mut self, work: &mut Workspace<I>) {
        let Handshakes { table, queue, .. } = self;
        let Workspace { io, scratch, .. } = work;
        let hello = &mut scratch.opening[..HELLO_MAX];
        queue.sort(|id| {
            let Some(entry) = table.entry(id) else {
                return false;
            };
            match io.peek(entry.fd, hello) {
                Ok(Attempt::Done(n)) => match ExpectedHandshake::of(&hello[..n]) {
                    ExpectedHandshake::Resumption => true,
                    ExpectedHandshake::Full => false,
                    // Storing what there is is cheap.
                    ExpectedHandshake::Incomplete => n < HELLO_MAX,
                },
                // Whatever it is, it costs no signature.
                Ok(Attempt::WouldBlock) | Err(_) => true,
            }
        });
    }

    /// Makes a step of a handshake, and acts on where it led.
    fn advance<I: Io>(&mut self, id: Id, waited: bool, cx: &mut WorkerContext<I>) {
        let Some(step) = self.step(id, waited, cx) else {
            return;
        };
        let Some(entry) = self.table.entry(id) else {
            return;
        };
        let (client, is_lingering) = (entry.client, entry.is_lingering());
        let route = known_route(entry, &cx.settings);
        let name = route.map(|(_, route)| route.name.as_str());
        let took_ms = cx.work.now_ms.saturating_sub(entry.accepted_ms);
        let each_ms = cx.settings.limits.log_handshakes.then_some(took_ms);
        match step {
            HandshakeStep::Continues | HandshakeStep::Introduced | HandshakeStep::Hello => {}
            HandshakeStep::Established => {
                self.establish(id, cx);
            }
            HandshakeStep::PassesThrough => {
                self.pass_through(id, cx);
            }
            HandshakeStep::Denied => self.drop_handshake(id, &mut cx.work),
            HandshakeStep::NotIntroduced(refused) => {
                log_bad_header(&client, refused, &mut cx.work);
                self.drop_handshake(id, &mut cx.work);
            }
            HandshakeStep::GivenUp => {
                let why = "the client closed the connection while it was queued";
                log_gone("peer", why, name, &client, each_ms);
                cx.work.count.add(Count::HandshakesGivenUp, 1);
                self.drop_handshake(id, &mut cx.work);
            }
            HandshakeStep::Gone => {
                if !is_lingering {
                    let why = "the client's connection ended";
                    log_gone("peer", why, name, &client, each_ms);
                }
                self.drop_handshake(id, &mut cx.work);
            }
            HandshakeStep::Failed(failure) => {
                log::client_failed(&failure, &client, each_ms, route, &mut cx.work);
                self.table.note_lingering(id, cx.work.now_ms);
            }
        }
    }

    /// A step of the handshake. When a proxy has said who the client is, that one must be admitted
    /// before its first byte is looked at; when its hello is there, its route must be found.
    fn step<I: Io>(
        &mut self,
        id: Id,
        waited: bool,
        cx: &mut WorkerContext<I>,
    ) -> Option<HandshakeStep> {
        loop {
            match self.one_step(id, waited, cx)? {
                HandshakeStep::Introduced => {
                    let entry = self.table.entry(id)?;
                    let (route, client) = (entry.route, entry.client);
                    if !admit(
                        route,
                        entry.has_choice(),
                        &client,
                        &cx.settings,
                        &mut cx.work,
                    ) {
                        return Some(HandshakeStep::Denied);
                    }
                }
                HandshakeStep::Hello => {
                    let decided = self.choose_route(id, cx);
                    if decided.is_some() {
                        return decided;
                    }
                }
                step => return Some(step),
            }
        }
    }

    fn one_step<I: Io>(
        &mut self,
        id: Id,
        waited: bool,
        cx: &mut WorkerContext<I>,
    ) -> Option<HandshakeStep> {
        let WorkerContext { settings, work, .. } = cx;
        let limits = HandshakeLimits {
            bytes_max: settings.limits.handshake_bytes_max,
        };
        let turn = Turn {
            token: token::handshake(id),
            now: work.io.unix_time(),
            timeout_ms: settings.limits.handshake_timeout_ms,
            work,
            waited,
        };
        let challenge = self.challenge.as_ref();
        self.table.step(id, turn, |route| {
            if route == CHALLENGE_ROUTE {
                return Some(challenge?.handshake(limits));
            }
            match &settings.route(route)?.direction {
                Direction::Terminate { context, .. } => {
                    Some(Handshake::server(context.as_ref()?, limits))
                }
                Direction::PassThrough(_) | Direction::Originate(_) | Direction::Gone => None,
            }
        })
    }

    /// The hello of this client is there: finds the route it is for. `None`: its handshake goes on
    /// with that route.
    fn choose_route<I: Io>(&mut self, id: Id, cx: &mut WorkerContext<I>) -> Option<HandshakeStep> {
        let WorkerContext { settings, work, .. } = cx;
        let entry = self.table.entry(id)?;
        let client = entry.client;
        let (received, candidates) = entry.hello()?;
        let challenge = self.challenge.as_ref();
        match route_choice::choose(received, &candidates, settings, challenge) {
            RouteChoice::Challenge => {
                entry.route = CHALLENGE_ROUTE;
                entry.is_chosen();
                None
            }
            RouteChoice::None => Some(HandshakeStep::Gone),
            RouteChoice::UnknownName(failure, alert) => {
                let token = token::handshake(id);
                let told = entry.refuse(&alert, &work.io, token, &mut work.scratch.opening);
                Some(told.map_or(HandshakeStep::Gone, |()| HandshakeStep::Failed(failure)))
            }
            RouteChoice::Route(number, server_name) => {
                entry.route = number;
                if !admission::admit_network(number, &client, settings, work) {
                    return Some(HandshakeStep::Denied);
                }
                let route = settings.route(number)?;
                if !route.passes_through() {
                    entry.is_chosen();
                    return None;
                }
                if settings.limits.log_handshakes {
                    let backend = &route.backend_name;
                    let route = route.name.as_str();
                    tracing::info!(route, peer = %client, server_name, %backend, "connection passed through");
                }
                Some(HandshakeStep::PassesThrough)
            }
        }
    }

    // ---- the end of a handshake ----

    /// The handshake is done: from here on the connection is its slot.
    fn establish<I: Io>(&mut self, id: Id, cx: &mut WorkerContext<I>) {
        let Some(entry) = self.table.take(id) else {
            return;
        };
        let client = entry.client;
        if entry.route == CHALLENGE_ROUTE {
            cx.work.count.add(Count::ChallengesAnswered, 1);
            tracing::info!(%client, "ACME challenge answered");
            return cx.work.io.close(entry.fd);
        }
        let socket = NewSocket {
            fd: entry.fd,
            route: entry.route,
            generation: id.1,
            is_watched: entry.is_watched(),
        };
        let took_ms = cx.work.now_ms.saturating_sub(entry.accepted_ms);
        let Some(handshake) = entry.into_handshake() else {
            return cx.work.io.close(socket.fd);
        };
        cx.admit(&socket, |slot, settings, work| {
            let limits = &settings.limits;
            match handshake.rest(&mut slot.tls) {
                Ok(rested) => {
                    // Whether or not there is room for another one of this client.
                    log::count_done(&rested.info, &work.count);
                    traffic::count_handshake(slot, rested.info.resumed, &work.traffic);
                    let took_us = took_ms.saturating_mul(1000);
                    work.count.observe(Latency::Handshake, took_us);
                    let may = admission::enter(slot, &client, limits, work);
                    may.then(|| Event::Terminated {
                        rested: Box::new(rested),
                        client,
                        took_ms,
                    })
                }
                Err(failure) => {
                    let each_ms = limits.log_handshakes.then_some(took_ms);
                    let route = settings.route(slot.route).map(|route| (slot.route, route));
                    log::client_failed(&failure, &client, each_ms, route, work);
                    None
                }
            }
        });
    }

    /// TLS is not ours here: from now on the connection is its slot, and what came goes on.
    fn pass_through<I: Io>(&mut self, id: Id, cx: &mut WorkerContext<I>) {
        let Some(entry) = self.table.take(id) else {
            return;
        };
        let client = entry.client;
        let socket = NewSocket {
            fd: entry.fd,
            route: entry.route,
            generation: id.1,
            is_watched: entry.is_watched(),
        };
        let received = entry.into_received();
        cx.admit(&socket, |slot, settings, work| {
            work.count.add(Count::PassedThrough, 1);
            let may = admission::enter(slot, &client, &settings.limits, work);
            may.then_some(Event::PassedThrough { received, client })
        });
    }

    /// Ends handshakes whose time is up.
    pub(crate) fn expire<I: Io>(&mut self, cx: &mut WorkerContext<I>) {
        let timeout_ms = cx.settings.limits.handshake_timeout_ms;
        while let Some(id) = self.table.next_expired(cx.work.now_ms, timeout_ms) {
            if let Some(entry) = self.table.entry(id)
                && !entry.is_lingering()
            {
                let took_ms = cx.work.now_ms.saturating_sub(entry.accepted_ms);
                let each_ms = cx.settings.limits.log_handshakes.then_some(took_ms);
                let (client, route) = (entry.client, known_route(entry, &cx.settings));
                log_timed_out(&client, each_ms, route, &mut cx.work);
            }
            self.drop_handshake(id, &mut cx.work);
        }
    }

    fn drop_handshake<I: Io>(&mut self, id: Id, work: &mut Workspace<I>) {
        if let Some(entry) = self.table.take(id) {
            work.io.close(entry.fd);
            work.has_room_again = true;
        }
    }
}

/// May this client begin? Where the route is still to be found, its networks are asked for when it
/// is.
fn admit<I>(
    route: u16,
    has_choice: bool,
    client: &Client,
    settings: &Settings,
    work: &mut Workspace<I>,
) -> bool {
    if has_choice {
        admission::admit_rate(client, &settings.limits, work)
    } else {
        admission::admit(route, client, settings, work)
    }
}

fn log_bad_header<I>(peer: &Client, refused: Refused, work: &mut Workspace<I>) {
    work.count.add(Count::ProxyHeaderRefused, 1);
    work.bursts.note(Subject::ProxyHeader, work.now_ms, |more| {
        tracing::warn!(%peer, error = %refused, more, "PROXY header rejected; connection closed");
    });
}

/// The route of a handshake, with its number, if it is known already.
fn known_route<'a>(entry: &InFlight, settings: &'a Settings) -> Option<(u16, &'a Route)> {
    let number = (!entry.has_choice()).then_some(entry.route)?;
    Some((number, settings.route(number)?))
}

fn log_timed_out<I>(
    client: &Client,
    each_ms: Option<u64>,
    route: Option<(u16, &Route)>,
    work: &mut Workspace<I>,
) {
    work.count.add(Count::HandshakesTimedOut, 1);
    traffic::count_handshake_failed(route.map(|(number, _)| number), &work.traffic);
    let route = route.map(|(_, route)| route.name.as_str());
    let why = "not finished within handshake_timeout";
    log_gone("us", why, route, client, each_ms);
    let now_ms = work.now_ms;
    work.bursts.note(Subject::HandshakeTimeout, now_ms, |more| {
        tracing::info!(route, peer = %client, more, "handshake timed out; connection closed");
    });
}

/// A line for a handshake that ended without an alert, if every handshake has one.
fn log_gone(gave_up: &str, why: &str, route: Option<&str>, client: &Client, each_ms: Option<u64>) {
    if let Some(took_ms) = each_ms {
        log::log_gone(gave_up, why, route, client, took_ms);
    }
}
