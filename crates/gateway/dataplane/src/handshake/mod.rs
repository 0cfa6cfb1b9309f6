//! Handshakes with clients: from the accepted socket to the connection at rest.
//!
//! Each turn of the loop advances handshakes for a bounded time, so that a storm of new connections does
//! not slow down established connections. A completed handshake becomes a slot at once.
//!
//! Epoll reports each new connection once. It then waits in the queue (`queue.rs`), with its client's bytes still in the
//! kernel and nothing in the heap. So the worker can accept all waiting clients at once (a client whose SYN meets a full
//! listen queue retries at growing intervals), and `max_handshakes` bounds the handshakes that have begun. A waiting
//! handshake costs the loop nothing.
//!
//! Handshakes are the only connections with anything in the heap, bounded in number, in bytes and in time. A handshake
//! that succeeds becomes a slot and frees its entry. A handshake that fails sends its alert and lingers briefly, so that
//! a reset does not overtake the alert. When the last handshake of a burst ends, its memory goes back to the system.

mod agreements;
pub(crate) mod in_flight;
mod lingering;
pub(crate) mod queue;
pub(crate) mod route_choice;
mod signing;
mod turn;

use crate::bursts::{Place, Subject};
use crate::close_reason::Party;
use crate::context::WorkerContext;
use crate::deadlines::Deadlines;
use crate::door::admission;
use crate::door::readmission::Readmission;
use crate::entries::Entries;
use crate::established::begin::First;
use crate::handshake_log as log;
use crate::io::Io;
use crate::pause::Pause;
use crate::settings::Settings;
use crate::token::{self, Id};
use crate::traffic;
use crate::workspace::Workspace;
use agreements::{Agreements, LOOKS_MAX};
use dormouse_config::Starttls;
use dormouse_engine::{AgreementBatches, ExpectedHandshake, Handshake};
use dormouse_handover::signing::Signed;
use dormouse_reactor::socket::Attempt;
use dormouse_tables::counters::Count;
use dormouse_tables::latency::Latency;
use in_flight::{InFlight, NewConnection, Newcomer, Next, Stage};
use queue::Queue;
use route_choice::Challenge;
use turn::Turn;

/// Bytes of a hello that are peeked at to see whether the client resumes a session: tickets are at
/// the end.
const HELLO_MAX: usize = 4096;

/// While `max_handshakes` are in progress and others wait, a handshake whose client has been silent
/// for this fraction of `handshake_timeout` is dropped.
const SILENT_PART: u64 = 4;

/// Interval of the search for silent clients, and the number of handshakes that one looks at.
const SILENT_CHECK_MS: u64 = 100;
const SILENT_CHECKS: usize = 256;

/// Time for the alert of a failed handshake to reach the peer.
const LINGER_MS: u64 = 2_000;

/// A client that has been queued for this many times `handshake_timeout` is dropped.
const WAITS_MAX: u64 = 6;

/// This many handshakes at a time are a burst.
const BURST_MIN: usize = 16;

/// Handshakes with clients.
pub(crate) struct Handshakes {
    entries: Entries<InFlight>,
    queue: Queue,
    agreements: Agreements,
    deadlines: HandshakeDeadlines,
    /// Number of handshakes that have begun, so that they use the heap.
    begun: usize,
    /// Largest number of handshakes since the last one ended.
    most: usize,
    /// The open challenges, one for each name. Main limits their number.
    challenges: Vec<Challenge>,
    /// Time of the next search for silent clients, while `max_handshakes` is reached.
    silent_check_ms: u64,
    /// Number of handshakes whose sockets were closed.
    closed: u64,
    /// A shortage for which accepting is to pause.
    pause: Option<Pause>,
}

/// Deadlines of handshakes that have not begun, have begun, and have failed.
#[derive(Default)]
struct HandshakeDeadlines {
    waiting: Deadlines<Id>,
    shaking: Deadlines<Id>,
    lingering: Deadlines<Id>,
}

impl Handshakes {
    /// Creates an empty table and queue. `batches` computes key agreements together.
    pub(crate) fn new(batches: Option<AgreementBatches>) -> Handshakes {
        Handshakes {
            entries: Entries::default(),
            queue: Queue::default(),
            agreements: Agreements::new(batches),
            deadlines: HandshakeDeadlines::default(),
            begun: 0,
            most: 0,
            challenges: Vec::new(),
            silent_check_ms: 0,
            closed: 0,
            pause: None,
        }
    }

    /// Number of handshakes whose sockets were closed since the start of the worker.
    pub(crate) fn closed(&self) -> u64 {
        self.closed
    }

    /// Takes the shortage for which accepting is to pause.
    pub(crate) fn take_pause(&mut self) -> Option<Pause> {
        self.pause.take()
    }

    pub(crate) fn live(&self) -> usize {
        self.entries.live()
    }

    /// Number of handshakes that use the heap.
    pub(crate) fn begun(&self) -> usize {
        self.begun
    }

    /// Opens a challenge.
    pub(crate) fn open_challenge(&mut self, challenge: Challenge) {
        self.challenges.push(challenge);
    }

    /// Closes the challenge for a name, if one is open.
    pub(crate) fn close_challenge(&mut self, name: &str) {
        self.challenges.retain(|open| open.name != name);
    }

    /// Whether a challenge is open, so that every ClientHello must be read before its handshake.
    pub(crate) fn has_challenge(&self) -> bool {
        !self.challenges.is_empty()
    }

    /// Whether a handshake that has not begun is queued.
    pub(crate) fn has_queued(&self) -> bool {
        self.queue.has_queued()
    }

    /// Frees the memory of handshakes after the last one. Returns `true` if a burst has ended since
    /// the last call.
    pub(crate) fn burst_ended(&mut self) -> bool {
        if self.live() > 0 || self.most == 0 {
            return false;
        }
        debug_assert_eq!(self.begun, 0, "no handshake is left");
        debug_assert!(self.agreements.are_none(), "they end with their handshakes");
        let was_burst = self.most >= BURST_MIN;
        self.entries = Entries::default();
        self.queue = Queue::default();
        self.deadlines = HandshakeDeadlines::default();
        self.most = 0;
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
            self.deadlines.next_ms(),
        ];
        deadlines.into_iter().flatten().min()
    }

    // ---- accepted ----

    /// Queues a new connection, if it is admitted. A waiting connection uses no heap memory.
    pub(crate) fn begin<I: Io>(&mut self, accepted: NewConnection, cx: &mut WorkerContext<I>) {
        let WorkerContext { settings, work, .. } = cx;
        work.count.add(Count::Accepted, 1);
        let route = settings.route(accepted.route);
        let is_proxy =
            route.is_some_and(|route| accepted.client.is_proxy(&route.access.accept_proxy_from));
        let starttls = route.map_or(Starttls::Off, |route| route.starttls);
        let entry = InFlight::new(accepted, is_proxy, starttls, work.now_ms);
        // The client behind a proxy is checked when the proxy has named it.
        if !is_proxy && !entry.newcomer.admit(settings, work) {
            return work.io.close(entry.newcomer.fd);
        }
        if let Some(route) = route {
            (work.io).set_client_options(&route.sockets, entry.newcomer.fd);
        }
        let id = self.entries.insert(work.next_generation(), entry);
        self.most = self.most.max(self.live());
        let deadline_ms = work.now_ms + settings.limits.handshake_timeout_ms;
        self.deadlines.waiting.add(deadline_ms, id);
        // Often the ClientHello has already arrived. If not, the first step adds the socket to epoll.
        self.queue.push_new(id, work.now_ms);
    }

    /// Queues a handshake whose socket is ready.
    pub(crate) fn on_ready(&mut self, id: Id, now_ms: u64) {
        // Epoll may still report a connection that has ended in this turn.
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        entry.note_reported();
        if entry.has_answered() {
            self.queue.push_answered(id);
        } else {
            self.queue.push_new(id, now_ms);
        }
    }

    /// Queues a handshake whose signature has arrived, or why there is none. It may have ended meanwhile.
    pub(crate) fn on_signed(&mut self, id: Id, signed: Signed) {
        let entry = self.entries.get_mut(id);
        if entry.is_some_and(|entry| entry.take_signature(signed)) {
            self.queue.push_answered(id);
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
            self.prepare_agreements(id, cx);
            self.advance(id, waited, cx);
            if cx.work.io.monotonic_us() >= until_us {
                return;
            }
        }
    }

    /// Whether a turn may have something to do.
    pub(crate) fn has_work(&self) -> bool {
        self.queue.is_ready(true)
    }

    /// Whether another handshake may begin.
    fn may_begin(&self, others: usize, settings: &Settings) -> bool {
        self.begun + others < settings.limits.handshakes_max
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
            .note(Subject::Paused, Place::Program, cx.work.now_ms, |more| {
                tracing::warn!(more, "handshakes queued: max_handshakes reached");
            });
        let silent_ms = cx.settings.limits.handshake_timeout_ms / SILENT_PART;
        let before_ms = cx.work.now_ms.saturating_sub(silent_ms);
        while let Some(id) = self.oldest_silent(before_ms) {
            cx.work.count.add(Count::HandshakesSilent, 1);
            self.drop_handshake(id, &cx.work);
        }
    }

    /// Finds the oldest begun handshake whose client has been silent since before `before_ms`, among
    /// a bounded number of entries.
    fn oldest_silent(&self, before_ms: u64) -> Option<Id> {
        let is_silent = |id: &&Id| {
            let entry = self.entries.get(**id);
            entry.is_some_and(|entry| entry.is_silent_since(before_ms))
        };
        let mut begun = self.deadlines.shaking.iter().take(SILENT_CHECKS);
        begun.find(is_silent).copied()
    }

    /// Sorts queued clients by whether they resume a session. It peeks at their hellos, which stay in
    /// the kernel.
    fn sort_queued<I: Io>(&mut self, work: &mut Workspace<I>) {
        let Handshakes { entries, queue, .. } = self;
        let Workspace { io, scratch, .. } = work;
        let hello = &mut scratch.opening[..HELLO_MAX];
        queue.sort(|id| {
            // One that has ended is taken from the queue when it is its turn.
            let Some(entry) = entries.get(id) else {
                return false;
            };
            match io.peek(entry.newcomer.fd, hello) {
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

    /// Computes the key agreement of the next handshake together with those of the handshakes that are next after it. It
    /// peeks at their hellos, which stay in the kernel, and at each hello once.
    fn prepare_agreements<I: Io>(&mut self, next: Id, cx: &mut WorkerContext<I>) {
        if !self.queue.has_queued() || !self.agreements.may_prepare(next) {
            return;
        }
        let Handshakes { entries, queue, .. } = self;
        let upcoming = queue.upcoming(cx.work.now_ms).take(LOOKS_MAX);
        let Workspace { io, scratch, .. } = &mut cx.work;
        let hello = &mut scratch.opening[..HELLO_MAX];
        let handshakes = std::iter::once(next).chain(upcoming);
        let prepared = self.agreements.prepare(handshakes, |id| {
            let entry = entries.get_mut(id)?;
            let context = entry.expected_context(&cx.settings)?;
            match io.peek(entry.newcomer.fd, hello) {
                Ok(Attempt::Done(n)) if n > 0 => {
                    entry.newcomer.looked_at = true;
                    context.x25519_share(&hello[..n])
                }
                // It may arrive later. An end is found by the handshake's step.
                Ok(_) | Err(_) => None,
            }
        });
        cx.work.count.add(Count::AgreementsBatched, prepared as u64);
    }

    /// Makes a step of a queued handshake, and acts on its result.
    fn advance<I: Io>(&mut self, id: Id, waited: bool, cx: &mut WorkerContext<I>) {
        // It may have ended while it was queued.
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        let had_begun = entry.has_begun();
        let next = entry.step(&mut Turn {
            agreement: self.agreements.take(id),
            settings: &cx.settings,
            work: &mut cx.work,
            challenges: &self.challenges,
            waited,
        });
        match next {
            Next::Waits(stage) => self.wait(id, stage, had_begun, cx),
            Next::AwaitsSignature(stage) => {
                (cx.work.signatures).ask(token::handshake(id), stage.request());
                entry.await_signature(stage);
                self.note_begun(id, had_begun, cx);
            }
            Next::Lingers(stage) => {
                // Whether epoll watches it does not matter: the deadline ends it.
                let (io, token) = (&cx.work.io, token::handshake(id));
                let _ = entry.wait(Stage::Lingering(stage), io, token);
                self.note_begun(id, had_begun, cx);
                let until_ms = cx.work.now_ms + LINGER_MS;
                self.deadlines.lingering.add(until_ms, id);
            }
            Next::Established(handshake) => {
                let newcomer = self.remove(id, had_begun);
                establish(newcomer, handshake, id, cx);
            }
            Next::PassesThrough(received) => {
                let newcomer = self.remove(id, had_begun);
                pass_through(newcomer, received, id, cx);
            }
            Next::Over => {
                let newcomer = self.remove(id, had_begun);
                self.close(&newcomer, &cx.work);
            }
        }
    }

    /// Lets a handshake wait for its socket. If epoll does not watch the socket, it is closed, and no other connection is
    /// accepted for a while.
    fn wait<I: Io>(&mut self, id: Id, stage: Stage, had_begun: bool, cx: &mut WorkerContext<I>) {
        let entry = self.stepped(id);
        let WorkerContext { settings, work, .. } = cx;
        let watched = entry.wait(stage, &work.io, token::handshake(id));
        let Err(error) = watched else {
            return self.note_begun(id, had_begun, cx);
        };
        if !entry.is_lingering() {
            let handshake = entry.newcomer.described(settings, work.now_ms);
            log::client_not_watched(&error, handshake, work);
        }
        let newcomer = self.remove(id, had_begun);
        self.close(&newcomer, work);
        self.pause = Some(Pause::after_accept(&error));
    }

    /// Counts a handshake that has begun with its last step. Its timeout starts now: the time in the queue is not the
    /// client's fault.
    fn note_begun<I>(&mut self, id: Id, had_begun: bool, cx: &WorkerContext<I>) {
        if !had_begun && self.stepped(id).has_begun() {
            self.begun += 1;
            let timeout_ms = cx.settings.limits.handshake_timeout_ms;
            self.deadlines.shaking.add(cx.work.now_ms + timeout_ms, id);
        }
    }

    /// The entry of a handshake that has just made a step.
    fn stepped(&mut self, id: Id) -> &mut InFlight {
        let entry = self.entries.get_mut(id);
        entry.expect("a step removes no handshake")
    }

    /// Removes a handshake that has just made its last step. `had_begun`: whether it had begun before.
    fn remove(&mut self, id: Id, had_begun: bool) -> Newcomer {
        self.begun -= usize::from(had_begun);
        let entry = self.entries.take(id);
        entry.expect("a step removes no handshake").newcomer
    }

    // ---- the end of a handshake ----

    /// Ends handshakes whose time is up.
    pub(crate) fn expire<I: Io>(&mut self, cx: &mut WorkerContext<I>) {
        let timeout_ms = cx.settings.limits.handshake_timeout_ms;
        while let Some(id) = self.next_expired(cx.work.now_ms, timeout_ms) {
            if let Some(entry) = self.entries.get(id)
                && !entry.is_lingering()
            {
                let handshake = entry.newcomer.described(&cx.settings, cx.work.now_ms);
                log::client_timed_out(handshake, &mut cx.work);
            }
            self.drop_handshake(id, &cx.work);
        }
    }

    /// Returns the next handshake whose time is up. A queued handshake gets more time, because the
    /// worker is late and not the client.
    fn next_expired(&mut self, now_ms: u64, timeout_ms: u64) -> Option<Id> {
        let HandshakeDeadlines {
            waiting,
            shaking,
            lingering,
        } = &mut self.deadlines;
        let entries = &self.entries;
        let is_live = |id: &Id| entries.get(*id).is_some();
        let has_not_begun = |id: &Id| entries.get(*id).is_some_and(|entry| !entry.has_begun());
        while let Some(id) = waiting.take_due(now_ms, has_not_begun) {
            let entry = entries.get(id).expect("a current deadline has its entry");
            let given_up_ms = entry.newcomer.accepted_ms + timeout_ms.saturating_mul(WAITS_MAX);
            if !entry.waits_for_turn() || given_up_ms <= now_ms {
                return Some(id);
            }
            waiting.add(now_ms + timeout_ms, id);
        }
        let late = shaking.take_due(now_ms, is_live);
        late.or_else(|| lingering.take_due(now_ms, is_live))
    }

    /// Ends the handshakes that a reload no longer admits. Those that have not begun with their route follow the reload.
    pub(crate) fn end_refused<I: Io>(
        &mut self,
        readmission: &Readmission<'_>,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        for id in self.entries.ids() {
            let refused = self.entries.get(id);
            let Some(entry) = refused.filter(|entry| !is_kept(entry, readmission)) else {
                continue;
            };
            let handshake = entry.newcomer.described(settings, work.now_ms);
            let reason = "a reload changed which clients the route admits";
            log::client_ended(Party::Dormouse, reason, handshake, work);
            self.drop_handshake(id, work);
        }
    }

    /// Closes a handshake between two steps.
    fn drop_handshake<I: Io>(&mut self, id: Id, work: &Workspace<I>) {
        self.agreements.take(id);
        if let Some(entry) = self.entries.take(id) {
            self.begun -= usize::from(entry.has_begun());
            self.close(&entry.newcomer, work);
        }
    }

    /// Closes the socket of a handshake that has been removed.
    fn close<I: Io>(&mut self, newcomer: &Newcomer, work: &Workspace<I>) {
        work.io.close(newcomer.fd);
        self.closed += 1;
    }
}

impl HandshakeDeadlines {
    /// The earliest deadline.
    fn next_ms(&self) -> Option<u64> {
        let queues = [&self.waiting, &self.shaking, &self.lingering];
        queues.into_iter().filter_map(Deadlines::next_ms).min()
    }
}

/// Moves a completed handshake into a slot.
fn establish<I: Io>(
    newcomer: Newcomer,
    handshake: Box<Handshake>,
    id: Id,
    cx: &mut WorkerContext<I>,
) {
    let WorkerContext {
        settings,
        work,
        connections,
    } = cx;
    let client = newcomer.client;
    let Some(route) = newcomer.route() else {
        work.count.add(Count::ChallengesAnswered, 1);
        tracing::info!(%client, "ACME challenge answered");
        return work.io.close(newcomer.fd);
    };
    let Some(new) = connections.reserve(&newcomer.socket(route, id.1), work) else {
        return;
    };
    let slot = connections.new_slot(&new);
    let rested = match handshake.rest(&mut slot.tls) {
        Ok(rested) => rested,
        Err(failure) => {
            let handshake = newcomer.described(settings, work.now_ms);
            log::client_failed(&failure, handshake, work);
            return connections.give_back(new, work);
        }
    };
    // Counted even if the client has reached `connections_per_client`.
    log::count_done(&rested.info, &work.count);
    traffic::count_handshake(slot, rested.info.resumed, &work.traffic);
    let took_ms = work.now_ms.saturating_sub(newcomer.accepted_ms);
    let took_us = took_ms.saturating_mul(1000);
    work.count.observe(Latency::Handshake, took_us);
    if !admission::enter(slot, &client, settings, work) {
        return connections.give_back(new, work);
    }
    let first = First::Terminated {
        rested: Box::new(rested),
        client,
        took_ms,
    };
    connections.begin(new, first, settings, work);
}

/// Moves a pass-through connection into a slot, with the bytes received so far.
fn pass_through<I: Io>(newcomer: Newcomer, received: Vec<u8>, id: Id, cx: &mut WorkerContext<I>) {
    let WorkerContext {
        settings,
        work,
        connections,
    } = cx;
    let (client, route) = (newcomer.client, newcomer.route());
    let route = route.expect("the ClientHello has chosen a route that passes TLS through");
    let Some(new) = connections.reserve(&newcomer.socket(route, id.1), work) else {
        return;
    };
    work.count.add(Count::PassedThrough, 1);
    let slot = connections.new_slot(&new);
    if !admission::enter(slot, &client, settings, work) {
        return connections.give_back(new, work);
    }
    let first = First::PassedThrough { received, client };
    connections.begin(new, first, settings, work);
}

/// Whether a reload lets a handshake go on.
fn is_kept(entry: &InFlight, readmission: &Readmission<'_>) -> bool {
    let newcomer = &entry.newcomer;
    let Some(route) = newcomer.route().filter(|_| !entry.is_lingering()) else {
        return true;
    };
    let has_proxy = entry.expects_header() || newcomer.client.proxied.is_some();
    // If the route is not chosen yet, the choice checks the networks. So does the end of the header.
    let has_passed = newcomer.goal.is_some() && !entry.expects_header();
    (!entry.has_context() || readmission.is_same(route))
        && (!has_proxy || readmission.trusts_same_proxies(route))
        && (!has_passed || readmission.allows(route, &newcomer.client))
}
