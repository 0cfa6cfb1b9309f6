//! Where every option was written, for checks that compare options.

use crate::mistakes::location::Location;
use crate::option::value::{Key, RawData, RawValue};
use crate::section::Section;
use std::collections::BTreeSet;

/// Where everything was written.
#[derive(Default)]
pub(crate) struct Locations<'a> {
    pub(crate) entries: &'a [(Key, RawValue)],
    /// Options of the program that could not be read: a default stands in for them.
    pub(crate) unsound: BTreeSet<String>,
    /// One per route of the configuration, in the same order.
    pub(crate) routes: Vec<SectionLocation<'a>>,
    /// The same for originations.
    pub(crate) originate: Vec<SectionLocation<'a>>,
}

/// Where a route or an origination was written.
pub(crate) struct SectionLocation<'a> {
    pub(crate) raw: &'a RawValue,
    /// Its options that could not be read, or are missing.
    pub(crate) unsound: BTreeSet<String>,
}

impl Locations<'_> {
    /// Returns the location of an option's value; `Whole` if it has its default.
    pub(crate) fn option(&self, name: &str) -> Location {
        find(self.entries, name).map_or(Location::Whole, |raw| raw.location.clone())
    }

    /// Returns the location of an item of a list, or of the whole option.
    pub(crate) fn item_of_option(&self, name: &str, at: usize) -> Location {
        find(self.entries, name).map_or(Location::Whole, |value| location_of(value, Some(at)))
    }

    /// Returns the location of the first of these options that was written.
    pub(crate) fn first_of(&self, names: &[&str]) -> Location {
        names
            .iter()
            .map(|name| self.option(name))
            .find(|location| *location != Location::Whole)
            .unwrap_or(Location::Whole)
    }

    /// Returns whether all these options could be read, so that comparing them makes sense.
    pub(crate) fn sound(&self, names: &[&str]) -> bool {
        !names.iter().any(|name| self.unsound.contains(*name))
    }

    /// Returns the same for options of a route.
    pub(crate) fn sound_in_route(&self, route: usize, names: &[&str]) -> bool {
        self.sound_in(Section::Route, route, names)
    }

    /// Returns the same for options of a route or an origination.
    pub(crate) fn sound_in(&self, section: Section, index: usize, names: &[&str]) -> bool {
        let unsound =
            |one: &SectionLocation<'_>| names.iter().any(|name| one.unsound.contains(*name));
        !self.all(section).get(index).is_some_and(unsound)
    }

    fn all(&self, section: Section) -> &[SectionLocation<'_>] {
        match section {
            Section::Route => &self.routes,
            Section::Originate => &self.originate,
        }
    }

    /// Returns a route or an origination, by its index.
    pub(crate) fn section(&self, section: Section, index: usize) -> SectionRef<'_> {
        SectionRef {
            section,
            index,
            locations: self,
        }
    }

    /// Returns the location of an option's value or of one of its items, or else of the route.
    pub(crate) fn in_route(&self, route: usize, name: &str, item: Option<usize>) -> Location {
        self.location_in(Section::Route, route, name, item)
    }

    /// Returns the same for a route or an origination.
    pub(crate) fn location_in(
        &self,
        section: Section,
        index: usize,
        name: &str,
        item: Option<usize>,
    ) -> Location {
        let Some(SectionLocation { raw, .. }) = self.all(section).get(index) else {
            return Location::Whole;
        };
        let value = match &raw.data {
            RawData::Table(entries) => find(entries, name),
            _ => None,
        };
        value.map_or_else(|| raw.location.clone(), |value| location_of(value, item))
    }
}

/// Returns the location of a value, or of one of its items.
fn location_of(value: &RawValue, item: Option<usize>) -> Location {
    let item = match (&value.data, item) {
        (RawData::List(items), Some(at)) => items.get(at),
        _ => None,
    };
    item.unwrap_or(value).location.clone()
}

fn find<'a>(entries: &'a [(Key, RawValue)], name: &str) -> Option<&'a RawValue> {
    entries
        .iter()
        .find(|(key, _)| key.name == name)
        .map(|(_, raw)| raw)
}

/// A route or an origination, and where it was written.
#[derive(Clone, Copy)]
pub(crate) struct SectionRef<'a> {
    pub(crate) section: Section,
    pub(crate) index: usize,
    pub(crate) locations: &'a Locations<'a>,
}

impl SectionRef<'_> {
    /// Returns whether the option was written at all.
    pub(crate) fn has(&self, name: &str) -> bool {
        let written = self.locations.all(self.section).get(self.index);
        written.is_some_and(|section| match &section.raw.data {
            RawData::Table(entries) => find(entries, name).is_some(),
            _ => false,
        })
    }

    pub(crate) fn sound(&self, names: &[&str]) -> bool {
        self.locations.sound_in(self.section, self.index, names)
    }

    pub(crate) fn location(&self, name: &str, item: Option<usize>) -> Location {
        self.locations
            .location_in(self.section, self.index, name, item)
    }
}
