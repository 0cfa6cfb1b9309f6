//! Where clients of control come in: the admin socket, and the address of metrics.

use dormouse_handover::control::ControlArguments;
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::{Fd, OnExec, socket};
use socket::{Accepted, Attempt};
use std::io;

/// What a client may ask for, by where it came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// The admin socket: it is known who asks, and orders are taken.
    Orders,
    /// The address of metrics: nobody knows who asks, and orders are refused.
    Questions {
        /// Only this machine reaches it. A browser may still be led there by a foreign page.
        is_loopback: bool,
    },
}

impl Access {
    /// Clients at the same time; more wait in the queue. Those who only look leave room for orders.
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
pub(super) struct Door {
    pub(super) access: Access,
    listener: Fd,
    is_polled: bool,
}

impl Door {
    /// Those that main has opened.
    pub(super) fn all(told: &ControlArguments) -> Vec<Door> {
        let is_loopback = told.metrics_is_loopback;
        let both = [
            (told.admin, Access::Orders),
            (told.metrics, Access::Questions { is_loopback }),
        ];
        let door = |(fd, access): (Option<i32>, Access)| {
            fd.map(|fd| Door {
                access,
                listener: Fd(fd),
                is_polled: false,
            })
        };
        both.into_iter().filter_map(door).collect()
    }

    /// Is told of clients from now on, by this token.
    pub(super) fn open(&mut self, poller: &Poller, token: u64) -> io::Result<()> {
        if !self.is_polled {
            poller.add(self.listener, token, Interest::READ)?;
            self.is_polled = true;
        }
        Ok(())
    }

    /// No client can come in: who connects now waits in the queue.
    pub(super) fn close(&mut self, poller: &Poller) {
        self.is_polled = poller.remove(self.listener).is_err();
    }

    /// Nobody comes in any more, and another process can listen at the address.
    pub(super) fn give_up(&mut self, poller: &Poller) {
        self.close(poller);
        self.listener.close();
    }

    /// The next client. `None`: there is none, or it can't be accepted.
    pub(super) fn accept(&self) -> Option<Fd> {
        match socket::accept(self.listener, OnExec::Close) {
            Ok(Attempt::Done(Accepted { fd, .. })) => Some(fd),
            Ok(Attempt::WouldBlock) => None,
            Err(error) => {
                tracing::warn!(%error, "the control process cannot accept");
                None
            }
        }
    }
}
