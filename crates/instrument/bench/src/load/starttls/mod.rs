//! STARTTLS: the plaintext dialogue before the handshake of a protocol that begins without TLS.
//!
//! A [`Dialogue`] is sans-IO. The caller sends its [`output`](Dialogue::output), passes received bytes to
//! [`handle_input`](Dialogue::handle_input), and starts the handshake when the dialogue [is done](Dialogue::is_done).
//!
//! A dialogue is a list of turns: the client sends something, and the server answers. Bytes after the last answer are
//! refused, because a server that reads commands ahead of the handshake mixes plaintext with what TLS protects
//! (CVE-2011-0411).

mod binary;
mod text;
mod turn;

use serde::{Deserialize, Serialize};

use self::turn::Turn;

/// Maximum bytes of one answer.
const ANSWER_MAX: usize = 64 * 1024;

/// A protocol that starts in plaintext and changes to TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Starttls {
    /// SMTP (RFC 3207).
    Smtp,
    /// IMAP (RFC 9051).
    Imap,
    /// POP3 (RFC 2595).
    Pop3,
    /// LDAP (RFC 4511 §4.14).
    Ldap,
    /// XMPP from client to server (RFC 6120 §5).
    Xmpp,
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
}

impl Starttls {
    /// All protocols.
    pub const ALL: [Self; 7] = [
        Self::Smtp,
        Self::Imap,
        Self::Pop3,
        Self::Ldap,
        Self::Xmpp,
        Self::Postgres,
        Self::Mysql,
    ];

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Smtp => "smtp",
            Self::Imap => "imap",
            Self::Pop3 => "pop3",
            Self::Ldap => "ldap",
            Self::Xmpp => "xmpp",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        }
    }

    /// Returns the protocol with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|protocol| protocol.name() == name)
    }

    fn turns(self) -> &'static [Turn] {
        match self {
            Self::Smtp => &text::SMTP,
            Self::Imap => &text::IMAP,
            Self::Pop3 => &text::POP3,
            Self::Xmpp => &text::XMPP,
            Self::Ldap => &binary::LDAP,
            Self::Postgres => &binary::POSTGRES,
            Self::Mysql => &binary::MYSQL,
        }
    }

    /// Returns a first message after the handshake that a server of this protocol answers without a login.
    pub fn first_message(self, server_name: &str) -> Vec<u8> {
        match self {
            Self::Smtp => b"NOOP\r\n".to_vec(),
            Self::Imap => b"a2 NOOP\r\n".to_vec(),
            Self::Pop3 => b"CAPA\r\n".to_vec(),
            Self::Xmpp => text::xmpp_stream(server_name),
            Self::Ldap => binary::LDAP_SEARCH.to_vec(),
            Self::Postgres => binary::postgres_startup(),
            Self::Mysql => binary::mysql_login(),
        }
    }
}

/// The plaintext dialogue of one connection.
#[derive(Debug)]
pub struct Dialogue {
    protocol: Starttls,
    server_name: String,
    /// Index of the current turn; the number of turns when all are over.
    turn: usize,
    received: Vec<u8>,
    out: Vec<u8>,
}

impl Dialogue {
    /// Begins a dialogue with a server of this name.
    pub fn new(protocol: Starttls, server_name: &str) -> Self {
        let mut dialogue = Self {
            protocol,
            server_name: server_name.to_owned(),
            turn: 0,
            received: Vec::new(),
            out: Vec::new(),
        };
        dialogue.begin_turn();
        dialogue
    }

    /// Bytes to send.
    pub fn output(&self) -> &[u8] {
        &self.out
    }

    /// Removes the first `count` bytes of the output, which were sent.
    pub fn output_sent(&mut self, count: usize) {
        self.out.drain(..count.min(self.out.len()));
    }

    /// Whether the handshake may begin: the server has agreed, and the output is sent.
    pub fn is_done(&self) -> bool {
        self.turn == self.protocol.turns().len() && self.out.is_empty()
    }

    /// Takes received bytes.
    ///
    /// # Errors
    /// If the server refuses TLS, does not speak the protocol, or sends more than the dialogue allows.
    pub fn handle_input(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.received.extend_from_slice(bytes);
        while let Some(read) = self.current().and_then(|turn| turn.read) {
            let Some(length) = read(&self.received).map_err(|why| self.in_words(&why))? else {
                break;
            };
            self.received.drain(..length.min(self.received.len()));
            self.turn += 1;
            self.begin_turn();
        }
        if self.current().is_none() && !self.received.is_empty() {
            let count = self.received.len();
            let what = format!("the server sent {count} bytes in plaintext after it agreed to TLS");
            return Err(self.in_words(&what));
        }
        if self.received.len() > ANSWER_MAX {
            return Err(self.in_words("the server's answer is longer than 64 KiB"));
        }
        Ok(())
    }

    fn current(&self) -> Option<&'static Turn> {
        self.protocol.turns().get(self.turn)
    }

    /// Queues what the client says in this turn, and ends turns without an answer.
    fn begin_turn(&mut self) {
        while let Some(turn) = self.current() {
            self.out.extend_from_slice(&(turn.say)(&self.server_name));
            if turn.read.is_some() {
                return;
            }
            self.turn += 1;
        }
    }

    fn in_words(&self, why: &str) -> String {
        format!("STARTTLS ({}): {why}", self.protocol.name())
    }
}

#[cfg(test)]
mod tests;
