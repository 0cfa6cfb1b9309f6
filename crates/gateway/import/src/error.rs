//! Errors: why a file can't be read as the program's configuration, and where.

use std::fmt;
use std::rc::Rc;

/// A line of a file; line 0 is the whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The name as shown. Comments do not name the main file.
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

    /// Returns the position of a file that another file includes.
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

/// Shows the position as comments do.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_included, self.line) {
            (true, line) => write!(f, "{}:{line}", self.file),
            (false, line) => write!(f, "line {line}"),
        }
    }
}

/// An error that prevents reading a file at all.
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

/// Shows the error in the form of mistakes in a configuration of Dormouse.
impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  --> {}", self.what, self.position.file)?;
        if self.position.line > 0 {
            write!(f, ":{}", self.position.line)?;
        }
        write!(f, "\n   = help: {}", self.help)
    }
}
