//! Findings about holes in the heap that remain when all connections have closed, without growth.

use super::catalogue::{self, FindingId};
use super::finding::{Confidence, Finding, Severity};
use super::quoted::filled;
use super::subject::AuditSubject;
use super::units::{bytes, whole};
use crate::census::CensusReport;
use crate::model::MemoryFigures;

/// Bytes of holes in the heap: in all, and for each of the connections that there were at a time. A heap of some megabytes
/// which served thousands is none to look after.
const LEFT: [(f64, Severity); 2] = [(16e6, Severity::High), (1.5e6, Severity::Medium)];

const LEFT_EACH: [(f64, Severity); 2] = [(16_000.0, Severity::High), (4_000.0, Severity::Medium)];

/// Holes that stay when all have closed.
pub(super) fn judge(
    subject: &AuditSubject,
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
        advice: catalogue::advice_on_holes(subject.kind),
        command: subject.bench("churn", "-n 20000 -c 500 --rounds 5"),
    })
}
