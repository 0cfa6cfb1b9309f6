//! Mistakes in a configuration: what is wrong, where, and what would be right.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// A mistake: what is wrong, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Error or warning.
    pub severity: Severity,
    /// Where it was written.
    pub source: Source,
    /// What is wrong, as one sentence without a full stop.
    pub what: String,
    /// A few words to show under the caret; may be empty.
    pub label: String,
    /// What would be right.
    pub help: Option<String>,
    /// What is to blame.
    pub blame: Blame,
}

/// What is to blame for a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Blame {
    /// The configuration: its text must change.
    #[default]
    Configuration,
    /// The operating system, which refuses what the text asks for: an address in use, a missing
    /// privilege.
    System,
}

/// Error or warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Prevents a start.
    Error,
    /// Does not prevent a start.
    Warning,
}

/// Where a mistake was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In a line of the file, or of one that it includes.
    Line {
        /// The included file. `None`: the configuration's own.
        file: Option<PathBuf>,
        /// The line's number, from 1.
        line: usize,
        /// Bytes within the line; never past its end.
        span: Range<usize>,
        /// The line's text.
        text: String,
    },
    /// In the flag of this name.
    Flag(String),
    /// In the configuration as a whole.
    Whole,
}

/// All mistakes of a configuration, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes {
    /// The file, unless there were only flags.
    pub file: Option<PathBuf>,
    /// The mistakes.
    pub list: Vec<Mistake>,
}

impl Mistakes {
    /// Returns one mistake that concerns the file itself.
    pub(crate) fn of_file(file: &Path, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            file: Some(file.to_owned()),
            list: vec![Mistake {
                severity: Severity::Error,
                source: Source::Whole,
                what: what.into(),
                label: String::new(),
                help: Some(help.into()),
                blame: Blame::Configuration,
            }],
        }
    }

    /// Returns the number of errors, which prevent a start.
    pub fn errors(&self) -> usize {
        self.all_errors().count()
    }

    /// Returns whether the operating system is to blame for all errors, so that the text is right.
    pub fn are_of_system(&self) -> bool {
        self.errors() > 0 && self.all_errors().all(|one| one.blame == Blame::System)
    }

    fn all_errors(&self) -> impl Iterator<Item = &Mistake> {
        let errors = self.list.iter();
        errors.filter(|mistake| mistake.severity == Severity::Error)
    }

    /// Returns each mistake as one line with its location, for a log.
    pub fn lines(&self) -> Vec<String> {
        let file = self.file.as_ref().map(|file| file.display().to_string());
        let line = |mistake: &Mistake| match (&mistake.source, &file) {
            (Source::Line { line, .. }, Some(file)) => format!("{file}:{line}: {}", mistake.what),
            (Source::Flag(flag), _) => format!("{flag}: {}", mistake.what),
            (_, Some(file)) => format!("{file}: {}", mistake.what),
            (_, None) => mistake.what.clone(),
        };
        self.list.iter().map(line).collect()
    }
}
