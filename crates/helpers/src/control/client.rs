//! A client: a connection with one request and one response, each within a time.

use super::door::Access;
use super::http::{self, HEAD_BYTES_MAX, Parsed, Request, Response};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::{self, Attempt};
use zeroize::Zeroizing;

/// How long a request may take to arrive, a response to be taken, and an end to be answered.
const PATIENCE_MS: u64 = 5_000;
/// How long main may take over an order.
pub(super) const ORDER_MS: u64 = 600_000;

/// A connection.
pub(super) struct Client {
    pub(super) fd: Fd,
    /// What it may ask for.
    pub(super) access: Access,
    pub(super) deadline_ms: u64,
    state: ClientState,
}

enum ClientState {
    Reading(Zeroizing<Vec<u8>>),
    /// Main has been asked, under this number.
    Waiting(u64),
    Writing {
        bytes: Vec<u8>,
        sent: usize,
    },
    /// All is said; the other end's end is awaited, so that no reset overtakes the response.
    Lingering,
}

/// What follows from an event.
pub(super) enum ClientStep {
    /// Wait for more.
    Pending,
    /// A request is complete.
    Request(Request),
    /// It is over.
    Closed,
}

impl Client {
    pub(super) fn new(fd: Fd, access: Access, now_ms: u64) -> Client {
        Client {
            fd,
            access,
            deadline_ms: now_ms + PATIENCE_MS,
            // With all its room from the start: a vector that grows leaves copies of a key behind.
            state: ClientState::Reading(Zeroizing::new(Vec::with_capacity(room(access)))),
        }
    }

    /// Whether it is to be watched for room to write.
    pub(super) fn is_writing(&self) -> bool {
        matches!(self.state, ClientState::Writing { .. })
    }

    /// Whether main's answer to this order is for it.
    pub(super) fn waits_for(&self, id: u64) -> bool {
        matches!(self.state, ClientState::Waiting(waits) if waits == id)
    }

    /// Whether it waits for main at all.
    pub(super) fn waits(&self) -> bool {
        matches!(self.state, ClientState::Waiting(_))
    }

    /// Main has been asked.
    pub(super) fn wait_for(&mut self, id: u64, now_ms: u64) {
        self.state = ClientState::Waiting(id);
        self.deadline_ms = now_ms + ORDER_MS;
    }

    /// Something can be read or written, or the other end is gone.
    pub(super) fn step(&mut self, now_ms: u64) -> ClientStep {
        match &mut self.state {
            ClientState::Reading(bytes) => match read(self.fd, bytes, room(self.access)) {
                ClientStep::Request(request) => ClientStep::Request(request),
                ClientStep::Closed => ClientStep::Closed,
                ClientStep::Pending => match http::parse(bytes, self.access.body_bytes_max()) {
                    Parsed::Incomplete => ClientStep::Pending,
                    Parsed::Request(request) => ClientStep::Request(request),
                    Parsed::Refused(response) => self.respond(&response, now_ms),
                },
            },
            // It may give up waiting; more requests are not read.
            ClientState::Waiting(_) | ClientState::Lingering => {
                match socket::recv(self.fd, &mut [0; 512]) {
                    Ok(Attempt::Done(0)) | Err(_) => ClientStep::Closed,
                    Ok(_) => ClientStep::Pending,
                }
            }
            ClientState::Writing { .. } => self.write(),
        }
    }

    /// Begins to send the response.
    pub(super) fn respond(&mut self, response: &Response, now_ms: u64) -> ClientStep {
        self.deadline_ms = now_ms + PATIENCE_MS;
        self.state = ClientState::Writing {
            bytes: response.encode(),
            sent: 0,
        };
        self.write()
    }

    fn write(&mut self) -> ClientStep {
        let ClientState::Writing { bytes, sent } = &mut self.state else {
            return ClientStep::Pending;
        };
        while let Some(rest) = bytes.get(*sent..).filter(|rest| !rest.is_empty()) {
            match socket::send(self.fd, rest) {
                Ok(Attempt::Done(count)) => *sent += count,
                Ok(Attempt::WouldBlock) => return ClientStep::Pending,
                Err(_) => return ClientStep::Closed,
            }
        }
        if socket::shutdown_write(self.fd).is_err() {
            return ClientStep::Closed;
        }
        self.state = ClientState::Lingering;
        ClientStep::Pending
    }
}

/// Length of the longest request.
fn room(access: Access) -> usize {
    HEAD_BYTES_MAX + access.body_bytes_max()
}

/// Reads what has come, up to the longest request.
fn read(fd: Fd, bytes: &mut Vec<u8>, room: usize) -> ClientStep {
    let mut chunk = Zeroizing::new([0; 1024]);
    while bytes.len() < room {
        let left = chunk.len().min(room - bytes.len());
        let chunk = &mut chunk[..left];
        match socket::recv(fd, chunk) {
            Ok(Attempt::Done(0)) | Err(_) => return ClientStep::Closed,
            Ok(Attempt::Done(count)) => {
                bytes.extend_from_slice(chunk.get(..count).unwrap_or_default());
            }
            Ok(Attempt::WouldBlock) => break,
        }
    }
    ClientStep::Pending
}
