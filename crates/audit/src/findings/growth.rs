//! Findings about memory that grows as connections open and close, and about the kind of growth.

use super::catalogue::FindingId;
use super::collected::{self, COUNTED_PER_ROUND, GROWTH_PER_ROUND};
use super::finding::{Confidence, Finding, Severity};
use super::subject::AuditSubject;
use super::units::{bytes, percent, whole};
use crate::model::{GROWTH_BYTES, Measured, MemoryFigures};
use dormouse_census::CensusReport;
use dormouse_measure::{Growth, Memory, Verdict};

/// Share of the growth in shared memory above which a shared mapping is filling.
const FILLS: f64 = 0.8;
/// Bytes in use that one closed connection may leave behind: counted blocks have little noise.
const IN_USE_BYTES: f64 = 64.0;

/// Objects per closed connection above which each connection leaves one behind.
const EACH: f64 = 0.5;

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
    let ends = in_use.rounds.first().zip(in_use.rounds.last());
    let mut measured = format!("bytes in use: {in_use}");
    if let Some((first, last)) = ends {
        measured += &format!("; {} → {}", bytes(first.1), bytes(last.1));
    }
    let rounds = in_use.rounds.len().saturating_sub(1).max(1) as f64;
    let closed = rounds * in_use.connections_per_round as f64;
    let grown = census.map_or(&[][..], |census| &census.grown);
    let each_of = |is: &dyn Fn(u64) -> bool| {
        let of = grown.iter().filter(|(size, ..)| is(*size));
        of.map(|(_, had, has)| has.saturating_sub(*had) as f64)
            .sum::<f64>()
            / closed
    };
    let sessions = each_of(&|size| subject.library.is_session(size));
    let connections = each_of(&|size| subject.library.is_connection(size));
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
    finding
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
        id,
        severity: Severity::High,
        title: format!(
            "memory grows by {} for every closed connection",
            bytes(per_connection)
        ),
        measured,
        reference: "no growth: a closed connection leaves nothing behind".into(),
        cause,
        confidence: Confidence::Low,
        advice: subject.advice(id),
        command: subject.bench("churn", "-n 5000 -c 50 --rounds 5"),
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
        let per_unit = |growth: &Growth| growth.slope.map(|slope| slope.per_unit);
        Some(per_unit(resumed)? / per_unit(full)?)
    });
    match share {
        Some(share) if share > 0.6 => (
            FindingId::LeakPerConnection,
            format!("not sessions: resumed connections, which create no session, leave {} as much behind as full ones. Each connection leaves memory that is never freed", percent(share)),
            Confidence::High,
        ),
        Some(share) if share < 0.3 => (
            FindingId::SessionCacheGrows,
            format!("sessions: resumed connections leave only {} as much behind as full ones. The session cache has no limit, or it is not full yet", percent(share.max(0.0))),
            Confidence::High,
        ),
        _ => (
            FindingId::GrowsUnderChurn,
            "not known: a leak per connection, or a session cache without a limit. No session was resumed, so the audit cannot distinguish them".into(),
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
