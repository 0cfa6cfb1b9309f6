//! Findings about a server's memory: what a quiet connection keeps.

use super::catalogue::FindingId;
use super::finding::{Confidence, Finding, Severity};
use super::quoted::filled;
use super::subject::AuditSubject;
use super::units::{bytes, percent, whole};
use crate::census::{CensusReport, SizeClass};
use crate::model::MemoryFigures;
use crate::software::SoftwareKind;

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
/// Of the bytes of buffers, what came with large records: then they grew for those.
const GREW: f64 = 0.6;
const REFERENCE: &str = "a few hundred bytes: two traffic secrets and two sequence numbers (dormouse serve: {{compare.dormouse}})";

/// What a quiet connection keeps.
pub(super) fn judge(
    subject: &AuditSubject,
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
    let command = subject.bench("hold", "-n 2000");
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
        findings.extend(buffers(subject, memory, &kept, severity, &command));
    }
    if let Some(census) = context {
        explained += census.heap_bytes_per_connection;
        findings.push(contexts(subject, census, &command));
    }
    if explained < 0.6 * quiet {
        findings.push(general(subject, memory, census, severity, quiet, command));
    }
}

fn buffers(
    subject: &AuditSubject,
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
        advice: subject.advice(FindingId::RecordBuffersKept),
        command: command.to_owned(),
    })
}

fn contexts(subject: &AuditSubject, census: &CensusReport, command: &str) -> Finding {
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
        advice: subject.advice(FindingId::ContextPerConnection),
        command: command.to_owned(),
    }
}

fn general(
    subject: &AuditSubject,
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
    if subject.kind == SoftwareKind::Dormouse {
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
        advice: subject.advice(FindingId::BytesPerConnection),
        command,
    }
}
