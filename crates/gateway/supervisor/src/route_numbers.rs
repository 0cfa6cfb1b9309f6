//! Numbers of routes: slots refer to routes by number, and a reload keeps the numbers.
//!
//! A route that shares an address with a previous route is the same route, and keeps its number. If
//! several routes share the address, a common name and protocol take precedence. Any other route gets the
//! next number. A number is not reused soon, because connections of a removed route still have it. They
//! continue without their route; see [`dormouse_routes::table::Routes`].

use dormouse_config::{Config, PlainListen};
use dormouse_reactor::socket::Addr;
use dormouse_tables::traffic::ROUTE_NUMBERS;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;

/// Numbers wrap around here. A configuration has at most ten thousand routes.
const NUMBERS_MAX: u16 = ROUTE_NUMBERS as u16;

/// An address of a route, with the names and protocols that it serves there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Endpoint {
    address: Addr,
    names: Vec<String>,
    alpn: Vec<String>,
}

/// An address, and one of the names and protocols that a route serves there; `None` stands for all.
type Served<'a> = (&'a Addr, Option<&'a str>, Option<&'a str>);

impl Endpoint {
    /// Clients that the route serves. Two routes serve the same ones if they have one of these in common.
    fn served(&self) -> impl Iterator<Item = Served<'_>> {
        fn or_all(words: &[String]) -> impl Iterator<Item = Option<&str>> {
            let all = words.is_empty().then_some(None);
            words.iter().map(|word| Some(word.as_str())).chain(all)
        }
        let names = or_all(&self.names);
        names.flat_map(move |name| or_all(&self.alpn).map(move |alpn| (&self.address, name, alpn)))
    }
}

/// Former routes by what they have in common with the next ones: places in the list of former ones.
struct FormerRoutes<K>(HashMap<K, BTreeSet<usize>>);

impl<K: Eq + Hash> FormerRoutes<K> {
    fn new(all: impl Iterator<Item = (K, usize)>) -> FormerRoutes<K> {
        let mut by_key: HashMap<K, BTreeSet<usize>> = HashMap::new();
        for (key, place) in all {
            by_key.entry(key).or_default().insert(place);
        }
        FormerRoutes(by_key)
    }

    /// The first former route with one of these keys that no other route has taken. Forgets those that were taken.
    fn first_free(
        &mut self,
        keys: impl Iterator<Item = K>,
        is_taken: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let firsts = keys.filter_map(|key| {
            let places = self.0.get_mut(&key)?;
            while let Some(first) = places.first().copied().filter(|&first| is_taken(first)) {
                places.remove(&first);
            }
            places.first().copied()
        });
        firsts.min()
    }
}

/// The numbers in use, and the next free one.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteNumbers {
    /// Endpoints and number of each route, then of each origination.
    given: Vec<(Vec<Endpoint>, u16)>,
    next: u16,
}

impl RouteNumbers {
    /// Assigns a number to each route of the configuration, then to each origination.
    pub(crate) fn of(&self, config: &Config) -> RouteNumbers {
        let all: Vec<Vec<Endpoint>> = endpoints(config).collect();
        let mut numbers: Vec<Option<u16>> = vec![None; all.len()];
        let mut used: HashSet<u16> = HashSet::new();
        let former = || {
            let given = self.given.iter().enumerate();
            given.flat_map(|(place, (endpoints, _))| endpoints.iter().map(move |one| (one, place)))
        };
        let served = former().flat_map(|(one, place)| one.served().map(move |key| (key, place)));
        let mut by_clients = FormerRoutes::new(served);
        let mut by_address = FormerRoutes::new(former().map(|(one, place)| (&one.address, place)));
        let number_of = |place: usize| self.given.get(place).map(|(_, number)| *number);
        let is_taken =
            |used: &HashSet<u16>, place| number_of(place).is_none_or(|n| used.contains(&n));
        // The closest matches choose first.
        for (n, endpoints) in all.iter().enumerate() {
            let keys = endpoints.iter().flat_map(Endpoint::served);
            let found = by_clients.first_free(keys, |place| is_taken(&used, place));
            numbers[n] = found.and_then(number_of);
            used.extend(numbers[n]);
        }
        for (n, endpoints) in all.iter().enumerate() {
            if numbers[n].is_none() {
                let keys = endpoints.iter().map(|one| &one.address);
                let found = by_address.first_free(keys, |place| is_taken(&used, place));
                numbers[n] = found.and_then(number_of);
                used.extend(numbers[n]);
            }
        }
        let mut next = self.next;
        let mut given = Vec::with_capacity(all.len());
        for (n, endpoints) in all.into_iter().enumerate() {
            while numbers[n].is_none() {
                let number = next;
                next = (next + 1) % NUMBERS_MAX;
                if used.insert(number) {
                    numbers[n] = Some(number);
                }
            }
            given.push((endpoints, numbers[n].unwrap_or_default()));
        }
        RouteNumbers { given, next }
    }

    /// Adopts the numbers that another binary in this process has assigned.
    pub(crate) fn adopt(config: &Config, list: &[u16], next: u16) -> RouteNumbers {
        let given = endpoints(config).zip(list.iter().copied());
        RouteNumbers {
            given: given.collect(),
            next,
        }
    }

    /// The number of the next new route.
    pub(crate) fn next(&self) -> u16 {
        self.next
    }

    /// The numbers in configuration order.
    pub(crate) fn list(&self) -> Vec<u16> {
        self.given.iter().map(|(_, number)| *number).collect()
    }
}

fn endpoints(config: &Config) -> impl Iterator<Item = Vec<Endpoint>> + '_ {
    let routes = config.routes.iter().map(|route| {
        let names = route.server_names.iter().map(ToString::to_string);
        let (names, alpn): (Vec<String>, _) = (names.collect(), route.alpn.clone());
        let endpoint = |address| Endpoint {
            address,
            names: names.clone(),
            alpn: alpn.clone(),
        };
        let listen = route.listen.iter();
        listen
            .map(|listen| endpoint(Addr::Tcp(listen.address)))
            .collect()
    });
    let originations = config.originate.iter().map(|originate| {
        let endpoint = |listen: &PlainListen| Endpoint {
            address: match listen {
                PlainListen::Tcp(listen) => Addr::Tcp(listen.address),
                PlainListen::Unix(path) => Addr::Unix(path.clone()),
            },
            names: Vec::new(),
            alpn: Vec::new(),
        };
        originate.listen.iter().map(endpoint).collect()
    });
    routes.chain(originations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_config::{self as config, Machine, Section};
    use std::io::Write as _;

    fn config(listen: &[&str]) -> Config {
        let routes = listen.iter().map(|address| {
            let (address, more) = address.split_once(' ').unwrap_or((address, ""));
            format!("[[route]]\nlisten = [{address}]\n{more}\nto = 'echo:'\nself_signed = 'x'\n")
        });
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(routes.collect::<String>().as_bytes())
            .expect("written");
        let machine = Machine::read();
        let loaded = config::load(Some(file.path()), Section::Route, &[], &machine);
        loaded.unwrap_or_else(|m| panic!("{m}")).config
    }

    #[test]
    fn a_route_keeps_its_number_while_it_keeps_an_address() {
        let (a, b, c) = ("'127.0.0.1:5001'", "'127.0.0.1:5002'", "'127.0.0.1:5003'");
        let first = RouteNumbers::default().of(&config(&[a, b]));
        assert_eq!(first.list(), [0, 1]);
        let swapped = first.of(&config(&[b, a]));
        assert_eq!(swapped.list(), [1, 0]);
        let moved = swapped.of(&config(&["'127.0.0.1:5002','127.0.0.1:5009'", c]));
        assert_eq!(moved.list(), [1, 2], "c is new, a is gone");
        let back = moved.of(&config(&[a, "'127.0.0.1:5009'"]));
        assert_eq!(back.list(), [3, 1], "a is a new route");
        let split = back.of(&config(&[a, "'127.0.0.1:5009'", b]));
        assert_eq!(split.list(), [3, 1, 4]);
    }

    /// On a shared address, each route keeps the number of the one with the same names.
    #[test]
    fn routes_that_share_an_address_are_matched_by_name() {
        let (a, b, rest) = (
            "'127.0.0.1:5001' server_names = ['a.example', 'aa.example']",
            "'127.0.0.1:5001' server_names = '*.b.example'",
            "'127.0.0.1:5001'",
        );
        let first = RouteNumbers::default().of(&config(&[a, b, rest]));
        assert_eq!(first.list(), [0, 1, 2]);
        let swapped = first.of(&config(&[
            rest,
            b,
            "'127.0.0.1:5001' server_names = 'aa.example'",
        ]));
        assert_eq!(swapped.list(), [2, 1, 0]);
        let two = "'127.0.0.1:5001' server_names = 'c.example'";
        let renamed = swapped.of(&config(&[two, b, rest]));
        assert_eq!(
            renamed.list(),
            [0, 1, 2],
            "the remaining number belongs to the renamed route"
        );
        let more = renamed.of(&config(&[a, two, b, rest]));
        assert_eq!(more.list(), [3, 0, 1, 2]);
    }

    /// The work of a reload grows with the number of routes, not with its square: this would take minutes otherwise.
    #[test]
    fn thousands_of_routes_on_an_address_keep_their_numbers() {
        let listen: Vec<String> = (0..10_000)
            .map(|n| format!("'127.0.0.1:5001' server_names = 'n{n}.example'"))
            .collect();
        let listen: Vec<&str> = listen.iter().map(String::as_str).collect();
        let whole = config(&listen);
        let first = RouteNumbers::default().of(&whole);
        let mut reversed = whole;
        reversed.routes.reverse();
        let second = first.of(&reversed);
        let expected: Vec<u16> = (0..10_000).rev().collect();
        assert_eq!(second.list(), expected);
    }

    #[test]
    fn wrapped_numbers_skip_those_in_use() {
        let mut numbers = RouteNumbers::default().of(&config(&["'127.0.0.1:5001'"]));
        let two = config(&["'127.0.0.1:5001'", "'127.0.0.1:5002'"]);
        let one = config(&["'127.0.0.1:5001'"]);
        for round in 1..=usize::from(NUMBERS_MAX) + 10 {
            numbers = numbers.of(&two);
            let list = numbers.list();
            assert_eq!(list[0], 0);
            assert!(list[1] != 0 && list[1] < NUMBERS_MAX, "round {round}");
            numbers = numbers.of(&one);
        }
    }
}
