//! One check of one backend: connect, say what is to be said, look at the answer's first line.

use super::Check;
use dormouse_reactor::poller::Interest;
use dormouse_reactor::socket::{self, Addr, Attempt, ConnectOptions, Connecting, Peer};
use dormouse_reactor::{Fd, OnExec};
use std::io;

/// "HTTP/1.1 200": what is looked at of an answer.
const STATUS_BYTES: usize = 12;

/// What a step has come to.
pub(super) enum Next {
    Wait,
    Well,
    Ill(String),
}

/// A check that goes on.
pub(super) struct Question {
    fd: Fd,
    connected: bool,
    /// What is still to be said.
    unsent: Vec<u8>,
    answer: Vec<u8>,
}

impl Question {
    pub(super) fn begin(check: &Check, address: &Addr) -> io::Result<Question> {
        let options = ConnectOptions {
            on_exec: OnExec::Close,
            ..ConnectOptions::default()
        };
        let connecting = socket::connect(address, &options)?;
        let mut unsent = check.preface.clone();
        if let Some((request, _)) = &check.request {
            unsent.extend_from_slice(request.as_bytes());
        }
        Ok(Question {
            fd: connecting.fd(),
            connected: matches!(connecting, Connecting::Established(_)),
            unsent,
            answer: Vec::with_capacity(STATUS_BYTES),
        })
    }

    pub(super) fn fd(&self) -> Fd {
        self.fd
    }

    /// What it waits for.
    pub(super) fn interest(&self) -> Interest {
        if self.connected && self.unsent.is_empty() {
            Interest::READ
        } else {
            Interest::WRITE
        }
    }

    /// Goes on as far as it can.
    pub(super) fn step(&mut self, check: &Check) -> Next {
        match self.go_on(check) {
            Ok(next) => next,
            Err(error) => Next::Ill(error.to_string()),
        }
    }

    fn go_on(&mut self, check: &Check) -> io::Result<Next> {
        if !self.connected {
            socket::take_error(self.fd)?;
            if Peer::of(self.fd).is_err() {
                return Ok(Next::Wait);
            }
            self.connected = true;
        }
        while !self.unsent.is_empty() {
            match socket::send(self.fd, &self.unsent)? {
                Attempt::Done(sent) => drop(self.unsent.drain(..sent)),
                Attempt::WouldBlock => return Ok(Next::Wait),
            }
        }
        let Some((_, good)) = &check.request else {
            return Ok(Next::Well);
        };
        while self.answer.len() < STATUS_BYTES {
            let mut room = [0; STATUS_BYTES];
            let wanted = STATUS_BYTES - self.answer.len();
            match socket::recv(self.fd, &mut room[..wanted])? {
                Attempt::Done(0) => return Ok(Next::Ill("it ended without an answer".to_owned())),
                Attempt::Done(n) => self.answer.extend_from_slice(&room[..n]),
                Attempt::WouldBlock => return Ok(Next::Wait),
            }
        }
        Ok(match status(&self.answer) {
            None => Next::Ill("its answer is not HTTP/1".to_owned()),
            Some(code) if good.contain(code) => Next::Well,
            Some(code) => Next::Ill(format!("it answered with status {code}")),
        })
    }
}

/// The code of a status line (RFC 9112 §4).
fn status(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.")?;
    match rest {
        [b'0' | b'1', b' ', code @ ..] => {
            let code: &[u8; 3] = code.get(..3)?.try_into().ok()?;
            let digits = std::str::from_utf8(code).ok()?;
            digits.parse().ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_has_a_code() {
        assert_eq!(status(b"HTTP/1.1 204"), Some(204));
        assert_eq!(status(b"HTTP/1.0 503 Busy"), Some(503));
        for wrong in [
            "HTTP/2 200 OK",
            "SSH-2.0-Open",
            "HTTP/1.1 2x4",
            "HTTP/1.1 20",
        ] {
            assert_eq!(status(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
