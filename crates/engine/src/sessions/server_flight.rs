//! What a TLS 1.2 server says in the clear about the session it makes: its id, in the ServerHello
//! (RFC 5246 §7.4.1.3), and a ticket (RFC 5077 §3.3).
//!
//! rustls reads both and gives out neither, so this reads them too. Messages may be cut into records
//! anywhere and share them (RFC 5246 §6.2.1). rustls refuses a malformed message; here it only means
//! that there is neither id nor ticket.

const HEADER_LEN: usize = 4;
const RECORD_HEADER_LEN: usize = 5;
const HANDSHAKE: u8 = 22;
const SERVER_HELLO: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;
/// A message that is collected is no longer than this; certificates are passed over.
const MESSAGE_MAX: usize = 16_384;
/// RFC 5246 §7.4.1.3.
const ID_MAX: usize = 32;

/// What one server's flight in the clear has said so far.
#[derive(Default)]
pub(crate) struct ServerFlight {
    /// The beginning of a message.
    message: Vec<u8>,
    /// Bytes of a message which is of no interest.
    passed_over: usize,
    /// The first record that is no handshake message in the clear has come.
    is_over: bool,
    /// The session's id; empty: it has none.
    pub(crate) id: Vec<u8>,
    /// The ticket, and for how many seconds it is good; 0: that is not said.
    pub(crate) ticket: Option<(u32, Vec<u8>)>,
}

impl ServerFlight {
    /// One whole record, as it was received.
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

    /// How long what is collected becomes, as far as can be told.
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
    let (&len, rest) = hello.get(34..)?.split_first()?;
    rest.get(..usize::from(len)).filter(|id| id.len() <= ID_MAX)
}

/// lifetime 4 | length 2 | ticket; an empty one is none.
fn ticket(body: &[u8]) -> Option<(u32, Vec<u8>)> {
    let (lifetime_s, rest) = body.split_first_chunk::<4>()?;
    let (len, rest) = rest.split_first_chunk::<2>()?;
    let ticket = rest.get(..usize::from(u16::from_be_bytes(*len)))?;
    (!ticket.is_empty()).then(|| (u32::from_be_bytes(*lifetime_s), ticket.to_vec()))
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
    fn id_and_ticket_are_read_however_messages_are_cut() {
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
    fn nothing_is_read_behind_the_cleartext() {
        let mut flight = ServerFlight::default();
        flight.record(&[20, 3, 3, 0, 1, 1]);
        for record in records(&messages_of_a_flight(), 100) {
            flight.record(&record);
        }
        assert!(flight.id.is_empty() && flight.ticket.is_none());
    }

    #[test]
    fn nonsense_is_bounded_and_harmless() {
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
