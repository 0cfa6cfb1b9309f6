//! One health check of one backend: connects, sends the request, reads the start of the response.

use super::task::Check;
use super::tls::TlsCheck;
use dormouse_config::StatusCodes;
use dormouse_engine::ClientContext;
use dormouse_reactor::poller::Interest;
use dormouse_reactor::socket::{self, Addr, Attempt, ConnectOptions, Connecting, Peer};
use dormouse_reactor::{Fd, OnExec};
use std::io;
use std::net::SocketAddr;

/// Length of "HTTP/1.1 200", the only part of the final response that matters.
const STATUS_BYTES: usize = 12;

/// Maximum bytes of interim responses and the start of the final one.
const ANSWER_MAX: usize = 4 << 10;

/// Maximum bytes received at once.
const RECEIVE_MAX: usize = 16 << 10;

/// The state of an attempt after a step.
pub(super) enum CheckProgress {
    /// The check waits for its socket.
    Pending,
    /// The backend is healthy.
    Passed,
    /// The backend is unhealthy; the reason.
    Failed(String),
}

/// A check in progress.
pub(super) struct CheckAttempt {
    fd: Fd,
    connected: bool,
    /// Bytes that remain to be sent.
    unsent: Vec<u8>,
    tls: Option<TlsCheck>,
    answer: Vec<u8>,
}

impl CheckAttempt {
    /// Connects; over TLS if there is a `context`.
    pub(super) fn begin(
        check: &Check,
        address: &Addr,
        context: Option<&ClientContext>,
    ) -> Result<CheckAttempt, String> {
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
            source: check.source.map(|ip| SocketAddr::new(ip, 0)),
            on_exec: OnExec::Close,
            ..ConnectOptions::default()
        };
        let connecting = socket::connect(address, &options).map_err(|error| error.to_string())?;
        Ok(CheckAttempt {
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

    /// The readiness that the check waits for.
    pub(super) fn interest(&self) -> Interest {
        if self.connected && self.unsent.is_empty() {
            Interest::READ
        } else {
            Interest::WRITE
        }
    }

    /// Continues until the socket would block.
    pub(super) fn step(&mut self, check: &Check) -> CheckProgress {
        match self.continue_check(check) {
            Ok(next) => next,
            Err(error) => self.broken(check, &error.to_string()),
        }
    }

    /// The result if the check has not completed before its timeout.
    pub(super) fn late(&self, check: &Check) -> CheckProgress {
        let done = match &self.tls {
            _ if !self.connected => "connection",
            Some(tls) if !tls.is_established() => "TLS handshake",
            Some(_) if check.request.is_none() => return CheckProgress::Passed,
            _ => "response",
        };
        CheckProgress::Failed(format!("no {done} within {} ms", check.timeout_ms))
    }

    fn continue_check(&mut self, check: &Check) -> io::Result<CheckProgress> {
        if !self.connected {
            socket::take_error(self.fd)?;
            if Peer::of(self.fd).is_err() {
                return Ok(CheckProgress::Pending);
            }
            self.connected = true;
        }
        loop {
            while !self.unsent.is_empty() {
                match socket::send(self.fd, &self.unsent)? {
                    Attempt::Done(sent) => drop(self.unsent.drain(..sent)),
                    Attempt::WouldBlock => return Ok(CheckProgress::Pending),
                }
            }
            if self.tls.is_none() && check.request.is_none() {
                return Ok(CheckProgress::Passed);
            }
            let mut room = [0; RECEIVE_MAX];
            let wanted = match self.tls {
                Some(_) => RECEIVE_MAX,
                None => ANSWER_MAX.saturating_sub(self.answer.len()),
            };
            let n = match socket::recv(self.fd, &mut room[..wanted])? {
                Attempt::Done(0) => {
                    return Ok(self.broken(check, "the backend closed the connection"));
                }
                Attempt::Done(n) => n,
                Attempt::WouldBlock => return Ok(CheckProgress::Pending),
            };
            let next = self.process(check, &mut room[..n]);
            if !matches!(next, CheckProgress::Pending) {
                // Best effort: an alert may be left to send, and the connection is closed next.
                let _ = socket::send(self.fd, &self.unsent);
                return Ok(next);
            }
        }
    }

    fn process(&mut self, check: &Check, received: &mut [u8]) -> CheckProgress {
        let request = check.request.as_ref();
        let Some(tls) = &mut self.tls else {
            self.answer.extend_from_slice(received);
            return self.judge(check);
        };
        let request = request.map(|(request, _)| request.as_str());
        match tls.receive(received, request, &mut self.unsent) {
            Err(why) => CheckProgress::Failed(why),
            Ok(came) if request.is_none() => match came.is_accepted {
                true => CheckProgress::Passed,
                false => CheckProgress::Pending,
            },
            Ok(came) => {
                let room = ANSWER_MAX.saturating_sub(self.answer.len());
                let more = came.plaintext.iter().take(room);
                self.answer.extend(more);
                match self.judge(check) {
                    CheckProgress::Pending if came.is_end => CheckProgress::Failed(
                        "the backend closed the connection without a response".to_owned(),
                    ),
                    next => next,
                }
            }
        }
    }

    /// The result after the connection ended without a response.
    fn broken(&self, check: &Check, why: &str) -> CheckProgress {
        match &self.tls {
            // The handshake succeeded and no alert came; how the backend closes does not matter.
            Some(tls) if tls.is_established() && check.request.is_none() => CheckProgress::Passed,
            Some(tls) if !tls.is_established() && self.connected => {
                CheckProgress::Failed(format!("{why} during the TLS handshake"))
            }
            _ if self.connected => CheckProgress::Failed(format!("{why} without a response")),
            _ => CheckProgress::Failed(why.to_owned()),
        }
    }

    fn judge(&self, check: &Check) -> CheckProgress {
        match &check.request {
            Some((_, good)) => verdict(&self.answer, *good),
            None => CheckProgress::Passed,
        }
    }
}

/// The result by the start of a response. Interim responses come before it, even if nobody asked for them
/// (RFC 9110 §15.2).
fn verdict(answer: &[u8], good: StatusCodes) -> CheckProgress {
    let mut line = answer;
    while line.len() >= STATUS_BYTES {
        let Some(code) = status(line) else {
            return CheckProgress::Failed("the response is not HTTP/1".to_owned());
        };
        if good.contain(code) {
            return CheckProgress::Passed;
        }
        if code / 100 != 1 {
            return CheckProgress::Failed(format!("the response has status {code}"));
        }
        let end = line.windows(4).position(|four| four == b"\r\n\r\n");
        line = end.and_then(|end| line.get(end + 4..)).unwrap_or_default();
    }
    match answer.len() < ANSWER_MAX {
        true => CheckProgress::Pending,
        false => CheckProgress::Failed(format!("no final response within {ANSWER_MAX} bytes")),
    }
}

/// The status code of a status line (RFC 9112 §4).
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
    use std::net::TcpListener;

    #[test]
    fn a_check_comes_from_the_source_address() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let backend = listener.local_addr().expect("bound");
        let source = Some([127, 0, 0, 5].into());
        let check = Check {
            backend: backend.to_string(),
            source,
            preface: Vec::new(),
            tls: None,
            request: None,
            every_ms: 1,
            timeout_ms: 1,
            rise: 1,
            fall: 1,
        };
        let attempt = CheckAttempt::begin(&check, &Addr::Tcp(backend), None);
        let (_, client) = listener.accept().expect("a client");
        assert_eq!(Some(client.ip()), source);
        attempt.expect("connected").fd().close();
    }

    #[test]
    fn the_final_response_decides() {
        let good = StatusCodes {
            least: 200,
            greatest: 399,
        };
        let judged = |answer: &str| match verdict(answer.as_bytes(), good) {
            CheckProgress::Pending => "pending".to_owned(),
            CheckProgress::Passed => "passed".to_owned(),
            CheckProgress::Failed(why) => why,
        };
        let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
        for (last, expected) in [
            ("HTTP/1.1 200 OK", "passed"),
            ("HTTP/1.1 503 Busy", "the response has status 503"),
            ("SSH-2.0-OpenSSH", "the response is not HTTP/1"),
        ] {
            assert_eq!(judged(last), expected);
            let answer = format!("{interim}{last}");
            for end in 0..interim.len() + STATUS_BYTES {
                assert_eq!(judged(&answer[..end]), "pending", "{}", &answer[..end]);
            }
            assert_eq!(judged(&answer), expected);
        }
        let endless = format!("HTTP/1.1 103 x\r\nLink: {}", "x".repeat(ANSWER_MAX));
        assert_eq!(judged(&endless), "no final response within 4096 bytes");
    }

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
