//! Problems of a value, whose location may not be known yet.

use crate::mistakes::location::Location;
use crate::mistakes::mistake::Blame;

/// The result of reading a value. The error has all its problems, not just the first.
pub(crate) type ReadResult<T> = Result<T, Vec<Problem>>;

/// A problem of a value; it becomes a mistake once its location is known.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    /// The location, if it is not that of the whole value.
    pub(crate) location: Option<Location>,
    pub(crate) what: String,
    pub(crate) label: String,
    pub(crate) help: Option<String>,
    pub(crate) blame: Blame,
}

impl Problem {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            location: None,
            what: what.into(),
            label: String::new(),
            help: None,
            blame: Blame::Configuration,
        }
    }

    /// Sets a few words to show under the caret.
    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Sets what would be right.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Sets the location, unless a more exact one is set.
    pub(crate) fn at(mut self, location: &Location) -> Self {
        self.location.get_or_insert_with(|| location.clone());
        self
    }
}

impl From<Problem> for Vec<Problem> {
    fn from(problem: Problem) -> Self {
        vec![problem]
    }
}
