//! Lookup of the names of a configuration, each once.

use crate::option::context::Resolve;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Time for all names together with `resolve = "lazy"`. A name whose turn comes later is not looked up.
const LAZY_MAX: Duration = Duration::from_secs(5);

/// Addresses of a name, or why it has none.
type Answer = Result<Vec<SocketAddr>, String>;

/// The names that were looked up, with their answers. Thousands of routes may have the same backend.
pub(crate) struct Names<'a> {
    resolve: Resolve<'a>,
    is_lazy: bool,
    found: RefCell<HashMap<(String, u16), Answer>>,
    spent: Cell<Duration>,
}

impl<'a> Names<'a> {
    /// No name is looked up yet.
    pub(crate) fn new(resolve: Resolve<'a>, is_lazy: bool) -> Names<'a> {
        Names {
            resolve,
            is_lazy,
            found: RefCell::default(),
            spent: Cell::default(),
        }
    }

    /// Returns the addresses of a name, from the first lookup.
    pub(crate) fn addresses(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let mut found = self.found.borrow_mut();
        let answer = found.entry((name.to_owned(), port));
        let answer = answer.or_insert_with(|| self.look_up(name, port));
        answer.clone().map_err(io::Error::other)
    }

    fn look_up(&self, name: &str, port: u16) -> Answer {
        if self.is_lazy && self.spent.get() >= LAZY_MAX {
            return Err("not looked up: the names before took too long".to_owned());
        }
        let began = Instant::now();
        let answer = (self.resolve)(name, port).map_err(|error| error.to_string());
        self.spent.set(self.spent.get() + began.elapsed());
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_once() {
        let count = Cell::new(0);
        let resolve = |name: &str, port: u16| {
            count.set(count.get() + 1);
            match name {
                "known.example" => Ok(vec![SocketAddr::from(([10, 0, 0, 1], port))]),
                _ => Err(io::Error::other("no such name")),
            }
        };
        let names = Names::new(&resolve, false);
        for _ in 0..3 {
            let found = names.addresses("known.example", 80).expect("addresses");
            assert_eq!(found, [SocketAddr::from(([10, 0, 0, 1], 80))]);
            let error = names.addresses("other.example", 80).expect_err("none");
            assert_eq!(error.to_string(), "no such name");
        }
        assert_eq!(count.get(), 2);
        names.addresses("known.example", 81).expect("another port");
        assert_eq!(count.get(), 3);
    }

    #[test]
    fn lazy_names_share_a_limit_of_time() {
        let resolve = |_: &str, port: u16| Ok(vec![SocketAddr::from(([10, 0, 0, 1], port))]);
        for (is_lazy, expected) in [(true, false), (false, true)] {
            let names = Names::new(&resolve, is_lazy);
            assert!(names.addresses("a.example", 80).is_ok());
            names.spent.set(LAZY_MAX);
            assert!(names.addresses("a.example", 80).is_ok(), "known");
            assert_eq!(names.addresses("b.example", 80).is_ok(), expected);
        }
    }
}
