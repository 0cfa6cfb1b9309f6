//! NewSessionTicket messages of TLS 1.3 (RFC 8446 §4.6.1).
//!
//! rustls gives every ticket a nonce of 32 random bytes, but wolfSSL clients have room for eight. A nonce only
//! needs to differ from those of the connection's other tickets, so we use a counter. rustls still makes the
//! session. When it derives the ticket's key, the wrapped provider replaces rustls' nonce with the counter
//! (`handshake::scoped_suites`). When rustls then asks for the ticket, it gets none, and this module writes the
//! message.

use crate::messages::handshake_type::NEW_SESSION_TICKET;
use crate::sessions::server_session::Session;

/// Tickets after a resumed handshake: one in place of the one that the client has used.
const AFTER_RESUMPTION: u8 = 1;

/// The tickets of one connection.
#[derive(Debug, Default)]
pub(crate) struct TicketMessages {
    issued: u8,
    /// The nonce of the last derived key, until its session arrives.
    nonce: Option<u8>,
    bytes: Vec<u8>,
}

impl TicketMessages {
    /// Returns the nonce for the next key.
    pub(crate) fn next_nonce(&mut self) -> u8 {
        let nonce = self.issued;
        self.issued = nonce.wrapping_add(1);
        self.nonce = Some(nonce);
        nonce
    }

    /// Whether the key that was just derived needs no ticket, because the client resumes a session and has its
    /// new ticket.
    pub(crate) fn has_enough(&mut self, is_resumed: bool) -> bool {
        let has_enough = is_resumed && self.nonce.is_some() && self.issued > AFTER_RESUMPTION;
        if has_enough {
            self.nonce = None;
        }
        has_enough
    }

    /// Adds a ticket for `session`, in rustls' encoding. Returns false if it is not a TLS 1.3 ticket, so that
    /// rustls sends it.
    pub(crate) fn add(&mut self, session: &[u8], ticket: Option<&[u8]>, lifetime_s: u32) -> bool {
        let Some(nonce) = self.nonce.take() else {
            return false;
        };
        if let (Some(ticket), Some(session)) = (ticket, Session::read(session)) {
            self.write(nonce, session.age_add, ticket, lifetime_s);
        }
        true
    }

    fn write(&mut self, nonce: u8, age_add: u32, ticket: &[u8], lifetime_s: u32) {
        let Ok(ticket_len) = u16::try_from(ticket.len()) else {
            return;
        };
        // Lifetime, age_add, a one-byte nonce, the ticket, no extensions.
        let body_len = 4 + 4 + 2 + 2 + u32::from(ticket_len) + 2;
        let [_, len @ ..] = body_len.to_be_bytes();
        self.bytes.push(NEW_SESSION_TICKET);
        self.bytes.extend(len);
        self.bytes.extend(lifetime_s.to_be_bytes());
        self.bytes.extend(age_add.to_be_bytes());
        self.bytes.extend([1, nonce]);
        self.bytes.extend(ticket_len.to_be_bytes());
        self.bytes.extend(ticket);
        self.bytes.extend([0, 0]);
    }

    /// Removes and returns the messages.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}
