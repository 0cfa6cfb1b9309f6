//! The core of the receiving direction: one record opened in place, and what follows from it.

use std::ops::Range;

use dormouse_record::{Alert, OpenKey, Opened, State, open};

use super::end::End;

/// What the record at the start of a buffer means.
#[derive(Debug)]
pub enum Incoming {
    /// The record is not whole: with its header it has `need` bytes. Nothing was touched.
    Partial {
        /// Bytes the buffer must hold before this can get further.
        need: usize,
    },
    /// Application data.
    Data {
        /// Length of the record.
        consumed: usize,
        /// Where in the buffer its plaintext lies; may be empty.
        plaintext: Range<usize>,
    },
    /// Client: bytes of NewSessionTicket messages, for [`TicketWatch`](crate::TicketWatch).
    Ticket {
        /// Length of the record.
        consumed: usize,
        /// Where in the buffer the bytes lie.
        fragment: Range<usize>,
    },
    /// Nothing for the application.
    Handled {
        /// Bytes that were used up.
        consumed: usize,
        /// An alert to seal and send; the connection goes on.
        answer: Option<Alert>,
    },
    /// The peer's direction has ended, and whatever follows in the buffer is ignored. After
    /// [`End::Refused`] its [`answer`](dormouse_record::Refusal::answer) is to be sealed and sent.
    Ended(End),
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
