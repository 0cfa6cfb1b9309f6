//! What all workers know of the backends: how many connections each has, and which have failed.
//!
//! One table of fixed size in shared memory, where a backend is found by its address, so that it
//! keeps its place through a reload. A worker writes the number of its own connections to a block
//! of its own; the load of a backend is the sum. A worker that is started after another died counts
//! its connections anew, so nothing is lost by a death. Health is three words that anybody may
//! write; the last one wins, and is right.

use crate::config::UPSTREAMS_MAX;
use dormouse_reactor::memory::{PAGE, Words};
use dormouse_reactor::{AdoptError, Fd};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Places; twice what a configuration may have, so that a reload can bring others.
const PLACES: usize = 2 * UPSTREAMS_MAX + 24;
/// Whose it is; when it may be tried again (ms); failures in a row; when it came back (ms).
const WORDS_EACH: usize = 4;

/// A backend's place, from 1 on. 0: none, because the table is full: it is taken to be up and idle.
pub(crate) type Place = u16;

/// The table, as one worker sees it.
#[derive(Clone, Debug)]
pub(crate) struct Backends {
    words: Arc<Words>,
    workers: usize,
    worker: usize,
}

/// What a failure or a success has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    None,
    /// From now on it is passed over.
    Down,
    /// It serves again.
    Up,
}

impl Backends {
    /// Makes the table.
    pub(crate) fn create(workers: u32) -> io::Result<Backends> {
        let workers = workers as usize;
        let words = Words::create("dormouse-backends", len(workers))?;
        Ok(Backends {
            words: Arc::new(words),
            workers,
            worker: 0,
        })
    }

    /// Maps what main has made.
    pub(crate) fn adopt(fd: Fd, workers: u32, worker: u32) -> Result<Backends, AdoptError> {
        let workers = workers as usize;
        let words = Words::adopt(fd, len(workers))?;
        Ok(Backends {
            words: Arc::new(words),
            workers,
            worker: (worker as usize).min(workers.saturating_sub(1)),
        })
    }

    pub(crate) fn fd(&self) -> Fd {
        self.words.fd()
    }

    /// A descriptor for [`BackendsView::open`], by which nothing can be written.
    pub(crate) fn reader(&self) -> io::Result<Fd> {
        self.words.reader()
    }

    /// The place of the backend with this address, which is taken if it has none. 0: none is left.
    pub(crate) fn place(&self, address: &str) -> Place {
        let key = hash(address);
        let start = key as usize % PLACES;
        for step in 0..PLACES {
            let place = ((start + step) % PLACES + 1) as Place;
            match self
                .word(place, 0)
                .compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return place,
                Err(owner) if owner == key => return place,
                Err(_) => {}
            }
        }
        0
    }

    /// Connections to it, of all workers.
    pub(crate) fn load(&self, place: Place) -> u64 {
        if place == 0 {
            return 0;
        }
        (0..self.workers)
            .map(|worker| self.own(worker, place).load(Ordering::Relaxed))
            .sum()
    }

    /// This worker has one connection more.
    pub(crate) fn enter(&self, place: Place) {
        if place != 0 {
            let own = self.own(self.worker, place);
            own.store(own.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// This worker has one connection less.
    pub(crate) fn leave(&self, place: Place) {
        if place != 0 {
            let own = self.own(self.worker, place);
            let less = own.load(Ordering::Relaxed).saturating_sub(1);
            own.store(less, Ordering::Relaxed);
        }
    }

    /// A new worker counts what it has found.
    pub(crate) fn recount(&self, found: impl Iterator<Item = Place>) {
        for place in 1..=PLACES as Place {
            self.own(self.worker, place).store(0, Ordering::Relaxed);
        }
        found.for_each(|place| self.enter(place));
    }

    /// May it be tried?
    pub(crate) fn is_up(&self, place: Place, now_ms: u64) -> bool {
        place == 0 || self.word(place, 1).load(Ordering::Relaxed) <= now_ms
    }

    /// Since when it serves again; 0: always.
    pub(crate) fn up_since_ms(&self, place: Place) -> u64 {
        self.word(place, 3).load(Ordering::Relaxed)
    }

    /// It could not be connected to. After so many times in a row it is passed over for a while.
    pub(crate) fn failed(&self, place: Place, most: u32, pause_ms: u64, now_ms: u64) -> Change {
        if place == 0 {
            return Change::None;
        }
        let streak = self.word(place, 2).fetch_add(1, Ordering::Relaxed) + 1;
        if streak < u64::from(most) {
            return Change::None;
        }
        let former = self
            .word(place, 1)
            .swap(now_ms + pause_ms, Ordering::Relaxed);
        if former == 0 {
            Change::Down
        } else {
            Change::None
        }
    }

    /// It has accepted a connection.
    pub(crate) fn succeeded(&self, place: Place, now_ms: u64) -> Change {
        if place == 0 || self.word(place, 2).load(Ordering::Relaxed) == 0 {
            return Change::None;
        }
        self.word(place, 2).store(0, Ordering::Relaxed);
        if self.word(place, 1).swap(0, Ordering::Relaxed) == 0 {
            return Change::None;
        }
        self.word(place, 3).store(now_ms, Ordering::Relaxed);
        Change::Up
    }

    fn word(&self, place: Place, n: usize) -> &AtomicU64 {
        self.at(index(place) * WORDS_EACH + n)
    }

    fn own(&self, worker: usize, place: Place) -> &AtomicU64 {
        self.at(PLACES * WORDS_EACH + worker * PLACES + index(place))
    }

    fn at(&self, word: usize) -> &AtomicU64 {
        match self.words.word(8 * word) {
            Some(word) => word,
            None => unreachable!("word {word} lies in the mapping by construction"),
        }
    }
}

/// The same table, to look at only.
#[derive(Debug)]
pub(crate) struct BackendsView(Backends);

impl BackendsView {
    /// Maps what main has made, by a descriptor of [`Backends::reader`].
    pub(crate) fn open(fd: Fd, workers: usize) -> Result<BackendsView, AdoptError> {
        let words = Words::adopt_to_read(fd, len(workers))?;
        Ok(BackendsView(Backends {
            words: Arc::new(words),
            workers,
            worker: 0,
        }))
    }

    /// Connections of all workers to the backend of this name, failures in a row, and whether it
    /// may be tried. `None` if it has no place.
    pub(crate) fn of(&self, name: &str, now_ms: u64) -> Option<(u64, u64, bool)> {
        let key = hash(name);
        let table = &self.0;
        let places = (0..PLACES).map(|step| ((key as usize % PLACES + step) % PLACES + 1) as Place);
        let mut taken = places.map(|place| (place, table.word(place, 0).load(Ordering::Relaxed)));
        let (place, _) = taken.find(|&(_, owner)| owner == key || owner == 0)?;
        let is_its = table.word(place, 0).load(Ordering::Relaxed) == key;
        is_its.then(|| {
            let failures = table.word(place, 2).load(Ordering::Relaxed);
            (table.load(place), failures, table.is_up(place, now_ms))
        })
    }
}

fn index(place: Place) -> usize {
    usize::from(place.max(1) - 1).min(PLACES - 1)
}

fn len(workers: usize) -> usize {
    (8 * PLACES * (WORDS_EACH + workers)).next_multiple_of(PAGE)
}

/// FNV-1a, never 0. The same in every process.
pub(crate) fn hash(text: &str) -> u64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.max(1)
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

    #[test]
    fn who_may_only_look_sees_the_same() {
        let table = Backends::create(2).unwrap();
        let place = table.place("a");
        table.enter(place);
        table.failed(place, 2, 1000, 10);
        table.failed(place, 2, 1000, 10);
        let reader = table.reader().unwrap();
        let view = BackendsView::open(reader, 2).unwrap();
        assert_eq!(view.of("a", 500), Some((1, 2, false)));
        assert_eq!(view.of("a", 2000), Some((1, 2, true)));
        assert_eq!(view.of("b", 500), None);
        reader.close();
        table.fd().close();
    }

    #[test]
    fn the_table_has_an_end() {
        let table = Backends::create(1).unwrap();
        let places: Vec<Place> = (0..PLACES + 5)
            .map(|n| table.place(&format!("10.0.0.1:{n}")))
            .collect();
        assert_eq!(places.iter().filter(|&&place| place == 0).count(), 5);
        table.fd().close();
    }

    #[test]
    fn failures_in_a_row_take_it_out_and_a_success_brings_it_back() {
        let table = Backends::create(1).unwrap();
        let place = table.place("a");
        assert_eq!(table.failed(place, 3, 1000, 10), Change::None);
        assert_eq!(
            table.succeeded(place, 10),
            Change::None,
            "the row is broken"
        );
        assert_eq!(table.failed(place, 3, 1000, 10), Change::None);
        assert_eq!(table.failed(place, 3, 1000, 10), Change::None);
        assert!(table.is_up(place, 10));
        assert_eq!(table.failed(place, 3, 1000, 10), Change::Down);
        assert!(!table.is_up(place, 1009));
        assert!(table.is_up(place, 1010), "time for another try");
        assert_eq!(
            table.failed(place, 3, 1000, 1010),
            Change::None,
            "told once"
        );
        assert!(!table.is_up(place, 1011));
        assert_eq!(table.succeeded(place, 3000), Change::Up);
        assert_eq!(table.up_since_ms(place), 3000);
        table.fd().close();
    }
}
