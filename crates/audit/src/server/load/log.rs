//! Readings under load, and the figures that follow from them.

use std::collections::BTreeMap;

use crate::census::{self, CensusReport, ManagedHeap, PageSample, Snapshot};
use crate::model::{
    CollectedRounds, CpuFigures, GROWTH_BYTES, Measured, MemoryFigures, MemoryPhase, Reference,
};
use dormouse_bench::model::Sample;
use dormouse_measure::{CpuTime, Growth, Verdict};

/// Why there are no large records.
const NOT_ECHO: &str = "the server does not echo, so it cannot be made to send a record of 16 kB";

/// Readings of one load, as they come.
#[derive(Default)]
pub(super) struct LoadLog {
    /// Why connections cannot be held which have not asked for anything.
    pub(super) silence_refused: Option<String>,
    pub(super) phases: Vec<MemoryPhase>,
    pub(super) snapshots: Vec<(&'static str, Snapshot)>,
    pub(super) no_census: Option<String>,
    /// Managed heaps at none and at 2N connections.
    pub(super) managed: [Option<ManagedHeap>; 2],
    /// A sample of pages, where malloc's heap explains little.
    pub(super) pages: Option<Result<PageSample, String>>,
    pub(super) samples: Vec<Sample>,
    pub(super) idle_us: Option<f64>,
    pub(super) per_gigabyte_s: Option<f64>,
    pub(super) growth: Option<Growth>,
    pub(super) growth_resumed: Option<Growth>,
    pub(super) collected: Option<CollectedRounds>,
    pub(super) full: Option<(CpuTime, u64)>,
}

impl LoadLog {
    pub(super) fn pss(&self, name: &str) -> Option<f64> {
        let phase = self.phases.iter().find(|phase| phase.name == name)?;
        Some(phase.memory.pss as f64)
    }

    pub(super) fn snapshot(&self, name: &str) -> Option<&Snapshot> {
        self.snapshots
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, snapshot)| snapshot)
    }

    /// Whether memory grows by more than [`GROWTH_BYTES`] per connection.
    pub(super) fn grew(&self) -> bool {
        self.growth.as_ref().is_some_and(|growth| {
            growth.verdict == Verdict::Grows && growth.bytes_per_connection() > Some(GROWTH_BYTES)
        })
    }

    /// The server's memory: with none, `n` and twice as many connections, and over the rounds.
    pub(super) fn memory(&self, n: u64) -> MemoryFigures {
        let two_n = 2.0 * n as f64;
        let before = self.pss("before").unwrap_or(0.0);
        let per = |name: &str, why: &str| match self.pss(name) {
            Some(pss) => Measured::Value((pss - before) / two_n),
            None => Measured::not(why),
        };
        let silent =
            "the server does not answer what is said to it: give --http, --say or --expect";
        MemoryFigures {
            after_handshake_bytes: match &self.silence_refused {
                Some(why) => Measured::not(format!("connections without a request: {why}")),
                None => per("2n", "the load did not come so far"),
            },
            after_exchange_bytes: per("after_exchange", silent),
            after_large_records_bytes: per("after_large_records", NOT_ECHO),
            after_quiet_bytes: per("after_quiet", "the connections were not held"),
            kernel_bytes: self.kernel_bytes(two_n),
            left_bytes: self.pss("after_close").unwrap_or(before) - before,
            growth: self
                .growth
                .clone()
                .map_or_else(|| Measured::not("there were no rounds"), Measured::Value),
            growth_resumed: match &self.growth_resumed {
                Some(growth) => Measured::Value(growth.clone()),
                None => {
                    Measured::not("full handshakes leave nothing behind, or no session was resumed")
                }
            },
            growth_collected: match &self.collected {
                Some(collected) => Measured::Value(collected.clone()),
                None => Measured::not("nothing grows, or there is no collector of garbage in it"),
            },
            phases: self.phases.clone(),
        }
    }

    /// Bytes of the kernel's objects per connection.
    fn kernel_bytes(&self, connections: f64) -> Measured<f64> {
        let kernel = |name: &str| {
            let phase = self.phases.iter().find(|phase| phase.name == name)?;
            phase.kernel.slab_bytes
        };
        match (kernel("before"), kernel("2n")) {
            (Some(before), Some(at)) if at > before => {
                Measured::Value((at - before) as f64 / connections)
            }
            (Some(_), Some(_)) => Measured::not(
                "others closed sockets meanwhile: the kernel counts for the whole machine",
            ),
            _ => Measured::not("/proc/slabinfo may only be read by root"),
        }
    }

    /// The server's CPU time.
    pub(super) fn cpu(
        &self,
        resumed_us: BTreeMap<String, Measured<f64>>,
        reference: Reference,
    ) -> CpuFigures {
        let full = self.full.unwrap_or_default();
        let us = |ns: u64| ns as f64 / 1e3 / full.1.max(1) as f64;
        CpuFigures {
            full_us: us(full.0.total_ns),
            full_system_us: us(full.0.system_ns),
            resumed_us,
            reference,
            per_gigabyte_s: self
                .per_gigabyte_s
                .map_or_else(|| Measured::not(NOT_ECHO), Measured::Value),
            idle_us_per_connection_s: self.idle_us.map_or_else(
                || Measured::not("the connections were not held"),
                Measured::Value,
            ),
        }
    }

    /// Where the memory is.
    pub(super) fn census(&self, connections: u64) -> Measured<CensusReport> {
        // What a connection keeps is what it still has after an exchange and a while of quiet.
        let last = self.snapshot("after_quiet").or_else(|| self.snapshot("2n"));
        let (Some(none), Some(n), Some(two_n)) =
            (self.snapshot("before"), self.snapshot("n"), last)
        else {
            return match (&self.pages, &self.no_census) {
                (Some(_), Some(why)) => {
                    let mut report = CensusReport::without_malloc(why);
                    self.add_managed(&mut report, connections);
                    Measured::Value(report)
                }
                (None, Some(why)) => Measured::not(why.clone()),
                (_, None) => Measured::not("the load did not come so far"),
            };
        };
        let later: Vec<_> = self
            .snapshots
            .iter()
            .filter(|(name, _)| !["before", "n", "after_quiet"].contains(name))
            .map(|(name, snapshot)| (*name, snapshot))
            .collect();
        let mut report = CensusReport::compare(none, n, two_n, &later);
        if let (Some(first), Some(last)) =
            (self.snapshot("round_first"), self.snapshot("round_last"))
        {
            report.grown = census::grown(first, last);
        }
        self.add_managed(&mut report, connections);
        Measured::Value(report)
    }

    /// Adds what is known of memory that is not malloc's.
    fn add_managed(&self, report: &mut CensusReport, connections: u64) {
        if let [Some(none), Some(two_n)] = &self.managed {
            report.add_managed(none, two_n, connections);
        }
        if let Some(sample) = &self.pages {
            report.add_pages(sample.clone());
        }
    }

    /// Whether most of what connections cost is not in malloc's heap.
    pub(super) fn explains_little(&self, n: u64) -> bool {
        let (Some(before), Some(at)) = (self.pss("before"), self.pss("2n")) else {
            return false;
        };
        let (Some(none), Some(two_n)) = (self.snapshot("before"), self.snapshot("2n")) else {
            return false;
        };
        let heap = two_n.in_use_bytes.saturating_sub(none.in_use_bytes) as f64;
        let grown = at - before;
        grown / (2 * n) as f64 > 2048.0 && heap < grown / 2.0
    }
}
