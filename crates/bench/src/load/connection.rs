//! What a generator keeps of a connection.
//!
//! A quiet connection is its [`Slot`]: 192 bytes in a slab, and eight for the empty place of its
//! [`ActiveConnection`] part. Whatever is going on with a connection is in the active part, on the heap, and
//! goes away when the connection is quiet again.

use std::time::Instant;

use dormouse_engine::{Handshake, TicketWatch};
use dormouse_reactor::Fd;
use dormouse_record::State;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::exchange::Exchange;

/// Version of [`Slot`]'s layout, for the slab's header.
pub(super) const SLOT_LAYOUT: u32 = 1;

/// A connection at rest.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Slot {
    /// All zero without TLS.
    pub(super) tls: State,
    /// The connection's number, in the order of opening.
    pub(super) serial: u64,
    pub(super) fd: i32,
    /// Which lane of a cycle it runs on.
    pub(super) lane: u32,
    /// Whether it is established: 0 or 1.
    pub(super) established: u32,
    /// Whether its opening is over, greeting included: 0 or 1.
    pub(super) opened: u32,
    room: [u32; 10],
}

const _: () = assert!(size_of::<Slot>() == 192);

impl Slot {
    pub(super) fn fd(&self) -> Fd {
        Fd(self.fd)
    }
}

/// What is going on with a connection.
pub(super) struct ActiveConnection {
    pub(super) step: ConnectionState,
    /// When the step must be over; `None` at rest.
    pub(super) deadline: Option<Instant>,
    pub(super) began: Instant,
    /// Ciphertext to be sent.
    pub(super) out: SendBuffer,
    /// Ciphertext received, less than a record.
    pub(super) partial: Vec<u8>,
    pub(super) tickets: Option<TicketWatch>,
    pub(super) exchange: Option<Exchange>,
    pub(super) exchanges_done: u64,
    pub(super) greeted: bool,
    /// Whether the poller was told to say when there is room to send.
    pub(super) writing: bool,
}

/// How far a connection is.
pub(super) enum ConnectionState {
    Connecting,
    Handshaking(Box<Handshake>),
    Established,
    /// Nothing is left to be done but to wait for a session ticket.
    AwaitingTicket,
}

impl ActiveConnection {
    pub(super) fn connecting(now: Instant, deadline: Instant) -> Self {
        Self {
            step: ConnectionState::Connecting,
            deadline: Some(deadline),
            greeted: false,
            ..Self::at_rest(now)
        }
    }

    /// For a quiet connection that has just woken up.
    pub(super) fn at_rest(now: Instant) -> Self {
        Self {
            step: ConnectionState::Established,
            deadline: None,
            began: now,
            out: SendBuffer::default(),
            partial: Vec::new(),
            tickets: None,
            exchange: None,
            exchanges_done: 0,
            greeted: true,
            writing: false,
        }
    }

    /// Whether the slot alone is enough.
    pub(super) fn can_rest(&self) -> bool {
        matches!(self.step, ConnectionState::Established)
            && self.exchange.is_none()
            && self.out.is_empty()
            && self.partial.is_empty()
            && self.tickets.is_none()
            && !self.writing
    }
}

/// Bytes on their way out.
#[derive(Default)]
pub(super) struct SendBuffer {
    bytes: Vec<u8>,
    sent: usize,
}

impl SendBuffer {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, sent: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent >= self.bytes.len()
    }

    pub(super) fn unsent(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    pub(super) fn sent(&mut self, count: usize) {
        self.sent += count;
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
        }
    }

    /// Room for `len` more bytes, which the caller fills.
    pub(super) fn grow(&mut self, len: usize) -> &mut [u8] {
        let at = self.bytes.len();
        self.bytes.resize(at + len, 0);
        &mut self.bytes[at..]
    }

    /// Takes back what was grown and not needed.
    pub(super) fn shrink(&mut self, len: usize) {
        self.bytes.truncate(self.bytes.len().saturating_sub(len));
    }
}
