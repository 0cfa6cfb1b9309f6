//! Requests of a step to other parts of the worker.
//!
//! A step sees its slot and the workspace, but neither the listeners nor other connections. What has
//! to happen there is an [`Effect`]; the loop applies it after the step, when the slot is no longer
//! marked busy.

use crate::io::Io;
use crate::pause::Pause;
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Addr;

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
}

impl LocalClient {
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
