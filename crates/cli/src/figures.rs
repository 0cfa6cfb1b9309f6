//! Figures of `status` and `top` that follow from several fields of the answer.

use dormouse_handover::status::{Count, Status};

/// Memory of all processes, without pages of files, and the connections' part of it.
pub(crate) struct Footprint {
    /// Slots and pending bytes.
    pub(crate) connections: u64,
    /// The rest, which does not depend on connections.
    pub(crate) fixed: u64,
}

impl Footprint {
    pub(crate) fn of(status: &Status) -> Footprint {
        let main = status.main.iter().map(|main| &main.process);
        let workers = status.workers.iter();
        let keepers = workers.clone().filter_map(|worker| worker.keeper.as_ref());
        let all: u64 = main
            .chain([&status.control.process])
            .chain(workers.map(|worker| &worker.process))
            .chain(keepers.map(|keeper| &keeper.process))
            .filter_map(|process| process.own_bytes)
            .sum();
        let pools = ["slots", "pending"].map(|name| status.memory.get(name));
        let connections = pools
            .into_iter()
            .flatten()
            .map(|pool| pool.used_bytes)
            .sum();
        Footprint {
            connections,
            fixed: all.saturating_sub(connections),
        }
    }
}

/// Handshakes with clients and with servers, since the start.
pub(crate) struct Handshakes {
    pub(crate) full: u64,
    pub(crate) resumed: u64,
    pub(crate) failed: u64,
}

impl Handshakes {
    pub(crate) fn of(status: &Status) -> Handshakes {
        let sum = |a, b| status.count(a).wrapping_add(status.count(b));
        Handshakes {
            full: sum(Count::HandshakesFull, Count::ConnectHandshakesFull),
            resumed: sum(Count::HandshakesResumed, Count::ConnectHandshakesResumed),
            failed: sum(Count::HandshakesFailed, Count::ConnectHandshakesFailed),
        }
    }
}
