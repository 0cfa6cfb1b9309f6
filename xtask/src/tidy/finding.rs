//! What a rule reports.

use std::fmt;

/// A violation of a rule.
pub(crate) struct Finding {
    pub(super) rule: &'static str,
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) message: String,
}

impl Finding {
    /// The rule's name, which the caller of the rule sets.
    pub(super) fn new(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding {
            rule: "",
            path: path.to_string(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: {}",
            self.path, self.line, self.rule, self.message
        )
    }
}
