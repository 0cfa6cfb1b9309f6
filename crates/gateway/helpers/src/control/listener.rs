//! The listening sockets of control: the admin socket and the metrics address.

use dormouse_handover::control::ControlArguments;
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::{Fd, OnExec, socket};
use socket::{Accepted, Attempt};
use std::io;

/// The requests that a client may make, decided by the listener that accepted it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// The admin socket: the kernel names the client's user, so orders are accepted.
    Orders,
    /// The metrics address: the client is anonymous, so orders are refused.
    Questions {
        /// Reachable from this machine only. A foreign web page may still send a local browser here.
        is_loopback: bool,
    },
}

impl Access {
    /// Maximum number of clients. Metrics clients leave room for orders.
    pub(super) fn clients_max(self) -> usize {
        match self {
            Access::Orders => 32,
            Access::Questions { .. } => 24,
        }
    }

    /// Maximum length of a request's body: certificates come by the admin socket.
    pub(super) fn body_bytes_max(self) -> usize {
        match self {
            Access::Orders => 48 << 10,
            Access::Questions { .. } => 4 << 10,
        }
    }
}

/// A listening socket.
pub(super) struct ControlListener {
    pub(super) access: Access,
    socket: Fd,
    is_polled: bool,
}

impl ControlListener {
    /// The listeners that main has opened.
    pub(super) fn all(arguments: &ControlArguments) -> Vec<ControlListener> {
        let is_loopback = arguments.metrics_is_loopback;
        let both = [
            (arguments.admin, Access::Orders),
            (arguments.metrics, Access::Questions { is_loopback }),
        ];
        let listener = |(fd, access): (Option<i32>, Access)| {
            fd.map(|fd| ControlListener {
                access,
                socket: Fd(fd),
                is_polled: false,
            })
        };
        both.into_iter().filter_map(listener).collect()
    }

    /// Starts to poll the listener with this token.
    pub(super) fn start_polling(&mut self, poller: &Poller, token: u64) -> io::Result<()> {
        if !self.is_polled {
            poller.add(self.socket, token, Interest::READ)?;
            self.is_polled = true;
        }
        Ok(())
    }

    /// Stops polling the listener; new clients wait in the listen queue.
    pub(super) fn stop_polling(&mut self, poller: &Poller) {
        self.is_polled = poller.remove(self.socket).is_err();
    }

    /// Closes the listener, so that another process can bind the address.
    pub(super) fn close(&mut self, poller: &Poller) {
        self.stop_polling(poller);
        self.socket.close();
    }

    /// Accepts the next client. `None`: no client waits.
    pub(super) fn accept(&self) -> io::Result<Option<Fd>> {
        match socket::accept(self.socket, OnExec::Close)? {
            Attempt::Done(Accepted { fd, .. }) => Ok(Some(fd)),
            Attempt::WouldBlock => Ok(None),
        }
    }
}
