//! Where everything was written, for those who find out that it does not fit.

use std::collections::BTreeSet;

use super::Section;
use super::raw::{Key, Node, Place, Raw};

/// Where everything was written.
#[derive(Default)]
pub(super) struct Placed<'a> {
    pub(super) entries: &'a [(Key, Raw)],
    /// Options of the program which could not be read: a default stands in for them.
    pub(super) unsound: BTreeSet<String>,
    /// One per route of the configuration, in the same order.
    pub(super) routes: Vec<PlacedRoute<'a>>,
    /// The same for originations.
    pub(super) originate: Vec<PlacedRoute<'a>>,
}

/// Where a route or an origination was written.
pub(super) struct PlacedRoute<'a> {
    pub(super) raw: &'a Raw,
    /// Its options which could not be read, or are missing.
    pub(super) unsound: BTreeSet<String>,
}

impl Placed<'_> {
    /// The value of an option of the program; `Whole` if it has its default.
    pub(super) fn option(&self, name: &str) -> Place {
        find(self.entries, name).map_or(Place::Whole, |raw| raw.place.clone())
    }

    /// The first of these options that was written.
    pub(super) fn first_of(&self, names: &[&str]) -> Place {
        names
            .iter()
            .map(|name| self.option(name))
            .find(|place| *place != Place::Whole)
            .unwrap_or(Place::Whole)
    }

    /// Whether all these options mean what was written, so that comparing them makes sense.
    pub(super) fn sound(&self, names: &[&str]) -> bool {
        !names.iter().any(|name| self.unsound.contains(*name))
    }

    /// The same for options of a route.
    pub(super) fn sound_in_route(&self, route: usize, names: &[&str]) -> bool {
        self.sound_in(Section::Route, route, names)
    }

    /// The same for options of a route or an origination.
    pub(super) fn sound_in(&self, section: Section, index: usize, names: &[&str]) -> bool {
        let unsound = |one: &PlacedRoute<'_>| names.iter().any(|name| one.unsound.contains(*name));
        !self.all(section).get(index).is_some_and(unsound)
    }

    fn all(&self, section: Section) -> &[PlacedRoute<'_>] {
        match section {
            Section::Route => &self.routes,
            Section::Originate => &self.originate,
        }
    }

    /// Whether an option of a route was written at all.
    pub(super) fn written_in_route(&self, route: usize, name: &str) -> bool {
        self.routes
            .get(route)
            .is_some_and(|route| match &route.raw.node {
                Node::Table(entries) => find(entries, name).is_some(),
                _ => false,
            })
    }

    /// The value of an option of a route, or one item of it; else the route.
    pub(super) fn in_route(&self, route: usize, name: &str, item: Option<usize>) -> Place {
        self.place_in(Section::Route, route, name, item)
    }

    /// The same of a route or an origination.
    pub(super) fn place_in(
        &self,
        section: Section,
        index: usize,
        name: &str,
        item: Option<usize>,
    ) -> Place {
        let Some(PlacedRoute { raw, .. }) = self.all(section).get(index) else {
            return Place::Whole;
        };
        let value = match &raw.node {
            Node::Table(entries) => find(entries, name),
            _ => None,
        };
        let place = match (value.map(|value| &value.node), item) {
            (Some(Node::List(items)), Some(at)) => items.get(at).map(|item| &item.place),
            _ => None,
        };
        place
            .or(value.map(|value| &value.place))
            .unwrap_or(&raw.place)
            .clone()
    }
}

fn find<'a>(entries: &'a [(Key, Raw)], name: &str) -> Option<&'a Raw> {
    entries
        .iter()
        .find(|(key, _)| key.name == name)
        .map(|(_, raw)| raw)
}

/// A route or an origination, and where it was written.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) section: Section,
    pub(super) index: usize,
    pub(super) placed: &'a Placed<'a>,
}

impl At<'_> {
    pub(super) fn sound(&self, names: &[&str]) -> bool {
        self.placed.sound_in(self.section, self.index, names)
    }

    pub(super) fn place(&self, name: &str, item: Option<usize>) -> Place {
        self.placed.place_in(self.section, self.index, name, item)
    }
}
