//! One finding: what is wrong, how surely, and what to change.

use serde::{Deserialize, Serialize};

use super::catalogue::FindingId;

/// How much a finding matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Could be better.
    Low,
    /// Costs noticeably.
    Medium,
    /// Costs a multiple of what is needed, or breaks something.
    High,
}

impl Severity {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// How sure the cause is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// One of several that fit.
    Low,
    /// It fits, and little else does.
    Medium,
    /// It was seen directly.
    High,
}

/// One finding.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// Stable identifier: `record-buffers-kept`.
    pub id: FindingId,
    /// How much it matters.
    pub severity: Severity,
    /// In one line.
    pub title: String,
    /// What was measured, with the numbers.
    pub measured: String,
    /// What a good one reaches, on the same machine where that could be measured.
    pub reference: String,
    /// The likely cause.
    pub cause: String,
    /// How sure that is.
    pub confidence: Confidence,
    /// What to change in this software.
    pub advice: String,
    /// The command that shows it again.
    pub command: String,
}
