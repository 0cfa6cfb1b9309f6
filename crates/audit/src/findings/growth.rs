//! Findings about memory that grows with connections that come and go: what kind of growth is it?

use super::catalogue::FindingId;
use super::collected::{self, GROWTH_PER_ROUND};
use super::finding::{Confidence, Finding, Severity};
use super::subject::AuditSubject;
use super::units::{bytes, percent, whole};
use crate::census::CensusReport;
use crate::model::{GROWTH_BYTES, MemoryFigures};
use dormouse_measure::{Growth, Memory, Verdict};

/// Of what the rounds added, what lies in shared memory: then that is what fills.
const FILLS: f64 = 0.8;

/// Memory that grows from round to round: what kind of growth is it?
pub(super) fn judge(
    subject: &AuditSubject,
    memory: &MemoryFigures,
    census: Option<&CensusReport>,
) -> Option<Finding> {
    let growth = memory.growth.value()?;
    let per_connection = growth.bytes_per_connection()?;
    let slope = growth.slope?;
    let material = per_connection > GROWTH_BYTES && slope.per_unit > GROWTH_PER_ROUND;
    let grows = growth.verdict == Verdict::Grows && material && slope.is_sure();
    if subject.kind.collects() {
        let kept = collected::judge(memory, growth, grows)?;
        let measured = format!("{growth}; {}", kept.measured);
        let each = kept.per_connection.unwrap_or(per_connection);
        let mut finding = grown_finding(subject, kept.id, each, measured, kept.cause);
        (finding.severity, finding.confidence) = (kept.severity, kept.confidence);
        return Some(finding);
    }
    if !grows {
        return None;
    }
    let at = |of: fn(&CensusReport) -> &std::collections::BTreeMap<String, u64>, name: &str| {
        census
            .and_then(|census| of(census).get(name).copied())
            .map(|bytes| bytes as f64)
    };
    let in_use = at(|c| &c.in_use_bytes, "round_last").zip(at(|c| &c.in_use_bytes, "round_first"));
    let in_use = in_use.map(|(last, first)| last - first);
    let free = at(|c| &c.free_bytes, "round_last").zip(at(|c| &c.free_bytes, "round_first"));
    let free = free.map(|(last, first)| last - first);
    let grown = slope.per_unit * (growth.rounds.len() as f64).max(1.0);
    let mut severity = Severity::High;
    let (id, cause, confidence) = match in_use.zip(free) {
        _ if share_in_shared_memory(memory) > FILLS => {
            severity = Severity::Low;
            (
                FindingId::SharedMemoryFills,
                "it is a mapping which processes share, a session cache for one: its size was fixed when it was made, and its pages are taken one after the other until it is full".to_owned(),
                Confidence::Medium,
            )
        }
        Some((in_use, free)) if in_use < 0.3 * grown && free > 0.5 * grown => (
            FindingId::HeapFragmented,
            "the heap grows by holes, not by what is in use: long-lived entries lie between the garbage of handshakes and pin its pages".to_owned(),
            Confidence::High,
        ),
        Some((in_use, _)) if in_use < 0.3 * grown => {
            (FindingId::GrowsUnderChurn, OUTSIDE_OF_MALLOC.to_owned(), Confidence::Low)
        }
        _ => living(memory.growth_resumed.value(), growth),
    };
    let mut measured = growth.to_string();
    if let Some(in_use) = in_use {
        measured += &format!(
            "; of {} in the heap {} more are in use after the last round than after the first",
            bytes(grown),
            bytes(in_use)
        );
    }
    if let Some((size, had, has)) = census.and_then(|census| census.grown.first()) {
        measured += &format!(
            "; blocks of {} bytes: {} → {}",
            whole(*size as f64),
            whole(*had as f64),
            whole(*has as f64)
        );
    }
    let mut finding = grown_finding(subject, id, per_connection, measured, cause);
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
            "memory grows by {} for every connection that has come and gone",
            bytes(per_connection)
        ),
        measured,
        reference: "none: what a connection took comes back".into(),
        cause,
        confidence: Confidence::Low,
        advice: subject.advice(id),
        command: subject.bench("churn", "-n 5000 -c 50 --rounds 5"),
    }
}

/// Share of the rounds' growth that lies in shared memory.
fn share_in_shared_memory(memory: &MemoryFigures) -> f64 {
    let rounds = memory.phases.iter();
    let mut rounds = rounds.filter(|phase| phase.name.starts_with("round_"));
    // The first is a warm-up, as in the slope.
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

/// Growth which the blocks of the C library do not explain.
const OUTSIDE_OF_MALLOC: &str = "neither blocks nor holes of malloc's heap have grown so: it is mappings, stacks, or another allocator; more rounds (--thorough) show whether it ends";

/// Growth of what is in use: with every connection, or with every new session?
fn living(resumed: Option<&Growth>, full: &Growth) -> (FindingId, String, Confidence) {
    let share = resumed.and_then(|resumed| {
        let per_unit = |growth: &Growth| growth.slope.map(|slope| slope.per_unit);
        Some(per_unit(resumed)? / per_unit(full)?)
    });
    match share {
        Some(share) if share > 0.6 => (
            FindingId::LeakPerConnection,
            format!("resumed connections leave as much behind ({} of it), so it is not sessions: something of each connection is never freed", percent(share)),
            Confidence::High,
        ),
        Some(share) if share < 0.3 => (
            FindingId::SessionCacheGrows,
            format!("resumed connections leave nothing behind ({} of it), so it is sessions: a cache without a bound, or one that is not full yet", percent(share.max(0.0))),
            Confidence::High,
        ),
        _ => (
            FindingId::GrowsUnderChurn,
            "a leak per connection or a session cache without a bound; which of both could not be told, because no session was resumed".into(),
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

    /// As nginx 1.22 was measured, with `ssl_session_cache shared` and with `builtin`.
    #[test]
    fn a_mapping_that_fills_is_told_from_a_heap_that_grows() {
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
