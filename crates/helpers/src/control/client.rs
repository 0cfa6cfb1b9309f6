//! A client of the admin address: a connection with one request and one response, with a deadline
//! for each step.

use super::http::{self, HEAD_BYTES_MAX, Parsed, Request, Response};
use super::listener::Access;
use crate::exchange::{Outgoing, receive};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::{self, Attempt};
use zeroize::Zeroizing;

/// Time for a request to arrive, for the client to read the response, and for the client to close.
const TIMEOUT_MS: u64 = 5_000;
/// Time for main to carry out an order.
pub(super) const ORDER_MS: u64 = 600_000;

/// A connection.
pub(super) struct Client {
    pub(super) fd: Fd,
    /// The requests that this client may make.
    pub(super) access: Access,
    pub(super) deadline_ms: u64,
    state: ClientState,
}

enum ClientState {
    Reading(Zeroizing<Vec<u8>>),
    /// The order went to main with this id.
    Waiting(u64),
    Writing(Outgoing),
    /// The response is sent. Closing waits for the client's FIN, because a reset could overtake the
    /// response.
    Lingering,
}

/// The result of an event.
pub(super) enum ClientStep {
    /// The client needs more events.
    Pending,
    /// The request is complete.
    Request(Request),
    /// The connection is over.
    Closed,
}

impl Client {
    pub(super) fn new(fd: Fd, access: Access, now_ms: u64) -> Client {
        Client {
            fd,
            access,
            deadline_ms: now_ms + TIMEOUT_MS,
            // With all its room from the start: a vector that grows leaves copies of a key behind.
            state: ClientState::Reading(Zeroizing::new(Vec::with_capacity(room(access)))),
        }
    }

    /// Whether the poller must watch it for writing.
    pub(super) fn is_writing(&self) -> bool {
        matches!(self.state, ClientState::Writing(_))
    }

    /// Whether it waits for main's answer to the order `id`.
    pub(super) fn waits_for(&self, id: u64) -> bool {
        matches!(self.state, ClientState::Waiting(waits) if waits == id)
    }

    /// Whether it waits for an answer of main.
    pub(super) fn waits(&self) -> bool {
        matches!(self.state, ClientState::Waiting(_))
    }

    /// Starts to wait for main's answer to the order `id`.
    pub(super) fn wait_for(&mut self, id: u64, now_ms: u64) {
        self.state = ClientState::Waiting(id);
        self.deadline_ms = now_ms + ORDER_MS;
    }

    /// Handles a readable, writable or closed socket.
    pub(super) fn step(&mut self, now_ms: u64) -> ClientStep {
        match &mut self.state {
            ClientState::Reading(bytes) => {
                let Ok(is_end) = receive(self.fd, bytes, room(self.access)) else {
                    return ClientStep::Closed;
                };
                match http::parse(bytes, self.access.body_bytes_max()) {
                    Parsed::Incomplete if is_end => ClientStep::Closed,
                    Parsed::Incomplete => ClientStep::Pending,
                    Parsed::Request(request) => ClientStep::Request(request),
                    Parsed::Refused(response) => self.respond(&response, now_ms),
                }
            }
            // The client may close early; further requests are not read.
            ClientState::Waiting(_) | ClientState::Lingering => {
                match socket::recv(self.fd, &mut [0; 512]) {
                    Ok(Attempt::Done(0)) | Err(_) => ClientStep::Closed,
                    Ok(_) => ClientStep::Pending,
                }
            }
            ClientState::Writing(_) => self.write(),
        }
    }

    /// Starts to send the response.
    pub(super) fn respond(&mut self, response: &Response, now_ms: u64) -> ClientStep {
        self.deadline_ms = now_ms + TIMEOUT_MS;
        self.state = ClientState::Writing(Outgoing::new(response.encode()));
        self.write()
    }

    fn write(&mut self) -> ClientStep {
        let ClientState::Writing(response) = &mut self.state else {
            return ClientStep::Pending;
        };
        match response.send(self.fd) {
            Ok(Attempt::Done(())) => self.state = ClientState::Lingering,
            Ok(Attempt::WouldBlock) => {}
            Err(_) => return ClientStep::Closed,
        }
        ClientStep::Pending
    }
}

/// Length of the longest request.
fn room(access: Access) -> usize {
    HEAD_BYTES_MAX + access.body_bytes_max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::Shutdown;
    use std::os::fd::IntoRawFd as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_client_that_has_closed_its_direction_gets_its_response() {
        for (request, is_whole) in [("GET /healthz HTTP/1.0\r\n\r\n", true), ("GET /", false)] {
            let (mut peer, ours) = UnixStream::pair().expect("a pair");
            ours.set_nonblocking(true).expect("set");
            peer.write_all(request.as_bytes()).expect("sent");
            peer.shutdown(Shutdown::Write).expect("closed");
            let mut client = Client::new(Fd(ours.into_raw_fd()), Access::Orders, 0);
            let is_request = matches!(client.step(0), ClientStep::Request(_));
            assert_eq!(is_request, is_whole, "{request}");
            if is_request {
                let _ = client.respond(&Response::words(200, "ok"), 0);
            }
            client.fd.close();
            let mut said = String::new();
            peer.read_to_string(&mut said).expect("a proper end");
            assert_eq!(said.ends_with("ok\n"), is_whole, "{said}");
        }
    }
}
