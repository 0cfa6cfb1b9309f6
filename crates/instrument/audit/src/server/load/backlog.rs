//! Connections that a server has not finished with, although their clients are gone.
//!
//! Clients that leave during the handshake do not wait for the server. A server that is slower than they are has these
//! connections in the queue of its listening socket, or open. Meanwhile it seems to keep their memory, and the next
//! clients wait behind them.

use dormouse_bench::Session;
use dormouse_measure::sockets;
use dormouse_reactor::socket::Addr;

/// Connections that a server has not finished with. The order is that of its progress: accepting moves a connection from
/// the queue to the open ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Backlog {
    /// Connections that wait to be accepted.
    queued: u64,
    /// Open descriptors.
    open: u64,
}

impl Backlog {
    pub(super) fn of(session: &Session<'_>) -> Self {
        let server = session.server.as_ref();
        let sample = server.and_then(|server| server.sample().ok());
        Self {
            queued: queued(session).unwrap_or(0),
            open: sample.map_or(0, |sample| sample.descriptors),
        }
    }

    /// Whether nothing is left of the connections since `before`.
    pub(super) fn is_done(self, before: Self) -> bool {
        self.queued == 0 && self.open <= before.open
    }
}

/// Connections in the queues of all sockets that listen on the server's port, in the server's network.
fn queued(session: &Session<'_>) -> Option<u64> {
    let Addr::Tcp(target) = session.spec.target.parse().ok()? else {
        return None;
    };
    // The root of a server that detached has exited, and is in no network.
    let pids = session.server.as_ref()?.tree.pids().ok()?;
    let listening = sockets::listening(*pids.first()?, target.port());
    Some(listening.iter().map(|socket| socket.queued).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that parsed a trust store for each connection had 1,250 connections in its queue when their clients were
    /// gone. It seemed to leak, and the next client waited for longer than the timeout.
    #[test]
    fn a_server_is_not_done_while_connections_wait_to_be_accepted() {
        let of = |queued, open| Backlog { queued, open };
        let before = of(0, 9);
        assert!(of(0, 9).is_done(before) && of(0, 8).is_done(before));
        assert!(!of(3, 9).is_done(before) && !of(0, 10).is_done(before));
        assert!(of(2, 12) < of(3, 11), "accepting is progress");
        assert!(of(0, 11) < of(0, 12), "closing is progress");
        assert!(of(0, 12) > of(0, 11) && of(3, 9) > of(0, 12));
    }
}
