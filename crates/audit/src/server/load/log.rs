//! Readings under load, and the figures that follow from them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::backlog::Backlog;
use crate::model::{
    CollectedRounds, CpuFigures, GROWTH_BYTES, Measured, MemoryFigures, MemoryPhase, MissingPart,
    ParallelHandshakes, Reference, Trials,
};
use crate::server::spec::Sizes;
use dormouse_bench::load::TlsVersion;
use dormouse_bench::model::Sample;
use dormouse_census::{
    self as census, CensusReport, Detail, HotSpot, ManagedHeap, PageSample, Snapshot,
};
use dormouse_measure::{CpuTime, Error, Growth, Verdict};

/// Why large records were not measured.
const NOT_ECHO: &str = "the server does not echo, so the audit cannot make it send 16 kB records";
const SHARED_WITH_PARENT: &str =
    "each connection has a process of its own, and blocks that processes share would count in each";
/// Minimum number of connections whose CPU time tells what one costs.
const CPU_CONNECTIONS_MIN: u64 = 50;
/// Sockets of the whole machine for each held connection: both ends, and as many again behind a proxy.
const SOCKETS_EACH: std::ops::RangeInclusive<f64> = 1.8..=4.4;
const NOT_HELD: &str = "the connections were not held";
/// Why a figure is missing: the load ended before its part.
pub(super) const NOT_REACHED: &str = "the load ended before this part; see the missing parts";

/// Rounds of full handshakes.
pub(super) const FULL: &str = "full";

/// Readings of one load, in the order in which they arrive.
#[derive(Default)]
pub(super) struct LoadLog {
    /// CPU and network time of one connection, taken from the first connections.
    pub(super) each: Duration,
    /// Maximum number of concurrent connections that the server serves, if it is below the number tried.
    pub(super) served_at_once: Option<u64>,
    /// Duration of one census.
    pub(super) census_took: Duration,
    /// Duration of a collection that the server's runtimes make for the audit; `None`: they make none.
    pub(super) collection_took: Option<Duration>,
    /// Duration of one with a count by class, which may take much longer.
    pub(super) classes_took: Duration,
    /// Whether their collections take too long for the time limit.
    pub(super) collects_too_slowly: bool,
    /// Whether there is time for a census after each round.
    pub(super) counts_rounds: bool,
    /// The numbers of connections, adapted to the server's speed.
    pub(super) sizes: Option<Sizes>,
    /// Whether the server's runtime collects garbage.
    pub(super) collects: bool,
    /// Number of connections held at the end.
    pub(super) held: u64,
    /// Open and waiting connections before they were opened.
    pub(super) before_held: Backlog,
    /// How many of them the server closed, and when.
    pub(super) closed_early: Option<String>,
    /// Whether the server echoes 16 kB sent at once.
    pub(super) returns_large: bool,
    /// Why the server was not sent 16 kB at once, although it echoes.
    pub(super) large_refused: Option<String>,
    /// Whether the server answers nothing that the audit could send.
    pub(super) is_silent: bool,
    /// Why connections without a request cannot be held.
    pub(super) silence_refused: Option<String>,
    pub(super) phases: Vec<MemoryPhase>,
    pub(super) snapshots: Vec<(&'static str, Snapshot)>,
    pub(super) no_census: Option<String>,
    /// Whether a runtime did not collect its garbage before a census of held connections.
    pub(super) uncollected: bool,
    /// Objects of the server's runtimes.
    pub(super) managed: ManagedMoments,
    /// A page sample, taken where malloc's heap explains little.
    pub(super) pages: Option<Result<PageSample, String>>,
    pub(super) samples: Vec<Sample>,
    pub(super) notes: Vec<String>,
    pub(super) idle_us: Option<f64>,
    /// Threads that never slept while the connections were idle.
    pub(super) polling: Option<u64>,
    pub(super) per_gigabyte_s: Option<f64>,
    /// Resident memory and bytes in use over the rounds.
    pub(super) growth: RoundsGrowth,
    pub(super) growth_resumed: RoundsGrowth,
    /// Bytes in use over rounds of resumed connections of TLS 1.2, beside a server that offers TLS 1.3 too.
    pub(super) growth_older: Option<Growth>,
    /// Bytes in use over rounds of connections that end before their handshake does.
    pub(super) growth_broken: Option<Growth>,
    pub(super) collected: Option<CollectedRounds>,
    pub(super) full: Option<(CpuTime, u64)>,
    /// Speed of one client and of several, or why it is missing.
    pub(super) parallel: Option<Result<ParallelHandshakes, String>>,
    pub(super) profile: Option<Result<Vec<HotSpot>, String>>,
    pub(super) resumed_us: BTreeMap<String, Measured<f64>>,
    pub(super) trials: Vec<(TlsVersion, Trials)>,
    pub(super) incomplete: Vec<MissingPart>,
}

/// Objects that survived a collection, at the moments of the held connections.
#[derive(Default)]
pub(super) struct ManagedMoments {
    /// Before the first connection.
    pub(super) none: Option<ManagedHeap>,
    /// After the handshakes of all.
    pub(super) opened: Option<ManagedHeap>,
    /// After an exchange and an idle period.
    pub(super) held: Option<ManagedHeap>,
}

impl ManagedMoments {
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

/// Growth over rounds, of resident memory and of bytes in use.
#[derive(Clone, Default)]
pub(super) struct RoundsGrowth {
    pub(super) resident: Option<Growth>,
    /// `None` where the blocks in use cannot be counted.
    pub(super) in_use: Option<Growth>,
}

impl RoundsGrowth {
    /// Judges the readings after each round: all connections so far, and the bytes.
    pub(super) fn judge(
        resident: &[(u64, u64)],
        in_use: Option<&[(u64, u64)]>,
        per_round: u64,
    ) -> Self {
        Self {
            resident: Some(Growth::over_connections(resident, per_round)),
            in_use: in_use.map(|in_use| Growth::over_connections(in_use, per_round)),
        }
    }

    /// Growth of bytes in use where they are known, otherwise of resident memory.
    pub(super) fn judged(&self) -> Option<&Growth> {
        self.in_use.as_ref().or(self.resident.as_ref())
    }

    /// Whether memory grows by more than [`GROWTH_BYTES`] per connection.
    pub(super) fn grew(&self) -> bool {
        self.judged().is_some_and(|growth| {
            growth.verdict == Verdict::Grows && growth.bytes_per_connection() > Some(GROWTH_BYTES)
        })
    }
}

impl LoadLog {
    /// Whether growth was judged by the blocks in use, which a census counts completely.
    pub(super) fn counts_growth(&self) -> bool {
        self.growth.in_use.is_some()
    }

    fn why_not_large(&self) -> &str {
        self.large_refused.as_deref().unwrap_or(NOT_ECHO)
    }

    /// Records why a part is missing, once for each part.
    pub(super) fn missing(&mut self, part: &str, error: &Error) {
        if self.incomplete.iter().all(|known| known.part != part) {
            self.incomplete.push(MissingPart {
                part: part.to_owned(),
                why: error.message.clone(),
            });
        }
    }

    /// Returns sizes for a server that serves few connections at a time.
    pub(super) fn fitted(&self, sizes: Sizes) -> Sizes {
        match self.served_at_once {
            None => sizes,
            Some(most) => Sizes {
                n: sizes.n.min((most / 2).max(1)),
                lanes: sizes
                    .lanes
                    .min(u32::try_from(most).unwrap_or(u32::MAX))
                    .max(1),
                ..sizes
            },
        }
    }

    /// Drops the readings of a moment.
    pub(super) fn forget(&mut self, name: &str) {
        self.phases.retain(|phase| phase.name != name);
        self.snapshots.retain(|(known, _)| *known != name);
    }

    /// Drops the readings taken while connections were held.
    pub(super) fn forget_held(&mut self) {
        let is_round = |name: &str| name.starts_with("round_");
        self.phases.retain(|phase| is_round(&phase.name));
        self.snapshots.retain(|(name, _)| is_round(name));
        self.managed = ManagedMoments::default();
        self.held = 0;
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

    /// Replaces the census after the first or the last round of full handshakes.
    pub(super) fn replace_round(&mut self, kind: &str, name: &'static str, snapshot: Snapshot) {
        if kind == FULL {
            self.snapshots.retain(|(known, _)| *known != name);
            self.snapshots.push((name, snapshot));
        }
    }

    /// Time from the first half of the held connections to the second.
    pub(super) fn second_half_took(&self) -> Duration {
        let both = self.at("2n").zip(self.at("n"));
        let seconds = both.map_or(0.0, |(whole, half)| whole.at_s - half.at_s);
        Duration::from_secs_f64(seconds.max(0.0))
    }

    pub(super) fn snapshot(&self, name: &str) -> Option<&Snapshot> {
        self.snapshots
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, snapshot)| snapshot)
    }

    /// Memory with 0, N and 2N connections, and over the rounds.
    pub(super) fn memory(&self) -> Measured<MemoryFigures> {
        if self.phases.is_empty() {
            return Measured::not(NOT_REACHED);
        }
        Measured::Value(self.memory_figures())
    }

    fn memory_figures(&self) -> MemoryFigures {
        let before = self.pss("before").unwrap_or(0.0);
        let connections =
            |name: &str| self.at(name).map_or(1, |phase| phase.connections.max(1)) as f64;
        let before_requests = self.pss("before_requests").unwrap_or(before);
        let since = |before: f64, name: &str, why: &str| {
            let grown = self.pss(name).map(|pss| (pss - before) / connections(name));
            Measured::or_why(grown, why)
        };
        let or_closed = |why| self.closed_early.as_deref().unwrap_or(why);
        let silent = if self.is_silent {
            "the server does not answer what the audit sends: give --http, --send or --expect"
        } else {
            NOT_HELD
        };
        let growth = |growth: &Option<Growth>, why: &str| Measured::or_why(growth.clone(), why);
        let not_in_use = self.no_census.as_deref().unwrap_or(
            "the blocks in use cannot be counted in this server, or its garbage was not collected in each round",
        );
        let not_broken = match self.counts_growth() {
            true => {
                "the time was too short for enough of these connections, or TLS begins within another protocol"
            }
            false => not_in_use,
        };
        let is_collected = |collected: &CollectedRounds| collected.by.is_some();
        let not_resumed = match self.growth.grew() {
            false => "full handshakes leave nothing behind",
            true if self.collected.as_ref().is_some_and(is_collected) => {
                "the objects that survive collections say more"
            }
            true => "no session was resumed, or too few",
        };
        let not_older = "the rounds above are of TLS 1.2, memory grows in them already, or no session of TLS 1.2 was resumed";
        let after = ["4n", "2n"]
            .into_iter()
            .find(|name| self.pss(name).is_some());
        let after = after.unwrap_or("n");
        let used = self.used();
        let mut figures = MemoryFigures {
            used_bytes: used.held,
            kept_bytes: used.kept,
            touched_after_handshake_bytes: used.touched_after_handshake,
            used_after_handshake_bytes: used.after_handshake,
            free_before_bytes: self.snapshot("before").map(|before| before.free_bytes),
            after_handshake_bytes: match &self.silence_refused {
                Some(why) => Measured::not(format!("connections without a request: {why}")),
                None => since(before, after, or_closed(NOT_REACHED)),
            },
            after_exchange_bytes: since(before_requests, "after_exchange", or_closed(silent)),
            after_large_records_bytes: since(before, "after_large_records", self.why_not_large()),
            after_quiet_bytes: since(before_requests, "after_quiet", or_closed(NOT_HELD)),
            kernel_bytes: self.kernel_bytes(after, connections(after)),
            left_bytes: self.pss("after_close").unwrap_or(before) - before,
            growth: growth(&self.growth.resident, NOT_REACHED),
            growth_resumed: growth(&self.growth_resumed.resident, not_resumed),
            growth_in_use: growth(&self.growth.in_use, not_in_use),
            growth_in_use_resumed: growth(&self.growth_resumed.in_use, not_resumed),
            growth_in_use_tls12: growth(&self.growth_older, not_older),
            growth_in_use_broken: growth(&self.growth_broken, not_broken),
            growth_collected: Measured::or_why(
                self.collected.clone(),
                "memory does not grow, or the server's runtime does not collect garbage",
            ),
            phases: self.phases.clone(),
        };
        if figures.is_process_each() {
            let not = || Measured::not(SHARED_WITH_PARENT);
            figures.used_bytes = not();
            figures.kept_bytes = not();
            figures.used_after_handshake_bytes = not();
            figures.touched_after_handshake_bytes = not();
        }
        figures
    }

    /// Whether the server has started a process for each of about this many connections since the first reading.
    pub(super) fn has_process_each(&self, processes: u64, connections: u64) -> bool {
        let before = self.at("before");
        before.is_some_and(|before| processes.saturating_sub(before.processes) > connections)
    }

    /// Bytes of the kernel's objects per connection, if the sockets of the machine are those of the connections.
    fn kernel_bytes(&self, after: &str, connections: f64) -> Measured<f64> {
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

    pub(super) fn cpu(&self, reference: Reference) -> Measured<CpuFigures> {
        let Some(full) = self.full.filter(|(_, connections)| *connections > 0) else {
            return Measured::not(NOT_REACHED);
        };
        // What the server did for connections that it refused would count for these.
        if full.1 < CPU_CONNECTIONS_MIN {
            let few = full.1;
            return Measured::not(format!("only {few} connections were made, too few"));
        }
        let us = |ns: u64| ns as f64 / 1e3 / full.1 as f64;
        let mut resumed_us = self.resumed_us.clone();
        for version in [TlsVersion::V13, TlsVersion::V12] {
            let none = || Measured::not("no session was resumed");
            resumed_us
                .entry(version.name().to_owned())
                .or_insert_with(none);
        }
        Measured::Value(CpuFigures {
            full_us: us(full.0.total_ns),
            full_system_us: us(full.0.system_ns),
            resumed_us,
            reference,
            profile: reached(&self.profile),
            parallel: reached(&self.parallel),
            per_gigabyte_s: Measured::or_why(self.per_gigabyte_s, self.why_not_large()),
            polling_threads: Measured::or_why(self.polling, NOT_HELD),
            idle_us_per_connection_s: Measured::or_why(
                self.idle_us,
                self.closed_early.as_deref().unwrap_or(NOT_HELD),
            ),
        })
    }

    pub(super) fn census(&self) -> Measured<CensusReport> {
        let connections = self.held;
        let n = self.snapshot("n");
        let (Some(none), Some(n), Some(held)) = (self.snapshot("before"), n, self.held_snapshot())
        else {
            return match (&self.pages, &self.no_census) {
                (Some(_), Some(why)) => {
                    let mut report = CensusReport::without_malloc(why);
                    self.add_managed(&mut report, connections);
                    Measured::Value(report)
                }
                _ => Measured::not(self.why_no_census()),
            };
        };
        let later: Vec<_> = self
            .snapshots
            .iter()
            .filter(|(name, _)| {
                !["before", "n", "after_quiet", "again", "before_requests"].contains(name)
            })
            .map(|(name, snapshot)| (*name, snapshot))
            .collect();
        let mut report = CensusReport::compare(none, n, held, &later);
        if let Some(pair) = self.pair_of_held().ok().filter(|pair| pair.before != none) {
            report.count_between(pair.before, pair.held);
        }
        if let (Some(first), Some(last)) =
            (self.snapshot("round_first"), self.snapshot("round_last"))
        {
            report.grown = census::grown(first, last);
        }
        if let Some(closed) = self.snapshot("after_close") {
            report.pins = census::pins(none, closed);
        }
        self.add_managed(&mut report, connections);
        Measured::Value(report)
    }

    /// Adds memory that does not belong to malloc.
    fn add_managed(&self, report: &mut CensusReport, connections: u64) {
        if let (Some(none), Some(held)) = (&self.managed.none, &self.managed.held) {
            report.add_managed(none, held, connections);
        }
        if let Some(sample) = &self.pages {
            report.add_pages(sample.clone());
        }
    }

    /// Whether most of the memory of `connections` lies outside the heaps that a census can walk.
    pub(super) fn explains_little(&self, connections: u64) -> bool {
        let (Some(none), Some(held)) = (self.snapshot("before"), self.snapshot("2n")) else {
            return false;
        };
        let heap = held.used_bytes().saturating_sub(none.used_bytes()) as f64;
        let grown = self.grown("2n");
        grown / connections.max(1) as f64 > 2048.0 && heap < grown / 2.0
    }
}

/// A result of a part that the load may not have reached.
fn reached<T: Clone>(result: &Option<Result<T, String>>) -> Measured<T> {
    result.clone().unwrap_or(Err(NOT_REACHED.into())).into()
}

/// Bytes in use, where a census counts all of them.
pub(super) fn counted(snapshot: Option<&Snapshot>) -> Option<u64> {
    let snapshot = snapshot.filter(|it| it.unread.is_empty() && it.uncounted == 0)?;
    Some(snapshot.used_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &str, connections: u64, pss: u64) -> MemoryPhase {
        let mut phase = MemoryPhase::of(name, connections, 1);
        phase.memory.pss = pss;
        phase
    }

    /// Recorded: PostgreSQL and Apache close idle connections, which the audit still counted.
    #[test]
    fn memory_is_divided_by_the_connections_that_are_open() {
        let mut log = LoadLog {
            held: 200,
            closed_early: Some("the server closed 150 of 200 idle connections".into()),
            ..LoadLog::default()
        };
        log.phases = vec![
            phase("before", 0, 1_000_000),
            phase("n", 100, 2_000_000),
            phase("2n", 200, 3_000_000),
            phase("after_exchange", 50, 2_000_000),
        ];
        let memory = log.memory_figures();
        let value = |figure: &Measured<f64>| figure.value().copied();
        assert_eq!(value(&memory.after_handshake_bytes), Some(10_000.0));
        assert_eq!(value(&memory.after_exchange_bytes), Some(20_000.0));
        let why = memory.after_quiet_bytes.why_not().unwrap_or_default();
        assert!(why.contains("closed 150 of 200"), "{why}");
        // What too many connections left behind before the server refused them.
        log.phases.push(phase("before_requests", 0, 1_800_000));
        let memory = log.memory_figures();
        assert_eq!(value(&memory.after_handshake_bytes), Some(10_000.0));
        assert_eq!(value(&memory.after_exchange_bytes), Some(4_000.0));
    }

    /// The heap of a worker may change during each attempt to read it: memory did not shrink then.
    #[test]
    fn bytes_in_use_are_those_of_all_processes() {
        let mut snapshot = Snapshot {
            in_use_bytes: 5_000_000,
            ..Snapshot::default()
        };
        assert_eq!(counted(Some(&snapshot)), Some(5_000_000));
        snapshot.uncounted = 1;
        assert_eq!(counted(Some(&snapshot)), None);
    }

    /// Recorded: beside 96 connections of Dovecot, other programs opened 4,276 sockets, and one seemed to take 200 kB.
    #[test]
    fn sockets_of_other_programs_are_not_counted() {
        let kernel = |sockets: [u64; 2]| {
            let mut log = LoadLog::default();
            for ((name, connections), sockets) in
                [("before", 0), ("2n", 96)].into_iter().zip(sockets)
            {
                let mut phase = phase(name, connections, 0);
                phase.kernel.tcp_sockets = sockets;
                phase.kernel.slab_bytes = Some(55_000_000 + 4_000 * sockets);
                log.phases.push(phase);
            }
            log.kernel_bytes("2n", 96.0).value().copied()
        };
        assert_eq!(kernel([15, 15 + 2 * 96]), Some(8_000.0));
        assert_eq!(kernel([15, 4_483]), None);
        assert_eq!(kernel([219, 223]), None);
        let why = LoadLog::default().kernel_bytes("n", 1.0);
        assert_eq!(why.why_not(), Some(NOT_REACHED));
    }

    /// Recorded: Node.js on a busy machine closed the held connections, and was said not to answer requests, which it had done.
    #[test]
    fn a_server_that_answers_is_not_called_silent() {
        let why = |is_silent| {
            let log = LoadLog {
                is_silent,
                ..LoadLog::default()
            };
            let figures = log.memory_figures();
            figures.after_exchange_bytes.why_not().map(str::to_owned)
        };
        assert_eq!(why(false).as_deref(), Some(NOT_HELD));
        assert!(why(true).is_some_and(|why| why.contains("does not answer")));
    }

    /// Recorded: ngIRCd accepts five connections of a client, and refuses hundreds meanwhile.
    #[test]
    fn a_few_connections_do_not_tell_the_cost_of_one() {
        let cpu = |connections| {
            let spent = CpuTime {
                total_ns: 1_000_000,
                ..CpuTime::default()
            };
            let log = LoadLog {
                full: Some((spent, connections)),
                ..LoadLog::default()
            };
            let reference = CpuFigures::with_profile(Vec::new()).reference;
            log.cpu(reference).value().map(|cpu| cpu.full_us)
        };
        assert_eq!(cpu(5), None);
        assert_eq!(cpu(100), Some(10.0));
    }
}
