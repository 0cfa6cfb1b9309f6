//! One attempt to establish a TLS connection to a server.

use crate::io::{Io, flush_handshake};
use crate::memory::allowance::RECEIVE_MAX;
use crate::outbound::failure::Failure;
use crate::outbound::local_opening::LocalOpening;
use crate::outcome::{BackendRequest, LocalClient};
use crate::starttls::{ANSWER_MAX, Request};
use crate::workspace::Workspace;
use dormouse_engine::{Handshake, HandshakeFailure, Progress};
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
    /// The local client speaks first, and no server is tried yet.
    AwaitsClient(LocalOpening),
    Connecting,
    /// The server is asked for TLS.
    Asking(Request),
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
            // A client may send a part of what is awaited, which stays in its queue.
            Stage::AwaitsClient(_) => return Interest::READ.with(Interest::EDGE, true),
            Stage::Connecting => true,
            Stage::Asking(request) => !request.output().is_empty(),
            // Nothing is read, and a hang-up is reported once.
            Stage::Shaking(handshake) if handshake.signature_request().is_some() => {
                return Interest::ONCE;
            }
            Stage::Shaking(handshake) => !handshake.output().is_empty(),
        };
        match is_blocked {
            true => Interest::WRITE,
            false => Interest::READ,
        }
    }
}

/// Sends what the server is asked, then receives and handles its answers. `Established`: it has consented to TLS.
pub(crate) fn ask<I: Io>(fd: Fd, request: &mut Request, work: &mut Workspace<I>) -> AttemptStep {
    loop {
        while !request.output().is_empty() {
            match work.io.send(fd, request.output()) {
                Ok(Tried::Done(n)) => request.output_sent(n),
                Ok(Tried::WouldBlock) => return AttemptStep::Continues,
                Err(error) => return AttemptStep::failed(&error),
            }
        }
        if request.is_done() {
            return AttemptStep::Established;
        }
        let room = &mut work.scratch.opening[..ANSWER_MAX];
        let received = match work.io.recv(fd, room) {
            Ok(Tried::Done(0)) => {
                return AttemptStep::failed(&"STARTTLS: the server closed the connection");
            }
            Ok(Tried::Done(n)) => &room[..n],
            Ok(Tried::WouldBlock) => return AttemptStep::Continues,
            Err(error) => return AttemptStep::failed(&error),
        };
        if let Err(reason) = request.handle_input(received) {
            return AttemptStep::failed(&format_args!("STARTTLS: {reason}"));
        }
    }
}

/// Continues with a signature, or ends because there is none.
pub(crate) fn take_signature<I: Io>(
    fd: Fd,
    handshake: &mut Handshake,
    signature: Result<Vec<u8>, String>,
    work: &mut Workspace<I>,
) -> AttemptStep {
    let progress = handshake.handle_signature(signature);
    answer(fd, handshake, progress, work)
}

/// Sends the handshake's output, then receives and handles input.
pub(crate) fn step<I: Io>(
    fd: Fd,
    handshake: &mut Handshake,
    work: &mut Workspace<I>,
) -> AttemptStep {
    if handshake.signature_request().is_some() {
        return AttemptStep::Continues;
    }
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
    answer(fd, handshake, progress, work)
}

fn answer<I: Io>(
    fd: Fd,
    handshake: &mut Handshake,
    progress: Result<Progress, HandshakeFailure>,
    work: &mut Workspace<I>,
) -> AttemptStep {
    match (progress, flush_handshake(&work.io, fd, handshake)) {
        (Err(failure), _) => AttemptStep::Failed(Failure::Handshake(failure)),
        (_, Err(error)) => AttemptStep::failed(&error),
        (Ok(Progress::Handshaking), Ok(_)) => AttemptStep::Continues,
        // Output that the socket does not take becomes pending bytes of the connection.
        (Ok(Progress::Established), Ok(_)) => AttemptStep::Established,
    }
}
