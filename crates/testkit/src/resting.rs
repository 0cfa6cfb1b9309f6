//! One end of a connection at rest, with helpers around the record layer.

use dormouse_engine::stream::{self, End, Incoming};
use dormouse_engine::{HandshakeInfo, Rested, TicketWatch};
use dormouse_record as record;

use crate::clock::now;

/// A connection at rest, and the bytes received for it.
pub struct Resting {
    /// The record state.
    pub state: record::State,
    /// Parameters negotiated by the handshake.
    pub info: HandshakeInfo,
    /// The handler of tickets, on the client side.
    pub tickets: Option<TicketWatch>,
    received: Vec<u8>,
}

/// Result of opening records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Plaintext; consecutive pieces are joined.
    Data(Vec<u8>),
    /// The peer wants to renegotiate (TLS 1.2).
    Renegotiation,
    /// The peer's direction ended.
    Ended(End),
}

impl Resting {
    /// The connection that a handshake left.
    pub fn new(state: record::State, rested: Rested) -> Resting {
        Resting {
            state,
            info: rested.info,
            tickets: rested.tickets,
            received: rested.leftover,
        }
    }

    /// Seals `content` into as many records as needed, after a pending KeyUpdate.
    pub fn seal(&mut self, content: &[u8]) -> Vec<u8> {
        let mut key = record::SealKey::new(&self.state);
        let mut batch = vec![0; stream::batch_len(&self.state, content.len())];
        for (index, piece) in content.chunks(record::CONTENT_MAX).enumerate() {
            let at = stream::content_range(&self.state, index).start;
            batch[at..at + piece.len()].copy_from_slice(piece);
        }
        let sealed = stream::seal_batch(&mut self.state, &mut key, &mut batch, content.len());
        batch[sealed.expect("sealed")].to_vec()
    }

    /// A KeyUpdate record.
    pub fn seal_key_update(&mut self) -> Vec<u8> {
        let mut key = record::SealKey::new(&self.state);
        let mut buffer = [0; record::SMALL_RECORD_MAX];
        let len = record::seal_key_update(&mut self.state, &mut key, &mut buffer).expect("sealed");
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

    /// Opens every complete record of the bytes received so far, including `received`.
    pub fn open(&mut self, received: &[u8]) -> Vec<Event> {
        self.received.extend_from_slice(received);
        let mut buffer = std::mem::take(&mut self.received);
        let mut key = record::OpenKey::new(&self.state);
        let mut events = Vec::new();
        let mut at = 0;
        while at < buffer.len() {
            at += match stream::open_record(&mut self.state, &mut key, &mut buffer[at..]) {
                Incoming::Partial { .. } => break,
                Incoming::Data {
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
                Incoming::Ticket { consumed, fragment } => {
                    if let Some(tickets) = &mut self.tickets {
                        tickets
                            .handle_fragment(now(), &buffer[at..][fragment])
                            .expect("a ticket");
                    }
                    consumed
                }
                Incoming::Handled { consumed, answer } => {
                    events.extend(answer.map(|_| Event::Renegotiation));
                    consumed
                }
                Incoming::Ended(end) => {
                    events.push(Event::Ended(end));
                    buffer.len() - at
                }
            };
        }
        self.received = buffer.split_off(at.min(buffer.len()));
        events
    }

    /// Received bytes that are not opened yet.
    pub fn unopened(&self) -> &[u8] {
        &self.received
    }
}
