//! Readings at the moments of held connections.

use std::time::Duration;

use crate::model::{Measured, MemoryPhase};
use dormouse_census::{Detail, ManagedHeap, Snapshot};

/// Why a figure is missing: the load ended before its part.
pub(super) const NOT_REACHED: &str = "the load ended before this part; see the missing parts";
/// Sockets of the whole machine for each held connection: both ends, and as many again behind a proxy.
const SOCKETS_EACH: std::ops::RangeInclusive<f64> = 1.8..=4.4;

/// Memory, and blocks in use, by the name of the moment: `before`, `n`, `2n`, …
#[derive(Default)]
pub(super) struct Moments {
    pub(super) phases: Vec<MemoryPhase>,
    pub(super) snapshots: Vec<(&'static str, Snapshot)>,
}

impl Moments {
    /// Adds the memory at a moment. It replaces an earlier reading of this name.
    pub(super) fn add_phase(&mut self, phase: Option<MemoryPhase>) {
        if let Some(phase) = phase {
            self.phases.retain(|known| known.name != phase.name);
            self.phases.push(phase);
        }
    }

    /// The same for the blocks in use.
    pub(super) fn add_census(&mut self, name: &'static str, snapshot: Option<Snapshot>) {
        if let Some(snapshot) = snapshot {
            self.snapshots.retain(|(known, _)| *known != name);
            self.snapshots.push((name, snapshot));
        }
    }

    /// Drops the readings of a moment.
    pub(super) fn forget(&mut self, name: &str) {
        self.phases.retain(|phase| phase.name != name);
        self.snapshots.retain(|(known, _)| *known != name);
    }

    pub(super) fn at(&self, name: &str) -> Option<&MemoryPhase> {
        self.phases.iter().find(|phase| phase.name == name)
    }

    pub(super) fn pss(&self, name: &str) -> Option<f64> {
        Some(self.at(name)?.memory.pss as f64)
    }

    /// Growth of the server's memory since before the held connections.
    pub(super) fn grown(&self, name: &str) -> f64 {
        let both = self.pss(name).zip(self.pss("before"));
        both.map_or(0.0, |(at, before)| at - before)
    }

    pub(super) fn snapshot(&self, name: &str) -> Option<&Snapshot> {
        let mut snapshots = self.snapshots.iter();
        snapshots
            .find(|(known, _)| *known == name)
            .map(|(_, snapshot)| snapshot)
    }

    /// The first of these moments that has a census.
    pub(super) fn first_of(&self, names: &[&str]) -> Option<&Snapshot> {
        names.iter().find_map(|name| self.snapshot(name))
    }

    /// Time from the first half of the held connections to the second.
    pub(super) fn second_half_took(&self) -> Duration {
        let both = self.at("2n").zip(self.at("n"));
        let seconds = both.map_or(0.0, |(whole, half)| whole.at_s - half.at_s);
        Duration::from_secs_f64(seconds.max(0.0))
    }

    /// Whether the server has started a process for each of about this many connections since the first reading.
    pub(super) fn has_process_each(&self, processes: u64, connections: u64) -> bool {
        let before = self.at("before");
        before.is_some_and(|before| processes.saturating_sub(before.processes) > connections)
    }

    /// Bytes of the kernel's objects per connection, if the sockets of the machine are those of the connections.
    pub(super) fn kernel_bytes(&self, after: &str, connections: f64) -> Measured<f64> {
        let Some((before, at)) = self.at("before").zip(self.at(after)) else {
            return Measured::not(NOT_REACHED);
        };
        let (before, at) = (before.kernel, at.kernel);
        let Some((bytes_before, bytes)) = before.slab_bytes.zip(at.slab_bytes) else {
            return Measured::not("only root can read /proc/slabinfo");
        };
        let sockets = (at.tcp_sockets as f64 - before.tcp_sockets as f64) / connections;
        if bytes <= bytes_before || !SOCKETS_EACH.contains(&sockets) {
            return Measured::not(
                "the kernel counts for the whole machine, and other programs opened or closed sockets at the same time",
            );
        }
        Measured::Value((bytes - bytes_before) as f64 / connections)
    }
}

/// Objects that survived a collection.
#[derive(Default)]
pub(super) struct ObjectMoments {
    /// Before the first connection.
    pub(super) none: Option<ManagedHeap>,
    /// After the handshakes of all.
    pub(super) opened: Option<ManagedHeap>,
    /// After an exchange and an idle period.
    pub(super) held: Option<ManagedHeap>,
}

impl ObjectMoments {
    /// What to learn of the held connections, where the classes before them took `classes_took`: a heap of several times
    /// the size takes several times as long.
    pub(super) fn detail_of_held(
        &self,
        classes_took: Duration,
        has_room: impl FnOnce(Duration) -> bool,
    ) -> Detail {
        let bytes = |heap: &Option<ManagedHeap>| Some(heap.as_ref()?.bytes()?.1 as f64);
        let times = bytes(&self.opened).zip(bytes(&self.none));
        let times = times.map_or(1.0, |(opened, none)| (opened / none.max(1.0)).max(1.0));
        if has_room(classes_took.mul_f64(times)) {
            Detail::Classes
        } else {
            Detail::Bytes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded: beside 96 connections of Dovecot, other programs opened 4,276 sockets, and one seemed to take 200 kB.
    #[test]
    fn sockets_of_other_programs_are_not_counted() {
        let kernel = |sockets: [u64; 2]| {
            let mut moments = Moments::default();
            for ((name, connections), sockets) in
                [("before", 0), ("2n", 96)].into_iter().zip(sockets)
            {
                let mut phase = MemoryPhase::of(name, connections, 1);
                phase.kernel.tcp_sockets = sockets;
                phase.kernel.slab_bytes = Some(55_000_000 + 4_000 * sockets);
                moments.phases.push(phase);
            }
            moments.kernel_bytes("2n", 96.0).value().copied()
        };
        assert_eq!(kernel([15, 15 + 2 * 96]), Some(8_000.0));
        assert_eq!(kernel([15, 4_483]), None);
        assert_eq!(kernel([219, 223]), None);
        let why = Moments::default().kernel_bytes("n", 1.0);
        assert_eq!(why.why_not(), Some(NOT_REACHED));
    }
}
