//! The other direction: plain connections come in, TLS goes out.
//!
//! ```text
//!   accepted ──> a warm connection is ready: given at once
//!            └─> connect ──> handshake ──> slot, established
//!                   ↑ failed │ failed
//!                   └────────┴── next server
//! ```
//!
//! Until the handshake is done the plain socket is not read: what its client says waits in the
//! kernel. Servers are tried in their order; one that failed is passed over for a while, the longer
//! the more often it does. If none is left, the client's connection is reset: an end would look
//! like an empty answer.

use super::Worker;
use super::bursts::QUIET_MS;
use super::flow::{RECEIVE_MAX, Tools};
use super::handshaking::flush;
use super::interest::{self, Side};
use super::tickets::unix_time;
use super::token;
use super::warm::Pool;
use crate::counters::Count;
use crate::origin::Origin;
use crate::route::Direction;
use dormouse_engine::{Handshake, HandshakeLimits, Progress};
use dormouse_reactor::Fd;
use dormouse_reactor::poller::Interest;
use dormouse_reactor::socket::{self, Attempt, Connecting, Shortage};
use std::collections::{HashMap, VecDeque};

/// How long a server that failed is passed over, for the first time and at most.
const PASS_OVER_MS: std::ops::Range<u64> = 1_000..60_000;

/// An accepted connection.
#[derive(Clone, Copy)]
pub(super) struct Plain {
    pub(super) fd: Fd,
    pub(super) is_unix: bool,
}

impl Plain {
    fn reset(self) {
        if self.is_unix {
            self.fd.close();
        } else {
            socket::reset(self.fd);
        }
    }
}

/// A TLS connection that is on its way.
struct Entry {
    /// Whom it is for; `None`: for the warm ones.
    plain: Option<Plain>,
    route: u16,
    generation: u32,
    /// The server it is tried with now, and those before it.
    target: usize,
    tried: Vec<usize>,
    fd: Fd,
    stage: Stage,
    watched: Interest,
}

enum Stage {
    Connecting,
    Shaking(Box<Handshake>),
}

/// What is known of a server that failed.
#[derive(Clone, Copy, Default)]
struct Health {
    pass_over_until_ms: u64,
    streak: u32,
}

/// All that are on their way, what is known of servers, and the warm ones.
pub(super) struct Originations {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    live: usize,
    /// In the order in which they come: each kind has one length.
    attempts: VecDeque<(u64, u32, u32, usize)>,
    deadlines: VecDeque<(u64, u32, u32)>,
    health: HashMap<(u16, usize), Health>,
    /// When a server's failure was last written to the log, and how often it failed since.
    logged: HashMap<(u16, usize), (u64, u64)>,
    pools: Vec<Pool>,
}

impl Originations {
    pub(super) fn new(pools: Vec<Pool>) -> Originations {
        Originations {
            entries: Vec::new(),
            free: Vec::new(),
            live: 0,
            attempts: VecDeque::new(),
            deadlines: VecDeque::new(),
            health: HashMap::new(),
            logged: HashMap::new(),
            pools,
        }
    }

    pub(super) fn live(&self) -> usize {
        self.live
    }

    pub(super) fn pool(&mut self, route: u16) -> Option<&mut Pool> {
        self.pools.get_mut(usize::from(route))
    }

    pub(super) fn warm(&self) -> u64 {
        self.pools.iter().map(Pool::ready).sum()
    }

    pub(super) fn next_deadline_ms(&self) -> Option<u64> {
        let attempt = self.attempts.front().map(|&(at_ms, ..)| at_ms);
        let deadline = self.deadlines.front().map(|&(at_ms, ..)| at_ms);
        let looks = self.pools.iter().filter_map(Pool::look_ms);
        looks.chain(attempt).chain(deadline).min()
    }

    fn insert(&mut self, entry: Entry) -> u32 {
        self.live += 1;
        match self.free.pop() {
            Some(index) => {
                if let Some(room) = self.entries.get_mut(index as usize) {
                    *room = Some(entry);
                }
                index
            }
            None => {
                self.entries.push(Some(entry));
                (self.entries.len() - 1) as u32
            }
        }
    }

    fn entry(&mut self, index: u32, generation: u32) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(index as usize)?.as_mut()?;
        (entry.generation == generation).then_some(entry)
    }

    fn take(&mut self, index: u32, generation: u32) -> Option<Entry> {
        self.entry(index, generation)?;
        let entry = self.entries.get_mut(index as usize)?.take()?;
        self.free.push(index);
        self.live -= 1;
        if self.live == 0 {
            // As with handshakes: a burst leaves no room behind.
            self.entries = Vec::new();
            self.free = Vec::new();
        }
        Some(entry)
    }

    /// The server to try next: the first in order which has not failed lately, else the one whose
    /// failure is to be forgotten soonest.
    fn choose(&self, route: u16, targets: usize, tried: &[usize], now_ms: u64) -> Option<usize> {
        (0..targets)
            .filter(|target| !tried.contains(target))
            .min_by_key(|&target| {
                let health = self.health.get(&(route, target));
                health
                    .map_or(0, |health| health.pass_over_until_ms.max(now_ms))
                    .saturating_sub(now_ms)
            })
    }

    fn note_failure(&mut self, route: u16, target: usize, now_ms: u64) {
        let health = self.health.entry((route, target)).or_default();
        let doubled = PASS_OVER_MS.start << health.streak.min(6);
        health.streak = health.streak.saturating_add(1);
        health.pass_over_until_ms = now_ms + doubled.min(PASS_OVER_MS.end);
    }

    /// One line per server and burst, so that one server's failure does not hide another's.
    /// `Some`: it is to be written, with the number of those that were not.
    fn to_be_logged(&mut self, route: u16, target: usize, now_ms: u64) -> Option<u64> {
        let (logged_ms, more) = self.logged.entry((route, target)).or_default();
        if *logged_ms != 0 && now_ms < *logged_ms + QUIET_MS {
            *more += 1;
            return None;
        }
        *logged_ms = now_ms.max(1);
        Some(std::mem::take(more))
    }

    fn note_success(&mut self, route: u16, target: usize) {
        self.health.remove(&(route, target));
    }

    /// An attempt that took too long.
    fn next_late_attempt(&mut self, now_ms: u64) -> Option<(u32, u32)> {
        while let Some(&(at_ms, index, generation, attempt)) = self.attempts.front() {
            let current = self.entry(index, generation).is_some_and(|entry| {
                entry.tried.len() == attempt && matches!(entry.stage, Stage::Connecting)
            });
            if current && at_ms > now_ms {
                return None;
            }
            self.attempts.pop_front();
            if current {
                return Some((index, generation));
            }
        }
        None
    }

    /// One that took too long in all.
    fn next_late(&mut self, now_ms: u64) -> Option<(u32, u32)> {
        while let Some(&(at_ms, index, generation)) = self.deadlines.front() {
            let current = self.entry(index, generation).is_some();
            if current && at_ms > now_ms {
                return None;
            }
            self.deadlines.pop_front();
            if current {
                return Some((index, generation));
            }
        }
        None
    }
}

/// What a step led to.
enum Step {
    Continues,
    Established,
    Failed(String),
}

impl Worker {
    /// A local client has come.
    pub(super) fn accept_plain(&mut self, plain: Plain, route: u16) {
        self.tools.count.add(Count::Accepted, 1);
        if let Some(plain) = self.give_warm(route, plain) {
            self.originate(Some(plain), route);
        }
    }

    /// Begins a TLS connection, for a local client or for the warm ones.
    pub(super) fn originate(&mut self, plain: Option<Plain>, route: u16) {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation & token::GENERATION_MASK;
        let index = self.originations.insert(Entry {
            plain,
            route,
            generation,
            target: 0,
            tried: Vec::new(),
            fd: Fd::NONE,
            stage: Stage::Connecting,
            watched: Interest::WRITE,
        });
        let deadline_ms = self.now_ms + self.limits.handshake_timeout_ms;
        self.originations
            .deadlines
            .push_back((deadline_ms, index, generation));
        self.try_next(index, generation);
    }

    fn origin(&self, route: u16) -> Option<&Origin> {
        match &self.routes.get(usize::from(route))?.direction {
            Direction::Originate(origin) => Some(origin),
            Direction::Terminate { .. } | Direction::Gone => None,
        }
    }

    /// Connects to the next server; without one, gives up.
    fn try_next(&mut self, index: u32, generation: u32) {
        while let Some(entry) = self.originations.entry(index, generation) {
            let (route, tried) = (entry.route, entry.tried.clone());
            let now_ms = self.now_ms;
            let targets = self.origin(route).map_or(0, |origin| origin.targets.len());
            let chosen = self.originations.choose(route, targets, &tried, now_ms);
            let Some(target) = chosen else {
                return self.abandon(index, generation);
            };
            let connected = self.connect(route, target, token::origination(index, generation));
            let Some(entry) = self.originations.entry(index, generation) else {
                return;
            };
            entry.target = target;
            entry.tried.push(target);
            let attempt = entry.tried.len();
            match connected {
                Ok(connecting) => {
                    entry.fd = connecting.fd();
                    entry.stage = Stage::Connecting;
                    entry.watched = Interest::WRITE;
                    let late_ms = now_ms + self.limits.backend_connect_timeout_ms;
                    self.originations
                        .attempts
                        .push_back((late_ms, index, generation, attempt));
                    if matches!(connecting, Connecting::Established(_)) {
                        self.on_origination(index, generation);
                    }
                    return;
                }
                Err(error) => {
                    if let Some(shortage) = Shortage::of(&error) {
                        self.pause_for(shortage);
                    }
                    self.report(route, target, &error.to_string());
                }
            }
        }
    }

    fn connect(&self, route: u16, target: usize, token: u64) -> std::io::Result<Connecting> {
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let sockets = &self
            .routes
            .get(usize::from(route))
            .ok_or_else(missing)?
            .sockets;
        let origin = self.origin(route).ok_or_else(missing)?;
        let target = origin.targets.get(target).ok_or_else(missing)?;
        let connecting = socket::connect(&target.address, &sockets.connect_options(None))?;
        sockets.apply(connecting.fd());
        let added = self.poller.add(connecting.fd(), token, Interest::WRITE);
        added.inspect_err(|_| connecting.fd().close())?;
        Ok(connecting)
    }

    pub(super) fn on_origination(&mut self, index: u32, generation: u32) {
        let Some(entry) = self.originations.entry(index, generation) else {
            return;
        };
        let (route, target) = (entry.route, entry.target);
        let step = if matches!(entry.stage, Stage::Connecting) {
            self.begin_client_handshake(index, generation)
        } else {
            entry.shake(&mut self.tools)
        };
        match step {
            Step::Established => {
                self.originations.note_success(route, target);
                self.originated(index, generation);
            }
            Step::Failed(why) => self.attempt_failed(index, generation, &why),
            Step::Continues => self.watch_origination(index, generation),
        }
    }

    /// The TCP connection is there, or has failed.
    fn begin_client_handshake(&mut self, index: u32, generation: u32) -> Step {
        let limits = HandshakeLimits {
            bytes_max: self.limits.handshake_bytes_max,
        };
        let Worker {
            originations,
            routes,
            tools,
            ..
        } = self;
        let Some(entry) = originations.entry(index, generation) else {
            return Step::Continues;
        };
        if let Err(error) = socket::take_error(entry.fd) {
            return Step::Failed(error.to_string());
        }
        let route = routes.get(usize::from(entry.route));
        let Some(Direction::Originate(origin)) = route.map(|route| &route.direction) else {
            return Step::Failed("there is no such route".to_owned());
        };
        let Some(target) = origin.targets.get(entry.target) else {
            return Step::Failed("there is no such server".to_owned());
        };
        match Handshake::client(&origin.context, &target.server_name, limits) {
            Ok(mut handshake) => {
                if let Some(sessions) = &target.sessions {
                    handshake.keep_sessions(sessions.clone());
                }
                entry.stage = Stage::Shaking(Box::new(handshake));
                entry.handle(0, tools)
            }
            Err(error) => Step::Failed(error.to_string()),
        }
    }

    fn watch_origination(&mut self, index: u32, generation: u32) {
        let token = token::origination(index, generation);
        let Some(entry) = self.originations.entry(index, generation) else {
            return;
        };
        let blocked = match &entry.stage {
            Stage::Connecting => true,
            Stage::Shaking(handshake) => !handshake.output().is_empty(),
        };
        let wanted = if blocked {
            Interest::WRITE
        } else {
            Interest::READ
        };
        if wanted == entry.watched {
            return;
        }
        entry.watched = wanted;
        if let Err(error) = self.poller.modify(entry.fd, token, wanted) {
            self.attempt_failed(index, generation, &error.to_string());
        }
    }

    fn attempt_failed(&mut self, index: u32, generation: u32, why: &str) {
        let Some(entry) = self.originations.entry(index, generation) else {
            return;
        };
        let (route, target, fd) = (entry.route, entry.target, entry.fd);
        if let Stage::Shaking(handshake) = &mut entry.stage {
            self.tools.count.add(Count::ConnectHandshakesFailed, 1);
            // The alert, if there is one; nobody waits for it to be read.
            let _ = flush(fd, handshake);
        }
        entry.fd = Fd::NONE;
        entry.stage = Stage::Connecting;
        if fd != Fd::NONE {
            fd.close();
        }
        self.report(route, target, why);
        self.try_next(index, generation);
    }

    fn report(&mut self, route: u16, target: usize, why: &str) {
        let now_ms = self.now_ms;
        self.originations.note_failure(route, target, now_ms);
        self.tools.count.add(Count::ConnectAttemptsFailed, 1);
        let Some(more) = self.originations.to_be_logged(route, target, now_ms) else {
            return;
        };
        let target = self.routes.get(usize::from(route)).and_then(|route| {
            let Direction::Originate(origin) = &route.direction else {
                return None;
            };
            origin.targets.get(target)
        });
        if let Some(target) = target {
            tracing::warn!(server = %target.name, server_name = %target.server_name, more,
                "no TLS connection to this server: {why}");
        }
    }

    /// No server is left to try.
    fn abandon(&mut self, index: u32, generation: u32) {
        let Some(entry) = self.originations.take(index, generation) else {
            return;
        };
        if entry.fd != Fd::NONE {
            entry.fd.close();
        }
        match entry.plain {
            Some(plain) => {
                self.tools.count.add(Count::ConnectGivenUp, 1);
                plain.reset();
            }
            None => {
                let now_ms = self.now_ms;
                if let Some(pool) = self.originations.pool(entry.route) {
                    pool.failed(now_ms);
                }
            }
        }
        self.listeners.resume();
    }

    /// The handshake is done: from here on the connection is its slot.
    fn originated(&mut self, index: u32, generation: u32) {
        let Some(entry) = self.originations.take(index, generation) else {
            return;
        };
        let Entry {
            plain, route, fd, ..
        } = entry;
        let (Stage::Shaking(handshake), Some(index)) = (entry.stage, self.slots.insert()) else {
            fd.close();
            plain.inspect(|plain| plain.reset());
            return;
        };
        self.slots.header().mark_busy(index);
        let now_s = (self.now_ms / 1000) as u32;
        let token = token::connection(index, generation, Side::Tls);
        let rested = self.slots.get_mut(index).map(|slot| {
            let cookie = socket::cookie(fd).unwrap_or(0) as u32;
            slot.begin(fd, cookie, route, generation, now_s);
            slot.backend = u16::try_from(entry.target).unwrap_or(u16::MAX);
            (
                interest::adopt(slot, &self.poller, token, true),
                handshake.rest(&mut slot.tls),
            )
        });
        let over = match rested {
            Some((Ok(()), Ok(rested))) => self.work(index, |work, slot| {
                work.begin_originated(slot, rested, plain)
            }),
            _ => {
                plain.inspect(|plain| plain.reset());
                true
            }
        };
        if plain.is_none()
            && let Some(pool) = self.originations.pool(route)
        {
            pool.established(index, generation);
        }
        self.finish_work(index, over);
    }

    /// What took too long.
    pub(super) fn end_originations_in_time(&mut self) {
        while let Some((index, generation)) = self.originations.next_late_attempt(self.now_ms) {
            self.attempt_failed(
                index,
                generation,
                "no answer within backend_connect_timeout",
            );
        }
        while let Some((index, generation)) = self.originations.next_late(self.now_ms) {
            if let Some(entry) = self.originations.entry(index, generation) {
                let (route, target) = (entry.route, entry.target);
                self.report(route, target, "not done within handshake_timeout");
            }
            self.abandon(index, generation);
        }
    }

    /// The gateway stops: those who are not connected yet will not be.
    pub(super) fn end_originations(&mut self) {
        for index in 0..self.originations.entries.len() {
            let entry = self.originations.entries.get(index);
            let generation = entry.and_then(|entry| entry.as_ref().map(|entry| entry.generation));
            if let Some(generation) = generation {
                self.abandon(index as u32, generation);
            }
        }
    }
}

impl Entry {
    /// Sends, receives, works.
    fn shake(&mut self, tools: &mut Tools) -> Step {
        let Stage::Shaking(handshake) = &mut self.stage else {
            return Step::Continues;
        };
        match flush(self.fd, handshake) {
            Ok(true) => {}
            Ok(false) => return Step::Continues,
            Err(error) => return Step::Failed(error.to_string()),
        }
        let n = match socket::recv(self.fd, &mut tools.scratch.opening[..RECEIVE_MAX / 4]) {
            Ok(Attempt::Done(0)) => {
                let why = "it closed the connection during the handshake";
                return Step::Failed(why.to_owned());
            }
            Ok(Attempt::Done(n)) => n,
            Ok(Attempt::WouldBlock) => return Step::Continues,
            Err(error) => return Step::Failed(error.to_string()),
        };
        self.handle(n, tools)
    }

    /// Takes the first `n` bytes of the scratch buffer: none at first.
    fn handle(&mut self, n: usize, tools: &mut Tools) -> Step {
        let Stage::Shaking(handshake) = &mut self.stage else {
            return Step::Continues;
        };
        let received = tools.scratch.opening.get(..n).unwrap_or_default();
        let progress = handshake.handle_input(unix_time(), received);
        match (progress, flush(self.fd, handshake)) {
            (Err(failure), _) => Step::Failed(failure.to_string()),
            (_, Err(error)) => Step::Failed(error.to_string()),
            (Ok(Progress::Handshaking), Ok(_)) => Step::Continues,
            // What the socket does not take goes with the connection, as pending bytes.
            (Ok(Progress::Established), Ok(_)) => Step::Established,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_tried_in_order_and_failures_are_remembered_for_a_while() {
        let mut all = Originations::new(Vec::new());
        assert_eq!(all.choose(0, 3, &[], 5_000), Some(0));
        all.note_failure(0, 0, 5_000);
        assert_eq!(all.choose(0, 3, &[], 5_000), Some(1));
        assert_eq!(all.choose(0, 3, &[1], 5_000), Some(2));
        assert_eq!(
            all.choose(0, 3, &[1, 2], 5_000),
            Some(0),
            "better than none"
        );
        assert_eq!(all.choose(0, 3, &[0, 1, 2], 5_000), None);
        assert_eq!(all.choose(1, 3, &[], 5_000), Some(0), "another route");
        assert_eq!(all.choose(0, 3, &[], 6_000), Some(0), "forgotten");
        all.note_failure(0, 0, 6_000);
        assert_eq!(all.choose(0, 3, &[], 7_999), Some(1), "longer this time");
        all.note_success(0, 0);
        assert_eq!(all.choose(0, 3, &[], 7_999), Some(0));
        for _ in 0..100 {
            all.note_failure(0, 0, 8_000);
        }
        assert_eq!(all.choose(0, 1, &[], 8_000), Some(0), "the only one");
        assert_eq!(all.choose(0, 2, &[], 68_000), Some(0), "a minute at most");
    }
}
