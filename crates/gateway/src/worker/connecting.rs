//! From a finished handshake to an established connection: the way to the backend.
//!
//! The TLS side is not read meanwhile; what came behind the handshake waits as a partial record.

use super::flow::Tools;
use crate::route::Route;
use crate::slot::{Flag, Phase, Slot};
use dormouse_reactor::socket::{self, Connecting};
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

/// Starts to connect `slot` with its route's backend.
pub(super) fn start(slot: &mut Slot, route: &Route) -> Connect {
    let Some(backend) = &route.backend else {
        slot.set(Flag::Echo);
        slot.set_phase(Phase::Established);
        return Connect::Done;
    };
    slot.set_phase(Phase::Connecting);
    if backend.is_unix() {
        slot.set(Flag::PlainIsUnix);
    }
    match socket::connect(backend, &route.socket_options) {
        Ok(Connecting { fd, done }) => {
            let cookie = socket::cookie(fd).unwrap_or(0) as u32;
            slot.attach_plain(fd, cookie);
            if done { finish(slot) } else { Connect::UnderWay }
        }
        Err(e) if is_exhaustion(&e) => Connect::TryAgain(e),
        Err(e) => Connect::Failed(e),
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

/// Gives up the socket of a connect that came to nothing.
pub(super) fn abandon(slot: &mut Slot, _tools: &mut Tools) {
    let fd = slot.detach_plain();
    if fd != dormouse_reactor::Fd::NONE {
        socket::close(fd);
    }
}

fn is_exhaustion(e: &io::Error) -> bool {
    // EAGAIN is what a unix socket answers whose backlog is full.
    socket::is_out_of_descriptors(e)
        || socket::is_out_of_ports(e)
        || e.kind() == io::ErrorKind::WouldBlock
}
