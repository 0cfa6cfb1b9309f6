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
    /// Whose mistake it is.
    pub blame: Blame,
}

/// Whose mistake something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Blame {
    /// The configuration's: other text would be right.
    #[default]
    Configuration,
    /// The operating system's, which refuses what the text asks for: an address in use, a privilege.
    System,
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
                blame: Blame::Configuration,
            }],
        }
    }

    /// How many of them keep the program from starting.
    pub fn errors(&self) -> usize {
        self.all_errors().count()
    }

    /// Whether only the operating system keeps the program from starting: the text is right.
    pub fn are_of_system(&self) -> bool {
        self.errors() > 0 && self.all_errors().all(|one| one.blame == Blame::System)
    }

    fn all_errors(&self) -> impl Iterator<Item = &Mistake> {
        let errors = self.list.iter();
        errors.filter(|mistake| mistake.severity == Severity::Error)
    }

    /// Each mistake in one line with its place, for a log.
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
