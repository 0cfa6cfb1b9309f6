//! The unencrypted session data of a TLS 1.2 server: the id in the ServerHello (RFC 5246 §7.4.1.3), and a
//! ticket (RFC 5077 §3.3).
//!
//! rustls reads both but exposes neither, so this module reads them too. Messages may be split into records
//! anywhere and share records (RFC 5246 §6.2.1). rustls refuses a malformed message; here it only means that
//! there is no id and no ticket.

use crate::messages::Reader;
use crate::messages::content_type::HANDSHAKE;
use crate::messages::handshake_type::{NEW_SESSION_TICKET, SERVER_HELLO};

const HEADER_LEN: usize = 4;
const RECORD_HEADER_LEN: usize = 5;
/// Maximum length of a collected message; certificates are skipped.
const MESSAGE_MAX: usize = 16_384;
/// RFC 5246 §7.4.1.3.
const ID_MAX: usize = 32;

/// The data read so far from one server's unencrypted flight.
#[derive(Default)]
pub(crate) struct ServerFlight {
    /// The start of a message.
    message: Vec<u8>,
    /// Bytes of the current message that remain to be skipped.
    passed_over: usize,
    /// Whether the first record that is not an unencrypted handshake message has arrived.
    is_over: bool,
    /// The session's id; empty if it has none.
    pub(crate) id: Vec<u8>,
    /// The ticket and its lifetime in seconds; 0 if the server does not say.
    pub(crate) ticket: Option<(u32, Vec<u8>)>,
}

impl ServerFlight {
    /// Reads one whole record.
    pub(crate) fn record(&mut self, record: &[u8]) {
        match record.split_at_checked(RECORD_HEADER_LEN) {
            Some(([HANDSHAKE, ..], content)) if !self.is_over => self.messages(content),
            _ => {
                self.is_over = true;
                self.message = Vec::new();
            }
        }
    }

    fn messages(&mut self, mut content: &[u8]) {
        while !content.is_empty() {
            let passed = self.passed_over.min(content.len());
            self.passed_over -= passed;
            content = content.get(passed..).unwrap_or_default();
            let need = self.need();
            let missing = need.saturating_sub(self.message.len()).min(content.len());
            let (piece, rest) = content.split_at(missing);
            self.message.extend_from_slice(piece);
            content = rest;
            if self.message.len() >= HEADER_LEN && self.message.len() == self.need() {
                self.take_message();
            }
        }
    }

    /// Returns the length of the current message, as far as it is known.
    fn need(&self) -> usize {
        match self.message.as_slice() {
            &[kind, a, b, c] | &[kind, a, b, c, ..] => {
                let len = u32::from_be_bytes([0, a, b, c]) as usize;
                let wanted = matches!(kind, SERVER_HELLO | NEW_SESSION_TICKET);
                HEADER_LEN + if wanted && len <= MESSAGE_MAX { len } else { 0 }
            }
            _ => HEADER_LEN,
        }
    }

    fn take_message(&mut self) {
        let message = std::mem::take(&mut self.message);
        let Some((&[kind, a, b, c], body)) = message.split_first_chunk::<HEADER_LEN>() else {
            return;
        };
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        match kind {
            _ if body.len() < len => self.passed_over = len,
            SERVER_HELLO => self.id = id(body).unwrap_or_default().to_vec(),
            NEW_SESSION_TICKET => self.ticket = ticket(body),
            _ => {}
        }
    }
}

/// version 2 | random 32 | length 1 | id
fn id(hello: &[u8]) -> Option<&[u8]> {
    let mut hello = Reader::new(hello);
    hello.take(2 + 32)?;
    hello.vector8().filter(|id| id.len() <= ID_MAX)
}

/// lifetime 4 | length 2 | ticket; an empty ticket counts as none.
fn ticket(body: &[u8]) -> Option<(u32, Vec<u8>)> {
    let mut body = Reader::new(body);
    let lifetime_s = body.u32()?;
    let ticket = body.vector16()?;
    (!ticket.is_empty()).then(|| (lifetime_s, ticket.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let len = (body.len() as u32).to_be_bytes();
        [&[kind], &len[1..], body].concat()
    }

    fn messages_of_a_flight() -> Vec<u8> {
        let hello = [&[3, 3][..], &[9; 32], &[4], b"name", &[0xc0, 0x2b, 0]].concat();
        [
            message(SERVER_HELLO, &hello),
            message(11, &[1; 700]),
            message(14, &[]),
            message(NEW_SESSION_TICKET, b"\0\0\x0e\x10\0\x05tickt"),
        ]
        .concat()
    }

    fn records(content: &[u8], len: usize) -> Vec<Vec<u8>> {
        content
            .chunks(len)
            .map(|part| [&[HANDSHAKE, 3, 3, 0, 0], part].concat())
            .collect()
    }

    #[test]
    fn id_and_ticket_are_read_from_any_fragments() {
        for len in 1..messages_of_a_flight().len() + 1 {
            let mut flight = ServerFlight::default();
            for record in records(&messages_of_a_flight(), len) {
                flight.record(&record);
            }
            assert_eq!(flight.id, b"name", "records of {len}");
            assert_eq!(flight.ticket, Some((3_600, b"tickt".to_vec())));
        }
    }

    #[test]
    fn nothing_is_read_after_the_unencrypted_flight() {
        let mut flight = ServerFlight::default();
        flight.record(&[20, 3, 3, 0, 1, 1]);
        for record in records(&messages_of_a_flight(), 100) {
            flight.record(&record);
        }
        assert!(flight.id.is_empty() && flight.ticket.is_none());
    }

    #[test]
    fn malformed_input_is_bounded_and_harmless() {
        let mut flight = ServerFlight::default();
        let endless = [
            &[HANDSHAKE, 3, 3, 0, 0][..],
            &[SERVER_HELLO, 0xff, 0xff, 0xff],
        ]
        .concat();
        flight.record(&endless);
        for _ in 0..100 {
            flight.record(&[&[HANDSHAKE, 3, 3, 0, 0][..], &[0xff; 16_000]].concat());
        }
        assert!(flight.message.capacity() <= 2 * MESSAGE_MAX);
        for body in [&[][..], &[0; 34], &[0; 6], &[255; 40]] {
            let mut flight = ServerFlight::default();
            for kind in [SERVER_HELLO, NEW_SESSION_TICKET] {
                flight.record(&records(&message(kind, body), 1_000)[0]);
            }
            assert!(flight.id.len() <= ID_MAX && flight.ticket.is_none());
        }
    }
}
