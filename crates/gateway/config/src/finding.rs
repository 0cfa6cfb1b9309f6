//! What trying the files, addresses and users of a configuration found.

use crate::input::locations::Locations;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::location::Location;
use crate::mistakes::mistake::{Blame, Severity};
use crate::mistakes::problem::Problem;
use crate::section::Section;

/// A problem with something that an option names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The option.
    pub place: Place,
    /// Error or warning.
    pub severity: Severity,
    /// What is to blame.
    pub blame: Blame,
    /// What is wrong, as one sentence without a full stop.
    pub what: String,
    /// What would be right.
    pub help: Option<String>,
}

/// An option, or one item of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The configuration as a whole.
    Whole,
    /// An option of the program.
    Program(&'static str),
    /// An option of a route or an origination.
    Section {
        /// Route or origination.
        section: Section,
        /// Its index in the configuration.
        index: usize,
        /// The option's name.
        option: &'static str,
        /// Index of the item, if the option is a list.
        item: Option<usize>,
    },
}

impl Place {
    /// Returns the place of an option of the route with this index.
    pub fn of_route(index: usize, option: &'static str) -> Place {
        Place::of(Section::Route, index, option)
    }

    /// Returns the place of an option of the origination with this index.
    pub fn of_origination(index: usize, option: &'static str) -> Place {
        Place::of(Section::Originate, index, option)
    }

    fn of(section: Section, index: usize, option: &'static str) -> Place {
        Place::Section {
            section,
            index,
            option,
            item: None,
        }
    }

    /// Returns the place of one item of the option, which is a list.
    #[must_use]
    pub fn item(self, at: usize) -> Place {
        match self {
            Place::Section {
                section,
                index,
                option,
                ..
            } => Place::Section {
                section,
                index,
                option,
                item: Some(at),
            },
            other => other,
        }
    }

    /// Returns whether the option could be read, so that its value is the one written. For the whole
    /// configuration: whether it has no error so far. What then fails, such as a TLS context, fails
    /// because of that error.
    fn is_sound(&self, locations: &Locations<'_>, mistakes: &MistakeCollector<'_>) -> bool {
        match *self {
            Place::Whole => !mistakes.has_errors(),
            Place::Program(option) => locations.sound(&[option]),
            Place::Section {
                section,
                index,
                option,
                ..
            } => locations.sound_in(section, index, &[option]),
        }
    }

    fn location(&self, locations: &Locations<'_>) -> Location {
        match *self {
            Place::Whole => Location::Whole,
            Place::Program(option) => locations.option(option),
            Place::Section {
                section,
                index,
                option,
                item,
            } => locations.location_in(section, index, option, item),
        }
    }
}

/// Adds findings to the mistakes, except those at an option that could not be read: a default stood
/// in for it.
pub(crate) fn report(
    findings: Vec<Finding>,
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    for finding in findings {
        if !finding.place.is_sound(locations, mistakes) {
            continue;
        }
        let problem = Problem {
            blame: finding.blame,
            help: finding.help,
            ..Problem::new(finding.what)
        };
        let location = finding.place.location(locations);
        mistakes.add(finding.severity, &location, problem);
    }
}
