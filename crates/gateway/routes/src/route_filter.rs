//! The choice of a route among those of an address, by the ClientHello: first by the server name, then
//! by the offered protocols (ALPN).
//!
//! An exact name takes precedence over a wildcard, and a wildcard over a route without names. Among
//! equal routes, the first one that shares a protocol with the client is chosen; else the first one
//! without protocols; else the first one, whose handshake then fails with no_application_protocol.

use dormouse_engine::ClientHello;
use std::collections::{HashMap, hash_map};

/// Server names and protocols of a route.
#[derive(Clone, Debug, Default)]
pub struct RouteFilter {
    /// Names in lower case; empty: all names.
    names: Vec<String>,
    alpn: Vec<Vec<u8>>,
}

/// Quality of a name's match.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Any,
    Wildcard,
    Exact,
}

impl RouteFilter {
    pub(crate) fn of(route: &dormouse_config::Route) -> RouteFilter {
        let names = route.server_names.iter();
        RouteFilter {
            names: names.map(ToString::to_string).collect(),
            alpn: crate::engine_values::alpn(&route.alpn),
        }
    }

    /// Whether the route serves only some names.
    pub(crate) fn is_selective(&self) -> bool {
        !self.names.is_empty()
    }

    /// A name for the server of this route: the first one, or `localhost` if it serves all names.
    pub fn host(&self) -> &str {
        let first = self.names.first().map(String::as_str);
        first.map_or("localhost", |name| name.strip_prefix("*.").unwrap_or(name))
    }

    /// Whether both have a name in common, and a protocol.
    pub fn meets(&self, other: &RouteFilter) -> bool {
        fn meet<T: PartialEq>(one: &[T], other: &[T]) -> bool {
            (one.is_empty() && other.is_empty()) || one.iter().any(|word| other.contains(word))
        }
        meet(&self.names, &other.names) && meet(&self.alpn, &other.alpn)
    }

    fn fit(&self, name: Option<&str>) -> Option<Fit> {
        if self.names.is_empty() {
            return Some(Fit::Any);
        }
        let name = name?;
        if self.names.iter().any(|own| own == name) {
            return Some(Fit::Exact);
        }
        let (label, parent) = name.split_once('.')?;
        let is_above = |own: &String| own.strip_prefix("*.") == Some(parent);
        (!label.is_empty() && self.names.iter().any(is_above)).then_some(Fit::Wildcard)
    }

    fn shares_protocol(&self, hello: &ClientHello) -> bool {
        self.alpn.iter().any(|own| hello.alpn.contains(own))
    }
}

/// The routes by their names, so that the choice among thousands takes about as long as among a few.
#[derive(Debug, Default)]
pub struct RouteNames {
    /// The numbers of the routes with a name, ascending. A wildcard's name begins with `*.`.
    named: HashMap<String, Vec<u16>>,
    /// The numbers of the routes that serve all names, ascending.
    unnamed: Vec<u16>,
}

impl RouteNames {
    /// Adds the names of a route. Routes come in the order of their numbers, or not.
    pub fn add(&mut self, number: u16, filter: &RouteFilter) {
        let add = |numbers: &mut Vec<u16>| {
            let at = numbers.partition_point(|&other| other < number);
            numbers.insert(at, number);
        };
        if filter.names.is_empty() {
            add(&mut self.unnamed);
        }
        for name in &filter.names {
            match self.named.get_mut(name) {
                Some(numbers) => add(numbers),
                None => drop(self.named.insert(name.clone(), vec![number])),
            }
        }
    }

    /// Returns the names, for an owner that drops them a few at a time.
    pub fn into_names(self) -> hash_map::IntoIter<String, Vec<u16>> {
        self.named.into_iter()
    }

    /// Returns those of the `candidates` that fit this name best, in their order.
    pub fn nearest(&self, name: Option<&str>, candidates: &[u16]) -> Vec<u16> {
        let of = |name: &str| self.named.get(name).map_or(&[][..], Vec::as_slice);
        let exact = name.map_or(&[][..], of);
        let parent = name.and_then(|name| name.split_once('.'));
        let parent = parent.filter(|(label, _)| !label.is_empty());
        let wildcard = parent.map(|(_, parent)| format!("*.{parent}"));
        let wildcard = wildcard.as_deref().map_or(&[][..], of);
        let by_fit = [exact, wildcard, &self.unnamed];
        let found = by_fit.map(|numbers| common(candidates, numbers));
        let mut found = found.into_iter().filter(|numbers| !numbers.is_empty());
        found.next().unwrap_or_default()
    }
}

/// The candidates that are among these ascending numbers.
fn common(candidates: &[u16], numbers: &[u16]) -> Vec<u16> {
    match candidates.len() <= numbers.len() {
        true => {
            let is_common = |number: &&u16| numbers.binary_search(number).is_ok();
            candidates.iter().filter(is_common).copied().collect()
        }
        false => {
            let place = |number: &u16| candidates.iter().position(|one| one == number);
            let mut found: Vec<(usize, u16)> = numbers
                .iter()
                .filter_map(|number| Some((place(number)?, *number)))
                .collect();
            found.sort_unstable();
            found.into_iter().map(|(_, number)| number).collect()
        }
    }
}

/// Returns the number of the route that serves this client. `None`: no route does.
pub fn choose<'a>(
    routes: impl Iterator<Item = (u16, &'a RouteFilter)> + Clone,
    hello: &ClientHello,
) -> Option<u16> {
    let name = hello.server_name.as_deref();
    let best = routes
        .clone()
        .filter_map(|(_, filter)| filter.fit(name))
        .max()?;
    let equal = routes.filter(|(_, filter)| filter.fit(name) == Some(best));
    let shares = equal
        .clone()
        .find(|(_, filter)| filter.shares_protocol(hello));
    let without_alpn = || equal.clone().find(|(_, filter)| filter.alpn.is_empty());
    let chosen = shares
        .or_else(without_alpn)
        .or_else(|| equal.clone().next());
    chosen.map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(names: &[&str], alpn: &[&str]) -> RouteFilter {
        RouteFilter {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            alpn: alpn.iter().map(|one| one.as_bytes().to_vec()).collect(),
        }
    }

    fn hello(name: &str, alpn: &[&str]) -> ClientHello {
        ClientHello {
            server_name: (!name.is_empty()).then(|| name.to_owned()),
            alpn: alpn.iter().map(|one| one.as_bytes().to_vec()).collect(),
        }
    }

    #[test]
    fn filters_with_a_common_name_and_protocol_meet() {
        let old = filter(&["a.example", "b.example"], &["h2"]);
        for (names, alpn, expected) in [
            (&["b.example", "c.example"][..], &["mqtt", "h2"][..], true),
            (&["c.example"], &["h2"], false),
            (&["a.example"], &["mqtt"], false),
            (&[], &["h2"], false),
            (&["a.example"], &[], false),
        ] {
            assert_eq!(old.meets(&filter(names, alpn)), expected, "{names:?}");
        }
        assert!(filter(&[], &[]).meets(&filter(&[], &[])));
    }

    #[test]
    fn names_decide_and_then_protocols() {
        let routes = [
            filter(&[], &[]),
            filter(&["*.example"], &["h2"]),
            filter(&["*.example"], &[]),
            filter(&["a.example", "b.test"], &["h2"]),
            filter(&["a.example"], &["mqtt"]),
        ];
        // Whatever the order of the other routes' numbers, the nearest are enough to choose from.
        let mut names = RouteNames::default();
        for (number, filter) in (0..5).zip(&routes).rev() {
            names.add(number, filter);
        }
        let chosen = |name: &str, alpn: &[&str]| {
            let hello = hello(name, alpn);
            let chosen = choose((0..).zip(routes.iter()), &hello);
            let nearest = names.nearest(hello.server_name.as_deref(), &[0, 1, 2, 3, 4, 9]);
            let nearest = nearest.into_iter().map(|n| (n, &routes[usize::from(n)]));
            assert_eq!(choose(nearest, &hello), chosen, "{name} {alpn:?}");
            chosen
        };
        assert_eq!(names.nearest(Some("a.example"), &[4, 3, 0]), [4, 3]);
        assert_eq!(names.nearest(Some("a.example"), &[2, 0]), [2]);
        assert_eq!(names.nearest(Some("a.example"), &[7, 0]), [0]);
        assert!(names.nearest(Some("a.example"), &[7]).is_empty());
        assert_eq!(chosen("", &[]), Some(0));
        assert_eq!(chosen("c.test", &["h2"]), Some(0));
        assert_eq!(chosen("example", &[]), Some(0), "a wildcard is one label");
        assert_eq!(chosen("x.y.example", &[]), Some(0), "not two labels");
        assert_eq!(chosen("x.example", &["mqtt", "h2"]), Some(1));
        assert_eq!(chosen("x.example", &["mqtt"]), Some(2));
        assert_eq!(chosen("x.example", &[]), Some(2));
        assert_eq!(chosen("b.test", &["h2"]), Some(3));
        assert_eq!(chosen("a.example", &["mqtt"]), Some(4));
        assert_eq!(
            chosen("a.example", &["other"]),
            Some(3),
            "its handshake then fails"
        );
        let some = routes.iter().skip(1);
        assert_eq!(choose((1..).zip(some.clone()), &hello("c.test", &[])), None);
        assert_eq!(choose((1..).zip(some), &hello("", &[])), None);
    }
}
