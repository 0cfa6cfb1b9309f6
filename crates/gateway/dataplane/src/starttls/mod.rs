//! STARTTLS: the plaintext dialogue before the handshake of a protocol that begins without TLS. This file has the server's
//! side; the client's is in `request.rs`.
//!
//! A [`Prelude`] is sans-IO. The caller passes received bytes to [`handle_input`](Prelude::handle_input), sends the
//! [`output`](Prelude::output), and starts the handshake when the prelude [is done](Prelude::is_done). The client can ask
//! for little besides TLS: every other command is refused, and nothing of it reaches a backend.
//!
//! A client that sends anything behind its request for TLS is refused. A server that kept such bytes would treat
//! plaintext, which somebody on the way may have inserted, as if TLS had protected it (CVE-2011-0411, CVE-2021-23214).
//!
//! The backend gets a new plain connection after the handshake. In three protocols it begins with a greeting, which the
//! client does not expect any more; [`greeting()`] finds its end.

mod answer;
mod binary;
mod greeting;
mod message;
mod request;
mod text;
mod xmpp;

use crate::io::Io;
use dormouse_config::Starttls;
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Attempt;
use std::io;

pub(crate) use binary::NO_ENCRYPTION;
pub use binary::{Beginning, postgres_beginning};
pub(crate) use greeting::GREETING_MAX;
pub use greeting::{Greeting, greeting};
pub use message::Refusal;
use message::{Answer, Read, State};
pub use request::{ANSWER_MAX, Request};
pub(crate) use text::greeting_over_tls;

/// Maximum length of one message of a client: a line, an XML tag, an LDAP message.
pub const MESSAGE_MAX: usize = 2048;

/// Maximum number of messages of a client. Real clients send two to five.
const MESSAGES_MAX: u32 = 16;

/// The plaintext dialogue with one client.
#[derive(Debug)]
pub struct Prelude {
    protocol: Starttls,
    state: State,
    messages: u32,
    received: Vec<u8>,
    output: Vec<u8>,
}

/// How far a dialogue has come with a step.
pub(crate) enum Spoken {
    /// It waits for the client.
    Part,
    /// The handshake may begin.
    Whole,
    /// The client's connection has ended.
    Ended,
    /// The client gets no TLS.
    Refused(Refusal),
}

impl Prelude {
    /// Begins a dialogue. It uses no memory of the heap yet.
    pub fn new(protocol: Starttls) -> Prelude {
        Prelude {
            protocol,
            state: State::New,
            messages: 0,
            received: Vec::new(),
            output: Vec::new(),
        }
    }

    /// Puts the greeting of a server named `host` into the output, once.
    pub fn greet(&mut self, host: &str) {
        if self.state == State::New {
            self.state = State::Speaking;
            self.output = text::greeting(self.protocol, host);
        }
    }

    /// Bytes to send.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// Removes the first `count` bytes of the output, which were sent.
    pub fn output_sent(&mut self, count: usize) {
        self.output.drain(..count.min(self.output.len()));
        if self.output.is_empty() {
            self.output = Vec::new();
        }
    }

    /// Whether the client has sent anything, or has not taken everything: then the dialogue uses the heap.
    pub fn has_begun(&self) -> bool {
        self.messages > 0 || !self.received.is_empty() || !self.output.is_empty()
    }

    /// Whether the handshake may begin: the client has asked for it, and the output is sent.
    pub fn is_done(&self) -> bool {
        self.state == State::Done && self.output.is_empty()
    }

    /// The bytes of TLS that have arrived. Only PostgreSQL's clients begin with TLS.
    pub fn into_received(self) -> Vec<u8> {
        self.received
    }

    /// The rest of the output, for a client that gets no TLS.
    pub fn into_output(self) -> Vec<u8> {
        self.output
    }

    /// Takes received bytes. The answers of a server named `host` are added to the output.
    ///
    /// # Errors
    /// The client gets no TLS. It still gets the output.
    pub fn handle_input(&mut self, bytes: &[u8], host: &str) -> Result<(), Refusal> {
        self.received.extend_from_slice(bytes);
        while !matches!(self.state, State::Done | State::Over) {
            let Some(Read { len, answer }) = self.read(host)? else {
                return match self.received.len() < MESSAGE_MAX {
                    true => Ok(()),
                    false => self.refuse("the client's message is longer than 2 KiB"),
                };
            };
            self.messages += 1;
            if self.messages > MESSAGES_MAX {
                return self.refuse("the client sent 16 messages and did not start TLS");
            }
            match answer {
                Answer::Say(answer, state) => {
                    self.received.drain(..len.min(self.received.len()));
                    self.output.extend_from_slice(&answer);
                    self.state = state;
                }
                Answer::StartTls(_) if self.received.len() > len => {
                    return self.refuse("the client sent plaintext behind its request for TLS");
                }
                Answer::StartTls(answer) => {
                    self.received = Vec::new();
                    self.output.extend_from_slice(&answer);
                    self.state = State::Done;
                }
                Answer::IsTls => self.state = State::Done,
                Answer::End(answer, reason) => {
                    self.output.extend_from_slice(&answer);
                    return self.refuse(reason);
                }
            }
        }
        Ok(())
    }

    /// Handles the bytes `received` so far, sends what is to be said, then receives more into `scratch`, once.
    pub(crate) fn speak(
        &mut self,
        received: &[u8],
        host: &str,
        io: &impl Io,
        fd: Fd,
        scratch: &mut [u8],
    ) -> Spoken {
        self.greet(host);
        if let Err(reason) = self.handle_input(received, host) {
            return Spoken::Refused(reason);
        }
        match self.send(io, fd) {
            Ok(false) => return Spoken::Part,
            Ok(true) if self.is_done() => return Spoken::Whole,
            Ok(true) => {}
            Err(_) => return Spoken::Ended,
        }
        let received = match io.recv(fd, &mut scratch[..MESSAGE_MAX]) {
            Ok(Attempt::WouldBlock) => return Spoken::Part,
            Ok(Attempt::Done(0)) | Err(_) => return Spoken::Ended,
            Ok(Attempt::Done(n)) => &scratch[..n],
        };
        if let Err(reason) = self.handle_input(received, host) {
            return Spoken::Refused(reason);
        }
        match self.send(io, fd) {
            Ok(_) if self.is_done() => Spoken::Whole,
            Ok(_) => Spoken::Part,
            Err(_) => Spoken::Ended,
        }
    }

    /// Sends the output. Returns `true` if the socket has taken all of it.
    fn send(&mut self, io: &impl Io, fd: Fd) -> io::Result<bool> {
        while !self.output.is_empty() {
            match io.send(fd, &self.output)? {
                Attempt::Done(n) => self.output_sent(n),
                Attempt::WouldBlock => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Reads the next message. `None`: it is incomplete.
    fn read(&mut self, host: &str) -> Result<Option<Read>, Refusal> {
        let received = self.received.get(..MESSAGE_MAX).unwrap_or(&self.received);
        let read = match self.protocol {
            Starttls::Smtp => text::smtp(received, host),
            Starttls::Imap => text::imap(received),
            Starttls::Pop3 => text::pop3(received),
            Starttls::Xmpp => xmpp::read(received, self.state),
            Starttls::Ldap => binary::ldap(received),
            Starttls::Postgres => binary::postgres(received),
            // The caller has no dialogue with such clients.
            Starttls::Off => Ok(Some(Read::of(0, Answer::IsTls))),
        };
        read.or_else(|reason| self.refuse(reason).map(|()| None))
    }

    fn refuse(&mut self, reason: Refusal) -> Result<(), Refusal> {
        self.state = State::Over;
        self.received = Vec::new();
        Err(reason)
    }
}

#[cfg(test)]
mod tests;
