//! What a generator keeps of a connection.
//!
//! A quiet connection is its [`Slot`]: 192 bytes in a slab, and eight for the empty place of its
//! [`ActiveConnection`] part. Whatever is going on with a connection is in the active part, on the heap, and
//! goes away when the connection is quiet again.

use std::time::Instant;

use dormouse_engine::stream::Connection;
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
    /// What is in flight of TLS; empty without TLS.
    pub(super) tls: Connection,
    /// Plaintext to be sent; empty with TLS.
    pub(super) plain_out: SendBuffer,
    pub(super) exchange: Option<Exchange>,
    pub(super) exchanges_done: u64,
    pub(super) greeted: bool,
    /// Whether the poller was told to say when there is room to send.
    pub(super) writing: bool,
}

/// How far a connection is.
pub(super) enum ConnectionState {
    Connecting,
    Handshaking,
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
            tls: Connection::default(),
            plain_out: SendBuffer::default(),
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
            && self.tls.is_at_rest()
            && self.plain_out.is_empty()
            && !self.writing
    }
}

/// Sending.
impl ActiveConnection {
    /// What is to be sent.
    pub(super) fn unsent(&self) -> &[u8] {
        match self.plain_out.unsent() {
            [] => self.tls.output(),
            plain => plain,
        }
    }

    /// The first `count` bytes of it were sent.
    pub(super) fn sent(&mut self, count: usize) {
        if self.plain_out.is_empty() {
            self.tls.output_sent(count);
        } else {
            self.plain_out.sent(count);
        }
    }
}

/// Bytes on their way out.
#[derive(Default)]
pub(super) struct SendBuffer {
    bytes: Vec<u8>,
    sent: usize,
}

impl SendBuffer {
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
}
