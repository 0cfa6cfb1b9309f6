//! A client of plain HTTP: one request and one response, with a deadline for each step.

use super::messages::{HttpChallenge, Site};
use super::response::{self, HEAD_BYTES_MAX};
use crate::exchange::{Outgoing, receive};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::{self, Attempt};

/// Time to receive the head of a request; then for the response and the client's close.
const TIMEOUT_MS: u64 = 5_000;
/// Maximum bytes after the head that are read and discarded: closing a socket with unread bytes sends a
/// reset, which could overtake the response.
const DISCARDED_MAX: usize = 256 << 10;

/// A connection.
pub(super) struct Client {
    pub(super) fd: Fd,
    pub(super) deadline_ms: u64,
    phase: Phase,
}

enum Phase {
    Reading(Vec<u8>),
    Writing(Outgoing),
    Lingering { discarded: usize },
}

/// What the client waits for after an event.
#[derive(PartialEq, Eq)]
pub(super) enum Next {
    /// More bytes from the client.
    Read,
    /// Room in the socket for the response.
    Write,
    /// The connection is over.
    Close,
}

impl Client {
    pub(super) fn new(fd: Fd, now_ms: u64) -> Client {
        Client {
            fd,
            deadline_ms: now_ms + TIMEOUT_MS,
            phase: Phase::Reading(Vec::new()),
        }
    }

    /// Handles a ready socket.
    pub(super) fn step(&mut self, now_ms: u64, site: Site, challenges: &[HttpChallenge]) -> Next {
        if let Phase::Reading(head) = &mut self.phase {
            let Ok(is_end) = receive(self.fd, head, HEAD_BYTES_MAX) else {
                return Next::Close;
            };
            let Some(response) = response::respond(head, site, challenges) else {
                return if is_end { Next::Close } else { Next::Read };
            };
            self.deadline_ms = now_ms + TIMEOUT_MS;
            self.phase = Phase::Writing(Outgoing::new(response));
        }
        if let Phase::Writing(response) = &mut self.phase {
            match response.send(self.fd) {
                Ok(Attempt::Done(())) => self.phase = Phase::Lingering { discarded: 0 },
                Ok(Attempt::WouldBlock) => return Next::Write,
                Err(_) => return Next::Close,
            }
        }
        self.linger()
    }

    fn linger(&mut self) -> Next {
        let Phase::Lingering { discarded } = &mut self.phase else {
            return Next::Close;
        };
        while *discarded < DISCARDED_MAX {
            match socket::recv(self.fd, &mut [0; 4096]) {
                Ok(Attempt::Done(0)) | Err(_) => return Next::Close,
                Ok(Attempt::Done(count)) => *discarded += count,
                Ok(Attempt::WouldBlock) => return Next::Read,
            }
        }
        Next::Close
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_reactor::OnExec;
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::IntoRawFd as _;

    /// As `socat` does at the end of its input.
    #[test]
    fn a_client_that_has_closed_its_direction_gets_its_response() {
        let site = Site {
            status: 308,
            port: 443,
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("bound");
        let listener = Fd(listener.into_raw_fd());
        for (request, is_answered) in [
            ("GET / HTTP/1.0\r\nHost: a\r\n\r\n", true),
            ("GET /", false),
        ] {
            let mut peer = TcpStream::connect(address).expect("connected");
            peer.write_all(request.as_bytes()).expect("sent");
            peer.shutdown(Shutdown::Write).expect("closed");
            let Ok(Attempt::Done(accepted)) = socket::accept(listener, OnExec::Close) else {
                panic!("a client waits");
            };
            let mut client = Client::new(accepted.fd, 0);
            while client.step(0, site, &[]) != Next::Close {
                std::thread::yield_now();
            }
            client.fd.close();
            let mut said = String::new();
            peer.read_to_string(&mut said).expect("a proper end");
            assert_eq!(said.starts_with("HTTP/1.1 308 "), is_answered, "{said}");
        }
        listener.close();
    }
}
