//! Findings about a server's memory: what a quiet connection keeps, what stays behind.

use super::catalogue;
use super::catalogue::FindingId;
use super::collected::{self, GROWTH_PER_ROUND};
use super::finding::{Confidence, Finding, Severity};
use super::quoted::filled;
use super::subject::AuditSubject;
use super::units::{bytes, percent, whole};
use crate::census::{CensusReport, SizeClass};
use crate::model::GROWTH_BYTES;
use crate::model::{MemoryFigures, ServerFigures};
use crate::software::SoftwareKind;
use dormouse_measure::Memory;
use dormouse_measure::{Growth, Verdict};

/// Bytes per quiet connection.
const PER_CONNECTION: [(f64, Severity); 3] = [
    (48_000.0, Severity::High),
    (16_000.0, Severity::Medium),
    (4_000.0, Severity::Low),
];
/// Sizes in which a record of 16 kB fits, one or both directions.
const RECORD_BUFFER: std::ops::RangeInclusive<u64> = 16_384..=36_000;
/// A context or a trust store of one's own is many blocks.
const CONTEXT_BLOCKS: f64 = 220.0;
const CONTEXT_BYTES: f64 = 20_000.0;
/// Bytes of holes in the heap: in all, and for each of the connections that there were at a time. A heap of some megabytes
/// which served thousands is none to look after.
const LEFT: [(f64, Severity); 2] = [(16e6, Severity::High), (1.5e6, Severity::Medium)];
const LEFT_EACH: [(f64, Severity); 2] = [(16_000.0, Severity::High), (4_000.0, Severity::Medium)];
/// Of what the rounds added, what lies in shared memory: then that is what fills.
const FILLS: f64 = 0.8;
/// Of the bytes of buffers, what came with large records: then they grew for those.
const GREW: f64 = 0.6;
const REFERENCE: &str = "a few hundred bytes: two traffic secrets and two sequence numbers (dormouse serve: {{compare.dormouse}})";

pub(super) fn judge(about: &AuditSubject, figures: &ServerFigures, findings: &mut Vec<Finding>) {
    let Some(memory) = figures.memory.value() else {
        return;
    };
    let census = figures.census.value();
    per_connection(about, memory, census, findings);
    let grows = growth(about, memory, census);
    let grew = grows.is_some();
    findings.extend(grows);
    if !grew {
        findings.extend(holes(about, memory, census));
    }
}

fn per_connection(
    about: &AuditSubject,
    memory: &MemoryFigures,
    census: Option<&CensusReport>,
    findings: &mut Vec<Finding>,
) {
    let quiet = memory.quiet_bytes();
    let level = |bytes: f64| {
        PER_CONNECTION
            .iter()
            .find(|(limit, _)| bytes > *limit)
            .map(|level| level.1)
    };
    let Some(severity) = level(quiet) else { return };
    let command = about.bench("hold", "-n 2000");
    let mut explained = 0.0;
    let context = census.filter(|census| {
        census.blocks_per_connection > CONTEXT_BLOCKS
            && census.heap_bytes_per_connection > CONTEXT_BYTES
    });
    let kept = census.map(|census| {
        let of = census
            .classes
            .iter()
            .filter(|class| RECORD_BUFFER.contains(&class.size_bytes));
        // A context has tables of that size too, but they are full.
        let buffer = |class: &&SizeClass| context.is_none() || class.zero_share > 0.5;
        of.filter(|class| class.per_connection > 0.3)
            .filter(buffer)
            .collect::<Vec<_>>()
    });
    let kept = kept.unwrap_or_default();
    if !kept.is_empty() {
        explained = kept.iter().map(|class| class.bytes_per_connection).sum();
        let severity = level(explained).unwrap_or(severity).max(Severity::Medium);
        findings.extend(buffers(about, memory, &kept, severity, &command));
    }
    if let Some(census) = context {
        explained += census.heap_bytes_per_connection;
        findings.push(contexts(about, census, &command));
    }
    if explained < 0.6 * quiet {
        findings.push(general(about, memory, census, severity, quiet, command));
    }
}

fn buffers(
    about: &AuditSubject,
    memory: &MemoryFigures,
    kept: &[&SizeClass],
    severity: Severity,
    command: &str,
) -> Option<Finding> {
    let first = kept.first()?;
    let number: f64 = kept.iter().map(|class| class.per_connection).sum();
    let all: f64 = kept.iter().map(|class| class.bytes_per_connection).sum();
    let more = first.blocks[2].saturating_sub(first.blocks[0]) as f64;
    let before = memory.after_exchange_bytes.value();
    let with_large = memory.after_large_records_bytes.value().zip(before);
    let grew = with_large.is_some_and(|(with, without)| with - without > GREW * all);
    Some(Finding {
        id: FindingId::RecordBuffersKept,
        severity,
        title: format!("{number:.1} record buffers are kept for every quiet connection"),
        measured: format!(
            "{} blocks of {} bytes for {} connections, {} of them zeros; {} per connection in all",
            whole(more),
            whole(first.size_bytes as f64),
            whole(more / first.per_connection),
            percent(first.zero_share),
            bytes(all)
        ),
        reference: filled(&format!("no buffer while nothing is under way; {REFERENCE}")),
        cause: if grew {
            "buffers grew when records of 16 kB came, and are kept at that size as long as the connection lives"
        } else {
            "a buffer for the largest record (2^14 bytes) is made for each direction and kept as long as the connection lives"
        }
        .into(),
        confidence: Confidence::High,
        advice: about.advice(FindingId::RecordBuffersKept),
        command: command.to_owned(),
    })
}

fn contexts(about: &AuditSubject, census: &CensusReport, command: &str) -> Finding {
    let largest = census.classes.first().map_or(0, |class| class.size_bytes);
    Finding {
        id: FindingId::ContextPerConnection,
        severity: Severity::High,
        title: "every connection has a context or a trust store of its own".into(),
        measured: format!(
            "{} blocks and {} of heap per connection; most of it in blocks of {} bytes",
            whole(census.blocks_per_connection),
            bytes(census.heap_bytes_per_connection),
            whole(largest as f64)
        ),
        reference: "one context for all: certificates, trust stores and keys are parsed once".into(),
        cause: "root certificates, or a whole configuration, are parsed for each connection and kept with it".into(),
        confidence: Confidence::Medium,
        advice: about.advice(FindingId::ContextPerConnection),
        command: command.to_owned(),
    }
}

fn general(
    about: &AuditSubject,
    memory: &MemoryFigures,
    census: Option<&CensusReport>,
    severity: Severity,
    quiet: f64,
    command: String,
) -> Finding {
    let mut measured = format!("{} per quiet connection", bytes(quiet));
    let mut steps: Vec<String> = Vec::new();
    let more = [
        ("the handshake", &memory.after_handshake_bytes),
        ("an exchange", &memory.after_exchange_bytes),
        ("16 kB each way", &memory.after_large_records_bytes),
    ];
    steps.extend(
        more.iter()
            .filter_map(|(what, value)| Some(format!("after {what} {}", bytes(*value.value()?)))),
    );
    measured += &format!(" ({})", steps.join(", "));
    let mut cause =
        "the library's object, buffers and the program's own state are kept for each connection"
            .to_owned();
    let mut confidence = Confidence::Low;
    if about.kind == SoftwareKind::Dormouse {
        cause = "the server behind dormouse, where that is in the same process tree".to_owned();
    }
    let largest = census.and_then(|census| census.classes.first());
    if let Some(class) = largest.filter(|class| class.bytes_per_connection > 0.25 * quiet) {
        cause = format!(
            "the greatest part is in blocks of {} bytes, {:.1} per connection, {} zeros",
            whole(class.size_bytes as f64),
            class.per_connection,
            percent(class.zero_share)
        );
        confidence = Confidence::Medium;
    }
    let class = census.and_then(|census| census.managed.first());
    if let Some(class) = class.filter(|class| class.bytes_per_connection > 0.1 * quiet) {
        cause += &format!(
            "; of the managed heap {:.1} objects of {} come with each connection, {}",
            class.per_connection,
            class.class,
            bytes(class.bytes_per_connection)
        );
    }
    Finding {
        id: FindingId::BytesPerConnection,
        severity,
        title: format!("a quiet connection takes {}", bytes(quiet)),
        measured,
        reference: filled(REFERENCE),
        cause,
        confidence,
        advice: about.advice(FindingId::BytesPerConnection),
        command,
    }
}

/// Memory that grows from round to round: what kind of growth is it?
fn growth(
    about: &AuditSubject,
    memory: &MemoryFigures,
    census: Option<&CensusReport>,
) -> Option<Finding> {
    let growth = memory.growth.value()?;
    let per_connection = growth.bytes_per_connection()?;
    let slope = growth.slope?;
    let material = per_connection > GROWTH_BYTES && slope.per_unit > GROWTH_PER_ROUND;
    let grows = growth.verdict == Verdict::Grows && material && slope.is_sure();
    if about.kind.collects() {
        let kept = collected::judge(memory, growth, grows)?;
        let measured = format!("{growth}; {}", kept.measured);
        let each = kept.per_connection.unwrap_or(per_connection);
        let mut finding = grown_finding(about, kept.id, each, measured, kept.cause);
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
    let mut finding = grown_finding(about, id, per_connection, measured, cause);
    (finding.severity, finding.confidence) = (severity, confidence);
    Some(finding)
}

fn grown_finding(
    about: &AuditSubject,
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
        advice: about.advice(id),
        command: about.bench("churn", "-n 5000 -c 50 --rounds 5"),
    }
}

/// How much of what the rounds added lies in memory that is shared.
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

/// Holes that stay when all have closed.
fn holes(
    about: &AuditSubject,
    memory: &MemoryFigures,
    census: Option<&CensusReport>,
) -> Option<Finding> {
    let census = census?;
    let free = |name: &str| census.free_bytes.get(name).map(|bytes| *bytes as f64);
    let used = |name: &str| census.in_use_bytes.get(name).map(|bytes| *bytes as f64);
    let before = free("none")?;
    let moments = ["after_close", "round_last"].into_iter();
    let (name, left) = moments
        .filter_map(|name| Some((name, free(name)? - before)))
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let more_used = used(name)? - used("none")?;
    // What was in use before any connection, and is free now, is none of theirs.
    let left = left + more_used.min(0.0);
    if left < 2.0 * more_used {
        return None;
    }
    let connections = memory.phases.iter().map(|phase| phase.connections).max()?;
    let each = left / connections.max(1) as f64;
    let level = |levels: [(f64, Severity); 2], bytes: f64| {
        let reached = levels.into_iter().find(|(limit, _)| bytes > *limit);
        reached.map(|level| level.1)
    };
    let severity = level(LEFT, left)?.min(level(LEFT_EACH, each).unwrap_or(Severity::Low));
    Some(Finding {
        id: FindingId::HeapFragmented,
        severity,
        title: "memory stays taken when all connections have closed, without a leak".into(),
        measured: format!(
            "{} of free blocks stay resident, {} for each of {} connections; {} more are in use than before; {} are left in all",
            bytes(left), bytes(each), whole(connections as f64), bytes(more_used), bytes(memory.left_bytes)
        ),
        reference: filled("memory is back where it was before (of what its connections took, dormouse serve keeps {{compare.dormouse-left}})"),
        cause: "a few long-lived blocks (sessions, statistics) lie between those of connections and pin the heap".into(),
        confidence: Confidence::High,
        advice: catalogue::advice_on_holes(about.kind),
        command: about.bench("churn", "-n 20000 -c 500 --rounds 5"),
    })
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
