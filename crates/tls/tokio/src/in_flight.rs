//! What a connection has beside its state while something is under way.

use std::task::Waker;
use std::time::{Duration, Instant};

use dormouse_embed::End;
use tokio::io::ReadBuf;

/// How long a client waits for its tickets before it can rest.
const TICKET_WAIT: Duration = Duration::from_secs(1);

/// What is under way. A connection at rest has none.
///
/// Invariants:
/// - `ciphertext` is the start of a record; with bytes that follow it, it becomes longer or empty.
/// - Bytes in `unsent` are sealed, and go to the transport before all that is sealed later.
/// - After `end`, nothing more is received.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    pub(crate) ciphertext: Vec<u8>,
    pub(crate) plaintext: Pending,
    pub(crate) unsent: Pending,
    /// How the peer's direction ended, unless by close_notify.
    pub(crate) end: Option<End>,
    /// The transport has failed while it sent, so the peer has not got all records.
    pub(crate) is_broken: bool,
    /// A task waits to write, flush or shut down: its waker is the one that the transport has.
    pub(crate) writer_waits: bool,
    /// The task that reads again when the unsent bytes are gone.
    pub(crate) reader: Option<Waker>,
    /// Client: when it stops waiting for tickets.
    pub(crate) tickets_until: Option<Instant>,
}

impl InFlight {
    pub(crate) fn is_empty(&self) -> bool {
        self.ciphertext.is_empty()
            && self.plaintext.is_empty()
            && self.unsent.is_empty()
            && self.end.is_none()
            && !self.is_broken
            && !self.writer_waits
            && self.reader.is_none()
            && self.tickets_until.is_none()
    }

    pub(crate) fn wait_for_tickets(&mut self) {
        self.tickets_until = Some(Instant::now() + TICKET_WAIT);
    }

    pub(crate) fn gives_up_tickets(&self) -> bool {
        self.tickets_until
            .is_some_and(|until| until <= Instant::now())
    }
}

/// Bytes that are taken from the front.
#[derive(Default)]
pub(crate) struct Pending {
    bytes: Vec<u8>,
    taken: usize,
}

impl Pending {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    pub(crate) fn push(&mut self, more: &[u8]) {
        self.bytes.extend_from_slice(more);
    }

    /// Removes `count` bytes, and frees the memory with the last one.
    pub(crate) fn take(&mut self, count: usize) {
        self.taken = self.taken.saturating_add(count).min(self.bytes.len());
        if self.is_empty() {
            *self = Pending::default();
        }
    }

    /// Moves as many bytes as there is room for.
    pub(crate) fn move_to(&mut self, buf: &mut ReadBuf<'_>) {
        let count = put(self.bytes(), buf);
        self.take(count);
    }
}

/// Copies as much as there is room for. Returns how much that is.
pub(crate) fn put(bytes: &[u8], buf: &mut ReadBuf<'_>) -> usize {
    let count = bytes.len().min(buf.remaining());
    buf.put_slice(bytes.get(..count).unwrap_or_default());
    count
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes().len())
    }
}
