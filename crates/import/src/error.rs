//! Why a file can't be read as the program's configuration, and where in it.

use std::fmt;
use std::rc::Rc;

/// A line of a file; line 0 is the file as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// As it is shown. The file that was asked for needs no name in comments.
    pub(super) file: Rc<str>,
    pub(super) is_included: bool,
    pub(super) line: usize,
}

impl Position {
    pub(super) fn new(file: &str) -> Position {
        Position {
            file: file.into(),
            is_included: false,
            line: 0,
        }
    }

    /// In a file that another one includes.
    pub(super) fn included(file: &str) -> Position {
        Position {
            is_included: true,
            ..Position::new(file)
        }
    }

    pub(super) fn at(&self, line: usize) -> Position {
        Position {
            line,
            ..self.clone()
        }
    }
}

/// As comments name it.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_included, self.line) {
            (true, line) => write!(f, "{}:{line}", self.file),
            (false, line) => write!(f, "line {line}"),
        }
    }
}

/// What keeps a file from being understood at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    pub(super) what: String,
    pub(super) position: Position,
    pub(super) help: String,
}

impl ImportError {
    pub(super) fn new(
        position: &Position,
        line: usize,
        what: impl Into<String>,
        help: impl Into<String>,
    ) -> ImportError {
        ImportError {
            what: what.into(),
            position: position.at(line),
            help: help.into(),
        }
    }
}

/// In the form in which mistakes of our own configuration are told.
impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  --> {}", self.what, self.position.file)?;
        if self.position.line > 0 {
            write!(f, ":{}", self.position.line)?;
        }
        write!(f, "\n   = help: {}", self.help)
    }
}
