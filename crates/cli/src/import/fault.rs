//! Why a file can't be read as the program's configuration, and where in it.

use std::fmt;
use std::rc::Rc;

/// A line of a file; line 0 is the file as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// As it is shown. The file that was asked for needs no name in comments.
    pub(super) file: Rc<str>,
    pub(super) is_included: bool,
    pub(super) line: usize,
}

impl Spot {
    pub(super) fn new(file: &str) -> Spot {
        Spot {
            file: file.into(),
            is_included: false,
            line: 0,
        }
    }

    /// In a file that another one includes.
    pub(super) fn included(file: &str) -> Spot {
        Spot {
            is_included: true,
            ..Spot::new(file)
        }
    }

    pub(super) fn at(&self, line: usize) -> Spot {
        Spot {
            line,
            ..self.clone()
        }
    }
}

/// As comments name it.
impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_included, self.line) {
            (true, line) => write!(f, "{}:{line}", self.file),
            (false, line) => write!(f, "line {line}"),
        }
    }
}

/// What keeps a file from being understood at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) what: String,
    pub(super) spot: Spot,
    pub(super) help: String,
}

impl Fault {
    pub(super) fn new(
        spot: &Spot,
        line: usize,
        what: impl Into<String>,
        help: impl Into<String>,
    ) -> Fault {
        Fault {
            what: what.into(),
            spot: spot.at(line),
            help: help.into(),
        }
    }
}

/// In the form in which mistakes of our own configuration are told.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  --> {}", self.what, self.spot.file)?;
        if self.spot.line > 0 {
            write!(f, ":{}", self.spot.line)?;
        }
        write!(f, "\n   = help: {}", self.help)
    }
}
