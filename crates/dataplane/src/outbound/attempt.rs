//! One TLS connection to a server, until it is established.

use crate::handshake::in_flight::flush;
use crate::io::Io;
use crate::outbound::failure::Failure;
use crate::outbound::request::{BackendRequest, LocalClient};
use crate::scratch::RECEIVE_MAX;
use crate::workspace::Workspace;
use dormouse_engine::{Handshake, Progress};
use dormouse_reactor::Fd;
use dormouse_reactor::poller::Interest;
use dormouse_reactor::socket::Attempt as Tried;
use std::fmt;

/// A TLS connection that is on its way.
pub(crate) struct Attempt {
    /// Whom it is for; `None`: for the warm ones.
    pub(crate) client: Option<LocalClient>,
    pub(crate) route: u16,
    pub(crate) generation: u32,
    /// A backend that it is for: there is no other to try.
    pub(crate) request: Option<BackendRequest>,
    /// The server it is tried with now, and those before it.
    pub(crate) target: usize,
    pub(crate) tried: Vec<usize>,
    pub(crate) fd: Fd,
    /// When it was begun with this server.
    pub(crate) begun_ms: u64,
    pub(crate) stage: Stage,
    pub(crate) watched: Interest,
}

/// How far it is with its server.
pub(crate) enum Stage {
    Connecting,
    Shaking(Box<Handshake>),
}

/// What a step of it led to.
pub(crate) enum AttemptStep {
    Continues,
    Established,
    Failed(Failure),
}

impl AttemptStep {
    /// The connection, not the handshake, has failed.
    pub(crate) fn failed(why: &dyn fmt::Display) -> AttemptStep {
        AttemptStep::Failed(Failure::Connection(why.to_string()))
    }
}

impl Attempt {
    /// Begins the handshake with a server that has accepted.
    pub(crate) fn shake_hands<I: Io>(
        &mut self,
        handshake: Handshake,
        work: &mut Workspace<I>,
    ) -> AttemptStep {
        self.stage = Stage::Shaking(Box::new(handshake));
        self.handle(0, work)
    }

    /// Sends and receives.
    pub(crate) fn step<I: Io>(&mut self, work: &mut Workspace<I>) -> AttemptStep {
        let Stage::Shaking(handshake) = &mut self.stage else {
            return AttemptStep::Continues;
        };
        match flush(&work.io, self.fd, handshake) {
            Ok(true) => {}
            Ok(false) => return AttemptStep::Continues,
            Err(error) => return AttemptStep::failed(&error),
        }
        let room = &mut work.scratch.opening[..RECEIVE_MAX / 4];
        match work.io.recv(self.fd, room) {
            Ok(Tried::Done(0)) => {
                AttemptStep::failed(&"the server closed the connection during the handshake")
            }
            Ok(Tried::Done(n)) => self.handle(n, work),
            Ok(Tried::WouldBlock) => AttemptStep::Continues,
            Err(error) => AttemptStep::failed(&error),
        }
    }

    /// Takes the first `n` bytes of the scratch buffer: none at first.
    fn handle<I: Io>(&mut self, n: usize, work: &mut Workspace<I>) -> AttemptStep {
        let Stage::Shaking(handshake) = &mut self.stage else {
            return AttemptStep::Continues;
        };
        let received = work.scratch.opening.get(..n).unwrap_or_default();
        let progress = handshake.handle_input(work.io.unix_time(), received);
        match (progress, flush(&work.io, self.fd, handshake)) {
            (Err(failure), _) => AttemptStep::Failed(Failure::Handshake(failure)),
            (_, Err(error)) => AttemptStep::failed(&error),
            (Ok(Progress::Handshaking), Ok(_)) => AttemptStep::Continues,
            // What the socket does not take goes with the connection, as pending bytes.
            (Ok(Progress::Established), Ok(_)) => AttemptStep::Established,
        }
    }

    /// What its socket is to be watched for.
    pub(crate) fn wanted(&self) -> Interest {
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
