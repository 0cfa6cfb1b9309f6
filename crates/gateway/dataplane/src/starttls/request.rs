//! STARTTLS on the client's side: the plaintext dialogue with a server that is asked for TLS.
//!
//! A [`Request`] is sans-IO. The caller sends its [`output`](Request::output), passes received bytes to
//! [`handle_input`](Request::handle_input), and starts the handshake when the request [is done](Request::is_done).
//!
//! Nothing that the server says before TLS goes further than a log line, because somebody on the way may have written it.
//! So the local client, which expects a greeting, gets [one of ours](super::greeting_over_tls). A server that sends
//! anything behind its consent is refused: a client that keeps such bytes takes them for what TLS protects
//! (CVE-2021-23222).

use super::answer::{Awaited, Heard, Reason, refused};
use super::{binary, xmpp};
use dormouse_config::Starttls;
use std::net::IpAddr;

/// Maximum length of one answer of a server.
pub const ANSWER_MAX: usize = 4096;

/// Maximum length of all its answers.
const ANSWERS_MAX: usize = 4 * ANSWER_MAX;

/// The plaintext dialogue with one server.
#[derive(Debug)]
pub struct Request {
    protocol: Starttls,
    /// Our address in this connection.
    own: IpAddr,
    awaited: Awaited,
    received: Vec<u8>,
    /// Number of all bytes received so far.
    total: usize,
    output: Vec<u8>,
}

impl Request {
    /// Begins a dialogue with a server of this name, from this address.
    pub fn new(protocol: Starttls, server_name: &str, own: IpAddr) -> Request {
        let (awaited, output) = match protocol {
            Starttls::Smtp | Starttls::Imap | Starttls::Pop3 => (Awaited::Greeting, Vec::new()),
            Starttls::Xmpp => (Awaited::Features, xmpp::opening(server_name)),
            Starttls::Ldap => (Awaited::Consent, binary::ldap_request()),
            Starttls::Postgres => (Awaited::Consent, binary::postgres_request()),
            // The caller has no dialogue with such servers.
            Starttls::Off => (Awaited::Nothing, Vec::new()),
        };
        Request {
            protocol,
            own,
            awaited,
            received: Vec::new(),
            total: 0,
            output,
        }
    }

    /// Bytes to send.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// Removes the first `count` bytes of the output, which were sent.
    pub fn output_sent(&mut self, count: usize) {
        self.output.drain(..count.min(self.output.len()));
    }

    /// Whether the handshake may begin: the server has consented.
    pub fn is_done(&self) -> bool {
        self.awaited == Awaited::Nothing
    }

    /// Takes received bytes.
    ///
    /// # Errors
    /// The server refuses TLS, does not speak the protocol, or says too much. The reason has its answer.
    pub fn handle_input(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.received.extend_from_slice(bytes);
        self.total += bytes.len();
        while self.awaited != Awaited::Nothing {
            match self.hear()? {
                Some(Heard::Passed(len)) => {
                    self.received.drain(..len);
                }
                Some(Heard::Awaited(len)) => {
                    self.received.drain(..len);
                    self.go_on();
                }
                None if self.received.len() > ANSWER_MAX || self.total > ANSWERS_MAX => {
                    return Err("the server's answer is longer than 4 KiB".to_owned());
                }
                None => return Ok(()),
            }
        }
        match self.received.len() {
            0 => Ok(()),
            count => Err(format!(
                "the server sent {count} bytes of plaintext behind its consent to TLS"
            )),
        }
    }

    /// Reads the next message. `None`: it is incomplete.
    fn hear(&self) -> Result<Option<Heard>, Reason> {
        match (self.protocol, self.awaited) {
            (Starttls::Smtp, Awaited::Features) => answer_of_smtp(&self.received, "250"),
            (Starttls::Smtp, _) => answer_of_smtp(&self.received, "220"),
            (Starttls::Imap, Awaited::Greeting) => answer_in_a_line(&self.received, "* OK"),
            (Starttls::Imap, _) => answer_of_imap(&self.received),
            (Starttls::Pop3, _) => answer_in_a_line(&self.received, "+OK"),
            (Starttls::Xmpp, awaited) => xmpp::hear(&self.received, awaited),
            (Starttls::Ldap, _) => binary::ldap_consent(&self.received),
            (Starttls::Postgres, _) => binary::postgres_consent(&self.received),
            (Starttls::Off, _) => Ok(None),
        }
    }

    /// Says what follows.
    fn go_on(&mut self) {
        let ehlo = ehlo(self.own);
        let (awaited, output): (Awaited, &[u8]) = match (self.awaited, self.protocol) {
            // A server forgets the name when TLS begins (RFC 3207 §4.2).
            (Awaited::Greeting, Starttls::Smtp) => (Awaited::Features, ehlo.as_bytes()),
            (Awaited::Features, Starttls::Smtp) => (Awaited::Consent, b"STARTTLS\r\n"),
            (Awaited::Greeting, Starttls::Pop3) => (Awaited::Consent, b"STLS\r\n"),
            (Awaited::Greeting, _) => (Awaited::Consent, b"a STARTTLS\r\n"),
            (Awaited::Features, _) => (Awaited::Consent, xmpp::REQUEST),
            (Awaited::Consent | Awaited::Nothing, _) => (Awaited::Nothing, b""),
        };
        self.awaited = awaited;
        self.output.extend_from_slice(output);
    }
}

/// A client without a name in DNS introduces itself with its address (RFC 5321 §4.1.4). Strict servers refuse
/// `localhost`, and a name of one label.
fn ehlo(own: IpAddr) -> String {
    match own.to_canonical() {
        IpAddr::V4(own) => format!("EHLO [{own}]\r\n"),
        IpAddr::V6(own) => format!("EHLO [IPv6:{own}]\r\n"),
    }
}

/// A line with its end. `None`: it is incomplete.
fn first_line(received: &[u8]) -> Option<&[u8]> {
    let end = received.iter().position(|&byte| byte == b'\n')?;
    received.get(..=end)
}

/// Whether a line has this first word.
fn begins(line: &[u8], words: &str) -> bool {
    let (Some(start), next) = (line.get(..words.len()), line.get(words.len())) else {
        return false;
    };
    start.eq_ignore_ascii_case(words.as_bytes()) && !next.is_some_and(u8::is_ascii_alphanumeric)
}

/// Reads a line, which must have this beginning.
fn answer_in_a_line(received: &[u8], good: &str) -> Result<Option<Heard>, Reason> {
    match first_line(received) {
        Some(line) if begins(line, good) => Ok(Some(Heard::Awaited(line.len()))),
        Some(line) => Err(refused(line)),
        None => Ok(None),
    }
}

/// Reads a line of a reply. All lines but the last have a hyphen behind the code (RFC 5321 §4.2.1).
fn answer_of_smtp(received: &[u8], code: &str) -> Result<Option<Heard>, Reason> {
    match (answer_in_a_line(received, code)?, received.get(code.len())) {
        (Some(Heard::Awaited(len)), Some(b'-')) => Ok(Some(Heard::Passed(len))),
        (heard, _) => Ok(heard),
    }
}

/// Reads a line. Untagged ones may come before the answer, and one of them says that the server leaves.
fn answer_of_imap(received: &[u8]) -> Result<Option<Heard>, Reason> {
    match first_line(received) {
        Some(line) if line.starts_with(b"* ") && !begins(line, "* BYE") => {
            Ok(Some(Heard::Passed(line.len())))
        }
        _ => answer_in_a_line(received, "a OK"),
    }
}
