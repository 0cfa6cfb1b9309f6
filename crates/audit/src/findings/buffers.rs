//! Findings about record buffers that idle connections keep.

use super::catalogue::FindingId;
use super::finding::{Confidence, Finding, Severity};
use super::quoted::{NEEDED, filled};
use super::subject::AuditSubject;
use super::units::{bytes, percent, whole};
use crate::model::MemoryFigures;
use crate::software::SoftwareKind;
use dormouse_census::{CensusReport, SizeClass};

/// Block sizes that hold a 16 kB record in one or both directions.
const RECORD_BUFFER: std::ops::RangeInclusive<u64> = 16_384..=36_000;
/// Buffers of a TLS library per connection, one for each direction; more are the program's own.
const OF_LIBRARY: f64 = 2.5;
/// Maximum buffers per connection if each has one, for one direction.
const OF_ONE: f64 = 1.5;
/// Maximum share of the buffers that exist before large records, if the buffers grew for these records.
const GREW: f64 = 0.1;
/// Minimum share of zeros in a buffer that is kept without need: most of it was never filled.
const UNFILLED: f64 = 0.5;
/// A blocked thread holds a buffer although the program has set the mode that the advice names.
const BLOCKED: &str = "In a thread for each connection, also wait with poll(2) before SSL_read while SSL_has_pending is 0: a thread that waits inside SSL_read holds the read buffer in spite of this mode";
const GARBAGE: &str = "these buffers may be garbage: V8 frees them when it collects, and the audit could not make it collect; with --inspect=127.0.0.1:0 it can";

/// Buffers as large as a record that come with each connection.
pub(super) struct KeptBuffers<'a> {
    classes: Vec<&'a SizeClass>,
    has_threads: bool,
}

impl<'a> KeptBuffers<'a> {
    /// Finds them in a census. `has_contexts`: each connection keeps its own context.
    pub(super) fn of(census: &'a CensusReport, has_contexts: bool) -> Option<Self> {
        let classes = census.classes.iter();
        let classes: Vec<_> = classes
            .filter(|class| RECORD_BUFFER.contains(&class.size_bytes))
            .filter(|class| class.per_connection > 0.3)
            // A context has tables of that size too, but without zeros.
            .filter(|class| !has_contexts || class.zero_share > UNFILLED)
            .collect();
        let has_threads = census.stack_bytes_per_connection > 0.0;
        (!classes.is_empty()).then_some(Self {
            classes,
            has_threads,
        })
    }

    /// Bytes per connection.
    pub(super) fn bytes(&self) -> f64 {
        let classes = self.classes.iter();
        classes.map(|class| class.bytes_per_connection).sum()
    }

    fn number(&self) -> f64 {
        self.classes.iter().map(|class| class.per_connection).sum()
    }

    /// Whether some are the program's own, and not its TLS library's.
    pub(super) fn are_own(&self) -> bool {
        self.number() > OF_LIBRARY
    }

    /// Reports them.
    pub(super) fn finding(
        &self,
        subject: &AuditSubject,
        memory: &MemoryFigures,
        severity: Severity,
        command: &str,
    ) -> Option<Finding> {
        let first = self.classes.first()?;
        let more = first.blocks[2].saturating_sub(first.blocks[0]) as f64;
        let id = FindingId::RecordBuffersKept;
        let finding = Finding {
            title: format!(
                "every idle connection keeps {:.1} buffers as large as a record",
                self.number()
            ),
            measured: format!(
                "{} blocks of {} bytes for {} connections, {} of their bytes zero; {} per connection in all",
                whole(more),
                whole(first.size_bytes as f64),
                whole(more / first.per_connection),
                percent(first.zero_share),
                bytes(self.bytes())
            ),
            reference: filled(&format!("no buffer while no record is in flight; {NEEDED}")),
            cause: self.cause(memory).into(),
            advice: if self.are_own() {
                subject.advice_for_own_buffers()
            } else if self.has_threads && subject.kind == SoftwareKind::OpenSsl {
                format!("{}. {BLOCKED}", subject.advice(id))
            } else {
                subject.advice(id)
            },
            command: command.to_owned(),
            ..subject.finding(id, severity)
        };
        Some(match may_be_garbage(subject, memory) {
            true => Finding {
                severity: severity.min(Severity::Low),
                confidence: Confidence::Low,
                cause: format!("{GARBAGE}; otherwise, {}", finding.cause),
                ..finding
            },
            false => finding,
        })
    }

    fn cause(&self, memory: &MemoryFigures) -> &'static str {
        if self.are_own() {
            "a TLS library has at most two such buffers per connection; the others are the program's own buffers, allocated in advance and mostly unused"
        } else if self.grew(memory) {
            "the buffers grew when 16 kB records arrived, and keep that size until the connection closes"
        } else if self.number() > OF_ONE {
            "each connection allocates a buffer for the largest record (2^14 bytes) in each direction and keeps both while it is idle"
        } else {
            "each connection allocates a buffer for the largest record (2^14 bytes) and keeps it while it is idle"
        }
    }

    /// Whether they came with large records. Resident memory does not show that in an audit after another one, because the
    /// buffers then lie in heap that the process already had.
    fn grew(&self, memory: &MemoryFigures) -> bool {
        let is_probed = memory.after_large_records_bytes.value().is_some();
        self.classes.first().is_some_and(|class| {
            let [none, half, all] = class.blocks.map(|blocks| blocks as f64);
            is_probed && half - none < GREW * (all - none)
        })
    }
}

/// Whether blocks of malloc may hold buffers that nothing refers to any more: V8 frees them when it collects its garbage,
/// and without an inspector the audit could not make it do so.
fn may_be_garbage(subject: &AuditSubject, memory: &MemoryFigures) -> bool {
    subject.kind == SoftwareKind::Node && memory.used_bytes.value().is_none()
}
