//! Mistakes in a configuration: what is wrong, where, and what would be right.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// Something wrong, where it is, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Whether it can be lived with.
    pub severity: Severity,
    /// Where it was written.
    pub source: Source,
    /// What is wrong, as one sentence without a full stop.
    pub what: String,
    /// A few words for under the caret; may be empty.
    pub label: String,
    /// What would be right.
    pub help: Option<String>,
}

/// Whether something can be lived with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It cannot: nothing starts.
    Error,
    /// It can, but somebody should know.
    Warning,
}

/// Where a mistake was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In a line of the file, or of one that it includes.
    Line {
        /// The included file. `None`: the configuration's own.
        file: Option<PathBuf>,
        /// Its number, from 1.
        line: usize,
        /// Bytes of the line; never past its end.
        span: Range<usize>,
        /// The line.
        text: String,
    },
    /// In the flag of this name.
    Flag(String),
    /// In the whole of it.
    Whole,
}

/// All mistakes of a configuration, in the order in which they stand there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes {
    /// The file, unless there were only flags.
    pub file: Option<PathBuf>,
    /// The mistakes.
    pub list: Vec<Mistake>,
}

impl Mistakes {
    /// One mistake which concerns the file as such.
    pub(crate) fn of_file(file: &Path, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            file: Some(file.to_owned()),
            list: vec![Mistake {
                severity: Severity::Error,
                source: Source::Whole,
                what: what.into(),
                label: String::new(),
                help: Some(help.into()),
            }],
        }
    }

    /// How many of them keep the program from starting.
    pub fn errors(&self) -> usize {
        let of = |mistake: &&Mistake| mistake.severity == Severity::Error;
        self.list.iter().filter(of).count()
    }
}
