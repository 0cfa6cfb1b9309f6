//! One end at rest, with convenience around the record layer for tests.

use dormouse_engine::{HandshakeInfo, Rested, TicketWatch};
use dormouse_record as record;

/// A connection at rest, and the bytes which have come for it.
pub struct Resting {
    /// The record state.
    pub state: record::State,
    /// What the handshake agreed.
    pub info: HandshakeInfo,
    /// Client side: still waiting for tickets.
    pub tickets: Option<TicketWatch>,
    received: Vec<u8>,
}

/// What came of opening.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Plaintext; pieces which follow each other are put together.
    Data(Vec<u8>),
    /// The peer's direction ended cleanly.
    Closed,
    /// The peer sent a fatal alert.
    Alert(u8),
    /// The peer wants to renegotiate (TLS 1.2).
    Renegotiation,
    /// A record was refused.
    Refused(record::Refusal),
}

impl Resting {
    /// From what a handshake left.
    pub fn new(state: record::State, rested: Rested) -> Resting {
        Resting {
            state,
            info: rested.info,
            tickets: rested.tickets,
            received: rested.leftover,
        }
    }

    /// Seals `content` into as many records as it takes, keys updated where owed.
    pub fn seal(&mut self, content: &[u8]) -> Vec<u8> {
        let mut key = record::SealKey::new(&self.state);
        let room = record::record_room(&self.state);
        let mut sealed = Vec::new();
        for piece in content.chunks(record::CONTENT_MAX) {
            if self.state.owes_key_update() {
                sealed.extend(self.seal_key_update_with(&mut key));
            }
            let mut buffer = vec![0; room.header];
            buffer.extend_from_slice(piece);
            buffer.resize(room.header + piece.len() + room.trailer, 0);
            let len = record::seal_in_place(&mut self.state, &mut key, &mut buffer, piece.len())
                .expect("sealed");
            sealed.extend_from_slice(&buffer[..len]);
        }
        sealed
    }

    /// A KeyUpdate record.
    pub fn seal_key_update(&mut self) -> Vec<u8> {
        let mut key = record::SealKey::new(&self.state);
        self.seal_key_update_with(&mut key)
    }

    fn seal_key_update_with(&mut self, key: &mut record::SealKey) -> Vec<u8> {
        let mut buffer = [0; record::SMALL_RECORD_MAX];
        let len = record::seal_key_update(&mut self.state, key, &mut buffer).expect("sealed");
        buffer[..len].to_vec()
    }

    /// A close_notify record.
    pub fn seal_close(&mut self) -> Vec<u8> {
        let mut key = record::SealKey::new(&self.state);
        let mut buffer = [0; record::SMALL_RECORD_MAX];
        let alert = record::Alert::CLOSE_NOTIFY;
        let len =
            record::seal_alert(&mut self.state, &mut key, alert, &mut buffer).expect("sealed");
        buffer[..len].to_vec()
    }

    /// Opens every whole record of what came so far and `received`.
    pub fn open(&mut self, received: &[u8]) -> Vec<Event> {
        self.received.extend_from_slice(received);
        let mut buffer = std::mem::take(&mut self.received);
        let mut key = record::OpenKey::new(&self.state);
        let mut events = Vec::new();
        let mut at = 0;
        while at < buffer.len() {
            let opened = match record::open(&mut self.state, &mut key, &mut buffer[at..]) {
                Ok(opened) => opened,
                Err(refusal) => {
                    events.push(Event::Refused(refusal));
                    break;
                }
            };
            at += match opened {
                record::Opened::Partial { .. } => break,
                record::Opened::Data {
                    consumed,
                    plaintext,
                } => {
                    let piece = &buffer[at..][plaintext];
                    match events.last_mut() {
                        Some(Event::Data(data)) => data.extend_from_slice(piece),
                        _ if piece.is_empty() => {}
                        _ => events.push(Event::Data(piece.to_vec())),
                    }
                    consumed
                }
                record::Opened::Handled { consumed } => consumed,
                record::Opened::Ticket { consumed, fragment } => {
                    if let Some(tickets) = &mut self.tickets {
                        tickets
                            .handle_fragment(crate::now(), &buffer[at..][fragment])
                            .expect("a ticket");
                    }
                    consumed
                }
                record::Opened::NoRenegotiation { consumed } => {
                    events.push(Event::Renegotiation);
                    consumed
                }
                record::Opened::PeerClosed { consumed } => {
                    events.push(Event::Closed);
                    consumed
                }
                record::Opened::PeerAlert {
                    consumed,
                    description,
                } => {
                    events.push(Event::Alert(description));
                    consumed
                }
            };
        }
        self.received = buffer.split_off(at.min(buffer.len()));
        events
    }

    /// What came and is not opened yet.
    pub fn unopened(&self) -> &[u8] {
        &self.received
    }
}
