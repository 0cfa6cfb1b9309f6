//! A finding: problem, likely cause and remedy.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

use crate::catalogue::{Confidence, FindingId, Severity};

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
    /// Fills in `{name}` in the title, in what is good, and in the cause.
    pub(crate) fn with(mut self, name: &str, value: impl Display) -> Self {
        let (place, value) = (format!("{{{name}}}"), value.to_string());
        for text in [&mut self.title, &mut self.reference, &mut self.cause] {
            *text = text.replace(&place, &value);
        }
        self
    }

    /// Names this cause instead of the usual one.
    pub(crate) fn because(self, cause: impl Into<String>, confidence: Confidence) -> Self {
        Self {
            cause: cause.into(),
            confidence,
            ..self
        }
    }

    /// Whether all its texts are there, and every place in the title is filled in.
    pub(crate) fn is_complete(&self) -> bool {
        let texts = [&self.title, &self.measured, &self.reference, &self.cause];
        texts.iter().all(|text| !text.is_empty()) && !self.title.contains('{')
    }
}
