//! The core of the receiving direction: opens one record in place and says what follows from it.

use std::ops::Range;

use dormouse_record::{Alert, OpenKey, Opened, State, open};

use super::end::End;

/// Meaning of the record at the start of a buffer.
#[derive(Debug)]
pub enum Incoming {
    /// The record is incomplete: with its header it has `need` bytes. Nothing was changed.
    Partial {
        /// Bytes that the buffer must hold before this can continue.
        need: usize,
    },
    /// Application data.
    Data {
        /// Length of the record.
        consumed: usize,
        /// Where its plaintext lies in the buffer; may be empty.
        plaintext: Range<usize>,
    },
    /// Client: bytes of NewSessionTicket messages, for [`TicketWatch`](crate::TicketWatch).
    Ticket {
        /// Length of the record.
        consumed: usize,
        /// Where the bytes lie in the buffer.
        fragment: Range<usize>,
    },
    /// A record without data for the application.
    Handled {
        /// Bytes that were consumed.
        consumed: usize,
        /// An alert to seal and send; the connection continues.
        answer: Option<Alert>,
    },
    /// The peer's direction ended, and the rest of the buffer is ignored. After [`End::Refused`], seal and send
    /// its [`answer`](dormouse_record::Refusal::answer).
    Ended(End),
}

/// The next record of a connection that has yet to receive it.
#[derive(Debug, PartialEq, Eq)]
pub enum Ahead {
    /// The record is incomplete: with its header it has `need` bytes.
    Partial {
        /// Bytes that the buffer must hold.
        need: usize,
    },
    /// Application data.
    Data {
        /// Where its plaintext lies in the buffer.
        plaintext: Range<usize>,
    },
    /// Something else, or no valid record.
    Other,
}

/// Opens a copy of the next record, in place, for a decision that must come before the record is received.
pub fn look_ahead(state: &State, copy: &mut [u8]) -> Ahead {
    let mut reader = State::empty();
    state.copy_reader(&mut reader);
    let mut key = OpenKey::new(&reader);
    match open_record(&mut reader, &mut key, copy) {
        Incoming::Partial { need } => Ahead::Partial { need },
        Incoming::Data { plaintext, .. } => Ahead::Data { plaintext },
        _ => Ahead::Other,
    }
}

/// Opens the record at the start of `buf`, in place.
pub fn open_record(state: &mut State, key: &mut OpenKey, buf: &mut [u8]) -> Incoming {
    match open(state, key, buf) {
        Ok(Opened::Partial { need }) => Incoming::Partial { need },
        Ok(Opened::Data {
            consumed,
            plaintext,
        }) => Incoming::Data {
            consumed,
            plaintext,
        },
        Ok(Opened::Ticket { consumed, fragment }) => Incoming::Ticket { consumed, fragment },
        Ok(Opened::Handled { consumed }) => Incoming::Handled {
            consumed,
            answer: None,
        },
        Ok(Opened::NoRenegotiation { consumed }) => Incoming::Handled {
            consumed,
            answer: Some(Alert::NO_RENEGOTIATION),
        },
        Ok(Opened::PeerClosed { .. }) => Incoming::Ended(End::Closed),
        Ok(Opened::PeerAlert { description, .. }) => Incoming::Ended(End::Alert(description)),
        Err(refusal) => Incoming::Ended(End::Refused(refusal)),
    }
}
