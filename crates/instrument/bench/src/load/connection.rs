//! The state that a generator keeps of a connection.
//!
//! A quiet connection is its [`Slot`]: 192 bytes in a slab, and eight for the empty place of its
//! [`ActiveConnection`] part. The state of a busy connection is in the active part, on the heap,
//! and is freed when the connection is quiet again.

use std::time::Instant;

use dormouse_engine::stream::Connection;
use dormouse_reactor::Fd;
use dormouse_record::State;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::exchange::Exchange;
use super::starttls::Dialogue;

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
    /// The lane of a cycle that it runs on.
    pub(super) lane: u32,
    /// Whether it is established: 0 or 1.
    pub(super) established: u32,
    /// Whether it is open, greeting included: 0 or 1.
    pub(super) opened: u32,
    room: [u32; 10],
}

const _: () = assert!(size_of::<Slot>() == 192);

impl Slot {
    pub(super) fn fd(&self) -> Fd {
        Fd(self.fd)
    }
}

/// The state of a busy connection.
pub(super) struct ActiveConnection {
    pub(super) step: ConnectionState,
    /// Deadline of the current step; `None` at rest.
    pub(super) deadline: Option<Instant>,
    pub(super) began: Instant,
    /// TLS state in flight; empty without TLS.
    pub(super) tls: Connection,
    /// Plaintext to send; empty with TLS.
    pub(super) plain_out: SendBuffer,
    pub(super) exchange: Option<Exchange>,
    pub(super) exchanges_done: u64,
    pub(super) greeted: bool,
    /// Whether the poller reports room to send.
    pub(super) writing: bool,
}

/// The phase of a connection.
pub(super) enum ConnectionState {
    Connecting,
    /// The plaintext dialogue before the handshake.
    StartingTls(Dialogue),
    Handshaking,
    Established,
    /// Only waits for a session ticket.
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

    /// Returns the active part of a quiet connection that has just woken up.
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

    /// Returns whether the slot alone is enough.
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
    /// Returns the bytes to send.
    pub(super) fn unsent(&self) -> &[u8] {
        match self.plain_out.unsent() {
            [] => self.tls.output(),
            plain => plain,
        }
    }

    /// Removes the first `count` bytes, which were sent.
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

    /// Returns room for `len` more bytes, which the caller fills.
    pub(super) fn grow(&mut self, len: usize) -> &mut [u8] {
        let at = self.bytes.len();
        self.bytes.resize(at + len, 0);
        &mut self.bytes[at..]
    }
}
