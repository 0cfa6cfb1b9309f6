//! Findings about memory that grows as connections open and close, and about the kind of growth.

use super::collected::{self, COUNTED_PER_ROUND, GROWTH_PER_ROUND};
use super::subject::AuditSubject;
use super::units::{bytes, counted, percent};
use crate::catalogue::{Confidence, FindingId, Severity};
use crate::model::Finding;
use crate::model::{BLOCKS_OF_CONNECTION, GROWTH_BYTES, Measured, MemoryFigures};
use dormouse_census::CensusReport;
use dormouse_measure::{Growth, Memory, Verdict};

/// Share of the growth in shared memory above which a shared mapping is filling.
const FILLS: f64 = 0.8;
/// Bytes in use that one closed connection may leave behind: counted blocks have little noise.
const IN_USE_BYTES: f64 = 64.0;

/// Advice on growth that no session cache and no leak explains.
const NOT_IN_USE: &str = "audit again with --thorough: if the growth ends, change nothing";
/// The program has a store of its own.
const OWN_STORE: &str =
    ". OpenSSL's session objects do not grow: the program keeps what grows itself";
/// Objects per closed connection above which each connection leaves one behind.
const EACH: f64 = 0.5;

/// What resumed connections leave, as a share of what full ones leave: below the first limit sessions grow, above the second
/// something of every connection. A confidence interval that reaches the other limit decides nothing, and no connection
/// leaves less than nothing: then something else went.
const SHARES: (f64, f64) = (0.3, 0.6);

/// Judges memory that grows from round to round.
pub(super) fn judge(
    subject: &AuditSubject,
    memory: &MemoryFigures,
    census: Option<&CensusReport>,
) -> Option<Finding> {
    let of_kind = || {
        OF_KINDS.iter().find_map(|kind| {
            let growth = (kind.growth)(memory).value()?;
            grows(growth, IN_USE_BYTES, COUNTED_PER_ROUND).then(|| kind.finding(subject, growth))
        })
    };
    let in_use = memory.growth_in_use.value();
    if let Some(in_use) = in_use.filter(|it| grows(it, IN_USE_BYTES, COUNTED_PER_ROUND)) {
        return Some(of_blocks(subject, memory, census, in_use));
    }
    of_kind().or_else(|| match in_use {
        None if subject.software().collects => of_collected(subject, memory),
        _ => of_resident(subject, memory),
    })
}

/// Whether the growth is large enough for a finding, and certain.
fn grows(growth: &Growth, bytes_each: f64, per_round: f64) -> bool {
    let material = growth.bytes_per_connection() > Some(bytes_each)
        && growth
            .slope
            .is_some_and(|slope| slope.per_unit > per_round && slope.is_sure());
    growth.verdict == Verdict::Grows && material
}

/// Returns a finding about this growth, with the usual texts.
fn found(subject: &AuditSubject, id: FindingId, each: f64, measured: String) -> Finding {
    let found = subject.finding(id, Severity::High, measured);
    found.with("bytes", bytes(each))
}

/// Blocks of some sizes that each closed connection left behind, by the census over the rounds.
struct BlocksLeft<'a> {
    grown: &'a [(u64, u64, u64)],
    connections: f64,
}

impl BlocksLeft<'_> {
    fn each(&self, is: impl Fn(u64) -> bool) -> f64 {
        let of = self.grown.iter().filter(|(size, ..)| is(*size));
        let more: f64 = of
            .map(|(_, had, has)| has.saturating_sub(*had) as f64)
            .sum();
        more / self.connections
    }

    /// Of the size of which the most were left.
    fn most(&self) -> f64 {
        let each = self
            .grown
            .iter()
            .map(|(size, ..)| self.each(|other| other == *size));
        each.fold(0.0, f64::max)
    }
}

/// Reports growth of blocks in use: a leak or a session cache.
fn of_blocks(
    subject: &AuditSubject,
    memory: &MemoryFigures,
    census: Option<&CensusReport>,
    in_use: &Growth,
) -> Finding {
    let left = BlocksLeft {
        grown: census.map_or(&[][..], |census| &census.grown),
        connections: in_use.connections().max(1.0),
    };
    let mut measured = format!("bytes in use: {in_use}");
    if let Some((first, last)) = in_use.rounds.first().zip(in_use.rounds.last()) {
        measured += &format!("; {} → {}", bytes(first.1), bytes(last.1));
    }
    for (size, had, has) in left.grown.iter().take(2) {
        measured += &format!(
            "; blocks of {} bytes: {} → {}, {:.2} for each closed connection",
            counted(*size),
            counted(*had),
            counted(*has),
            has.saturating_sub(*had) as f64 / left.connections
        );
    }
    let each = in_use.bytes_per_connection().unwrap_or(0.0);
    let new = |id| found(subject, id, each, measured.clone());
    let (mut id, share) = living(memory.growth_in_use_resumed.value(), in_use);
    let of_runtime = subject.software().cause(id);
    let mut finding = match of_runtime {
        Some(cause) => {
            id = FindingId::LeakPerConnection;
            new(id).because(cause, Confidence::Medium)
        }
        None => new(id).with("share", percent(share)),
    };
    let library = subject.library;
    let sessions = left.each(|size| library.is_session(size));
    // A connection that is never freed also keeps its session.
    let connections = left.each(|size| library.is_connection(size));
    if id != FindingId::SessionCacheGrows && sessions > EACH && connections < EACH {
        id = FindingId::SessionCacheGrows;
        let cause = format!(
            "sessions: the server keeps {sessions:.1} of OpenSSL's session objects for each closed connection. The session cache has no limit, or it is not full yet: OpenSSL's own limit is 20,480 sessions"
        );
        finding = new(id).because(cause, Confidence::Medium);
    }
    let has_grown = !left.grown.is_empty();
    let is_own = has_known_sizes(subject, census) && has_grown && sessions < EACH;
    if is_own && id != FindingId::LeakPerConnection {
        // Settings of OpenSSL's cache do not reach it.
        finding.cause += OWN_STORE;
        finding.advice = subject.advice_for_any(id);
    }
    if has_grown && left.most() < BLOCKS_OF_CONNECTION {
        finding = of_few_blocks(finding);
    } else if let Some(garbage) = subject.software().garbage_blocks {
        finding.severity = Severity::Low;
        let cause = format!("{garbage}{}", finding.cause);
        finding = finding.because(cause, Confidence::Low);
    }
    finding
}

/// Whether the blocks of the TLS library have the sizes that the audit knows: `libssl.so.3` is the file of OpenSSL 3.0 and
/// of all later versions, whose objects have other sizes.
fn has_known_sizes(subject: &AuditSubject, census: Option<&CensusReport>) -> bool {
    let mut classes = census.map_or(&[][..], |census| &census.classes).iter();
    classes
        .any(|class| subject.library.is_connection(class.size_bytes) && class.per_connection > EACH)
}

/// Growth by a few large blocks, which no connection left behind alone.
fn of_few_blocks(finding: Finding) -> Finding {
    let cause = "no leak of each connection: far fewer blocks were added than connections closed. A pool, a table or a cache grows to its size, or a buffer collects something of every connection; --thorough shows whether the growth ends";
    Finding {
        id: FindingId::GrowsUnderChurn,
        severity: Severity::Low,
        title: "memory grows under churn, by a few large blocks".into(),
        advice: NOT_IN_USE.into(),
        ..finding.because(cause, Confidence::Low)
    }
}

/// A kind of connections that leave memory behind where others do not.
struct Kind {
    growth: fn(&MemoryFigures) -> &Measured<Growth>,
    /// End of the title.
    title: &'static str,
    rounds: &'static str,
    cause: &'static str,
    /// Options of `bench churn`; `None`: the audit repeats the measurement.
    bench: Option<&'static str>,
}

const OF_KINDS: [Kind; 2] = [
    Kind {
        growth: |memory| &memory.growth_in_use_broken,
        title: "that ends before its handshake does",
        rounds: "connections that send one byte and close",
        cause: "the server does not free all memory of a connection whose handshake fails. Any client can make it grow, without a session or a certificate",
        bench: None,
    },
    Kind {
        growth: |memory| &memory.growth_in_use_tls12,
        title: "of TLS 1.2",
        rounds: "resumed connections of TLS 1.2",
        cause: "not sessions: resumed connections create none. Each connection of TLS 1.2 leaves memory that is never freed; those of TLS 1.3 do not",
        bench: Some("-n 5000 -c 50 --rounds 5 --tls 1.2"),
    },
];

impl Kind {
    fn finding(&self, subject: &AuditSubject, growth: &Growth) -> Finding {
        let each = growth.bytes_per_connection().unwrap_or(0.0);
        let measured = format!("bytes in use, over rounds of {}: {growth}", self.rounds);
        let found = found(subject, FindingId::LeakPerConnection, each, measured);
        let again = self.bench.map(|options| subject.bench("churn", options));
        Finding {
            title: format!("{} {}", found.title, self.title),
            command: again.unwrap_or_else(|| subject.audit()),
            ..found.because(self.cause, Confidence::High)
        }
    }
}

/// Reports growth of a garbage-collected runtime whose objects a census cannot count.
fn of_collected(subject: &AuditSubject, memory: &MemoryFigures) -> Option<Finding> {
    let growth = memory.growth.value()?;
    let surely = grows(growth, GROWTH_BYTES, GROWTH_PER_ROUND);
    let kept = collected::judge(memory, growth, surely)?;
    let each = kept.per_connection.or(growth.bytes_per_connection())?;
    let found = found(
        subject,
        kept.id,
        each,
        format!("{growth}; {}", kept.measured),
    );
    Some(Finding {
        severity: kept.severity,
        ..found.because(kept.cause, kept.confidence)
    })
}

/// Reports growth of resident memory, where blocks in use do not grow or are not known.
fn of_resident(subject: &AuditSubject, memory: &MemoryFigures) -> Option<Finding> {
    let growth = memory.growth.value()?;
    if !grows(growth, GROWTH_BYTES, GROWTH_PER_ROUND) {
        return None;
    }
    let each = growth.bytes_per_connection()?;
    let in_use = memory.growth_in_use.value();
    let mut measured = format!("resident memory: {growth}");
    if let Some(in_use) = in_use {
        measured += &format!("; bytes in use: {in_use}");
    }
    let new = |id, severity| Finding {
        severity,
        ..found(subject, id, each, measured.clone())
    };
    if share_in_shared_memory(memory) > FILLS {
        return Some(new(FindingId::SharedMemoryFills, Severity::Info));
    }
    let Some(in_use) = in_use else {
        let (id, share) = living(memory.growth_resumed.value(), growth);
        return Some(new(id, Severity::High).with("share", percent(share)));
    };
    let mut found = new(FindingId::GrowsUnderChurn, Severity::Low);
    if in_use.verdict == Verdict::NoGrowth {
        found.advice = NOT_IN_USE.into();
    }
    Some(if in_use.verdict == Verdict::Unclear {
        let cause = "not known: the bytes in use grow too, but not evenly, or they may be garbage that was not collected yet; --thorough shows whether the growth ends";
        found.because(cause, Confidence::Low)
    } else {
        let cause = "not a leak of heap blocks: the bytes in use do not grow. The heap still takes new pages, or other mappings grow; --thorough shows whether the growth ends";
        found.because(cause, Confidence::Medium)
    })
}

/// Share of the growth over the rounds that lies in shared memory.
fn share_in_shared_memory(memory: &MemoryFigures) -> f64 {
    let rounds = memory.phases.iter();
    let mut rounds = rounds.filter(|phase| phase.name.starts_with("round_"));
    // The first round is a warm-up, as it is for the slope.
    let (Some(first), Some(last)) = (rounds.nth(1), rounds.next_back()) else {
        return 0.0;
    };
    let more = |of: fn(&Memory) -> u64| of(&last.memory) as f64 - of(&first.memory) as f64;
    let grown = more(|memory| memory.pss);
    if grown > 0.0 {
        more(|memory| memory.pss_shared) / grown
    } else {
        0.0
    }
}

/// Tells whether the bytes in use grow with every connection or with every new session, by what resumed connections leave as
/// a share of what full ones leave.
fn living(resumed: Option<&Growth>, full: &Growth) -> (FindingId, f64) {
    let share = resumed.and_then(|resumed| {
        let (resumed, full) = (resumed.slope?, full.slope?.per_unit);
        Some((resumed.per_unit / full, resumed.plus_minus? / full))
    });
    match share {
        Some((share, plus_minus)) if share > SHARES.1 && share - plus_minus > SHARES.0 => {
            (FindingId::LeakPerConnection, share)
        }
        Some((share, plus_minus)) if share.abs() < SHARES.0 && share + plus_minus < SHARES.1 => {
            (FindingId::SessionCacheGrows, share.max(0.0))
        }
        _ => (FindingId::GrowsUnderChurn, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MemoryPhase;
    use crate::software::SoftwareKind;

    fn after_rounds(rounds: [(u64, u64); 5]) -> MemoryFigures {
        let phase = |(number, (pss_kb, shared_kb)): (usize, (u64, u64))| MemoryPhase {
            name: format!("round_{}", number + 1),
            title: String::new(),
            at_s: 0.0,
            connections: 0,
            processes: 1,
            serving: Default::default(),
            memory: Memory {
                pss: 1000 * pss_kb,
                pss_shared: 1000 * shared_kb,
                ..Memory::default()
            },
            kernel: Default::default(),
        };
        MemoryFigures {
            phases: rounds.into_iter().enumerate().map(phase).collect(),
            ..MemoryFigures::default()
        }
    }

    /// Recorded: a goroutine for each connection of a Go server did not end, and the time was too short for resumed rounds.
    #[test]
    fn go_keeps_no_sessions() {
        let mut audit = crate::model::Audit::begin("server", "s", "127.0.0.1:1");
        audit.software = Measured::Value(crate::software::Software {
            kind: SoftwareKind::Go,
            program: None,
            version: None,
            library: None,
            evidence: Vec::new(),
        });
        let growth = Growth::judge(&[23, 32, 41, 50, 59].map(|mb| mb * 1_000_000), 2_500);
        let memory = MemoryFigures {
            growth_in_use: Measured::Value(growth),
            ..MemoryFigures::default()
        };
        let finding = judge(&AuditSubject::new(&audit), &memory, None).unwrap();
        assert_eq!(finding.id, FindingId::LeakPerConnection);
        assert_eq!(finding.confidence, Confidence::Medium);
    }

    /// Recorded: MariaDB, whose pools grow by a few blocks of 32 and 64 kB over 12,000 connections; resumed connections
    /// were said to leave 115 % as much behind, by a slope of 1.35 ± 1.92 MB.
    #[test]
    fn a_few_large_blocks_are_no_leak_of_each_connection() {
        let subject = AuditSubject::new(&crate::model::Audit::begin("server", "s", "127.0.0.1:1"));
        let mb = |all: [u64; 5]| Growth::judge(&all.map(|mb| mb * 1_000_000), 3_000);
        let growth = mb([23, 24, 25, 26, 27]);
        let judged = |grown| {
            let memory = MemoryFigures {
                growth_in_use: Measured::Value(growth.clone()),
                growth_in_use_resumed: Measured::Value(growth.clone()),
                ..MemoryFigures::default()
            };
            let census = CensusReport {
                grown,
                ..CensusReport::without_malloc("")
            };
            let found = judge(&subject, &memory, Some(&census)).unwrap();
            (found.id, found.severity)
        };
        let few = judged(vec![(32_768, 99, 162), (65_536, 0, 21), (64, 507, 514)]);
        assert_eq!(few, (FindingId::GrowsUnderChurn, Severity::Low));
        let each = judged(vec![(336, 100, 12_100)]);
        assert_eq!(each, (FindingId::LeakPerConnection, Severity::High));
        let unclear = mb([50, 53, 47, 55, 54]);
        assert_eq!(unclear.verdict, Verdict::Unclear);
        assert_eq!(
            living(Some(&unclear), &growth).0,
            FindingId::GrowsUnderChurn
        );
    }

    /// OpenSSL 3.0 and 3.5 are both `libssl.so.3`, and sessions of 3.5 have another size.
    #[test]
    fn sessions_are_excluded_only_where_their_size_is_known() {
        let mut audit = crate::model::Audit::begin("server", "s", "127.0.0.1:1");
        audit.software = Measured::Value(crate::software::Software {
            kind: SoftwareKind::OpenSsl,
            program: None,
            version: None,
            library: Some("libssl.so.3".into()),
            evidence: Vec::new(),
        });
        let subject = AuditSubject::new(&audit);
        let growth = Growth::judge(&[23, 24, 25, 26, 27].map(|mb| mb * 1_000_000), 2_500);
        let memory = MemoryFigures {
            growth_in_use: Measured::Value(growth),
            ..MemoryFigures::default()
        };
        let judged = |size_bytes| {
            let census = CensusReport {
                grown: vec![(400, 100, 10_100)],
                classes: vec![dormouse_census::SizeClass {
                    heap: "malloc".into(),
                    size_bytes,
                    blocks: [0, 100, 200],
                    per_connection: 1.0,
                    bytes_per_connection: size_bytes as f64,
                    resident_per_connection: None,
                    zero_share: 0.0,
                }],
                ..CensusReport::without_malloc("")
            };
            let found = judge(&subject, &memory, Some(&census)).unwrap();
            found.cause.contains(OWN_STORE)
        };
        assert!(judged(7_616));
        assert!(!judged(7_712));
    }

    #[test]
    fn a_leak_of_one_kind_of_connections_is_named() {
        let subject = AuditSubject::new(&crate::model::Audit::begin("server", "s", "127.0.0.1:1"));
        let flat = Growth::judge(&[5_000_000; 5], 250);
        let leaks = Growth::judge(&[5e6, 6e6, 7e6, 8e6, 9e6].map(|bytes| bytes as u64), 250);
        let none = MemoryFigures {
            growth_in_use: Measured::Value(flat.clone()),
            growth_in_use_broken: Measured::Value(flat.clone()),
            growth_in_use_tls12: Measured::Value(flat),
            ..MemoryFigures::default()
        };
        assert!(judge(&subject, &none, None).is_none());
        let title = |memory: &MemoryFigures| {
            let found = judge(&subject, memory, None).unwrap();
            assert_eq!(found.id, FindingId::LeakPerConnection);
            found.title
        };
        let broken = MemoryFigures {
            growth_in_use_broken: Measured::Value(leaks.clone()),
            ..none.clone()
        };
        assert!(title(&broken).contains("before its handshake"));
        let older = MemoryFigures {
            growth_in_use_tls12: Measured::Value(leaks),
            ..none
        };
        assert!(title(&older).contains("of TLS 1.2"));
    }

    /// Recorded: a server on asyncio that kept a task of each connection. It freed 42 MB of earlier garbage during the rounds
    /// of resumed connections, whose growth then was -16 ± 26 MB.
    #[test]
    fn an_uneven_growth_of_resumed_connections_names_no_sessions() {
        let judged = |resumed: [f64; 5]| {
            let growth = |bytes: [f64; 5]| Growth::judge(&bytes.map(|bytes| bytes as u64), 250);
            let full = growth([10.5e6, 11.1e6, 11.7e6, 12.2e6, 12.8e6]);
            living(Some(&growth(resumed)), &full).0
        };
        let uneven = [60.4e6, 61.0e6, 61.6e6, 19.8e6, 20.4e6];
        assert_eq!(judged(uneven), FindingId::GrowsUnderChurn);
        let after = [19.8e6, 20.4e6, 21.0e6, 21.6e6, 22.2e6];
        assert_eq!(judged(after), FindingId::LeakPerConnection);
        assert_eq!(judged([19.8e6; 5]), FindingId::SessionCacheGrows);
        // Go, whose garbage was awaited with more connections that leak: 22 ± 4 times as much.
        let more = [95.0e6, 105.9e6, 117.0e6, 130.1e6, 144.7e6];
        assert_eq!(judged(more), FindingId::LeakPerConnection);
    }

    /// Measurements of nginx 1.22 with `ssl_session_cache shared` and with `builtin`.
    #[test]
    fn a_shared_mapping_that_fills_is_distinguished_from_a_growing_heap() {
        let shared = [
            (41_435, 3_436),
            (39_956, 3_624),
            (40_144, 3_817),
            (40_346, 4_014),
            (40_531, 4_202),
        ];
        assert!(share_in_shared_memory(&after_rounds(shared)) > FILLS);
        let builtin = shared.map(|(pss, _)| (pss, 172));
        assert!(share_in_shared_memory(&after_rounds(builtin)) < 0.1);
        let falls = [(9, 1), (8, 2), (7, 3), (6, 4), (5, 5)];
        assert!(share_in_shared_memory(&after_rounds(falls)) < 0.1);
    }
}
