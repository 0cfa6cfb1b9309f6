//! From a finished handshake to an established connection: the way to the backend.
//!
//! The TLS side is not read meanwhile; what came behind the handshake waits as a partial record.

use super::accepting::Pause;
use super::backlog;
use super::bursts::Subject;
use super::closing::{self, Ending};
use super::flow::Outcome;
use super::io::Io;
use super::originating::Errand;
use super::work::Work;
use dormouse_handover::slot::{Flag, Phase, Slot};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::{Addr, Attempt, Connecting, Shortage};
use dormouse_routes::balance::{Target, Targets, Tried};
use dormouse_routes::route::Route;
use dormouse_tables::backends::{Backends, HealthChange};
use dormouse_tables::counters::Count;
use dormouse_tables::latency::Latency;
use std::io;
use std::net::IpAddr;

/// How the way to the backend stands.
#[derive(Debug)]
pub(super) enum Connect {
    /// Connected: bytes may pass.
    Done,
    /// The kernel is at it; writability will tell.
    UnderWay,
    /// This end of a joint waits for a TLS connection to the backend; the other end will tell.
    Joined(Fd),
    /// Descriptors or local ports have run out: worth another try when something has ended.
    TryAgain(io::Error),
    /// The backend refused, or can't be reached.
    Failed(io::Error),
}

/// Source addresses tried for one connection, should the ports of the first be used up.
const SOURCES_TRIED: u32 = 4;

/// Backends tried to enter for one connection, should other workers have filled them meanwhile.
const ENTERS_TRIED: u32 = 4;

/// What choosing a backend, and connecting with it, depends on besides the slot.
pub(super) struct Way<'a, I> {
    pub(super) io: &'a I,
    pub(super) route: &'a Route,
    pub(super) known: &'a Backends,
    /// Addresses to connect from, if the backend is on this machine.
    pub(super) own_sources: u32,
    pub(super) now_ms: u64,
}

impl<I: Io> Work<'_, I> {
    pub(super) fn start_connect(&mut self, slot: &mut Slot, client: Option<IpAddr>) -> Connect {
        self.tools.connects.began(slot.generation, self.now_ms);
        start(slot, self.way(), client)
    }

    fn way(&self) -> Way<'_, I> {
        Way {
            io: &self.tools.io,
            route: self.route,
            known: &self.tools.backends,
            own_sources: self.limits.sources,
            now_ms: self.now_ms,
        }
    }

    /// The backend can't be connected to: the next one, if there is one.
    pub(super) fn try_next(&mut self, slot: &mut Slot, why: &str) -> Option<Connect> {
        self.tools.count.add(Count::BackendConnectsFailed, 1);
        let fd = slot.detach_plain();
        if fd != Fd::NONE {
            self.tools.io.close(fd);
        }
        let targets = self.route.targets()?;
        let (known, now_ms) = (&self.tools.backends, self.now_ms);
        // With one backend there is nothing to choose, so its failures change nothing.
        if let Some((_, target)) = current(slot, targets).filter(|_| targets.all.len() > 1) {
            let (most, pause_ms) = (targets.failures_max, targets.pause_ms);
            if known.failed(target.place, most, pause_ms, now_ms) == HealthChange::Down {
                tracing::warn!(
                    backend = target.name,
                    error = why,
                    pause_ms,
                    "backend has failed {most} times in a row; it is passed over"
                );
            }
        }
        let next = next(slot, self.way())?;
        self.tools.count.add(Count::BackendFailovers, 1);
        Some(next)
    }

    fn note_connected(&mut self, slot: &Slot) {
        let took_ms = self.tools.connects.done(slot.generation, self.now_ms);
        if let Some(took_ms) = took_ms.filter(|_| !slot.has(Flag::Echo)) {
            let count = &self.tools.count;
            count.observe(Latency::BackendConnect, took_ms.saturating_mul(1000));
        }
        let Some(targets) = self.route.targets().filter(|targets| targets.all.len() > 1) else {
            return;
        };
        if let Some((_, target)) = current(slot, targets)
            && self.tools.backends.succeeded(target.place, self.now_ms) == HealthChange::Up
        {
            tracing::info!(backend = target.name, "backend serves again");
        }
    }

    pub(super) fn connected(&mut self, slot: &mut Slot, mut connect: Connect) -> Outcome {
        // Each backend is tried once at most, so this ends.
        loop {
            let failure = match connect {
                Connect::Done => {
                    self.note_connected(slot);
                    if slot.has(Flag::Joined) && slot.has(Flag::OpeningBlocked) {
                        // The introduction went before the handshake with the backend.
                        let pending = &mut self.tools.pending;
                        let introduced = backlog::opened(slot, pending).len();
                        backlog::opened_sent(slot, pending, introduced);
                    }
                    return self.open_after_flush(slot);
                }
                Connect::UnderWay => return Outcome::Continues,
                Connect::Joined(end) => {
                    self.joined = self.errand(slot, end);
                    return Outcome::Continues;
                }
                Connect::TryAgain(e) if self.may_retry(slot) => {
                    self.pause = match Shortage::of(&e) {
                        Some(Shortage::Descriptors) => Some(Pause::Descriptors),
                        Some(Shortage::Ports) => Some(Pause::Ports),
                        // A backend whose queue is full, or kernel memory: not for us to pause.
                        _ => None,
                    };
                    return Outcome::Continues;
                }
                Connect::TryAgain(e) => {
                    self.backend_down(slot, &e.to_string());
                    return Outcome::Continues;
                }
                Connect::Failed(e) => e.to_string(),
            };
            match self.try_next(slot, &failure) {
                Some(next) => connect = next,
                None => {
                    self.backend_down(slot, &failure);
                    return Outcome::Continues;
                }
            }
        }
    }

    /// What has to be known to connect the other end of a joint with the backend.
    fn errand(&self, slot: &Slot, end: Fd) -> Option<Errand> {
        let known = self
            .route
            .targets()
            .and_then(|targets| current(slot, targets));
        let name = known.and_then(|(_, target)| {
            let tls = self.route.backend_tls.as_ref()?;
            Some((target, tls.server_name(&target.address)?))
        });
        let Some((target, server_name)) = name else {
            // This end hears of it at once.
            self.tools.io.close(end);
            return None;
        };
        Some(Errand {
            end,
            route: slot.route,
            address: target.address.clone(),
            server_name,
            preface: if slot.has(Flag::OpeningBlocked) {
                backlog::opened(slot, &self.tools.pending).to_vec()
            } else {
                Vec::new()
            },
        })
    }

    fn may_retry(&self, slot: &Slot) -> bool {
        let began_ms = u64::from(slot.opened_s) * 1000;
        self.now_ms < began_ms + self.limits.backend_connect_timeout_ms
    }

    /// The client is told in order that there is nothing behind this connection.
    pub(super) fn backend_down(&mut self, slot: &mut Slot, why: &str) {
        let fd = slot.detach_plain();
        if fd != Fd::NONE {
            self.tools.io.close(fd);
        }
        let backend = &self.route.backend_name;
        let told = if slot.has(Flag::PassThrough) {
            "are reset"
        } else {
            "get close_notify"
        };
        self.bursts.note(Subject::BackendDown, self.now_ms, |more| {
            tracing::warn!(%backend, error = why, more,
                "backend can't be reached; its clients {told}");
        });
        self.end(slot, Ending::BackendDown);
        closing::begin_farewell(slot, self.tools);
    }
}

impl<I> Clone for Way<'_, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I> Copy for Way<'_, I> {}

/// Starts to connect `slot` with one of its route's backends.
pub(super) fn start(slot: &mut Slot, way: Way<'_, impl Io>, client: Option<IpAddr>) -> Connect {
    let Way {
        route,
        known,
        now_ms,
        ..
    } = way;
    if route.is_gone() {
        return Connect::Failed(io::Error::other("a reload has removed its route"));
    }
    let Some(targets) = route.targets() else {
        slot.set(Flag::Echo);
        slot.set_phase(Phase::Established);
        return Connect::Done;
    };
    slot.set_phase(Phase::Connecting);
    for _ in 0..ENTERS_TRIED {
        let Some(target) = targets.first(client, known, now_ms).in_list(targets) else {
            break;
        };
        if enter(slot, way, target) {
            slot.set_tried(Tried::first(target).0);
            return begin(slot, way, target);
        }
    }
    Connect::TryAgain(io::Error::other(
        "every backend has as many connections as it may (max_connections)",
    ))
}

/// The backend of this slot has failed: starts to connect with the next one, if there is one that
/// was not tried.
pub(super) fn next(slot: &mut Slot, way: Way<'_, impl Io>) -> Option<Connect> {
    let Way { known, now_ms, .. } = way;
    let targets = way.route.targets()?;
    // If its address is no longer one of the name's, those which are now are tried from the first.
    let mut last = current(slot, targets).map_or(0, |(last, _)| last);
    known.leave(slot.backend);
    slot.backend = 0;
    loop {
        let (choice, tried) = targets.next(last, Tried(slot.tried()), known, now_ms);
        let target = choice.in_list(targets)?;
        slot.set_tried(tried.0);
        if enter(slot, way, target) {
            return Some(begin(slot, way, target));
        }
        // Each is passed over once, so this ends.
        last = targets
            .all
            .iter()
            .position(|one| one.place == target.place)?;
    }
}

/// Counts the connection with this backend. `false`: another worker was quicker, and now the
/// backend has as many as it may, or is tried by that one after a pause.
fn enter(slot: &mut Slot, way: Way<'_, impl Io>, target: &Target) -> bool {
    let Way { known, now_ms, .. } = way;
    slot.backend = target.place;
    known.enter(target.place);
    let most = target.connections_max.map_or(u64::MAX, u64::from);
    let pause_ms = way.route.targets().map_or(0, |targets| targets.pause_ms);
    let may = known.load(target.place) <= most && known.try_again(target.place, pause_ms, now_ms);
    if !may {
        known.leave(target.place);
        slot.backend = 0;
    }
    may
}

/// The backend that `slot` is, or was last, connected with, and its index in the list.
pub(super) fn current<'a>(slot: &Slot, targets: &'a Targets) -> Option<(usize, &'a Target)> {
    let mut all = targets.all.iter().enumerate();
    all.find(|(_, target)| target.place == slot.backend)
}

fn begin(slot: &mut Slot, way: Way<'_, impl Io>, target: &Target) -> Connect {
    let Way {
        io, route, known, ..
    } = way;
    let backend = &target.address;
    if matches!(backend, Addr::Unix(_)) {
        slot.set(Flag::PlainIsUnix);
    } else {
        slot.clear(Flag::PlainIsUnix);
    }
    if route.backend_tls.is_some() {
        return join(slot, io, known);
    }
    slot.clear(Flag::Joined);
    let connecting = match connect(io, slot.generation, route, backend, way.own_sources) {
        Ok(connecting) => connecting,
        Err(e) if Shortage::of(&e).is_some() => {
            known.leave(target.place);
            slot.backend = 0;
            return Connect::TryAgain(e);
        }
        Err(e) => return Connect::Failed(e),
    };
    let fd = connecting.fd();
    let cookie = io.cookie(fd).unwrap_or(0) as u32;
    slot.attach_plain(fd, cookie);
    io.set_backend_options(&route.sockets, fd, backend);
    match connecting {
        Connecting::Established(_) => {
            slot.set_phase(Phase::Established);
            Connect::Done
        }
        Connecting::InProgress(_) => Connect::UnderWay,
    }
}

/// The way to a backend that speaks TLS begins with a joint: somebody has to go the rest of it.
fn join(slot: &mut Slot, io: &impl Io, known: &Backends) -> Connect {
    match io.joint() {
        Ok((ours, theirs)) => {
            slot.set(Flag::PlainIsUnix);
            slot.set(Flag::Joined);
            let cookie = io.cookie(ours).unwrap_or(0) as u32;
            slot.attach_plain(ours, cookie);
            Connect::Joined(theirs)
        }
        Err(e) if Shortage::of(&e).is_some() => {
            known.leave(slot.backend);
            slot.backend = 0;
            Connect::TryAgain(e)
        }
        Err(e) => Connect::Failed(e),
    }
}

/// Connections take turns with the addresses; one without a free port is passed over.
pub(super) fn connect(
    io: &impl Io,
    turn: u32,
    route: &Route,
    backend: &Addr,
    own_sources: u32,
) -> io::Result<Connecting> {
    let count = route.sources_count(backend, own_sources);
    let mut tried = 0;
    loop {
        let source = route.source(turn.wrapping_add(tried) % count);
        let result = io.connect(backend, &route.sockets.connect_options(source));
        tried += 1;
        match result {
            Err(e)
                if Shortage::of(&e) == Some(Shortage::Ports)
                    && tried < count.min(SOURCES_TRIED) => {}
            result => return result,
        }
    }
}

/// The socket became writable: is it connected?
pub(super) fn finish(slot: &mut Slot, io: &impl Io) -> Connect {
    if slot.has(Flag::Joined) {
        return finish_joint(slot, io);
    }
    match io.take_error(slot.plain_fd()) {
        Ok(()) => {
            slot.set_phase(Phase::Established);
            Connect::Done
        }
        Err(e) => Connect::Failed(e),
    }
}

/// What the other end of a joint says when it is connected.
pub(super) const CONNECTED: [u8; 1] = *b"C";

/// Something has come from the other end: that it is connected, or its end.
fn finish_joint(slot: &mut Slot, io: &impl Io) -> Connect {
    match io.recv(slot.plain_fd(), &mut [0; CONNECTED.len()]) {
        Ok(Attempt::WouldBlock) => Connect::UnderWay,
        Ok(Attempt::Done(n)) if n > 0 => {
            slot.set_phase(Phase::Established);
            Connect::Done
        }
        _ => Connect::Failed(io::Error::other("there is no TLS connection with it")),
    }
}
