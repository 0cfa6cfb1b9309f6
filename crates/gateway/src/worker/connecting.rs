//! From a finished handshake to an established connection: the way to the backend.
//!
//! The TLS side is not read meanwhile; what came behind the handshake waits as a partial record.

use crate::backends::Backends;
use crate::balance::{Target, Targets, Tried};
use crate::route::Route;
use crate::slot::{Flag, Phase, Slot};
use dormouse_reactor::socket::{self, Addr, Attempt, Connecting, Shortage};
use dormouse_reactor::{Fd, OnExec};
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
#[derive(Clone, Copy)]
pub(super) struct Way<'a> {
    pub(super) route: &'a Route,
    pub(super) known: &'a Backends,
    /// Addresses to connect from, if the backend is on this machine.
    pub(super) own_sources: u32,
    pub(super) now_ms: u64,
}

/// Starts to connect `slot` with one of its route's backends.
pub(super) fn start(slot: &mut Slot, way: Way<'_>, client: Option<IpAddr>) -> Connect {
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
pub(super) fn next(slot: &mut Slot, way: Way<'_>) -> Option<Connect> {
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
fn enter(slot: &mut Slot, way: Way<'_>, target: &Target) -> bool {
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

fn begin(slot: &mut Slot, way: Way<'_>, target: &Target) -> Connect {
    let Way { route, known, .. } = way;
    let backend = &target.address;
    if matches!(backend, Addr::Unix(_)) {
        slot.set(Flag::PlainIsUnix);
    } else {
        slot.clear(Flag::PlainIsUnix);
    }
    if route.backend_tls.is_some() {
        return join(slot, known);
    }
    slot.clear(Flag::Joined);
    let connecting = match connect(slot.generation, route, backend, way.own_sources) {
        Ok(connecting) => connecting,
        Err(e) if Shortage::of(&e).is_some() => {
            known.leave(target.place);
            slot.backend = 0;
            return Connect::TryAgain(e);
        }
        Err(e) => return Connect::Failed(e),
    };
    let fd = connecting.fd();
    let cookie = socket::cookie(fd).unwrap_or(0) as u32;
    slot.attach_plain(fd, cookie);
    route.sockets.apply_to_backend(fd, backend);
    match connecting {
        Connecting::Established(_) => {
            slot.set_phase(Phase::Established);
            Connect::Done
        }
        Connecting::InProgress(_) => Connect::UnderWay,
    }
}

/// The way to a backend that speaks TLS begins with a joint: somebody has to go the rest of it.
fn join(slot: &mut Slot, known: &Backends) -> Connect {
    match socket::joint(OnExec::Keep) {
        Ok((ours, theirs)) => {
            slot.set(Flag::PlainIsUnix);
            slot.set(Flag::Joined);
            let cookie = socket::cookie(ours).unwrap_or(0) as u32;
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
    turn: u32,
    route: &Route,
    backend: &Addr,
    own_sources: u32,
) -> io::Result<Connecting> {
    let count = route.sources_count(backend, own_sources);
    let mut tried = 0;
    loop {
        let source = route.source(turn.wrapping_add(tried) % count);
        let result = socket::connect(backend, &route.sockets.connect_options(source));
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
pub(super) fn finish(slot: &mut Slot) -> Connect {
    if slot.has(Flag::Joined) {
        return finish_joint(slot);
    }
    match socket::take_error(slot.plain_fd()) {
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
fn finish_joint(slot: &mut Slot) -> Connect {
    match socket::recv(slot.plain_fd(), &mut [0; CONNECTED.len()]) {
        Ok(Attempt::WouldBlock) => Connect::UnderWay,
        Ok(Attempt::Done(n)) if n > 0 => {
            slot.set_phase(Phase::Established);
            Connect::Done
        }
        _ => Connect::Failed(io::Error::other("there is no TLS connection with it")),
    }
}
