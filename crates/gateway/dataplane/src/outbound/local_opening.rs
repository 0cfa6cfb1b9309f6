//! The first bytes of a local client whose protocol lets it ask for encryption before anything else (PostgreSQL).
//!
//! The server encrypts already and would not understand the request, so the worker answers it before it connects the
//! client to a server. Everything else stays in the client's socket.

use crate::io::Io;
use crate::starttls::{Beginning, NO_ENCRYPTION, postgres_beginning};
use crate::workspace::Workspace;
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Attempt as Tried;
use std::io::{self, ErrorKind};

/// Maximum number of requests. Clients ask once for each kind of encryption: TLS and GSSAPI.
const REQUESTS_MAX: u32 = 4;

/// The beginning of a local client's connection.
#[derive(Default)]
pub(crate) struct LocalOpening {
    requests: u32,
}

impl LocalOpening {
    /// Answers the client's requests. Returns `true` if something else has arrived, which is for the server.
    pub(crate) fn answer<I: Io>(&mut self, fd: Fd, work: &mut Workspace<I>) -> io::Result<bool> {
        let room = &mut work.scratch.opening[..8];
        loop {
            let received = match work.io.peek(fd, room)? {
                Tried::Done(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Tried::Done(n) => &room[..n],
                Tried::WouldBlock => return Ok(false),
            };
            let len = match postgres_beginning(received) {
                Beginning::Partial => return Ok(false),
                Beginning::Session => return Ok(true),
                Beginning::AsksForEncryption(len) => len,
            };
            self.requests += 1;
            if self.requests > REQUESTS_MAX {
                return Err(io::Error::other("the client only asks for encryption"));
            }
            let is_all = |tried, all| matches!(tried, Tried::Done(n) if n == all);
            let is_read = is_all(work.io.recv(fd, &mut room[..len])?, len);
            let answer = NO_ENCRYPTION;
            if !is_read || !is_all(work.io.send(fd, answer)?, answer.len()) {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
    }
}
