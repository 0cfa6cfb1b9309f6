//! Handshakes with clients: from the accepted socket to the connection at rest.
//!
//! Each turn of the loop advances handshakes for a bounded time, so that a storm of new connections does
//! not slow down established connections. A completed handshake becomes a slot at once.

pub(crate) mod challenge;
pub(crate) mod in_flight;
pub(crate) mod queue;
pub(crate) mod route_choice;
pub(crate) mod table;

use crate::bursts::Subject;
use crate::client::Client;
use crate::close_reason::Party;
use crate::context::WorkerContext;
use crate::door::admission;
use crate::door::readmission::Readmission;
use crate::effects::Effect;
use crate::established::NewSocket;
use crate::established::step::Event;
use crate::handshake_log::{self as log, ClientHandshake};
use crate::io::Io;
use crate::pause::Pause;
use crate::proxy_protocol::HeaderError;
use crate::settings::Settings;
use crate::token::{self, Id};
use crate::traffic;
use crate::workspace::Workspace;
use challenge::Challenge;
use dormouse_engine::{ExpectedHandshake, Handshake, HandshakeLimits};
use dormouse_reactor::socket::Attempt;
use dormouse_routes::route::Direction;
use dormouse_tables::counters::Count;
use dormouse_tables::latency::Latency;
use in_flight::{HandshakeStep, InFlight, NewConnection, Turn};
use queue::Queue;
use route_choice::RouteChoice;
use table::HandshakeTable;

/// Bytes of a hello that are peeked at to see whether the client resumes a session: tickets are at
/// the end.
const HELLO_MAX: usize = 4096;

/// While `max_handshakes` are in progress and others wait, a handshake whose client has been silent
/// for this fraction of `handshake_timeout` is dropped.
const SILENT_PART: u64 = 4;

/// Interval of the search for silent clients.
const SILENT_CHECK_MS: u64 = 100;

/// Route number of a handshake that answers a challenge. No route has this number.
const CHALLENGE_ROUTE: u16 = u16::MAX;

/// Handshakes with clients.
pub(crate) struct Handshakes {
    table: HandshakeTable,
    queue: Queue,
    /// The open challenge.
    challenge: Option<Challenge>,
    /// Time of the next search for silent clients, while `max_handshakes` is reached.
    silent_check_ms: u64,
}

impl Handshakes {
    /// Creates an empty table and queue.
    pub(crate) fn new() -> Handshakes {
        Handshakes {
            table: HandshakeTable::new(),
            queue: Queue::default(),
            challenge: None,
            silent_check_ms: 0,
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.table.live()
    }

    /// Opens a challenge, or closes the open one.
    pub(crate) fn set_challenge(&mut self, challenge: Option<Challenge>) {
        self.challenge = challenge;
    }

    /// Whether a challenge is open, so that every ClientHello must be read before its handshake.
    pub(crate) fn has_challenge(&self) -> bool {
        self.challenge.is_some()
    }

    /// Whether a handshake that has not begun is queued.
    pub(crate) fn has_queued(&self) -> bool {
        self.queue.has_queued()
    }

    /// Frees the memory of handshakes after the last one. Returns `true` if a burst has ended since
    /// the last call.
    pub(crate) fn burst_ended(&mut self) -> bool {
        let Some(was_burst) = self.table.burst_ended() else {
            return false;
        };
        self.queue = Queue::default();
        was_burst
    }

    /// Time of the next deadline; `others`: see [`Handshakes::turn`].
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
        let waits = self.queue.has_queued() && !may_begin;
        let deadlines = [
            waits.then_some(self.silent_check_ms),
            self.table.next_deadline_ms(),
        ];
        deadlines.into_iter().flatten().min()
    }

    // ---- accepted ----

    /// Queues a new connection, if it is admitted. A waiting connection uses no heap memory.
    pub(crate) fn begin<I: Io>(&mut self, accepted: NewConnection, cx: &mut WorkerContext<I>) {
        let (fd, client, route) = (accepted.fd, accepted.client, accepted.route);
        let has_choice = accepted.candidates.is_some();
        cx.work.count.add(Count::Accepted, 1);
        let configured = cx.settings.route(route);
        let is_proxy = configured.is_some_and(|r| client.is_proxy(&r.access.accept_proxy_from));
        if !is_proxy && !admit(route, has_choice, &client, &cx.settings, &mut cx.work) {
            return cx.work.io.close(fd);
        }
        if let Some(route) = configured {
            cx.work.io.set_client_options(&route.sockets, fd);
        }
        let generation = cx.work.next_generation();
        let deadline_ms = cx.work.now_ms + cx.settings.limits.handshake_timeout_ms;
        let id = self
            .table
            .begin(accepted, is_proxy, generation, cx.work.now_ms, deadline_ms);
        // Often the ClientHello has already arrived. If not, the first step adds the socket to epoll.
        self.queue.push_new(id, cx.work.now_ms);
    }

    /// Queues a handshake whose socket is ready.
    pub(crate) fn on_ready(&mut self, id: Id, now_ms: u64) {
        let Some(entry) = self.table.entry(id) else {
            return;
        };
        entry.note_reported();
        if entry.has_answered() {
            self.queue.push_answered(id);
        } else {
            self.queue.push_new(id, now_ms);
        }
    }

    // ---- turns ----

    /// Advances handshakes until the time is up, but makes at least one step. `others`: the number of
    /// handshakes with servers, which count towards the same limit.
    pub(crate) fn turn<I: Io>(&mut self, until_us: u64, others: usize, cx: &mut WorkerContext<I>) {
        if self.queue.has_queued() {
            self.sort_queued(&mut cx.work);
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

    /// Whether another handshake may begin.
    fn may_begin(&self, others: usize, settings: &Settings) -> bool {
        self.table.begun() + others < settings.limits.handshakes_max
    }

    /// Drops handshakes whose clients have been silent for long, if `max_handshakes` is reached and
    /// clients wait.
    fn evict_silent<I: Io>(&mut self, others: usize, cx: &mut WorkerContext<I>) {
        if self.may_begin(others, &cx.settings) || cx.work.now_ms < self.silent_check_ms {
            return;
        }
        self.silent_check_ms = cx.work.now_ms + SILENT_CHECK_MS;
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

    /// Sorts queued clients by whether they resume a session. It peeks at their hellos, which stay in
    /// the kernel.
    fn sort_queued<I: Io>(&mut self, work: &mut Workspace<I>) {
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
                    // Storing an incomplete hello is cheap.
                    ExpectedHandshake::Incomplete => n < HELLO_MAX,
                },
                // Its step will cost no signature.
                Ok(Attempt::WouldBlock) | Err(_) => true,
            }
        });
    }

    /// Makes a step of a handshake, and acts on its result.
    fn advance<I: Io>(&mut self, id: Id, waited: bool, cx: &mut WorkerContext<I>) {
        let Some(step) = self.step(id, waited, cx) else {
            return;
        };
        let Some(entry) = self.table.entry(id) else {
            return;
        };
        let (is_lingering, has_begun) = (entry.is_lingering(), entry.has_begun());
        let handshake = described(entry, &cx.settings, cx.work.now_ms);
        match step {
            HandshakeStep::Continues | HandshakeStep::HeaderComplete | HandshakeStep::Hello => {}
            HandshakeStep::Established => {
                self.establish(id, cx);
            }
            HandshakeStep::PassesThrough => {
                self.pass_through(id, cx);
            }
            HandshakeStep::Denied => self.drop_handshake(id, &mut cx.work),
            HandshakeStep::BadHeader(error) => {
                log_bad_header(handshake.client, error, &mut cx.work);
                self.drop_handshake(id, &mut cx.work);
            }
            HandshakeStep::GivenUp => {
                let reason = "the client closed the connection while it was queued";
                log::client_ended(Party::Client, reason, handshake, &mut cx.work);
                cx.work.count.add(Count::HandshakesGivenUp, 1);
                self.drop_handshake(id, &mut cx.work);
            }
            HandshakeStep::Ended => {
                // A connection without a byte is a health check of TCP: it is no handshake.
                if !is_lingering && has_begun {
                    let reason = "the client's connection ended";
                    log::client_ended(Party::Client, reason, handshake, &mut cx.work);
                }
                self.drop_handshake(id, &mut cx.work);
            }
            HandshakeStep::NotWatched(error) => {
                if !is_lingering {
                    log::client_not_watched(&error, handshake, &mut cx.work);
                }
                self.drop_handshake(id, &mut cx.work);
                let pause = Pause::after_accept(&error);
                cx.work.effects.push(Effect::PauseAccepting(pause));
            }
            HandshakeStep::Failed(failure) => {
                log::client_failed(&failure, handshake, &mut cx.work);
                self.table.note_lingering(id, cx.work.now_ms);
            }
        }
    }

    /// Makes steps until the handshake needs more bytes or ends. When a proxy header is complete, it
    /// checks the client before it reads the client's first byte. When the hello is complete, it
    /// chooses the route.
    fn step<I: Io>(
        &mut self,
        id: Id,
        waited: bool,
        cx: &mut WorkerContext<I>,
    ) -> Option<HandshakeStep> {
        loop {
            match self.one_step(id, waited, cx)? {
                HandshakeStep::HeaderComplete => {
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
                Direction::PassThrough(_) | Direction::Originate(_) | Direction::Removed => None,
            }
        })
    }

    /// Chooses the route by the client's complete hello. `None`: the handshake continues with it.
    fn choose_route<I: Io>(&mut self, id: Id, cx: &mut WorkerContext<I>) -> Option<HandshakeStep> {
        let WorkerContext { settings, work, .. } = cx;
        let entry = self.table.entry(id)?;
        let client = entry.client;
        let (received, candidates) = entry.hello()?;
        let challenge = self.challenge.as_ref();
        match route_choice::choose(received, &candidates, settings, challenge) {
            RouteChoice::Challenge => {
                entry.route = CHALLENGE_ROUTE;
                entry.end_choice();
                None
            }
            RouteChoice::None => Some(HandshakeStep::Ended),
            RouteChoice::UnknownName(..)
                if !admission::admit_network_of_any(&candidates, &client, settings, work) =>
            {
                Some(HandshakeStep::Denied)
            }
            RouteChoice::UnknownName(failure, alert) => {
                let token = token::handshake(id);
                entry.refuse(&alert, &work.io, token, &mut work.scratch.opening);
                Some(HandshakeStep::Failed(failure))
            }
            RouteChoice::Route(number, server_name) => {
                entry.route = number;
                if !admission::admit_network(number, &client, settings, work) {
                    return Some(HandshakeStep::Denied);
                }
                let route = settings.route(number)?;
                if !route.passes_through() {
                    entry.end_choice();
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

    /// Moves a completed handshake into a slot.
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
        let socket = socket_of(&entry, id);
        let took_ms = cx.work.now_ms.saturating_sub(entry.accepted_ms);
        let Some(handshake) = entry.into_handshake() else {
            return cx.work.io.close(socket.fd);
        };
        cx.admit(&socket, |slot, settings, work| {
            let limits = &settings.limits;
            match handshake.rest(&mut slot.tls) {
                Ok(rested) => {
                    // Counted even if the client has reached `connections_per_client`.
                    log::count_done(&rested.info, &work.count);
                    traffic::count_handshake(slot, rested.info.resumed, &work.traffic);
                    let took_us = took_ms.saturating_mul(1000);
                    work.count.observe(Latency::Handshake, took_us);
                    let is_admitted = admission::enter(slot, &client, limits, work);
                    is_admitted.then(|| Event::Terminated {
                        rested: Box::new(rested),
                        client,
                        took_ms,
                    })
                }
                Err(failure) => {
                    let handshake = ClientHandshake {
                        client: &client,
                        route: settings.route(slot.route).map(|route| (slot.route, route)),
                        took_ms,
                        log_each: limits.log_handshakes,
                    };
                    log::client_failed(&failure, handshake, work);
                    None
                }
            }
        });
    }

    /// Moves a pass-through connection into a slot, with the bytes received so far.
    fn pass_through<I: Io>(&mut self, id: Id, cx: &mut WorkerContext<I>) {
        let Some(entry) = self.table.take(id) else {
            return;
        };
        let client = entry.client;
        let socket = socket_of(&entry, id);
        let received = entry.into_received();
        cx.admit(&socket, |slot, settings, work| {
            work.count.add(Count::PassedThrough, 1);
            let is_admitted = admission::enter(slot, &client, &settings.limits, work);
            is_admitted.then_some(Event::PassedThrough { received, client })
        });
    }

    /// Ends handshakes whose time is up.
    pub(crate) fn expire<I: Io>(&mut self, cx: &mut WorkerContext<I>) {
        let timeout_ms = cx.settings.limits.handshake_timeout_ms;
        while let Some(id) = self.table.next_expired(cx.work.now_ms, timeout_ms) {
            if let Some(entry) = self.table.entry(id)
                && !entry.is_lingering()
            {
                let handshake = described(entry, &cx.settings, cx.work.now_ms);
                log_timed_out(handshake, &mut cx.work);
            }
            self.drop_handshake(id, &mut cx.work);
        }
    }

    /// Ends the handshakes that a reload no longer admits. Those that have not begun with their route follow the reload.
    pub(crate) fn end_refused<I: Io>(
        &mut self,
        readmission: &Readmission<'_>,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        for id in self.table.ids() {
            let Some(entry) = self.table.entry(id) else {
                continue;
            };
            if is_kept(entry, readmission) {
                continue;
            }
            let handshake = described(entry, settings, work.now_ms);
            let reason = "a reload changed which clients the route admits";
            log::client_ended(Party::Dormouse, reason, handshake, work);
            self.drop_handshake(id, work);
        }
    }

    fn drop_handshake<I: Io>(&mut self, id: Id, work: &mut Workspace<I>) {
        if let Some(entry) = self.table.take(id) {
            work.io.close(entry.fd);
            work.has_room_again = true;
        }
    }
}

/// Whether a reload lets a handshake go on.
fn is_kept(entry: &InFlight, readmission: &Readmission<'_>) -> bool {
    let (route, client) = (entry.route, &entry.client);
    if entry.is_lingering() || route == CHALLENGE_ROUTE {
        return true;
    }
    let has_proxy = entry.expects_header() || client.proxied.is_some();
    // If the route is not chosen yet, the choice checks the networks. So does the end of the header.
    let has_passed = !entry.has_choice() && !entry.expects_header();
    (!entry.has_context() || readmission.is_same(route))
        && (!has_proxy || readmission.trusts_same_proxies(route))
        && (!has_passed || readmission.allows(route, client))
}

/// Checks whether the client may begin a handshake. If the route is not chosen yet, its networks are
/// checked after the choice.
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

fn log_bad_header<I>(peer: &Client, error: HeaderError, work: &mut Workspace<I>) {
    work.count.add(Count::ProxyHeaderRefused, 1);
    work.bursts.note(Subject::ProxyHeader, work.now_ms, |more| {
        tracing::warn!(%peer, %error, more, "PROXY header rejected; connection closed");
    });
}

/// What log lines say of a handshake.
fn described<'a>(entry: &'a InFlight, settings: &'a Settings, now_ms: u64) -> ClientHandshake<'a> {
    let number = (!entry.has_choice()).then_some(entry.route);
    ClientHandshake {
        client: &entry.client,
        route: number.and_then(|number| Some((number, settings.route(number)?))),
        took_ms: now_ms.saturating_sub(entry.accepted_ms),
        log_each: settings.limits.log_handshakes,
    }
}

/// The socket of a handshake that becomes a slot.
fn socket_of(entry: &InFlight, (_, generation): Id) -> NewSocket {
    NewSocket {
        fd: entry.fd,
        route: entry.route,
        generation,
        is_watched: entry.is_watched(),
    }
}

fn log_timed_out<I: Io>(handshake: ClientHandshake<'_>, work: &mut Workspace<I>) {
    work.count.add(Count::HandshakesTimedOut, 1);
    let number = handshake.route.map(|(number, _)| number);
    traffic::count_handshake_failed(number, &work.traffic);
    let reason = "not finished within handshake_timeout";
    log::client_ended(Party::Dormouse, reason, handshake, work);
    let (client, route) = (handshake.client, handshake.route_name());
    let now_ms = work.now_ms;
    work.bursts.note(Subject::HandshakeTimeout, now_ms, |more| {
        tracing::info!(route, peer = %client, more, "handshake timed out; connection closed");
    });
}
