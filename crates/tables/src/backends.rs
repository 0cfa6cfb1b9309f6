//! What all workers know of the backends: how many connections each has, and which have failed.
//!
//! One table of fixed size in shared memory, where a backend is found by its address, so that it
//! keeps its place through a reload. A worker writes the number of its own connections to a block
//! of its own; the load of a backend is the sum. A worker that is started after another died counts
//! its connections anew, so nothing is lost by a death. Health is three words that anybody may
//! write; the last one wins, and is right. What checks have found is a word that main writes.
//!
//! Main gives places out and takes them back ([`RetiredPlaces`]); workers find what is there. A
//! place is free again when no configuration names its backend, and no connection has been with it
//! for a while.

use crate::hash;
use dormouse_reactor::memory::{PAGE, Words};
use dormouse_reactor::{AdoptError, Fd};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Backends that one configuration may name.
pub const BACKENDS_MAX: usize = 500;

/// Places; twice what a configuration may have, so that a reload can bring others.
pub(crate) const PLACES: usize = 2 * BACKENDS_MAX + 24;
/// Whose it is; when it may be tried again (ms); failures in a row; when it came back (ms); what
/// checks say.
const WORDS_EACH: usize = 5;

/// A backend that nobody names any more keeps its place for so long: a worker may still be about
/// to connect to it.
const RETIRED_MS: u64 = 60_000;

/// A backend's place, from 1 on. 0: none, because the table is full: it is taken to be up and idle.
pub type BackendPlace = u16;

/// The table, as one worker sees it.
#[derive(Clone, Debug)]
pub struct Backends {
    words: Arc<Words>,
    workers: usize,
    worker: usize,
}

/// What checks have found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum CheckedHealth {
    /// Nothing yet, or there are none.
    Unknown = 0,
    /// It is well.
    Up = 1,
    /// It is not.
    Down = 2,
}

/// What a failure or a success has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HealthChange {
    /// Nothing: the backend is used, or passed over, as before.
    None,
    /// From now on it is passed over.
    Down,
    /// It serves again.
    Up,
}

impl Backends {
    /// Makes the table.
    pub fn create(workers: u32) -> io::Result<Backends> {
        let workers = workers as usize;
        let words = Words::create("dormouse-backends", len(workers))?;
        Ok(Backends {
            words: Arc::new(words),
            workers,
            worker: 0,
        })
    }

    /// Maps what main has made.
    pub fn adopt(fd: Fd, workers: u32, worker: u32) -> Result<Backends, AdoptError> {
        let workers = workers as usize;
        let words = Words::adopt(fd, len(workers))?;
        Ok(Backends {
            words: Arc::new(words),
            workers,
            worker: (worker as usize).min(workers.saturating_sub(1)),
        })
    }

    /// Maps it to look at only, by a descriptor of [`Backends::reader`].
    pub fn view(fd: Fd, workers: u32) -> Result<Backends, AdoptError> {
        let workers = workers as usize;
        let words = Words::adopt_to_read(fd, len(workers))?;
        Ok(Backends {
            words: Arc::new(words),
            workers,
            worker: 0,
        })
    }

    /// A descriptor for [`Backends::view`], by which nothing can be written.
    pub fn reader(&self) -> io::Result<Fd> {
        self.words.reader()
    }

    /// Returns the table's descriptor, through which other processes adopt it.
    pub fn fd(&self) -> Fd {
        self.words.fd()
    }

    /// The place of the backend with this address, which is taken if it has none. 0: none is left.
    pub fn place(&self, address: &str) -> BackendPlace {
        let key = hash::of_text(address);
        let start = key as usize % PLACES;
        let places = || (0..PLACES).map(|step| ((start + step) % PLACES + 1) as BackendPlace);
        // There may be holes before it, where others were.
        let owner = |place: BackendPlace| self.word(place, 0).load(Ordering::Acquire);
        if let Some(place) = places().find(|&place| owner(place) == key) {
            return place;
        }
        let take = |&place: &BackendPlace| {
            let word = self.word(place, 0);
            let taken = word.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire);
            taken.is_ok() || taken == Err(key)
        };
        places().find(take).unwrap_or(0)
    }

    /// Connections to it, of all workers.
    pub fn load(&self, place: BackendPlace) -> u64 {
        if place == 0 {
            return 0;
        }
        (0..self.workers)
            .map(|worker| self.own(worker, place).load(Ordering::Relaxed))
            .sum()
    }

    /// This worker has one connection more.
    pub fn enter(&self, place: BackendPlace) {
        if place != 0 {
            let own = self.own(self.worker, place);
            own.store(own.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            // Of two workers which enter at once and look at the load then, one at least sees both.
            fence(Ordering::SeqCst);
        }
    }

    /// This worker has one connection less.
    pub fn leave(&self, place: BackendPlace) {
        if place != 0 {
            let own = self.own(self.worker, place);
            let less = own.load(Ordering::Relaxed).saturating_sub(1);
            own.store(less, Ordering::Relaxed);
        }
    }

    /// A new worker counts what it has found.
    pub fn recount(&self, found: impl Iterator<Item = BackendPlace>) {
        for place in 1..=PLACES as BackendPlace {
            self.own(self.worker, place).store(0, Ordering::Relaxed);
        }
        found.for_each(|place| self.enter(place));
    }

    /// May it be tried?
    pub fn is_up(&self, place: BackendPlace, now_ms: u64) -> bool {
        place == 0
            || self.word(place, 1).load(Ordering::Relaxed) <= now_ms
                && self.checked(place) != CheckedHealth::Down
    }

    /// What checks say of it.
    pub fn checked(&self, place: BackendPlace) -> CheckedHealth {
        match self.word(place, 4).load(Ordering::Relaxed) {
            1 => CheckedHealth::Up,
            2 => CheckedHealth::Down,
            _ => CheckedHealth::Unknown,
        }
    }

    /// Main: notes what checks have found. One that is well again begins as one which has come
    /// back, and what connections had found before is forgotten.
    pub fn set_checked(&self, place: BackendPlace, checked: CheckedHealth, now_ms: u64) {
        if place == 0 {
            return;
        }
        let former = self.word(place, 4).swap(checked as u64, Ordering::Relaxed);
        if checked == CheckedHealth::Up && former == CheckedHealth::Down as u64 {
            self.word(place, 2).store(0, Ordering::Relaxed);
            self.word(place, 1).store(0, Ordering::Relaxed);
            self.word(place, 3).store(now_ms, Ordering::Relaxed);
        }
    }

    /// Connects that have failed in a row.
    pub fn failures(&self, place: BackendPlace) -> u64 {
        self.word(place, 2).load(Ordering::Relaxed)
    }

    /// Since when it serves again; 0: always.
    pub fn up_since_ms(&self, place: BackendPlace) -> u64 {
        self.word(place, 3).load(Ordering::Relaxed)
    }

    /// It could not be connected to. After so many times in a row it is passed over for a while.
    pub fn failed(
        &self,
        place: BackendPlace,
        most: u32,
        pause_ms: u64,
        now_ms: u64,
    ) -> HealthChange {
        if place == 0 {
            return HealthChange::None;
        }
        let streak = self.word(place, 2).fetch_add(1, Ordering::Relaxed) + 1;
        if streak < u64::from(most) {
            return HealthChange::None;
        }
        let former = self
            .word(place, 1)
            .swap(now_ms + pause_ms, Ordering::Relaxed);
        if former == 0 {
            HealthChange::Down
        } else {
            HealthChange::None
        }
    }

    /// A connection is about to be made with it. If it was passed over, and the time for that has
    /// just run out, this is the one that tries it: for all others it is passed over once more, so
    /// that they need not find out, too. `false`: another one was quicker.
    pub fn try_again(&self, place: BackendPlace, pause_ms: u64, now_ms: u64) -> bool {
        if place == 0 {
            return true;
        }
        let until = self.word(place, 1);
        let until_ms = until.load(Ordering::Relaxed);
        if until_ms == 0 || until_ms > now_ms {
            return true;
        }
        let (relaxed, later_ms) = (Ordering::Relaxed, now_ms + pause_ms);
        until
            .compare_exchange(until_ms, later_ms, relaxed, relaxed)
            .is_ok()
    }

    /// It has accepted a connection.
    pub fn succeeded(&self, place: BackendPlace, now_ms: u64) -> HealthChange {
        if place == 0 || self.word(place, 2).load(Ordering::Relaxed) == 0 {
            return HealthChange::None;
        }
        self.word(place, 2).store(0, Ordering::Relaxed);
        if self.word(place, 1).swap(0, Ordering::Relaxed) == 0 {
            return HealthChange::None;
        }
        self.word(place, 3).store(now_ms, Ordering::Relaxed);
        HealthChange::Up
    }

    fn word(&self, place: BackendPlace, n: usize) -> &AtomicU64 {
        self.at(index(place) * WORDS_EACH + n)
    }

    fn own(&self, worker: usize, place: BackendPlace) -> &AtomicU64 {
        self.at(PLACES * WORDS_EACH + worker * PLACES + index(place))
    }

    fn at(&self, word: usize) -> &AtomicU64 {
        match self.words.word(8 * word) {
            Some(word) => word,
            None => unreachable!("word {word} lies in the mapping by construction"),
        }
    }
}

/// Main's part: which places nobody needs.
#[derive(Debug, Default)]
pub struct RetiredPlaces {
    /// Since when nobody names them.
    retired: HashMap<BackendPlace, u64>,
}

impl RetiredPlaces {
    /// Frees the places of backends which are not `named`, once none of them has had a connection
    /// for a while. Returns the places that were freed.
    pub fn sweep(
        &mut self,
        all: &Backends,
        named: &HashSet<u64>,
        now_ms: u64,
    ) -> Vec<BackendPlace> {
        let mut freed = Vec::new();
        for place in 1..=PLACES as BackendPlace {
            let key = all.word(place, 0).load(Ordering::Relaxed);
            if key == 0 || named.contains(&key) {
                self.retired.remove(&place);
                continue;
            }
            let since_ms = self.retired.entry(place).or_insert(now_ms);
            if all.load(place) > 0 {
                *since_ms = now_ms;
            } else if now_ms.saturating_sub(*since_ms) >= RETIRED_MS {
                (1..WORDS_EACH).for_each(|n| all.word(place, n).store(0, Ordering::Relaxed));
                all.word(place, 0).store(0, Ordering::Release);
                self.retired.remove(&place);
                freed.push(place);
            }
        }
        freed
    }

    /// Is there any that may be free soon?
    pub fn any_retired(&self) -> bool {
        !self.retired.is_empty()
    }
}

fn index(place: BackendPlace) -> usize {
    usize::from(place.max(1) - 1).min(PLACES - 1)
}

fn len(workers: usize) -> usize {
    (8 * PLACES * (WORDS_EACH + workers)).next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_place_in_every_worker() {
        let table = Backends::create(2).unwrap();
        let first = Backends::adopt(table.fd(), 2, 0).unwrap();
        let second = Backends::adopt(table.fd(), 2, 1).unwrap();
        let a = first.place("10.0.0.1:80");
        let b = first.place("10.0.0.2:80");
        assert!(a != b && a != 0 && b != 0);
        assert_eq!(second.place("10.0.0.2:80"), b);
        first.enter(a);
        second.enter(a);
        second.enter(b);
        assert_eq!((table.load(a), table.load(b)), (2, 1));
        // The second worker dies; its successor finds one connection, to a.
        second.recount([a].into_iter());
        assert_eq!((table.load(a), table.load(b)), (2, 0));
        first.leave(a);
        first.leave(a);
        assert_eq!(table.load(a), 1, "no worker takes away what is another's");
        table.fd().close();
    }

    /// When the time of a backend that failed is over, one connection tries it, and the others go
    /// elsewhere until that one knows.
    #[test]
    fn one_connection_tries_again() {
        let table = Backends::create(1).unwrap();
        let place = table.place("10.0.0.1:80");
        assert_eq!(table.failed(place, 1, 1_000, 5_000), HealthChange::Down);
        assert!(table.try_again(place, 1_000, 5_500), "if all are");
        assert!(!table.is_up(place, 5_999) && table.is_up(place, 6_000));
        assert!(table.try_again(place, 1_000, 6_000));
        assert!(!table.is_up(place, 6_999), "one is at it");
        assert_eq!(table.failed(place, 1, 1_000, 6_500), HealthChange::None);
        assert!(!table.is_up(place, 7_499) && table.is_up(place, 7_500));
        assert!(table.try_again(place, 1_000, 7_500));
        assert_eq!(table.succeeded(place, 7_600), HealthChange::Up);
        assert!(table.is_up(place, 7_600));
        // One that is well is everybody's.
        assert!(table.try_again(place, 1_000, 7_700));
        assert!(table.is_up(place, 7_700));
        table.fd().close();
    }

    #[test]
    fn the_table_has_an_end() {
        let table = Backends::create(1).unwrap();
        let places: Vec<BackendPlace> = (0..PLACES + 5)
            .map(|n| table.place(&format!("10.0.0.1:{n}")))
            .collect();
        assert_eq!(places.iter().filter(|&&place| place == 0).count(), 5);
        table.fd().close();
    }

    #[test]
    fn places_are_free_again_and_nobody_loses_theirs() {
        let table = Backends::create(2).unwrap();
        let names: Vec<String> = (0..PLACES).map(|n| format!("10.0.0.1:{n}")).collect();
        let places: Vec<BackendPlace> = names.iter().map(|name| table.place(name)).collect();
        table.enter(places[7]);
        table.failed(places[8], 1, 1000, 10);
        table.set_checked(places[8], CheckedHealth::Down, 10);
        let named: HashSet<u64> = names[100..]
            .iter()
            .map(|name| hash::of_text(name))
            .collect();
        let mut main = RetiredPlaces::default();
        assert!(main.sweep(&table, &named, 1_000).is_empty(), "not at once");
        assert!(main.any_retired());
        assert!(main.sweep(&table, &named, 60_999).is_empty());
        assert_eq!(
            main.sweep(&table, &named, 61_000).len(),
            99,
            "one has a connection"
        );
        for (name, &place) in names.iter().zip(&places).skip(100) {
            assert_eq!(table.place(name), place, "behind holes too");
        }
        table.leave(places[7]);
        let lately = main.sweep(&table, &named, 100_000);
        assert!(lately.is_empty(), "it had one lately");
        assert_eq!(main.sweep(&table, &named, 160_999), [places[7]]);
        assert!(!main.any_retired());
        let new: Vec<BackendPlace> = (0..100).map(|n| table.place(&format!("b{n}"))).collect();
        assert!(
            new.iter()
                .all(|&place| place != 0 && table.is_up(place, 10))
        );
        assert_eq!(table.place("one more"), 0);
        table.fd().close();
    }

    #[test]
    fn what_checks_say_counts_beside_what_connections_find() {
        let table = Backends::create(1).unwrap();
        let place = table.place("a");
        table.failed(place, 1, 1_000, 10);
        table.set_checked(place, CheckedHealth::Down, 20);
        assert!(!table.is_up(place, 5_000), "whatever time passes");
        table.set_checked(place, CheckedHealth::Up, 6_000);
        assert!(table.is_up(place, 6_000), "and the mark is gone");
        assert_eq!(table.up_since_ms(place), 6_000);
        table.failed(place, 1, 1_000, 6_000);
        assert!(!table.is_up(place, 6_500), "connections are believed too");
        table.set_checked(place, CheckedHealth::Up, 6_600);
        assert!(!table.is_up(place, 6_600), "nothing new");
        table.fd().close();
    }

    #[test]
    fn failures_in_a_row_take_it_out_and_a_success_brings_it_back() {
        let table = Backends::create(1).unwrap();
        let place = table.place("a");
        assert_eq!(table.failed(place, 3, 1000, 10), HealthChange::None);
        assert_eq!(
            table.succeeded(place, 10),
            HealthChange::None,
            "the row is broken"
        );
        assert_eq!(table.failed(place, 3, 1000, 10), HealthChange::None);
        assert_eq!(table.failed(place, 3, 1000, 10), HealthChange::None);
        assert!(table.is_up(place, 10));
        assert_eq!(table.failed(place, 3, 1000, 10), HealthChange::Down);
        assert!(!table.is_up(place, 1009));
        assert!(table.is_up(place, 1010), "time for another try");
        assert_eq!(
            table.failed(place, 3, 1000, 1010),
            HealthChange::None,
            "told once"
        );
        assert!(!table.is_up(place, 1011));
        assert_eq!(table.succeeded(place, 3000), HealthChange::Up);
        assert_eq!(table.up_since_ms(place), 3000);
        table.fd().close();
    }
}
