//! Traces: for a limited time, each handshake and each end of a connection with some clients has a line in the log
//! (`dormouse trace`). A line has no plaintext and no key.

use dormouse_config::Network;
use dormouse_handover::orders::TRACES_MAX;
use dormouse_handover::slot::Slot;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Maximum number of lines of a trace.
const LINES_MAX: u32 = 1_000;

/// Maximum number of clients that are kept until their connections end.
const CLIENTS_MAX: usize = 4_096;

/// The traces of a worker.
#[derive(Default)]
pub(crate) struct Traces {
    traces: Vec<Trace>,
    /// The clients of established connections that are traced, by the start and the generation of the connection. At its end a
    /// socket may not know its peer any more, and never knew a client behind a proxy.
    clients: RefCell<BTreeMap<(u32, u32), SocketAddr>>,
}

struct Trace {
    client: Network,
    until_ms: u64,
    lines: Cell<u32>,
}

impl Trace {
    /// Whether this client is traced now.
    fn covers(&self, client: IpAddr, now_ms: u64) -> bool {
        now_ms < self.until_ms && self.client.contains(client)
    }
}

impl Traces {
    /// Begins a trace, in place of a former one of the same clients.
    pub(crate) fn begin(&mut self, client: Network, until_ms: u64, now_ms: u64) {
        let is_over = |trace: &Trace| trace.client == client || trace.until_ms <= now_ms;
        self.traces.retain(|trace| !is_over(trace));
        if self.traces.is_empty() {
            self.clients.get_mut().clear();
        }
        if self.traces.len() < TRACES_MAX {
            self.traces.push(Trace {
                client,
                until_ms,
                lines: Cell::new(LINES_MAX),
            });
        }
    }

    /// Whether there is none, or all are over.
    pub(crate) fn are_over(&self, now_ms: u64) -> bool {
        self.traces.iter().all(|trace| trace.until_ms <= now_ms)
    }

    /// Whether a line about this client is to be written, which the trace then has one less of.
    pub(crate) fn takes(&self, client: Option<IpAddr>, now_ms: u64) -> bool {
        let is_due = |trace: &&Trace| {
            trace.lines.get() > 0 && client.is_some_and(|ip| trace.covers(ip, now_ms))
        };
        let Some(trace) = self.traces.iter().find(is_due) else {
            return false;
        };
        trace.lines.set(trace.lines.get() - 1);
        if trace.lines.get() == 0 {
            let client = trace.client;
            tracing::warn!(%client, "trace ended: it has written all lines that it may");
        }
        true
    }

    /// Keeps the client of a new connection, if it is traced.
    pub(crate) fn note(&self, slot: &Slot, client: Option<SocketAddr>, now_ms: u64) {
        let Some(client) = client else { return };
        let is_traced = |trace: &Trace| trace.covers(client.ip(), now_ms);
        let mut clients = self.clients.borrow_mut();
        if clients.len() < CLIENTS_MAX && self.traces.iter().any(is_traced) {
            clients.insert((slot.opened_s, slot.generation), client);
        }
    }

    /// Returns the client that was kept for this connection, once.
    pub(crate) fn take_client(&self, slot: &Slot) -> Option<SocketAddr> {
        let mut clients = self.clients.borrow_mut();
        clients.remove(&(slot.opened_s, slot.generation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros as _;

    #[test]
    fn a_trace_ends_by_its_time_and_by_its_lines() {
        let network = |text: &str| dormouse_config::read_network(text).expect("a network");
        let inside = Some(IpAddr::from([10, 1, 2, 3]));
        let mut traces = Traces::default();
        assert!(!traces.takes(inside, 0));
        traces.begin(network("10.0.0.0/8"), 1_000, 0);
        assert!(traces.takes(inside, 999));
        assert!(!traces.takes(inside, 1_000), "its time is over");
        assert!(traces.are_over(1_000) && !traces.are_over(999));
        assert!(!traces.takes(Some(IpAddr::from([11, 1, 2, 3])), 0));
        assert!(!traces.takes(None, 0), "a unix socket");
        for _ in 1..LINES_MAX {
            assert!(traces.takes(inside, 0));
        }
        assert!(!traces.takes(inside, 0), "it has no lines left");
        traces.begin(network("10.0.0.0/8"), 2_000, 0);
        assert!(traces.takes(inside, 1_500), "it began again");
        for n in 0..100 {
            let client = format!("192.0.2.{n}");
            traces.begin(network(&client), 2_000, 0);
        }
        assert_eq!(traces.traces.len(), TRACES_MAX);
        traces.begin(network("192.0.2.200"), 5_000, 2_000);
        assert_eq!(traces.traces.len(), 1, "those that are over leave");
    }

    #[test]
    fn clients_are_kept_until_their_connections_end() {
        let network = |text: &str| dormouse_config::read_network(text).expect("a network");
        let client = |text: &str| Some(text.parse().expect("an address"));
        let slot = |generation| {
            let mut slot = Slot::new_zeroed();
            slot.generation = generation;
            slot
        };
        let mut traces = Traces::default();
        traces.note(&slot(1), client("10.0.0.1:1"), 0);
        traces.begin(network("10.0.0.0/8"), 1_000, 0);
        for (generation, address) in [(2, "10.0.0.2:2"), (3, "192.0.2.1:3"), (4, "10.0.0.4:4")] {
            traces.note(&slot(generation), client(address), 999);
        }
        traces.note(&slot(5), client("10.0.0.5:5"), 1_000);
        traces.note(&slot(6), None, 0);
        let kept: Vec<_> = (1..=6)
            .map(|n| traces.take_client(&slot(n)).is_some())
            .collect();
        assert_eq!(kept, [false, true, false, true, false, false]);
        assert_eq!(traces.take_client(&slot(2)), None, "once");
        for generation in 0..=CLIENTS_MAX as u32 {
            traces.note(&slot(generation), client("10.0.0.2:2"), 0);
        }
        assert_eq!(traces.clients.borrow().len(), CLIENTS_MAX);
        traces.begin(network("10.0.0.0/8"), 3_000, 2_000);
        assert!(traces.clients.borrow().is_empty(), "their trace was over");
    }
}
