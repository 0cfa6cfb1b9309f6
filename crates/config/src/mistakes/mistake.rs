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

impl Source {
    /// The flag, or file, line and column; `file` is the configuration's own.
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

    /// Each mistake in one line with its place and remedy, for a log.
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
