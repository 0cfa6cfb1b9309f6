//! What is wrong with a value, before it is known where the value stands.

use crate::input::location::Location;
use crate::mistakes::mistake::Blame;

/// What reading a value gives: all that is wrong with it, not just the first.
pub(crate) type ReadResult<T> = Result<T, Vec<Problem>>;

/// Something wrong with a value; it becomes a mistake when its place is known.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    /// Where, if not the value as a whole.
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

    /// A few words for under the caret.
    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// What would be right.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Where it is, unless that is known better.
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
