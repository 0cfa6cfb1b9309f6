//! TLS connections to servers, for local clients and for backends with TLS.
//!
//! ```text
//!   accepted ──> a warm connection is ready: the client gets it at once
//!            └─> connect ──> STARTTLS, if the server needs it ──> handshake ──> slot, established
//!                   ↑ failed        │ refused                      │ failed
//!                   └───────────────┴──────────────────────────────┴── next server
//! ```
//!
//! Until the handshake is done, the worker does not read the plain socket: the client's bytes wait in
//! the kernel. Only a client of PostgreSQL that asks for encryption is answered before
//! (`local_opening.rs`). Servers are tried in order. A server that failed is skipped for a while,
//! longer with each failure. If no server is left, the client's connection is reset, because a FIN
//! would look like an empty answer.

mod approach;
pub(crate) mod attempt;
pub(crate) mod attempt_table;
pub(crate) mod failure;
mod local_clients;
mod local_opening;
pub(crate) mod pool;
pub(crate) mod servers;
mod signed;

use crate::bursts::{Place, Subject};
use crate::close_reason::Party;
use crate::context::WorkerContext;
use crate::door::admission;
use crate::established::begin::First;
use crate::established::connect;
use crate::established::{Connections, Moved, NewSocket};
use crate::handshake_log;
use crate::io::{Io, flush_handshake};
use crate::numbers::Numbers;
use crate::outcome::{BackendRequest, LocalClient};
use crate::pause::Pause;
use crate::settings::{RouteSums, Settings};
use crate::token::{self, Id};
use crate::traffic;
use crate::workspace::Workspace;
use approach::{ask_for_tls, begin_handshake, connect_to, origin};
use attempt::{Attempt, AttemptStep, Stage};
use attempt_table::{AttemptTable, ServerDue};
use dormouse_handover::slot::Phase;
use dormouse_reactor::Fd;
use dormouse_reactor::poller::Interest;
use dormouse_reactor::socket::{Connecting, Shortage};
use dormouse_tables::counters::Count;
use failure::Failure;
use pool::Pool;
use servers::Servers;
use std::collections::BTreeMap;

/// Why a server that has accepted the connection is left for another one.
const NO_TLS: &str = "no TLS connection within backend_connect_timeout";

/// Outbound TLS connections of a worker.
pub(crate) struct Outbound {
    attempts: AttemptTable,
    servers: Servers,
    /// By route number. Only originations have one: there may be thousands of other routes.
    pools: BTreeMap<u16, Pool>,
    /// Number of attempts that were given up.
    given_up: u64,
    /// A shortage for which accepting is to pause.
    pause: Option<Pause>,
}

impl Outbound {
    /// Creates an empty table, and an empty pool per route.
    pub(crate) fn new(sums: &RouteSums) -> Outbound {
        Outbound {
            attempts: AttemptTable::default(),
            servers: Servers::default(),
            pools: Pool::of(sums),
            given_up: 0,
            pause: None,
        }
    }

    /// Number of attempts that were given up since the start of the worker.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Takes the shortage for which accepting is to pause.
    pub(crate) fn take_pause(&mut self) -> Option<Pause> {
        self.pause.take()
    }

    /// Number of connections that are not established yet.
    pub(crate) fn live(&self) -> usize {
        self.attempts.live()
    }

    /// Number of warm connections.
    pub(crate) fn warm(&self) -> u64 {
        self.pools.values().map(Pool::ready).sum()
    }

    /// The earliest deadline. Pools that must not be filled now are left out: their time may have
    /// passed, and the worker would not sleep.
    pub(crate) fn next_deadline_ms(&self, may_refill: bool) -> Option<u64> {
        let checks = self.pools.values().filter_map(Pool::check_ms);
        let checks = checks.filter(|_| may_refill);
        checks.chain(self.attempts.next_deadline_ms()).min()
    }

    /// `None`: a reload has removed the route.
    fn pool(&mut self, route: u16) -> Option<&mut Pool> {
        self.pools.get_mut(&route)
    }

    // ---- requests for a connection ----

    /// Begins a TLS connection, for a local client or as a warm connection.
    pub(crate) fn originate<I: Io>(
        &mut self,
        client: Option<LocalClient>,
        route: u16,
        cx: &mut WorkerContext<I>,
    ) {
        let timeout_ms = cx.settings.limits.handshake_timeout_ms;
        self.begin(client, route, None, timeout_ms, cx);
    }

    /// Begins a TLS connection to a backend. If it fails, the client's connection tries another
    /// backend.
    pub(crate) fn connect_backend<I: Io>(
        &mut self,
        request: BackendRequest,
        cx: &mut WorkerContext<I>,
    ) {
        let client = LocalClient {
            fd: request.end,
            is_unix: true,
            joined_s: Some(request.opened_s),
            awaits_greeting: false,
        };
        let route = request.route;
        let timeout_ms = cx.settings.route_or_removed(route).lifetime.connect_ms;
        self.begin(Some(client), route, Some(request), timeout_ms, cx);
    }

    fn begin<I: Io>(
        &mut self,
        client: Option<LocalClient>,
        route: u16,
        request: Option<BackendRequest>,
        timeout_ms: u64,
        cx: &mut WorkerContext<I>,
    ) {
        let first = (Stage::Connecting, request);
        let id = self.insert(client, route, first, timeout_ms, cx);
        self.try_next(id, cx);
    }

    fn insert<I: Io>(
        &mut self,
        client: Option<LocalClient>,
        route: u16,
        (stage, request): (Stage, Option<BackendRequest>),
        timeout_ms: u64,
        cx: &mut WorkerContext<I>,
    ) -> Id {
        let generation = cx.work.next_generation();
        let id = self.attempts.insert(Attempt {
            client,
            route,
            generation,
            request,
            target: 0,
            tried: Vec::new(),
            fd: Fd::NONE,
            begun_ms: cx.work.now_ms,
            stage,
            watched: Interest::WRITE,
        });
        let deadline_ms = cx.work.now_ms + timeout_ms;
        self.attempts.end_by(deadline_ms, id);
        id
    }

    // ---- attempts ----

    /// Connects to the next server, or gives up if none is left.
    fn try_next<I: Io>(&mut self, id: Id, cx: &mut WorkerContext<I>) {
        let now_ms = cx.work.now_ms;
        let mut lacks = None;
        loop {
            let attempt = self.attempts.at(id);
            let route = attempt.route;
            let is_request = attempt.request.is_some();
            let targets = targets(attempt, &cx.settings);
            let chosen = self.servers.choose(route, targets, &attempt.tried, now_ms);
            let Some(target) = chosen else {
                let pause = lacks.and_then(|lacks| note_shortage(attempt, lacks, &cx.work));
                self.pause = pause.or(self.pause);
                if targets == 0 {
                    failure::note_unresolved(route, cx);
                }
                return self.abandon(id, &mut cx.work);
            };
            let connected = connect_to(attempt, target, id, cx);
            attempt.target = target;
            attempt.begun_ms = now_ms;
            attempt.tried.push(target);
            match connected {
                Ok(connecting) => {
                    attempt.fd = connecting.fd();
                    attempt.stage = Stage::Connecting;
                    attempt.watched = Interest::WRITE;
                    let begun_ms = now_ms;
                    let at_ms = now_ms + cx.settings.route_or_removed(route).lifetime.connect_ms;
                    self.attempts
                        .end_server_by(at_ms, ServerDue { id, begun_ms });
                    if matches!(connecting, Connecting::Established(_)) {
                        self.begin_at_once(id, cx);
                    }
                    return;
                }
                Err(error) => {
                    lacks = Shortage::of(&error).or(lacks);
                    if !is_request {
                        let failure = Failure::Connection(error.to_string());
                        self.report(route, target, &failure, 0, cx);
                    }
                }
            }
        }
    }

    /// Begins the handshake at once, because the connect did not block: a unix socket.
    fn begin_at_once<I: Io>(&mut self, id: Id, cx: &mut WorkerContext<I>) {
        match begin_handshake(self.attempts.at(id), cx) {
            AttemptStep::Failed(failure) => {
                self.fail_over(id, &failure, cx);
            }
            // It can't be established yet: the server has not sent anything.
            AttemptStep::Continues | AttemptStep::Established => {
                self.watch(id, cx);
            }
        }
    }

    /// Handles readiness of an attempt's socket.
    pub(crate) fn on_ready<I: Io>(&mut self, id: Id, cx: &mut WorkerContext<I>) {
        // Epoll may still report an attempt that has ended in this turn.
        let Some(attempt) = self.attempts.get(id) else {
            return;
        };
        let step = match &mut attempt.stage {
            Stage::AwaitsClient(_) => return self.on_client(id, cx),
            Stage::Connecting => begin_handshake(attempt, cx),
            Stage::Asking(_) => ask_for_tls(attempt, cx),
            Stage::Shaking(handshake) => attempt::step(attempt.fd, handshake, &mut cx.work),
        };
        self.act_on(step, id, cx);
    }

    fn act_on<I: Io>(&mut self, step: AttemptStep, id: Id, cx: &mut WorkerContext<I>) {
        let attempt = self.attempts.at(id);
        let (route, target) = (attempt.route, attempt.target);
        match step {
            AttemptStep::Established => {
                if origin(route, &cx.settings).is_some() {
                    self.servers.note_success(route, target);
                }
                self.establish(id, cx);
            }
            AttemptStep::Failed(failure) => {
                self.fail_over(id, &failure, cx);
            }
            AttemptStep::Continues => self.watch(id, cx),
        }
    }

    fn watch<I: Io>(&mut self, id: Id, cx: &mut WorkerContext<I>) {
        let attempt = self.attempts.at(id);
        let interest = attempt.interest();
        if interest == attempt.watched {
            return;
        }
        attempt.watched = interest;
        let token = token::origination(id);
        if let Stage::Shaking(handshake) = &attempt.stage
            && let Some(request) = handshake.signature_request()
        {
            cx.work.signatures.ask(token, request);
        }
        if let Err(error) = cx.work.io.rewatch(attempt.fd, token, interest) {
            let failure = Failure::Connection(error.to_string());
            self.fail_over(id, &failure, cx);
        }
    }

    /// Moves a completed attempt into a slot.
    fn establish<I: Io>(&mut self, id: Id, cx: &mut WorkerContext<I>) {
        let mut attempt = self.attempts.take(id);
        let (client, route) = (attempt.client, attempt.route);
        if !Outbound::has_room(&attempt, cx) {
            attempt.disconnect(&cx.work.io);
            return self.lose(client, route, &cx.work);
        }
        let took_ms = cx.work.now_ms.saturating_sub(attempt.begun_ms);
        let socket = NewSocket {
            fd: attempt.fd,
            route,
            generation: id.1,
            is_watched: true,
        };
        let Stage::Shaking(handshake) = attempt.stage else {
            unreachable!("only a handshake establishes an attempt");
        };
        let (connections, work) = (&mut cx.connections, &mut cx.work);
        let Some(new) = connections.reserve(&socket, work) else {
            return self.lose(client, route, work);
        };
        let Ok(rested) = handshake.rest(&mut connections.new_slot(&new).tls) else {
            connections.give_back(new, work);
            return self.lose(client, route, work);
        };
        let first = First::Originated {
            rested: Box::new(rested),
            client,
            took_ms,
        };
        let index = connections.begin(new, first, &cx.settings, work);
        if client.is_none() {
            self.note_warm(route, index.map(|index| (index, id.1)), work.now_ms);
        }
    }

    // ---- failures ----

    /// Notes that the attempt failed with its current server, and tries the next one.
    fn fail_over<I: Io>(&mut self, id: Id, failure: &Failure, cx: &mut WorkerContext<I>) {
        let attempt = self.attempts.at(id);
        if let Stage::Shaking(handshake) = &mut attempt.stage {
            cx.work.count.add(Count::ConnectHandshakesFailed, 1);
            let of_client = attempt.request.is_none().then_some(attempt.route);
            traffic::count_handshake_failed(of_client, &cx.work.traffic);
            // Sends the alert, if there is one. It may not arrive.
            let _ = flush_handshake(&cx.work.io, attempt.fd, handshake);
        }
        attempt.disconnect(&cx.work.io);
        self.note_failure(id, failure, cx);
        self.try_next(id, cx);
    }

    fn note_failure<I: Io>(&mut self, id: Id, failure: &Failure, cx: &mut WorkerContext<I>) {
        let attempt = self.attempts.at(id);
        if let Some(request) = &attempt.request {
            return report_backend(request, failure, &mut cx.work);
        }
        let (route, target) = (attempt.route, attempt.target);
        let took_ms = cx.work.now_ms.saturating_sub(attempt.begun_ms);
        self.report(route, target, failure, took_ms, cx);
    }

    fn report<I: Io>(
        &mut self,
        route: u16,
        target: usize,
        failure: &Failure,
        took_ms: u64,
        cx: &mut WorkerContext<I>,
    ) {
        self.servers.note_failure(route, target, cx.work.now_ms);
        cx.work.count.add(Count::ConnectAttemptsFailed, 1);
        let more = self.servers.note_for_log(route, target, cx.work.now_ms);
        // A reload may have removed the server.
        let Some(target) = origin(route, &cx.settings).and_then(|one| one.targets.get(target))
        else {
            return;
        };
        let name = cx.settings.route(route).map(|route| route.name.as_str());
        if cx.settings.limits.log_handshakes {
            let server = &target.name;
            match failure {
                Failure::Handshake(failure) => {
                    let by = match failure.is_by_peer() {
                        true => Party::Backend,
                        false => Party::Dormouse,
                    };
                    handshake_log::log_failed(failure, by, name, server, took_ms);
                }
                Failure::Connection(reason) => {
                    handshake_log::log_ended(Party::Backend, reason, name, server, took_ms)
                }
                Failure::Time(reason) => {
                    handshake_log::log_ended(Party::Dormouse, reason, name, server, took_ms)
                }
            }
        }
        if let Some(more) = more {
            tracing::warn!(
                route = name,
                server = %target.name,
                server_name = %target.server_name,
                error = %failure,
                more,
                "TLS connection to server failed"
            );
        }
    }

    /// Gives up an attempt, and resets the client's connection.
    fn abandon<I: Io>(&mut self, id: Id, work: &mut Workspace<I>) {
        let mut attempt = self.attempts.take(id);
        attempt.disconnect(&work.io);
        if attempt.client.is_some_and(|client| !client.is_joined()) {
            work.count.add(Count::ConnectGivenUp, 1);
        }
        self.lose(attempt.client, attempt.route, work);
        self.given_up += 1;
    }

    /// Resets the connection of a client that gets none to a server. Without a client, a warm connection is missing.
    fn lose<I: Io>(&mut self, client: Option<LocalClient>, route: u16, work: &Workspace<I>) {
        match client {
            Some(client) => client.reset(&work.io),
            None => self.note_warm(route, None, work.now_ms),
        }
    }

    // ---- time ----

    /// Ends attempts whose time is up, and begins missing warm connections.
    pub(crate) fn on_time<I: Io>(&mut self, may_refill: bool, cx: &mut WorkerContext<I>) {
        loop {
            // A reload may have changed the servers.
            let has_next = |one: &Attempt| one.tried.len() < targets(one, &cx.settings);
            let late = self.attempts.next_late_server(cx.work.now_ms, has_next);
            let Some(id) = late else { break };
            let failure = match self.attempts.at(id).stage {
                Stage::Shaking(_) => Failure::Time(NO_TLS),
                Stage::Asking(_) => {
                    Failure::Time("no consent to TLS within backend_connect_timeout")
                }
                Stage::AwaitsClient(_) | Stage::Connecting => {
                    Failure::Time("no answer within backend_connect_timeout")
                }
            };
            self.fail_over(id, &failure, cx);
        }
        while let Some(id) = self.attempts.next_late(cx.work.now_ms) {
            if let Stage::AwaitsClient(_) = self.attempts.at(id).stage {
                self.dismiss(id, &cx.work);
                continue;
            }
            let failure = match self.attempts.at(id).request.is_some() {
                true => Failure::Time(NO_TLS),
                false => Failure::Time("no TLS connection within handshake_timeout"),
            };
            self.note_failure(id, &failure, cx);
            self.abandon(id, &mut cx.work);
        }
        if may_refill {
            self.refill(cx);
        }
    }

    fn refill<I: Io>(&mut self, cx: &mut WorkerContext<I>) {
        let routes: Vec<u16> = self.pools.keys().copied().collect();
        for route in routes {
            let now_ms = cx.work.now_ms;
            let Some(pool) = self.pool(route) else {
                continue;
            };
            if pool.check_ms().is_none_or(|at_ms| at_ms > now_ms) {
                continue;
            }
            if !admission::has_room_for_warm(route, &cx.settings, &cx.work) {
                pool.wait_for_room(now_ms);
                continue;
            }
            for _ in 0..pool.missing(&cx.connections, now_ms) {
                self.originate(None, route, cx);
            }
        }
    }

    // ---- warm connections ----

    /// Adds a new warm connection to its pool, or notes that its attempt failed.
    fn note_warm(&mut self, route: u16, slot: Option<Id>, now_ms: u64) {
        let Some(pool) = self.pool(route) else {
            return;
        };
        match slot {
            Some((index, generation)) => pool.established(index, generation),
            None => pool.failed(now_ms),
        }
    }

    /// Notes the end of a warm connection that lasted `lasted_s` seconds.
    pub(crate) fn note_warm_ended(&mut self, route: u16, lasted_s: u32, now_ms: u64) {
        if let Some(pool) = self.pool(route) {
            pool.lost(lasted_s, now_ms);
        }
    }

    /// Fills the pools again after a drain, which has closed their connections.
    pub(crate) fn refill_pools(&mut self, now_ms: u64) {
        let pools = self.pools.values_mut();
        pools.for_each(|pool| pool.check_soon(now_ms));
    }

    /// Updates the pool, if the moved slot is a warm connection.
    pub(crate) fn note_moved(&mut self, moved: &Moved, connections: &Connections) {
        // It has ended if epoll has failed.
        if let Some(slot) = connections.slots().get(moved.to)
            && slot.phase() == Phase::Warm
            && let Some(pool) = self.pool(slot.route)
        {
            pool.moved(moved.from, moved.to, slot.generation);
        }
    }

    /// Fills the pools with the warm connections that a predecessor left, in these slots. Those of a route that is gone get
    /// a pool of size 0, so that the next reload finds them.
    pub(crate) fn take_over(&mut self, warm: &[u32], connections: &Connections) {
        for &index in warm {
            if let Some(slot) = connections.slots().get(index) {
                let pool = self.pools.entry(slot.route).or_default();
                pool.found(index, slot.generation);
            }
        }
    }

    // ---- reload, stop ----

    /// Restarts the attempts of changed routes, and renews their warm connections.
    pub(crate) fn reload<I: Io>(&mut self, changed: &Numbers, cx: &mut WorkerContext<I>) {
        let warm = self.replace_pools(changed, &cx.settings.sums);
        self.servers.forget(changed);
        for id in self.attempts.all() {
            let attempt = self.attempts.at(id);
            let is_begun = !matches!(attempt.stage, Stage::AwaitsClient(_));
            if !is_begun || !changed.contains(attempt.route) {
                continue;
            }
            attempt.tried.clear();
            attempt.disconnect(&cx.work.io);
            if attempt.client.is_some() {
                self.try_next(id, cx);
            } else {
                self.attempts.take(id);
            }
        }
        let WorkerContext {
            settings,
            work,
            connections,
        } = cx;
        connections.discard_warm(&warm, settings, work);
    }

    /// Rebuilds the pools, but keeps those of unchanged routes. Returns the warm connections of the others.
    fn replace_pools(&mut self, changed: &Numbers, sums: &RouteSums) -> Vec<Id> {
        let mut pools = Pool::of(sums);
        let mut given_up = Vec::new();
        for (number, former) in std::mem::take(&mut self.pools) {
            let place = pools.get_mut(&number);
            match place.filter(|_| !changed.contains(number)) {
                Some(place) => *place = former,
                None => given_up.extend(former.into_ready()),
            }
        }
        self.pools = pools;
        given_up
    }

    /// Abandons all attempts, because the worker stops.
    pub(crate) fn stop<I: Io>(&mut self, work: &mut Workspace<I>) {
        for id in self.attempts.all() {
            self.abandon(id, work);
        }
    }
}

/// Acts on a shortage of this machine when no other server is left. Returns the pause of accepting that follows. The
/// client's connection may try another backend, which may have ports.
fn note_shortage<I: Io>(
    attempt: &Attempt,
    shortage: Shortage,
    work: &Workspace<I>,
) -> Option<Pause> {
    let mut pause = Pause::for_shortage(shortage);
    if let (Some(client), Some(_)) = (attempt.client, &attempt.request) {
        let signal = match shortage {
            Shortage::Ports => connect::NO_PORTS,
            _ => connect::SHORTAGE,
        };
        // Without the byte, the end of the joint counts as a failure of the backend.
        let _ = work.io.send(client.fd, &signal);
        pause = pause.filter(|pause| *pause != Pause::Ports);
    }
    pause
}

/// Number of servers that an attempt can try.
fn targets(attempt: &Attempt, settings: &Settings) -> usize {
    match origin(attempt.route, settings) {
        Some(origin) => origin.targets.len(),
        None => usize::from(attempt.request.is_some()),
    }
}

/// Logs a failed TLS connection to a backend. The client's connection counts the failure, and tries
/// another backend.
fn report_backend<I>(request: &BackendRequest, failure: &Failure, work: &mut Workspace<I>) {
    let backend = request.address.to_string();
    let server_name = &request.server_name;
    let place = Place::of_backend(&backend);
    work.bursts
        .note(Subject::BackendTls, place, work.now_ms, |more| {
            tracing::warn!(
                backend,
                server_name,
                error = %failure,
                more,
                "TLS connection to backend failed"
            );
        });
}
