//! The outcome of a step on a connection.
//!
//! A step sees its slot and the workspace, but neither the listeners nor other connections. It returns what has to
//! happen there: [`Effect`]s, which the loop applies after the step, when the slot is no longer marked busy.

use crate::close_reason::CloseReason;
use crate::io::Io;
use crate::pause::Pause;
use dormouse_handover::slot::{Flag, PlainSide, Slot};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Addr;

/// What a step has done, besides changes in its slot.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Whether the connection is over: its slot can be freed.
    pub(crate) is_over: bool,
    pub(crate) bytes: StepBytes,
    /// Why the connection closes, if the step has decided that.
    pub(crate) closing: Option<CloseReason>,
    /// Time until the connection is looked at again, if the step has stopped one of its flows for lack of memory.
    pub(crate) wait_ms: Option<u64>,
    /// Requests to other parts of the worker.
    pub(crate) effects: Vec<Effect>,
}

/// Bytes moved by a step, by direction.
#[derive(Clone, Copy, Default)]
pub(crate) struct StepBytes {
    pub(crate) tls_in: u64,
    pub(crate) tls_out: u64,
    pub(crate) plain_in: u64,
    pub(crate) plain_out: u64,
}

impl StepBytes {
    /// Bytes that the step received, from both sides.
    pub(crate) fn received(&self) -> u64 {
        self.tls_in + self.plain_in
    }

    /// Bytes that the step passed to the TLS side.
    pub(crate) fn passed_to_tls(&self, slot: &Slot) -> u64 {
        match slot.has(Flag::PassThrough) {
            true => self.plain_in,
            false => self.tls_out,
        }
    }

    /// Whether the step moved no bytes.
    pub(crate) fn is_none(&self) -> bool {
        (self.tls_in | self.tls_out | self.plain_in | self.plain_out) == 0
    }
}

/// A request to another part of the worker.
pub(crate) enum Effect {
    /// Pauses accepting, because descriptors or local ports ran out.
    PauseAccepting(Pause),
    /// Reports the end of a warm connection that lasted `lasted_s` seconds.
    WarmEnded { route: u16, lasted_s: u32 },
    /// Opens a TLS connection to a backend for the far end of a joint.
    ConnectBackend(BackendRequest),
    /// Connects a local client to another server, because the first server ended the connection
    /// before the client sent anything.
    ReplaceServer { client: LocalClient, route: u16 },
}

/// The accepted plain connection of a local client.
#[derive(Clone, Copy)]
pub(crate) struct LocalClient {
    pub(crate) fd: Fd,
    pub(crate) is_unix: bool,
    /// The opening of the client's connection at the other end, in seconds of CLOCK_BOOTTIME, if the socket is one end of
    /// a joint.
    pub(crate) joined_s: Option<u32>,
    /// Whether the client expects a greeting, and its server has spoken its own before TLS.
    pub(crate) awaits_greeting: bool,
}

impl LocalClient {
    /// The connection as the plain side of a slot.
    pub(crate) fn plain_side(self) -> PlainSide {
        match self.is_unix {
            _ if self.is_joined() => PlainSide::Joint,
            true => PlainSide::Unix,
            false => PlainSide::Tcp,
        }
    }

    /// Whether the socket is one end of a joint, with a client's connection at the other end.
    pub(crate) fn is_joined(self) -> bool {
        self.joined_s.is_some()
    }

    /// Closes the connection so that its peer sees a failure; a FIN would look like an empty answer.
    pub(crate) fn reset(self, io: &impl Io) {
        if self.is_unix {
            io.close(self.fd);
        } else {
            io.reset(self.fd);
        }
    }
}

/// A request for a TLS connection to a backend, for the client at the other end of a joint.
pub(crate) struct BackendRequest {
    /// This end of the joint.
    pub(crate) end: Fd,
    /// The opening of the client's connection.
    pub(crate) opened_s: u32,
    pub(crate) route: u16,
    pub(crate) address: Addr,
    pub(crate) server_name: String,
    /// Sent to the backend in plain text, before the handshake.
    pub(crate) preface: Vec<u8>,
}
