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

impl Source {
    /// Returns the flag, or file, line and column; `file` is the configuration's own.
    fn place(&self, file: Option<&Path>) -> Option<String> {
        match self {
            Source::Line {
                file: included,
                line,
                span,
                text,
            } => {
                let file = included.as_deref().or(file)?.display();
                let before = text.get(..span.start).unwrap_or_default();
                Some(format!("{file}:{line}:{}", before.chars().count() + 1))
            }
            Source::Flag(flag) => Some(flag.clone()),
            Source::Whole => file.map(|file| file.display().to_string()),
        }
    }
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

    /// Returns each mistake as one line with its location and remedy, for a log.
    pub fn lines(&self) -> Vec<String> {
        let lines = self.list.iter().map(|mistake| {
            let place = mistake.source.place(self.file.as_deref());
            let place = place.map_or(String::new(), |place| format!("{place}: "));
            let label = match mistake.label.as_str() {
                "" => String::new(),
                label => format!(": {label}"),
            };
            let help = mistake.help.as_deref();
            let help = help.map_or(String::new(), |help| {
                format!("; {}", help.replace('\n', "; "))
            });
            format!("{place}{}{label}{help}", mistake.what)
        });
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_the_log_names_the_included_file_and_the_remedy() {
        let source = Source::Line {
            file: Some(PathBuf::from("sites/second.toml")),
            line: 2,
            span: 9..19,
            text: "listen = \"nonsense\"".to_owned(),
        };
        let mistake = Mistake {
            severity: Severity::Error,
            source,
            what: "not an address".to_owned(),
            label: "no port".to_owned(),
            help: Some("write HOST:PORT\nor :PORT".to_owned()),
            blame: Blame::Configuration,
        };
        let mistakes = Mistakes {
            file: Some(PathBuf::from("dormouse.toml")),
            list: vec![mistake],
        };
        assert_eq!(
            mistakes.lines(),
            ["sites/second.toml:2:10: not an address: no port; write HOST:PORT; or :PORT"]
        );
    }
}
