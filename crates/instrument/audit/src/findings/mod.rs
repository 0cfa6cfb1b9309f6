//! Findings: problems, likely causes and remedies, derived from the figures of an audit alone.

mod baseline;
mod buffers;
mod client;
mod collected;
mod contexts;
mod growth;
mod hot_spots;
mod memory;
mod quoted;
mod records;
mod resumption;
mod retained;
mod serialised;
mod server;
mod subject;
mod thresholds;
mod units;

pub use crate::catalogue::{Confidence, FindingId, Severity};
pub use thresholds::Thresholds;

use crate::model::{Audit, Finding};
use subject::AuditSubject;
pub(crate) use thresholds::bytes_per_connection;

/// Derives all findings, the most severe first.
pub(super) fn judge(audit: &Audit) -> Vec<Finding> {
    let mut findings = Vec::new();
    let subject = AuditSubject::new(audit);
    if let Some(figures) = &audit.server {
        server::judge(&subject, figures, &mut findings);
        if let Some(memory) = figures.memory.value() {
            let census = figures.census.value();
            memory::judge(&subject, memory, census, &mut findings);
            let growth = growth::judge(&subject, memory, census);
            findings.extend(growth.or_else(|| retained::judge(&subject, memory, census)));
        }
    }
    if let Some(figures) = &audit.client {
        client::judge(&subject, figures, &mut findings);
    }
    debug_assert!(findings.iter().all(Finding::is_complete), "{findings:?}");
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}
