//! The figures that follow from what the parts of the load have shown.

use super::echo::LargeEcho;
use super::heap_reader::HeapReader;
use super::held::Held;
use super::moments::NOT_REACHED;
use super::rounds::{Churn, RESUMES, Resumed, RoundsGrowth};
use super::speed::Speed;
use crate::model::{CollectedRounds, CpuFigures, Measured, MemoryFigures, Reference, Trials};
use dormouse_bench::load::TlsVersion;
use dormouse_census::{self as census, CensusReport};
use dormouse_measure::Growth;

const SHARED_WITH_PARENT: &str =
    "each connection has a process of its own, and blocks that processes share would count in each";
/// Minimum number of connections whose CPU time tells what one costs.
const CPU_CONNECTIONS_MIN: u64 = 50;
const NOT_HELD: &str = "the connections were not held";
const SILENT: &str =
    "the server does not answer what the audit sends: give --http, --send or --expect";
const NOT_IN_USE: &str = "the blocks in use cannot be counted in this server, or its garbage was not collected in each round";
const TOO_FEW_BROKEN: &str =
    "the time was too short for enough of these connections, or TLS begins within another protocol";
const NOT_OLDER: &str = "the rounds above are of TLS 1.2, memory grows in them already, or no session of TLS 1.2 was resumed";
const NOT_COLLECTED: &str =
    "memory does not grow, or the server's runtime does not collect garbage";
/// Censuses that are not later than those of N and 2N connections.
const NOT_LATER: [&str; 5] = ["before", "n", "after_quiet", "again", "before_requests"];

/// What each part of the load has shown; a part that did not run has shown nothing.
#[derive(Default)]
pub(super) struct Outcomes {
    pub(super) speed: Speed,
    pub(super) churn: Churn,
    /// Growth of bytes in use over rounds of connections that end before their handshake does.
    pub(super) broken: Option<Growth>,
    pub(super) held: Held,
    /// Whether the server echoes 16 kB at once, and CPU seconds per gigabyte.
    pub(super) stream: (LargeEcho, Option<f64>),
    pub(super) resumed: Vec<(TlsVersion, Resumed)>,
    /// Growth of bytes in use over rounds of resumed connections of TLS 1.2, beside a server that offers TLS 1.3 too.
    pub(super) older: Option<Growth>,
    /// Whether resumed connections of TLS 1.3 get new tickets, as far as is known.
    pub(super) renews_tickets: bool,
}

impl Outcomes {
    /// Growth over rounds of resumed connections.
    pub(super) fn resumed_growth(&self) -> RoundsGrowth {
        let mut all = self.resumed.iter().map(|(_, resumed)| &resumed.growth);
        all.find(|growth| growth.resident.is_some())
            .cloned()
            .unwrap_or_default()
    }

    /// Connections that offered a session under load, by version.
    pub(super) fn trials(&self) -> Vec<(TlsVersion, Trials)> {
        let all = self.resumed.iter();
        all.map(|(version, resumed)| (*version, resumed.trials.clone()))
            .collect()
    }

    /// Memory with 0, N and 2N connections, and over the rounds.
    pub(super) fn memory(&self, heap: &HeapReader) -> Measured<MemoryFigures> {
        let moments = &self.held.moments;
        if self.churn.phases.is_empty() && moments.phases.is_empty() {
            return Measured::not(NOT_REACHED);
        }
        let mut figures = self.held.memory(heap, self.why_not_large());
        figures.phases = self
            .churn
            .phases
            .iter()
            .chain(&moments.phases)
            .cloned()
            .collect();
        self.add_growth(heap, &mut figures);
        if figures.is_process_each() {
            let not = || Measured::not(SHARED_WITH_PARENT);
            figures.used_bytes = not();
            figures.kept_bytes = not();
            figures.used_after_handshake_bytes = not();
            figures.touched_after_handshake_bytes = not();
        }
        Measured::Value(figures)
    }

    fn why_not_large(&self) -> &str {
        match &self.held.large {
            LargeEcho::Refused(why) => why,
            _ => self.stream.0.why_not(),
        }
    }

    fn add_growth(&self, heap: &HeapReader, figures: &mut MemoryFigures) {
        let growth = |growth: &Option<Growth>, why: &str| Measured::or_why(growth.clone(), why);
        let not_in_use = heap.no_census.as_deref().unwrap_or(NOT_IN_USE);
        let not_broken = match self.churn.growth.in_use {
            Some(_) => TOO_FEW_BROKEN,
            None => not_in_use,
        };
        let is_collected = |collected: &CollectedRounds| collected.by.is_some();
        let not_resumed = match self.churn.growth.grew() {
            false => "full handshakes leave nothing behind",
            true if self.churn.collected.as_ref().is_some_and(is_collected) => {
                "the objects that survive collections say more"
            }
            true => "no session was resumed, or too few",
        };
        let resumed = self.resumed_growth();
        figures.growth = growth(&self.churn.growth.resident, NOT_REACHED);
        figures.growth_resumed = growth(&resumed.resident, not_resumed);
        figures.growth_in_use = growth(&self.churn.growth.in_use, not_in_use);
        figures.growth_in_use_resumed = growth(&resumed.in_use, not_resumed);
        figures.growth_in_use_tls12 = growth(&self.older, NOT_OLDER);
        figures.growth_in_use_broken = growth(&self.broken, not_broken);
        figures.growth_collected = Measured::or_why(self.churn.collected.clone(), NOT_COLLECTED);
    }

    pub(super) fn cpu(&self, reference: Reference) -> Measured<CpuFigures> {
        let Some((spent, connections)) = self.churn.full.filter(|full| full.1 > 0) else {
            return Measured::not(NOT_REACHED);
        };
        // What the server did for connections that it refused would count for these.
        if connections < CPU_CONNECTIONS_MIN {
            return Measured::not(format!("only {connections} connections were made, too few"));
        }
        let us = |ns: u64| ns as f64 / 1e3 / connections as f64;
        let resumed_us = [TlsVersion::V13, TlsVersion::V12].map(|version| {
            let resumed = self.resumed.iter().find(|(of, _)| *of == version);
            let us = resumed.map_or_else(
                || Measured::not("no session was resumed"),
                |(_, resumed)| self.resumed_us(version, resumed),
            );
            (version.name().to_owned(), us)
        });
        let idle = self.held.idle.as_ref();
        let or_closed = self.held.closed_early.as_deref().unwrap_or(NOT_HELD);
        Measured::Value(CpuFigures {
            full_us: us(spent.total_ns),
            full_system_us: us(spent.system_ns),
            resumed_us: resumed_us.into(),
            reference,
            profile: reached(&self.churn.profile),
            parallel: reached(&self.speed.parallel),
            per_gigabyte_s: Measured::or_why(self.stream.1, self.why_not_large()),
            polling_threads: Measured::or_why(idle.map(|idle| idle.polling), NOT_HELD),
            idle_us_per_connection_s: Measured::or_why(idle.and_then(|idle| idle.us), or_closed),
        })
    }

    fn resumed_us(&self, version: TlsVersion, resumed: &Resumed) -> Measured<f64> {
        let share = resumed.trials.share();
        if share > RESUMES {
            return Measured::Value(resumed.us);
        }
        let why = match version {
            TlsVersion::V13 if !self.renews_tickets => {
                ": the server sends no ticket with a resumed handshake, and a client offers each ticket once"
            }
            _ => "",
        };
        let percent = 100.0 * share;
        Measured::not(format!(
            "only {percent:.0} % of the handshakes were resumed{why}"
        ))
    }

    pub(super) fn census(&self, heap: &HeapReader) -> Measured<CensusReport> {
        let (held, moments) = (&self.held, &self.held.moments);
        let all = moments
            .snapshot("before")
            .zip(moments.snapshot("n"))
            .zip(held.last_census());
        let Some(((none, n), last)) = all else {
            return match (&held.pages, &heap.no_census) {
                (Some(_), Some(why)) => {
                    let mut report = CensusReport::without_malloc(why);
                    held.add_managed(&mut report);
                    Measured::Value(report)
                }
                _ => Measured::not(held.why_no_census(heap)),
            };
        };
        let rounds = [
            ("round_first", &self.churn.first),
            ("round_last", &self.churn.last),
        ];
        let rounds = rounds
            .into_iter()
            .filter_map(|(name, snapshot)| Some((name, snapshot.as_ref()?)));
        let of_held = moments
            .snapshots
            .iter()
            .map(|(name, snapshot)| (*name, snapshot));
        let later = rounds.chain(of_held.filter(|(name, _)| !NOT_LATER.contains(name)));
        let mut report = CensusReport::compare(none, n, last, &later.collect::<Vec<_>>());
        if let Some(pair) = held
            .pair_of_held(heap)
            .ok()
            .filter(|pair| pair.before != none)
        {
            report.count_between(pair.before, pair.held);
        }
        if let (Some(first), Some(last)) = (&self.churn.first, &self.churn.last) {
            report.grown = census::grown(first, last);
        }
        if let Some(closed) = moments.snapshot("after_close") {
            report.pins = census::pins(none, closed);
        }
        held.add_managed(&mut report);
        Measured::Value(report)
    }
}

/// A result of a part that the load may not have reached.
fn reached<T: Clone>(result: &Option<Result<T, String>>) -> Measured<T> {
    result.clone().unwrap_or(Err(NOT_REACHED.into())).into()
}

impl Held {
    /// Memory of the held connections.
    fn memory(&self, heap: &HeapReader, why_not_large: &str) -> MemoryFigures {
        let moments = &self.moments;
        let before = moments.pss("before").unwrap_or(0.0);
        let before_requests = moments.pss("before_requests").unwrap_or(before);
        let connections =
            |name: &str| moments.at(name).map_or(1, |phase| phase.connections.max(1)) as f64;
        let since = |before: f64, name: &str, why: &str| {
            let grown = moments
                .pss(name)
                .map(|pss| (pss - before) / connections(name));
            Measured::or_why(grown, why)
        };
        let or_closed = |why| self.closed_early.as_deref().unwrap_or(why);
        let silent = if self.is_silent { SILENT } else { NOT_HELD };
        let opened = ["4n", "2n"]
            .into_iter()
            .find(|name| moments.at(name).is_some());
        let opened = opened.unwrap_or("n");
        let used = self.used(heap);
        MemoryFigures {
            used_bytes: used.held,
            kept_bytes: used.kept,
            touched_after_handshake_bytes: used.touched_after_handshake,
            used_after_handshake_bytes: used.after_handshake,
            free_before_bytes: moments.snapshot("before").map(|before| before.free_bytes),
            after_handshake_bytes: match &self.silence_refused {
                Some(why) => Measured::not(format!("connections without a request: {why}")),
                None => since(before, opened, or_closed(NOT_REACHED)),
            },
            after_exchange_bytes: since(before_requests, "after_exchange", or_closed(silent)),
            after_large_records_bytes: since(before, "after_large_records", why_not_large),
            after_quiet_bytes: since(before_requests, "after_quiet", or_closed(NOT_HELD)),
            kernel_bytes: moments.kernel_bytes(opened, connections(opened)),
            left_bytes: moments.pss("after_close").unwrap_or(before) - before,
            ..MemoryFigures::default()
        }
    }

    /// Adds memory that does not belong to malloc.
    fn add_managed(&self, report: &mut CensusReport) {
        if let (Some(none), Some(held)) = (&self.objects.none, &self.objects.held) {
            report.add_managed(none, held, self.connections);
        }
        if let Some(sample) = &self.pages {
            report.add_pages(sample.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MemoryPhase;
    use dormouse_measure::CpuTime;

    fn phase(name: &str, connections: u64, pss: u64) -> MemoryPhase {
        let mut phase = MemoryPhase::of(name, connections, 1);
        phase.memory.pss = pss;
        phase
    }

    fn memory(held: &Held) -> MemoryFigures {
        held.memory(&HeapReader::default(), "")
    }

    /// Recorded: PostgreSQL and Apache close idle connections, which the audit still counted.
    #[test]
    fn memory_is_divided_by_the_connections_that_are_open() {
        let mut held = Held {
            connections: 200,
            closed_early: Some("the server closed 150 of 200 idle connections".into()),
            ..Held::default()
        };
        held.moments.phases = vec![
            phase("before", 0, 1_000_000),
            phase("n", 100, 2_000_000),
            phase("2n", 200, 3_000_000),
            phase("after_exchange", 50, 2_000_000),
        ];
        let figures = memory(&held);
        let value = |figure: &Measured<f64>| figure.value().copied();
        assert_eq!(value(&figures.after_handshake_bytes), Some(10_000.0));
        assert_eq!(value(&figures.after_exchange_bytes), Some(20_000.0));
        let why = figures.after_quiet_bytes.why_not().unwrap_or_default();
        assert!(why.contains("closed 150 of 200"), "{why}");
        // What too many connections left behind before the server refused them.
        held.moments
            .phases
            .push(phase("before_requests", 0, 1_800_000));
        let figures = memory(&held);
        assert_eq!(value(&figures.after_handshake_bytes), Some(10_000.0));
        assert_eq!(value(&figures.after_exchange_bytes), Some(4_000.0));
    }

    /// Recorded: Node.js on a busy machine closed the held connections, and was said not to answer requests, which it had done.
    #[test]
    fn a_server_that_answers_is_not_called_silent() {
        let why = |is_silent| {
            let held = Held {
                is_silent,
                ..Held::default()
            };
            memory(&held)
                .after_exchange_bytes
                .why_not()
                .map(str::to_owned)
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
            let mut outcomes = Outcomes::default();
            outcomes.churn.full = Some((spent, connections));
            let cpu = outcomes.cpu(Reference::default());
            cpu.value().map(|cpu| cpu.full_us)
        };
        assert_eq!(cpu(5), None);
        assert_eq!(cpu(100), Some(10.0));
    }
}
