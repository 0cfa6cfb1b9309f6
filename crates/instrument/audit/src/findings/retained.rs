//! Findings about memory that stays resident after all connections have closed, without growth.
//!
//! Free malloc memory is of two kinds. Whole free pages return to the system when the program calls `malloc_trim` or
//! when they reach the end of the heap, so returning them is a matter of settings. Free bytes on a page with a block
//! in use cannot return while that block lives: only this is fragmentation.

use super::subject::AuditSubject;
use super::units::{bytes, counted, percent, whole};
use crate::catalogue::{Confidence, FindingId, Severity};
use crate::model::Finding;
use crate::model::MemoryFigures;
use dormouse_census::CensusReport;

/// Limits on the bytes that blocks in use pin: in total, and per connection at the peak. A few megabytes after
/// thousands of connections are no reason for a finding.
const PINNED: [(f64, Severity); 2] = [(32e6, Severity::High), (4e6, Severity::Medium)];
const PINNED_EACH: [(f64, Severity); 2] = [(32_000.0, Severity::High), (8_000.0, Severity::Medium)];
/// Whole free pages below these limits, in total or as a share of the connections' memory, are no reason for a
/// finding.
const RETURNABLE: f64 = 4e6;
const RETURNABLE_SHARE: f64 = 0.3;

/// Judges the memory that stays resident after all connections have closed.
pub(super) fn judge(
    subject: &AuditSubject,
    memory: &MemoryFigures,
    census: Option<&CensusReport>,
) -> Option<Finding> {
    // The heaps of processes that came with the connections, not a heap that connections left behind.
    if memory.is_process_each() {
        return None;
    }
    let free = FreeMemory::after_closing(census?)?;
    let connections = memory.phases.iter().map(|phase| phase.connections).max()?;
    let connections = connections.max(1) as f64;
    pinned(subject, &free, census?, connections)
        .or_else(|| returnable(subject, memory, &free, connections))
}

/// Free memory after all connections have closed, compared with earlier moments.
struct FreeMemory {
    /// Additional free bytes on pages that hold blocks in use. Earlier rounds of connections may have pinned pages already,
    /// before any connection was held: the moment with the fewest counts.
    pinned: f64,
    /// Bytes in whole free pages, in total, and in addition to those before the held connections.
    returnable: f64,
    more_returnable: f64,
    /// Additional bytes in use.
    in_use: f64,
}

impl FreeMemory {
    fn after_closing(census: &CensusReport) -> Option<Self> {
        let at = |of: &std::collections::BTreeMap<String, u64>, name: &str| {
            of.get(name).map(|bytes| *bytes as f64)
        };
        let pinned =
            |name: &str| Some(at(&census.free_bytes, name)? - at(&census.returnable_bytes, name)?);
        let used = |name: &str| at(&census.in_use_bytes, name);
        // If either moment is missing, nothing can be said about held connections.
        let (before, after) = ("none", "after_close");
        let rounds = ["round_first", "round_last"].into_iter();
        let pinned_before = rounds.filter_map(pinned).fold(pinned(before)?, f64::min);
        Some(Self {
            pinned: pinned(after)? - pinned_before,
            returnable: at(&census.returnable_bytes, after)?,
            more_returnable: at(&census.returnable_bytes, after)?
                - at(&census.returnable_bytes, before)?,
            in_use: used(after)? - used(before)?,
        })
    }
}

/// Reports fragmentation: free bytes that blocks in use pin.
fn pinned(
    subject: &AuditSubject,
    free: &FreeMemory,
    census: &CensusReport,
    connections: f64,
) -> Option<Finding> {
    let each = free.pinned / connections;
    let severity = Severity::above(&PINNED, free.pinned)?;
    let severity = severity.min(Severity::above(&PINNED_EACH, each).unwrap_or(Severity::Low));
    let more = census.pins.iter().filter(|(_, had, has)| has > had).take(3);
    let by =
        more.map(|(size, had, has)| format!("{} of {} bytes", counted(has - had), counted(*size)));
    let by: Vec<_> = by.collect();
    let measured = format!(
        "after all connections closed, {} more of free memory lay on pages with a block in use ({} for each of {} connections), and {} more were in use; additional blocks on mostly free pages: {}",
        bytes(free.pinned),
        bytes(each),
        whole(connections),
        bytes(free.in_use.max(0.0)),
        if by.is_empty() {
            "none".into()
        } else {
            by.join(", ")
        }
    );
    // Blocks of objects that the runtime has not collected yet look like blocks that live.
    if subject.software().collects {
        let cause = "blocks that outlive connections lie between the blocks of connections, or blocks whose objects the runtime has not collected yet: an audit after a full collection tells";
        let found = subject.finding(
            FindingId::HeapFragmented,
            severity.min(Severity::Low),
            measured,
        );
        return Some(found.because(cause, Confidence::Low));
    }
    Some(subject.finding(FindingId::HeapFragmented, severity, measured))
}

/// Reports whole free pages that the allocator keeps for later.
fn returnable(
    subject: &AuditSubject,
    memory: &MemoryFigures,
    free: &FreeMemory,
    connections: f64,
) -> Option<Finding> {
    let took = memory.per_connection_bytes() * connections;
    if free.more_returnable < RETURNABLE.max(RETURNABLE_SHARE * took) {
        return None;
    }
    let mut measured = format!(
        "after all connections closed, {} lay in whole free pages, {} more than before",
        bytes(free.returnable),
        bytes(free.more_returnable)
    );
    if free.more_returnable < took {
        let share = percent(free.more_returnable / took);
        measured += &format!(": {share} of what the connections took");
    }
    Some(subject.finding(FindingId::FreeMemoryRetained, Severity::Low, measured))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Audit, MemoryPhase};
    use std::collections::BTreeMap;

    /// Judges free bytes and the part of them in whole pages, before and after 1,000 connections.
    fn judged(before: (u64, u64), after: (u64, u64)) -> Option<(FindingId, Severity)> {
        judged_after(before, before, after)
    }

    /// The same after rounds, the first of which left these free bytes.
    fn judged_after(
        round: (u64, u64),
        before: (u64, u64),
        after: (u64, u64),
    ) -> Option<(FindingId, Severity)> {
        judged_with(1, round, before, after)
    }

    /// The same with this many processes beside 1,000 connections.
    fn judged_with(
        processes: u64,
        round: (u64, u64),
        before: (u64, u64),
        after: (u64, u64),
    ) -> Option<(FindingId, Severity)> {
        let moments = |values: [u64; 3]| {
            let names = ["round_first", "none", "after_close"].map(str::to_owned);
            BTreeMap::from_iter(names.into_iter().zip(values))
        };
        let census = CensusReport {
            in_use_bytes: moments([5_000_000, 5_000_000, 5_010_000]),
            free_bytes: moments([round.0, before.0, after.0]),
            returnable_bytes: moments([round.1, before.1, after.1]),
            pins: vec![(64, 10, 9_000)],
            ..CensusReport::without_malloc("")
        };
        let memory = MemoryFigures {
            used_bytes: crate::model::Measured::Value(20_000.0),
            phases: vec![
                MemoryPhase::of("before", 0, 1),
                MemoryPhase::of("2n", 1000, processes),
            ],
            ..MemoryFigures::default()
        };
        let subject = AuditSubject::new(&Audit::begin("server", "s", "127.0.0.1:1"));
        let finding = judge(&subject, &memory, Some(&census))?;
        Some((finding.id, finding.severity))
    }

    /// Recorded: Postfix keeps the processes of closed connections for the next ones, with their heaps.
    #[test]
    fn heaps_of_more_processes_are_not_fragmentation() {
        let judged = |processes| judged_with(processes, (0, 0), (0, 0), (40_000_000, 0));
        assert_eq!(judged(1001), None);
        assert_eq!(judged(1), Some((FindingId::HeapFragmented, Severity::High)));
    }

    #[test]
    fn only_pinned_pages_are_fragmentation() {
        let fragmented = judged((100_000, 0), (20_000_000, 1_000_000));
        assert_eq!(
            fragmented,
            Some((FindingId::HeapFragmented, Severity::Medium))
        );
        // A part of it came with the rounds before.
        let earlier = judged_after((100_000, 0), (12_000_000, 0), (14_000_000, 1_000_000));
        assert_eq!(earlier, Some((FindingId::HeapFragmented, Severity::Medium)));
        // The same number of free bytes, but `malloc_trim` would return most of them.
        let retained = judged((100_000, 0), (20_000_000, 18_900_000));
        assert_eq!(
            retained,
            Some((FindingId::FreeMemoryRetained, Severity::Low))
        );
        assert_eq!(
            judged((20_000_000, 18_000_000), (20_500_000, 18_300_000)),
            None
        );
    }

    /// Recorded: 200 connections of Jetty left 22 MB in the JVM's heap, and 2 MB in malloc's free pages, of which 27 MB had
    /// been there before.
    #[test]
    fn pages_that_were_free_before_are_not_retained() {
        let moments = |values: [u64; 2]| {
            let names = ["none", "after_close"].map(str::to_owned);
            BTreeMap::from_iter(names.into_iter().zip(values))
        };
        let census = CensusReport {
            in_use_bytes: moments([5_000_000; 2]),
            free_bytes: moments([27_600_000, 29_800_000]),
            returnable_bytes: moments([26_600_000, 28_700_000]),
            ..CensusReport::without_malloc("")
        };
        let memory = MemoryFigures {
            used_bytes: crate::model::Measured::Value(22_399.0),
            left_bytes: 22_300_000.0,
            phases: vec![
                MemoryPhase::of("before", 0, 1),
                MemoryPhase::of("2n", 200, 1),
            ],
            ..MemoryFigures::default()
        };
        let subject = AuditSubject::new(&Audit::begin("server", "s", "127.0.0.1:1"));
        assert!(judge(&subject, &memory, Some(&census)).is_none());
    }
}
