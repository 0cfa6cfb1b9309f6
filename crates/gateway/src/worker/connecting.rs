//! From a finished handshake to an established connection: the way to the backend.
//!
//! The TLS side is not read meanwhile; what came behind the handshake waits as a partial record.

use crate::route::Route;
use crate::slot::{Flag, Phase, Slot};
use dormouse_reactor::socket::{self, Addr, Connecting, Shortage};
use std::io;

/// How the way to the backend stands.
#[derive(Debug)]
pub(super) enum Connect {
    /// Connected: bytes may pass.
    Done,
    /// The kernel is at it; writability will tell.
    UnderWay,
    /// Descriptors or local ports have run out: worth another try when something has ended.
    TryAgain(io::Error),
    /// The backend refused, or can't be reached.
    Failed(io::Error),
}

/// Source addresses tried for one connection, should the ports of the first be used up.
const SOURCES_TRIED: u32 = 4;

/// Starts to connect `slot` with its route's backend, from one of `own_sources` addresses if that
/// is on this machine.
pub(super) fn start(slot: &mut Slot, route: &Route, own_sources: u32) -> Connect {
    if route.is_gone() {
        return Connect::Failed(io::Error::other("a reload has removed its route"));
    }
    let Some(backend) = route.backend() else {
        slot.set(Flag::Echo);
        slot.set_phase(Phase::Established);
        return Connect::Done;
    };
    slot.set_phase(Phase::Connecting);
    let is_unix = matches!(backend, Addr::Unix(_));
    if is_unix {
        slot.set(Flag::PlainIsUnix);
    }
    let connecting = match connect(slot.generation, route, backend, own_sources) {
        Ok(connecting) => connecting,
        Err(e) if Shortage::of(&e).is_some() => return Connect::TryAgain(e),
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

/// Connections take turns with the addresses; one without a free port is passed over.
fn connect(turn: u32, route: &Route, backend: &Addr, own_sources: u32) -> io::Result<Connecting> {
    let count = route.sources_count(own_sources);
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
    match socket::take_error(slot.plain_fd()) {
        Ok(()) => {
            slot.set_phase(Phase::Established);
            Connect::Done
        }
        Err(e) => Connect::Failed(e),
    }
}
