//! A client of the admin address: a connection with one request and one response, with a deadline
//! for each step.

use super::http::{self, HEAD_BYTES_MAX, Parsed, Request, Response};
use super::listener::Access;
use crate::exchange::{Outgoing, receive};
use dormouse_reactor::Fd;
use dormouse_reactor::poller::Interest;
use dormouse_reactor::socket::{self, Attempt};
use std::io;
use zeroize::Zeroizing;

/// Time for a request to arrive, for the client to read the response, and for the client to close.
const TIMEOUT_MS: u64 = 5_000;
/// Time for main's first report, and for numbers of connections by age to be counted. Without the numbers, the answer has
/// the last ones.
const FIGURES_MS: u64 = 1_000;
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
    /// It waits for other processes.
    Waiting {
        awaited: Awaited,
        /// The client has closed its direction, as `nc -N` does.
        is_half_closed: bool,
    },
    Writing(Outgoing),
    /// The response is sent. Closing waits for the client's FIN, because a reset could overtake the
    /// response.
    Lingering,
}

/// What a client waits for.
enum Awaited {
    /// The result of the order that went to main with this id.
    Order(u64),
    /// Main's first report, or numbers that are counted, for the answer to this request.
    Figures(Box<Request>),
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

    /// What the poller must watch.
    pub(super) fn interest(&self) -> Interest {
        match self.state {
            ClientState::Writing(_) => Interest::WRITE,
            ClientState::Waiting { is_half_closed, .. } if is_half_closed => Interest::NONE,
            _ => Interest::READ,
        }
    }

    /// Bytes of its response that were not sent yet.
    pub(super) fn unsent(&self) -> usize {
        match &self.state {
            ClientState::Writing(response) => response.unsent(),
            _ => 0,
        }
    }

    /// Whether it waits for main's answer to the order `id`.
    pub(super) fn waits_for(&self, id: u64) -> bool {
        let is_it = |awaited: &Awaited| matches!(awaited, Awaited::Order(order) if *order == id);
        self.awaited().is_some_and(is_it)
    }

    /// Whether it waits for an answer of main.
    pub(super) fn waits(&self) -> bool {
        matches!(self.awaited(), Some(Awaited::Order(_)))
    }

    /// Takes the request whose answer waits for main's first report or numbers by age. The caller answers it.
    pub(super) fn take_waiting_request(&mut self) -> Option<Request> {
        if !matches!(self.awaited()?, Awaited::Figures(_)) {
            return None;
        }
        match std::mem::replace(&mut self.state, ClientState::Lingering) {
            ClientState::Waiting {
                awaited: Awaited::Figures(request),
                ..
            } => Some(*request),
            _ => None,
        }
    }

    fn awaited(&self) -> Option<&Awaited> {
        match &self.state {
            ClientState::Waiting { awaited, .. } => Some(awaited),
            _ => None,
        }
    }

    /// Returns its rank: at the limit, a new client replaces the client with the lowest. `None`: it waits for an answer of
    /// main, and is not replaced. A client that reads a response, or waits for its numbers, is replaced after those that
    /// have got it, or have sent no request.
    pub(super) fn rank(&self) -> Option<(bool, u64)> {
        match self.state {
            ClientState::Waiting { .. } if self.waits() => None,
            ClientState::Waiting { .. } | ClientState::Writing(_) => Some((true, self.deadline_ms)),
            ClientState::Reading(_) | ClientState::Lingering => Some((false, self.deadline_ms)),
        }
    }

    /// Starts to wait for main's answer to the order `id`.
    pub(super) fn wait_for(&mut self, id: u64, now_ms: u64) {
        self.wait(Awaited::Order(id), now_ms + ORDER_MS);
    }

    /// Starts to wait for main's first report or numbers by age, which the answer to this request has.
    pub(super) fn wait_for_figures(&mut self, request: Request, now_ms: u64) {
        self.wait(Awaited::Figures(Box::new(request)), now_ms + FIGURES_MS);
    }

    fn wait(&mut self, awaited: Awaited, deadline_ms: u64) {
        self.state = ClientState::Waiting {
            awaited,
            is_half_closed: false,
        };
        self.deadline_ms = deadline_ms;
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
            // Further requests are not read.
            ClientState::Waiting { is_half_closed, .. } => match discard(self.fd) {
                // The first end may be that of one direction; another event is a hang-up.
                Ok(true) if !*is_half_closed => {
                    *is_half_closed = true;
                    ClientStep::Pending
                }
                Ok(false) => ClientStep::Pending,
                Ok(true) | Err(_) => ClientStep::Closed,
            },
            ClientState::Lingering => match discard(self.fd) {
                Ok(false) => ClientStep::Pending,
                Ok(true) | Err(_) => ClientStep::Closed,
            },
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

/// Reads what nobody needs. Returns whether the peer has closed its direction.
fn discard(fd: Fd) -> io::Result<bool> {
    Ok(matches!(socket::recv(fd, &mut [0; 512])?, Attempt::Done(0)))
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
    fn a_client_that_has_closed_its_direction_gets_the_result_of_its_order() {
        let (mut peer, ours) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("set");
        peer.write_all(b"POST /reload HTTP/1.0\r\n\r\n")
            .expect("sent");
        let mut client = Client::new(Fd(ours.into_raw_fd()), Access::Orders, 0);
        assert!(matches!(client.step(0), ClientStep::Request(_)));
        client.wait_for(7, 0);
        peer.shutdown(Shutdown::Write).expect("closed");
        assert!(matches!(client.step(0), ClientStep::Pending));
        assert_eq!(client.interest(), Interest::NONE);
        let _ = client.respond(&Response::words(200, "done"), 0);
        assert!(matches!(client.step(0), ClientStep::Closed));
        client.fd.close();
        let mut said = String::new();
        peer.read_to_string(&mut said).expect("a proper end");
        assert!(said.ends_with("done\n"), "{said}");
    }

    /// The client with the lowest rank, of a reading one, an older one that gets a response, and one that waits for main.
    #[test]
    fn a_silent_client_is_replaced_first_and_one_that_waits_for_main_never() {
        let (_peer, ours) = UnixStream::pair().expect("a pair");
        let fd = Fd(ours.into_raw_fd());
        let [silent, mut responding, mut waiting] =
            [2, 1, 0].map(|now_ms| Client::new(fd, Access::Orders, now_ms));
        let long = Outgoing::new(vec![0; 8]);
        responding.state = ClientState::Writing(long);
        waiting.wait_for(7, 0);
        assert!(silent.rank() < responding.rank());
        assert_eq!(waiting.rank(), None);
        responding.state = ClientState::Lingering;
        assert!(responding.rank() < silent.rank(), "it is older");
        fd.close();
    }

    #[test]
    fn a_client_that_has_gone_waits_for_no_result() {
        let (peer, ours) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("set");
        let mut client = Client::new(Fd(ours.into_raw_fd()), Access::Orders, 0);
        client.wait_for(7, 0);
        drop(peer);
        assert!(matches!(client.step(0), ClientStep::Pending));
        // The poller reports the hang-up, once no child that another test has just forked has the peer, too.
        let has_closed = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            matches!(client.step(0), ClientStep::Closed)
        });
        assert!(has_closed);
        client.fd.close();
    }

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
