//! The two kinds of sections of a file: routes and originations.

use crate::option::group::OptionGroup;
use crate::options::{Originate, Route};

/// A kind of section. Flags that are not options of the program describe one section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// `[[route]]`: the flags of `serve`.
    Route,
    /// `[[originate]]`: the flags of `connect`.
    Originate,
}

impl Section {
    /// Both kinds.
    pub(crate) const ALL: [Self; 2] = [Self::Route, Self::Originate];

    /// Returns the kind with this name in the file.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|section| section.name() == name)
    }

    /// Returns its name in the file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Originate => "originate",
        }
    }

    /// Returns its name with an article, for messages.
    pub(crate) fn one(self) -> &'static str {
        match self {
            Self::Route => "a route",
            Self::Originate => "an origination",
        }
    }

    /// Returns its name without an article, for messages.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Originate => "origination",
        }
    }

    /// Returns its options.
    pub fn options(self) -> OptionGroup {
        match self {
            Self::Route => OptionGroup::of::<Route>(),
            Self::Originate => OptionGroup::of::<Originate>(),
        }
    }
}
