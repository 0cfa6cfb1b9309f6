//! A finding: problem, likely cause and remedy.

use serde::{Deserialize, Serialize};

use super::catalogue::FindingId;

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Can be improved.
    Low,
    /// Costs noticeably more than needed.
    Medium,
    /// Costs a multiple of what is needed, or breaks something.
    High,
}

impl Severity {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// Returns the severity of the first limit that is exceeded; the limits begin with the most severe.
    pub(super) fn above(limits: &[(f64, Self)], value: f64) -> Option<Self> {
        let exceeded = limits.iter().find(|(limit, _)| value > *limit);
        exceeded.map(|(_, severity)| *severity)
    }
}

/// Confidence in the cause of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// One of several causes that fit.
    Low,
    /// The cause fits, and few others do.
    Medium,
    /// The cause was seen directly.
    High,
}

/// One finding.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// Stable identifier: `record-buffers-kept`.
    pub id: FindingId,
    /// Its severity.
    pub severity: Severity,
    /// Summary in one line.
    pub title: String,
    /// The measured figures.
    pub measured: String,
    /// The figure of a good server or client, measured on the same machine where possible.
    pub reference: String,
    /// The likely cause.
    pub cause: String,
    /// Confidence in the cause.
    pub confidence: Confidence,
    /// What to change in this software.
    pub advice: String,
    /// The command that reproduces the finding.
    pub command: String,
}

impl Finding {
    /// Whether all its texts are there.
    pub(super) fn is_told(&self) -> bool {
        let texts = [&self.title, &self.measured, &self.reference, &self.cause];
        texts.iter().all(|text| !text.is_empty())
    }
}
