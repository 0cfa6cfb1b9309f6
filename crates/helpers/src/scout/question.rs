//! One check of one backend: connect, say what is to be said, look at the answer's first line.

use super::Check;
use super::tls::TlsCheck;
use dormouse_engine::ClientContext;
use dormouse_reactor::poller::Interest;
use dormouse_reactor::socket::{self, Addr, Attempt, ConnectOptions, Connecting, Peer};
use dormouse_reactor::{Fd, OnExec};
use std::io;

/// "HTTP/1.1 200": what is looked at of an answer.
const STATUS_BYTES: usize = 12;

/// Received at once.
const RECEIVE_MAX: usize = 16 << 10;

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
    tls: Option<TlsCheck>,
    answer: Vec<u8>,
}

impl Question {
    /// Connects. With a `context` TLS is spoken.
    pub(super) fn begin(
        check: &Check,
        address: &Addr,
        context: Option<&ClientContext>,
    ) -> Result<Question, String> {
        let mut unsent = check.preface.clone();
        let tls = match (context, &check.tls) {
            (Some(context), Some(tls)) => {
                Some(TlsCheck::begin(context, &tls.server_name, &mut unsent)?)
            }
            _ => {
                if let Some((request, _)) = &check.request {
                    unsent.extend_from_slice(request.as_bytes());
                }
                None
            }
        };
        let options = ConnectOptions {
            on_exec: OnExec::Close,
            ..ConnectOptions::default()
        };
        let connecting = socket::connect(address, &options).map_err(|error| error.to_string())?;
        Ok(Question {
            fd: connecting.fd(),
            connected: matches!(connecting, Connecting::Established(_)),
            unsent,
            tls,
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
            Err(error) => self.broken(check, &error.to_string()),
        }
    }

    /// The time for an answer is over.
    pub(super) fn late(&self, check: &Check) -> Next {
        let done = match &self.tls {
            _ if !self.connected => "connection",
            Some(tls) if !tls.is_established() => "TLS handshake",
            Some(_) if check.request.is_none() => return Next::Well,
            _ => "answer",
        };
        Next::Ill(format!("no {done} within {} ms", check.timeout_ms))
    }

    fn go_on(&mut self, check: &Check) -> io::Result<Next> {
        if !self.connected {
            socket::take_error(self.fd)?;
            if Peer::of(self.fd).is_err() {
                return Ok(Next::Wait);
            }
            self.connected = true;
        }
        loop {
            while !self.unsent.is_empty() {
                match socket::send(self.fd, &self.unsent)? {
                    Attempt::Done(sent) => drop(self.unsent.drain(..sent)),
                    Attempt::WouldBlock => return Ok(Next::Wait),
                }
            }
            if self.tls.is_none() && check.request.is_none() {
                return Ok(Next::Well);
            }
            let mut room = [0; RECEIVE_MAX];
            let wanted = match self.tls {
                Some(_) => RECEIVE_MAX,
                None => STATUS_BYTES.saturating_sub(self.answer.len()),
            };
            let n = match socket::recv(self.fd, &mut room[..wanted])? {
                Attempt::Done(0) => return Ok(self.broken(check, "it ended the connection")),
                Attempt::Done(n) => n,
                Attempt::WouldBlock => return Ok(Next::Wait),
            };
            let next = self.hear(check, &mut room[..n]);
            if !matches!(next, Next::Wait) {
                // An alert, maybe; nobody waits for it to be read.
                let _ = socket::send(self.fd, &self.unsent);
                return Ok(next);
            }
        }
    }

    fn hear(&mut self, check: &Check, received: &mut [u8]) -> Next {
        let request = check.request.as_ref();
        let Some(tls) = &mut self.tls else {
            self.answer.extend_from_slice(received);
            return self.judge(check);
        };
        let request = request.map(|(request, _)| request.as_str());
        match tls.receive(received, request, &mut self.unsent) {
            Err(why) => Next::Ill(why),
            Ok(came) if request.is_none() => match came.is_accepted {
                true => Next::Well,
                false => Next::Wait,
            },
            Ok(came) => {
                let missing = STATUS_BYTES.saturating_sub(self.answer.len());
                let more = came.plaintext.iter().take(missing);
                self.answer.extend(more);
                match self.judge(check) {
                    Next::Wait if came.is_end => Next::Ill("it ended without an answer".to_owned()),
                    next => next,
                }
            }
        }
    }

    /// The connection is over before there is an answer.
    fn broken(&self, check: &Check, why: &str) -> Next {
        match &self.tls {
            // It had nothing against us, or would have said so; how it ends is its own affair.
            Some(tls) if tls.is_established() && check.request.is_none() => Next::Well,
            Some(tls) if !tls.is_established() && self.connected => {
                Next::Ill(format!("{why} in the TLS handshake"))
            }
            _ if self.connected => Next::Ill(format!("{why} without an answer")),
            _ => Next::Ill(why.to_owned()),
        }
    }

    fn judge(&self, check: &Check) -> Next {
        let Some((_, good)) = &check.request else {
            return Next::Well;
        };
        if self.answer.len() < STATUS_BYTES {
            return Next::Wait;
        }
        match status(&self.answer) {
            None => Next::Ill("its answer is not HTTP/1".to_owned()),
            Some(code) if good.contain(code) => Next::Well,
            Some(code) => Next::Ill(format!("it answered with status {code}")),
        }
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
