//! Load and health of backends, shared by all workers.
//!
//! The table has a fixed size and lies in shared memory. A backend is found by its address, so it keeps
//! its place through a reload. Each worker writes the number of its own connections to its own block;
//! the load of a backend is the sum over the workers. A worker that replaces a dead one recounts its
//! connections, so a crash does not falsify the load. Health is three words that every worker may write;
//! the last write wins. The result of health checks is a word that only main writes.
//!
//! Main creates and frees places ([`RetiredPlaces`]); workers look them up. A place is freed when no
//! configuration names its backend any more and the backend has had no connections for a while.

use crate::hash;
use dormouse_reactor::memory::{PAGE, Words};
use dormouse_reactor::{AdoptError, Fd};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Maximum number of backends in a configuration.
pub const BACKENDS_MAX: usize = 500;

/// Number of places: twice the maximum of a configuration, so that a reload can bring new backends.
pub(crate) const PLACES: usize = 2 * BACKENDS_MAX + 24;
/// Words per place: hash of the address; end of the pause (ms); failures in a row; time of recovery
/// (ms); result of health checks.
const WORDS_EACH: usize = 5;

/// Time for which an unused place is kept after its backend was removed from the configuration: a
/// worker may still be about to connect to it.
const RETIRED_MS: u64 = 60_000;

/// Number of a backend's place, from 1 on. 0: the table was full; such a backend counts as up and idle.
pub type BackendPlace = u16;

/// The table, from one worker's view.
#[derive(Clone, Debug)]
pub struct Backends {
    words: Arc<Words>,
    workers: usize,
    worker: usize,
}

/// Result of health checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum CheckedHealth {
    /// No check is configured, or none has finished yet.
    Unknown = 0,
    /// The backend is healthy.
    Up = 1,
    /// The backend is not healthy.
    Down = 2,
}

/// Change of a backend's health by a failure or a success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HealthChange {
    /// No change.
    None,
    /// The backend is skipped from now on.
    Down,
    /// The backend has recovered.
    Up,
}

impl Backends {
    /// Creates the table.
    pub fn create(workers: u32) -> io::Result<Backends> {
        let workers = workers as usize;
        let words = Words::create("dormouse-backends", len(workers))?;
        Ok(Backends {
            words: Arc::new(words),
            workers,
            worker: 0,
        })
    }

    /// Maps the table that main has created.
    pub fn adopt(fd: Fd, workers: u32, worker: u32) -> Result<Backends, AdoptError> {
        let workers = workers as usize;
        let words = Words::adopt(fd, len(workers))?;
        Ok(Backends {
            words: Arc::new(words),
            workers,
            worker: (worker as usize).min(workers.saturating_sub(1)),
        })
    }

    /// Maps the table read-only, by a descriptor from [`Backends::reader`].
    pub fn view(fd: Fd, workers: u32) -> Result<Backends, AdoptError> {
        let workers = workers as usize;
        let words = Words::adopt_to_read(fd, len(workers))?;
        Ok(Backends {
            words: Arc::new(words),
            workers,
            worker: 0,
        })
    }

    /// Returns a read-only descriptor for [`Backends::view`].
    pub fn reader(&self) -> io::Result<Fd> {
        self.words.reader()
    }

    /// Returns the table's descriptor, through which other processes adopt it.
    pub fn fd(&self) -> Fd {
        self.words.fd()
    }

    /// Returns the place of the backend with this address, and takes a free one if it has none. 0: no
    /// place is left.
    pub fn place(&self, address: &str) -> BackendPlace {
        let key = hash::of_text(address);
        let start = key as usize % PLACES;
        let places = || (0..PLACES).map(|step| ((start + step) % PLACES + 1) as BackendPlace);
        // Places before it may have been freed, so a free place does not end the search.
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

    /// Number of connections to the backend, of all workers.
    pub fn load(&self, place: BackendPlace) -> u64 {
        if place == 0 {
            return 0;
        }
        (0..self.workers)
            .map(|worker| self.own(worker, place).load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add)
    }

    /// Counts one more connection of this worker.
    pub fn enter(&self, place: BackendPlace) {
        if place != 0 {
            let own = self.own(self.worker, place);
            own.store(
                own.load(Ordering::Relaxed).wrapping_add(1),
                Ordering::Relaxed,
            );
            // If two workers enter at once and then read the load, at least one of them sees both.
            fence(Ordering::SeqCst);
        }
    }

    /// Counts one less connection of this worker.
    pub fn leave(&self, place: BackendPlace) {
        if place != 0 {
            let own = self.own(self.worker, place);
            let less = own.load(Ordering::Relaxed).saturating_sub(1);
            own.store(less, Ordering::Relaxed);
        }
    }

    /// Recounts the connections that a new worker has taken over.
    pub fn recount(&self, found: impl Iterator<Item = BackendPlace>) {
        for place in 1..=PLACES as BackendPlace {
            self.own(self.worker, place).store(0, Ordering::Relaxed);
        }
        found.for_each(|place| self.enter(place));
    }

    /// Whether the backend may be tried.
    pub fn is_up(&self, place: BackendPlace, now_ms: u64) -> bool {
        place == 0
            || self.word(place, 1).load(Ordering::Relaxed) <= now_ms
                && self.checked(place) != CheckedHealth::Down
    }

    /// The result of health checks.
    pub fn checked(&self, place: BackendPlace) -> CheckedHealth {
        match self.word(place, 4).load(Ordering::Relaxed) {
            1 => CheckedHealth::Up,
            2 => CheckedHealth::Down,
            _ => CheckedHealth::Unknown,
        }
    }

    /// Notes the result of health checks; only main calls this. A backend that becomes healthy again has
    /// a slow start, and its failures of connections are forgotten.
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

    /// Number of connects that failed in a row.
    pub fn failures(&self, place: BackendPlace) -> u64 {
        self.word(place, 2).load(Ordering::Relaxed)
    }

    /// Time of the backend's recovery. 0: it never was down.
    pub fn up_since_ms(&self, place: BackendPlace) -> u64 {
        self.word(place, 3).load(Ordering::Relaxed)
    }

    /// Notes a failed connect. After `most` failures in a row, the backend is skipped for `pause_ms`.
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
        let streak = self
            .word(place, 2)
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
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

    /// Reserves the first connect after a pause. If the backend's pause has just ended, the caller probes
    /// it, and for all other connections the pause is renewed until the probe has a result. Returns
    /// `false` if another worker was faster.
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

    /// Notes a successful connect.
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

/// Places whose backends were removed from the configuration. Only main keeps this.
#[derive(Debug, Default)]
pub struct RetiredPlaces {
    /// Time of the removal, or of the last connection.
    retired: HashMap<BackendPlace, u64>,
}

impl RetiredPlaces {
    /// Frees the places of backends that are not in `named` and have had no connection for a while.
    /// Returns the freed places.
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

    /// Whether any place waits to be freed.
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
        assert_eq!(table.load(a), 1, "a worker changes only its own count");
        table.fd().close();
    }

    /// When the pause of a failed backend is over, one connection probes it, and the others use other
    /// backends until the probe has a result.
    #[test]
    fn one_connection_probes_after_a_pause() {
        let table = Backends::create(1).unwrap();
        let place = table.place("10.0.0.1:80");
        assert_eq!(table.failed(place, 1, 1_000, 5_000), HealthChange::Down);
        assert!(table.try_again(place, 1_000, 5_500), "during the pause");
        assert!(!table.is_up(place, 5_999) && table.is_up(place, 6_000));
        assert!(table.try_again(place, 1_000, 6_000));
        assert!(!table.is_up(place, 6_999), "being probed");
        assert_eq!(table.failed(place, 1, 1_000, 6_500), HealthChange::None);
        assert!(!table.is_up(place, 7_499) && table.is_up(place, 7_500));
        assert!(table.try_again(place, 1_000, 7_500));
        assert_eq!(table.succeeded(place, 7_600), HealthChange::Up);
        assert!(table.is_up(place, 7_600));
        // A healthy backend is used by all connections.
        assert!(table.try_again(place, 1_000, 7_700));
        assert!(table.is_up(place, 7_700));
        table.fd().close();
    }

    #[test]
    fn a_full_table_returns_no_place() {
        let table = Backends::create(1).unwrap();
        let places: Vec<BackendPlace> = (0..PLACES + 5)
            .map(|n| table.place(&format!("10.0.0.1:{n}")))
            .collect();
        assert_eq!(places.iter().filter(|&&place| place == 0).count(), 5);
        table.fd().close();
    }

    #[test]
    fn frees_only_places_without_configuration_and_connections() {
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
        assert!(main.sweep(&table, &named, 1_000).is_empty(), "too soon");
        assert!(main.any_retired());
        assert!(main.sweep(&table, &named, 60_999).is_empty());
        assert_eq!(
            main.sweep(&table, &named, 61_000).len(),
            99,
            "all but the one with a connection"
        );
        for (name, &place) in names.iter().zip(&places).skip(100) {
            assert_eq!(table.place(name), place, "also after freed places");
        }
        table.leave(places[7]);
        let freed = main.sweep(&table, &named, 100_000);
        assert!(freed.is_empty(), "its connection has just ended");
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
    fn checks_and_connections_both_mark_a_backend_down() {
        let table = Backends::create(1).unwrap();
        let place = table.place("a");
        table.failed(place, 1, 1_000, 10);
        table.set_checked(place, CheckedHealth::Down, 20);
        assert!(!table.is_up(place, 5_000), "until a check succeeds");
        table.set_checked(place, CheckedHealth::Up, 6_000);
        assert!(table.is_up(place, 6_000), "the pause has ended, too");
        assert_eq!(table.up_since_ms(place), 6_000);
        table.failed(place, 1, 1_000, 6_000);
        assert!(!table.is_up(place, 6_500), "a failed connect counts, too");
        table.set_checked(place, CheckedHealth::Up, 6_600);
        assert!(
            !table.is_up(place, 6_600),
            "the check's result did not change"
        );
        table.fd().close();
    }

    #[test]
    fn failures_in_a_row_mark_a_backend_down_and_a_success_marks_it_up() {
        let table = Backends::create(1).unwrap();
        let place = table.place("a");
        assert_eq!(table.failed(place, 3, 1000, 10), HealthChange::None);
        assert_eq!(
            table.succeeded(place, 10),
            HealthChange::None,
            "the count starts again"
        );
        assert_eq!(table.failed(place, 3, 1000, 10), HealthChange::None);
        assert_eq!(table.failed(place, 3, 1000, 10), HealthChange::None);
        assert!(table.is_up(place, 10));
        assert_eq!(table.failed(place, 3, 1000, 10), HealthChange::Down);
        assert!(!table.is_up(place, 1009));
        assert!(table.is_up(place, 1010), "the pause is over");
        assert_eq!(
            table.failed(place, 3, 1000, 1010),
            HealthChange::None,
            "reported once"
        );
        assert!(!table.is_up(place, 1011));
        assert_eq!(table.succeeded(place, 3000), HealthChange::Up);
        assert_eq!(table.up_since_ms(place), 3000);
        table.fd().close();
    }
}
