//! Numbers of routes: what slots call them by, whatever reloads make of the configuration.
//!
//! A route that has an address in common with one of before is that one, and keeps its number.
//! Any other gets the next number, and not soon one that was in use: connections of a route that
//! was removed still have it. They go on without; see [`crate::route::by_number`].

use crate::config::{Config, PlainListen};
use dormouse_reactor::socket::Addr;

/// Numbers begin anew after this one. There are at most a thousand routes at a time.
const NUMBERS_MAX: u16 = 4096;

/// The numbers in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    /// Of each route, then of each origination, with where it listens.
    given: Vec<(Vec<Addr>, u16)>,
    next: u16,
}

impl Numbers {
    /// Gives a number to each route of the configuration, then to each origination.
    pub(super) fn of(&self, config: &Config) -> Numbers {
        let mut next = self.next;
        let mut given: Vec<(Vec<Addr>, u16)> = Vec::new();
        let all: Vec<Vec<Addr>> = places(config).collect();
        let former = |places: &[Addr]| {
            let shares =
                |(former, _): &&(Vec<Addr>, u16)| former.iter().any(|place| places.contains(place));
            self.given.iter().find(shares).map(|(_, number)| *number)
        };
        let kept: Vec<u16> = all.iter().filter_map(|places| former(places)).collect();
        for places in all {
            let free = |number: u16, given: &[(Vec<Addr>, u16)]| {
                !given.iter().any(|(_, taken)| *taken == number)
            };
            let number = match former(&places).filter(|&number| free(number, &given)) {
                Some(number) => number,
                None => loop {
                    let number = next;
                    next = (next + 1) % NUMBERS_MAX;
                    if !kept.contains(&number) && free(number, &given) {
                        break number;
                    }
                },
            };
            given.push((places, number));
        }
        Numbers { given, next }
    }

    /// In the order of the configuration.
    pub(super) fn list(&self) -> Vec<u16> {
        self.given.iter().map(|(_, number)| *number).collect()
    }
}

fn places(config: &Config) -> impl Iterator<Item = Vec<Addr>> + '_ {
    let routes = config.routes.iter().map(|route| {
        let listen = route.listen.iter();
        listen.map(|listen| Addr::Tcp(listen.address)).collect()
    });
    let originations = config.originate.iter().map(|originate| {
        let place = |listen: &PlainListen| match listen {
            PlainListen::Tcp(listen) => Addr::Tcp(listen.address),
            PlainListen::Unix(path) => Addr::Unix(path.clone()),
        };
        originate.listen.iter().map(place).collect()
    });
    routes.chain(originations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Machine, Purpose, Section};
    use std::io::Write as _;

    fn config(listen: &[&str]) -> Config {
        let routes = listen.iter().map(|address| {
            format!("[[route]]\nlisten = [{address}]\nto = 'echo:'\nself_signed = 'x'\n")
        });
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(routes.collect::<String>().as_bytes())
            .expect("written");
        let machine = Machine::read();
        let loaded = config::load(
            Some(file.path()),
            Section::Route,
            &[],
            &machine,
            Purpose::Check,
        );
        loaded.unwrap_or_else(|m| panic!("{m}")).config
    }

    #[test]
    fn a_route_keeps_its_number_as_long_as_it_has_an_address_of_before() {
        let (a, b, c) = ("'127.0.0.1:5001'", "'127.0.0.1:5002'", "'127.0.0.1:5003'");
        let first = Numbers::default().of(&config(&[a, b]));
        assert_eq!(first.list(), [0, 1]);
        let swapped = first.of(&config(&[b, a]));
        assert_eq!(swapped.list(), [1, 0]);
        let moved = swapped.of(&config(&["'127.0.0.1:5002', '127.0.0.1:5009'", c]));
        assert_eq!(moved.list(), [1, 2], "c is new, a is gone");
        let back = moved.of(&config(&[a, "'127.0.0.1:5009'"]));
        assert_eq!(back.list(), [3, 1], "a is another one now");
        let split = back.of(&config(&[a, "'127.0.0.1:5009'", b]));
        assert_eq!(split.list(), [3, 1, 4]);
    }

    #[test]
    fn numbers_of_living_routes_are_not_given_away_when_they_begin_anew() {
        let mut numbers = Numbers::default().of(&config(&["'127.0.0.1:5001'"]));
        let two = config(&["'127.0.0.1:5001'", "'127.0.0.1:5002'"]);
        let one = config(&["'127.0.0.1:5001'"]);
        for round in 1..=2 * usize::from(NUMBERS_MAX) {
            numbers = numbers.of(&two);
            let list = numbers.list();
            assert_eq!(list[0], 0);
            assert!(list[1] != 0 && list[1] < NUMBERS_MAX, "round {round}");
            numbers = numbers.of(&one);
        }
    }
}
