//! One attempt to establish a TLS connection to a server.

use crate::io::{Io, flush_handshake};
use crate::memory::allowance::RECEIVE_MAX;
use crate::outbound::failure::Failure;
use crate::outcome::{BackendRequest, LocalClient};
use crate::workspace::Workspace;
use dormouse_engine::{Handshake, Progress};
use dormouse_reactor::Fd;
use dormouse_reactor::poller::Interest;
use dormouse_reactor::socket::Attempt as Tried;
use std::fmt;

/// A TLS connection that is not established yet.
pub(crate) struct Attempt {
    /// The client that will get the connection. `None`: it becomes a warm connection.
    pub(crate) client: Option<LocalClient>,
    pub(crate) route: u16,
    pub(crate) generation: u32,
    /// The backend to connect to, if the attempt is for one; no other server is tried.
    pub(crate) request: Option<BackendRequest>,
    /// The current server.
    pub(crate) target: usize,
    /// All servers tried so far.
    pub(crate) tried: Vec<usize>,
    pub(crate) fd: Fd,
    /// Start time of the attempt with the current server.
    pub(crate) begun_ms: u64,
    pub(crate) stage: Stage,
    pub(crate) watched: Interest,
}

/// Stage of an attempt with its current server.
pub(crate) enum Stage {
    Connecting,
    Shaking(Box<Handshake>),
}

/// Result of a step.
pub(crate) enum AttemptStep {
    Continues,
    Established,
    Failed(Failure),
}

impl AttemptStep {
    /// A failure of the connection, not of the handshake.
    pub(crate) fn failed(reason: &dyn fmt::Display) -> AttemptStep {
        AttemptStep::Failed(Failure::Connection(reason.to_string()))
    }
}

impl Attempt {
    /// Closes the connection to the current server.
    pub(crate) fn disconnect(&mut self, io: &impl Io) {
        self.stage = Stage::Connecting;
        let fd = std::mem::replace(&mut self.fd, Fd::NONE);
        if fd != Fd::NONE {
            io.close(fd);
        }
    }

    /// Begins the handshake, once the TCP connection is established.
    pub(crate) fn shake_hands<I: Io>(
        &mut self,
        handshake: Handshake,
        work: &mut Workspace<I>,
    ) -> AttemptStep {
        let mut handshake = Box::new(handshake);
        let step = handle(self.fd, &mut handshake, 0, work);
        self.stage = Stage::Shaking(handshake);
        step
    }

    /// The epoll interest of the socket.
    pub(crate) fn interest(&self) -> Interest {
        let is_blocked = match &self.stage {
            Stage::Connecting => true,
            Stage::Shaking(handshake) => !handshake.output().is_empty(),
        };
        match is_blocked {
            true => Interest::WRITE,
            false => Interest::READ,
        }
    }
}

/// Sends the handshake's output, then receives and handles input.
pub(crate) fn step<I: Io>(
    fd: Fd,
    handshake: &mut Handshake,
    work: &mut Workspace<I>,
) -> AttemptStep {
    match flush_handshake(&work.io, fd, handshake) {
        Ok(true) => {}
        Ok(false) => return AttemptStep::Continues,
        Err(error) => return AttemptStep::failed(&error),
    }
    let most = match work.may_read_ahead() {
        true => RECEIVE_MAX / 4,
        false => handshake.missing().min(RECEIVE_MAX / 4),
    };
    let room = &mut work.scratch.opening[..most];
    match work.io.recv(fd, room) {
        Ok(Tried::Done(0)) => {
            AttemptStep::failed(&"the server closed the connection during the handshake")
        }
        Ok(Tried::Done(n)) => handle(fd, handshake, n, work),
        Ok(Tried::WouldBlock) => AttemptStep::Continues,
        Err(error) => AttemptStep::failed(&error),
    }
}

/// Passes the first `n` bytes of the scratch buffer to the handshake. The first call has none.
fn handle<I: Io>(
    fd: Fd,
    handshake: &mut Handshake,
    n: usize,
    work: &mut Workspace<I>,
) -> AttemptStep {
    let received = work.scratch.opening.get(..n).unwrap_or_default();
    let progress = handshake.handle_input(work.io.unix_time(), received);
    match (progress, flush_handshake(&work.io, fd, handshake)) {
        (Err(failure), _) => AttemptStep::Failed(Failure::Handshake(failure)),
        (_, Err(error)) => AttemptStep::failed(&error),
        (Ok(Progress::Handshaking), Ok(_)) => AttemptStep::Continues,
        // Output that the socket does not take becomes pending bytes of the connection.
        (Ok(Progress::Established), Ok(_)) => AttemptStep::Established,
    }
}
