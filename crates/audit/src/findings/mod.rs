//! What is wrong, how surely, and what to change. Drawn from the figures of an audit alone.

mod advice;
mod catalogue;
mod client;
mod collected;
mod finding;
mod memory;
mod quoted;
mod resumption;
mod server;
mod subject;
mod thresholds;
mod units;

pub use catalogue::FindingId;
pub use finding::{Confidence, Finding, Severity};
pub use thresholds::Thresholds;

use crate::model::Audit;
use subject::AuditSubject;
pub(crate) use thresholds::bytes_per_connection;

/// Draws all findings, the weightiest first.
pub(super) fn judge(audit: &Audit) -> Vec<Finding> {
    let mut findings = Vec::new();
    let about = AuditSubject::new(audit);
    if let Some(figures) = &audit.server {
        server::judge(&about, figures, &mut findings);
        memory::judge(&about, figures, &mut findings);
    }
    if let Some(figures) = &audit.client {
        client::judge(&about, figures, &mut findings);
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}
