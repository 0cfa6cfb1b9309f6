//! Findings about record buffers that idle connections keep.

use super::subject::AuditSubject;
use super::units::{bytes, counted, percent, whole};
use crate::catalogue::{Confidence, FindingId, Severity};
use crate::model::Finding;
use crate::model::MemoryFigures;
use crate::software::Case;
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
    ) -> Option<Finding> {
        let first = self.classes.first()?;
        let more = first.blocks[2].saturating_sub(first.blocks[0]) as f64;
        let measured = format!(
            "{} blocks of {} bytes for {} connections, {} of their bytes zero; {} per connection in all",
            whole(more),
            counted(first.size_bytes),
            whole(more / first.per_connection),
            percent(first.zero_share),
            bytes(self.bytes())
        );
        let id = FindingId::RecordBuffersKept;
        let found = subject.finding(id, severity, measured);
        let mut found = found.with("buffers", format!("{:.1}", self.number()));
        let software = subject.software();
        let of_threads = software
            .advice(id, Case::Threads)
            .filter(|_| self.has_threads);
        if let Some(cause) = self.cause(memory) {
            found.cause = cause.into();
        }
        if self.are_own() {
            found.advice = subject.advice_for_own_buffers();
        } else if let Some(of_threads) = of_threads {
            found.advice += &format!(". {of_threads}");
        }
        // Without a count of what survives, its runtime was not made to collect.
        let garbage = software
            .garbage_buffers
            .filter(|_| memory.used_bytes.value().is_none());
        if let Some(garbage) = garbage {
            found.severity = severity.min(Severity::Low);
            found = Finding {
                cause: format!("{garbage}{}", found.cause),
                confidence: Confidence::Low,
                ..found
            };
        }
        Some(found)
    }

    /// The cause, if it is not the usual one.
    fn cause(&self, memory: &MemoryFigures) -> Option<&'static str> {
        if self.are_own() {
            Some(
                "a TLS library has at most two such buffers per connection; the others are the program's own buffers, allocated in advance and mostly unused",
            )
        } else if self.grew(memory) {
            Some(
                "the buffers grew when 16 kB records arrived, and keep that size until the connection closes",
            )
        } else if self.number() <= OF_ONE {
            Some(
                "each connection allocates a buffer for the largest record (2^14 bytes) and keeps it while it is idle",
            )
        } else {
            None
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
