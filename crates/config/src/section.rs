//! The two kinds of sections of a file: routes and originations.

use crate::option::group::OptionGroup;
use crate::options::{Originate, Route};

/// What the flags describe which are not those of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// `[[route]]`: the flags of `serve`.
    Route,
    /// `[[originate]]`: the flags of `connect`.
    Originate,
}

impl Section {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Route, Self::Originate];

    /// How it is written in the file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Originate => "originate",
        }
    }

    /// One of them, in messages.
    pub(crate) fn one(self) -> &'static str {
        match self {
            Self::Route => "a route",
            Self::Originate => "an origination",
        }
    }

    /// The same without its article.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Originate => "origination",
        }
    }

    /// Its options.
    pub fn options(self) -> OptionGroup {
        match self {
            Self::Route => OptionGroup::of::<Route>(),
            Self::Originate => OptionGroup::of::<Originate>(),
        }
    }
}
