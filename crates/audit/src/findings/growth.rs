//! Findings about memory that grows as connections open and close, and about the kind of growth.

use super::catalogue::FindingId;
use super::collected::{self, COUNTED_PER_ROUND, GROWTH_PER_ROUND};
use super::finding::{Confidence, Finding, Severity};
use super::subject::AuditSubject;
use super::units::{bytes, percent, whole};
use crate::model::{BLOCKS_OF_CONNECTION, GROWTH_BYTES, Measured, MemoryFigures};
use crate::software::SoftwareKind;
use dormouse_census::CensusReport;
use dormouse_measure::{Growth, Memory, Verdict};

/// Share of the growth in shared memory above which a shared mapping is filling.
const FILLS: f64 = 0.8;
/// Bytes in use that one closed connection may leave behind: counted blocks have little noise.
const IN_USE_BYTES: f64 = 64.0;

/// Advice on growth that no session cache and no leak explains.
const NOT_IN_USE: &str = "audit again with --thorough: if the growth ends, change nothing";
/// Why memory grows in Go, where sessions were not resumed.
const OF_GO: &str = "not sessions: crypto/tls keeps none on a server. Each connection leaves memory that is never freed, such as an entry of a map or a goroutine that does not end";
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
    let of_kind = OF_KINDS.iter().find_map(|kind| {
        let growth = (kind.growth)(memory).value()?;
        grows(growth, IN_USE_BYTES, COUNTED_PER_ROUND).then(|| kind.finding(subject, growth))
    });
    match memory.growth_in_use.value() {
        Some(in_use) if grows(in_use, IN_USE_BYTES, COUNTED_PER_ROUND) => {
            Some(of_blocks(subject, memory, census, in_use))
        }
        _ if of_kind.is_some() => of_kind,
        Some(_) => of_resident(subject, memory),
        None if subject.kind.collects() => of_collected(subject, memory),
        None => of_resident(subject, memory),
    }
}

/// Whether the growth is large enough for a finding, and certain.
fn grows(growth: &Growth, bytes_each: f64, per_round: f64) -> bool {
    let material = growth.bytes_per_connection() > Some(bytes_each)
        && growth
            .slope
            .is_some_and(|slope| slope.per_unit > per_round && slope.is_sure());
    growth.verdict == Verdict::Grows && material
}

/// Reports growth of blocks in use: a leak or a session cache.
fn of_blocks(
    subject: &AuditSubject,
    memory: &MemoryFigures,
    census: Option<&CensusReport>,
    in_use: &Growth,
) -> Finding {
    let (mut id, mut cause, mut confidence) = living(memory.growth_in_use_resumed.value(), in_use);
    if id == FindingId::GrowsUnderChurn && subject.kind == SoftwareKind::Go {
        (id, confidence) = (FindingId::LeakPerConnection, Confidence::Medium);
        cause = OF_GO.into();
    }
    let ends = in_use.rounds.first().zip(in_use.rounds.last());
    let mut measured = format!("bytes in use: {in_use}");
    if let Some((first, last)) = ends {
        measured += &format!("; {} → {}", bytes(first.1), bytes(last.1));
    }
    let closed = in_use.connections().max(1.0);
    let grown = census.map_or(&[][..], |census| &census.grown);
    let each_of = |is: &dyn Fn(u64) -> bool| {
        let of = grown.iter().filter(|(size, ..)| is(*size));
        of.map(|(_, had, has)| has.saturating_sub(*had) as f64)
            .sum::<f64>()
            / closed
    };
    let sessions = each_of(&|size| subject.library.is_session(size));
    let connections = each_of(&|size| subject.library.is_connection(size));
    let most = grown
        .iter()
        .map(|(size, ..)| each_of(&|other| other == *size))
        .fold(0.0, f64::max);
    // A connection that is never freed also keeps its session.
    if id != FindingId::SessionCacheGrows && sessions > EACH && connections < EACH {
        (id, confidence) = (FindingId::SessionCacheGrows, Confidence::Medium);
        cause = format!(
            "sessions: the server keeps {sessions:.1} of OpenSSL's session objects for each closed connection. The session cache has no limit, or it is not full yet: OpenSSL's own limit is 20,480 sessions"
        );
    }
    for (size, had, has) in grown.iter().take(2) {
        measured += &format!(
            "; blocks of {} bytes: {} → {}, {:.2} for each closed connection",
            whole(*size as f64),
            whole(*had as f64),
            whole(*has as f64),
            has.saturating_sub(*had) as f64 / closed
        );
    }
    let each = in_use.bytes_per_connection().unwrap_or(0.0);
    let mut finding = grown_finding(subject, id, each, measured, cause);
    finding.confidence = confidence;
    let is_own = has_known_sizes(subject, census) && !grown.is_empty() && sessions < EACH;
    if is_own && id != FindingId::LeakPerConnection {
        // Settings of OpenSSL's cache do not reach it.
        finding.cause += OWN_STORE;
        finding.advice = id.advice_for_any();
    }
    if !grown.is_empty() && most < BLOCKS_OF_CONNECTION {
        finding = of_few_blocks(finding);
    } else if subject.kind == SoftwareKind::Lua {
        // Its objects are blocks of malloc, and the audit cannot make it collect.
        (finding.severity, finding.confidence) = (Severity::Low, Confidence::Low);
        finding.cause = format!(
            "garbage that Lua has not collected yet, or {}",
            finding.cause
        );
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
    let id = FindingId::GrowsUnderChurn;
    Finding {
        id,
        severity: Severity::Low,
        title: "memory grows under churn, by a few large blocks".into(),
        cause: "no leak of each connection: far fewer blocks were added than connections closed. A pool, a table or a cache grows to its size, or a buffer collects something of every connection; --thorough shows whether the growth ends".into(),
        confidence: Confidence::Low,
        advice: NOT_IN_USE.into(),
        ..finding
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
        let id = FindingId::LeakPerConnection;
        let mut finding = grown_finding(subject, id, each, measured, self.cause.into());
        finding.title += &format!(" {}", self.title);
        finding.confidence = Confidence::High;
        finding.command = match self.bench {
            Some(options) => subject.bench("churn", options),
            None => subject.audit(),
        };
        finding
    }
}

/// Reports growth of a garbage-collected runtime whose objects a census cannot count.
fn of_collected(subject: &AuditSubject, memory: &MemoryFigures) -> Option<Finding> {
    let growth = memory.growth.value()?;
    let surely = grows(growth, GROWTH_BYTES, GROWTH_PER_ROUND);
    let kept = collected::judge(memory, growth, surely)?;
    let measured = format!("{growth}; {}", kept.measured);
    let each = kept.per_connection.or(growth.bytes_per_connection())?;
    let mut finding = grown_finding(subject, kept.id, each, measured, kept.cause);
    (finding.severity, finding.confidence) = (kept.severity, kept.confidence);
    Some(finding)
}

/// Reports growth of resident memory, where blocks in use do not grow or are not known.
fn of_resident(subject: &AuditSubject, memory: &MemoryFigures) -> Option<Finding> {
    let growth = memory.growth.value()?;
    if !grows(growth, GROWTH_BYTES, GROWTH_PER_ROUND) {
        return None;
    }
    let in_use = memory.growth_in_use.value();
    let (id, severity, cause, confidence) = if share_in_shared_memory(memory) > FILLS {
        (
            FindingId::SharedMemoryFills,
            Severity::Info,
            "a shared mapping of fixed size fills, such as a session cache: its pages become resident one by one until all are".to_owned(),
            Confidence::Medium,
        )
    } else if in_use.is_some_and(|in_use| in_use.verdict == Verdict::Unclear) {
        (
            FindingId::GrowsUnderChurn,
            Severity::Low,
            "not known: the bytes in use grow too, but not evenly, or they may be garbage that was not collected yet; --thorough shows whether the growth ends".to_owned(),
            Confidence::Low,
        )
    } else if in_use.is_some() {
        (
            FindingId::GrowsUnderChurn,
            Severity::Low,
            "not a leak of heap blocks: the bytes in use do not grow. The heap still takes new pages, or other mappings grow; --thorough shows whether the growth ends".to_owned(),
            Confidence::Medium,
        )
    } else {
        let (id, cause, confidence) = living(memory.growth_resumed.value(), growth);
        (id, Severity::High, cause, confidence)
    };
    let each = growth.bytes_per_connection()?;
    let mut measured = format!("resident memory: {growth}");
    if let Some(in_use) = in_use {
        measured += &format!("; bytes in use: {in_use}");
    }
    let mut finding = grown_finding(subject, id, each, measured, cause);
    (finding.severity, finding.confidence) = (severity, confidence);
    let is_flat = in_use.is_some_and(|in_use| in_use.verdict == Verdict::NoGrowth);
    if id == FindingId::GrowsUnderChurn && is_flat {
        finding.advice = NOT_IN_USE.into();
    }
    Some(finding)
}

fn grown_finding(
    subject: &AuditSubject,
    id: FindingId,
    per_connection: f64,
    measured: String,
    cause: String,
) -> Finding {
    Finding {
        title: format!(
            "memory grows by {} for every closed connection",
            bytes(per_connection)
        ),
        measured,
        reference: "no growth: a closed connection leaves nothing behind".into(),
        cause,
        confidence: Confidence::Low,
        command: subject.bench("churn", "-n 5000 -c 50 --rounds 5"),
        ..subject.finding(id, Severity::High)
    }
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

/// Tells whether the bytes in use grow with every connection or with every new session.
fn living(resumed: Option<&Growth>, full: &Growth) -> (FindingId, String, Confidence) {
    let share = resumed.and_then(|resumed| {
        let (resumed, full) = (resumed.slope?, full.slope?.per_unit);
        Some((resumed.per_unit / full, resumed.plus_minus? / full))
    });
    match share {
        Some((share, plus_minus)) if share > SHARES.1 && share - plus_minus > SHARES.0 => (
            FindingId::LeakPerConnection,
            format!("not sessions: resumed connections, which create no session, leave {} as much behind as full ones. Each connection leaves memory that is never freed", percent(share)),
            Confidence::High,
        ),
        Some((share, plus_minus)) if share.abs() < SHARES.0 && share + plus_minus < SHARES.1 => (
            FindingId::SessionCacheGrows,
            format!("sessions: resumed connections leave only {} as much behind as full ones. The session cache has no limit, or it is not full yet", percent(share.max(0.0))),
            Confidence::High,
        ),
        _ => (
            FindingId::GrowsUnderChurn,
            "not known: a leak per connection, or a session cache without a limit. Growth over resumed connections would distinguish them, and is not known for certain".into(),
            Confidence::Low,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MemoryPhase;

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
            ..MemoryFigures::not_measured()
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
            ..MemoryFigures::not_measured()
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
                ..MemoryFigures::not_measured()
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
            ..MemoryFigures::not_measured()
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
            ..MemoryFigures::not_measured()
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
