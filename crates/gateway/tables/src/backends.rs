//! Load and health of backends, shared by all workers.
//!
//! There are two tables of fixed size in shared memory. The *roster* (`backends/roster.rs`) holds the place of each
//! backend, found by its address, and the results of health checks; only main can write it. The table of
//! *marks*, in which every worker writes, holds what workers observe: the number of their own connections, each
//! in its own block, and failures and pauses, where the last write wins. The load of a backend is the sum over
//! the workers.
//!
//! A worker that replaces a dead one recounts its connections, so a crash does not falsify the load. A
//! compromised worker can write anything into the marks, but its marks do not outlive it for long: a pause
//! longer than any configured one is ignored, a recovery in the future gives no slow start, and each worker
//! keeps its own counts and states them again and again.
//!
//! Main creates places and frees them ([`crate::retired_places`]); workers look them up.

mod roster;

pub(crate) use roster::PLACES;
pub use roster::{BACKENDS_MAX, BackendPlace, CheckedHealth};

use dormouse_reactor::memory::{PAGE, Words};
use dormouse_reactor::{AdoptError, Fd};
use roster::{Roster, index};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Words per place: end of the pause (ms); failures in a row; time of recovery (ms).
const WORDS_EACH: usize = 3;

/// Maximum pause of a failed backend (the limit of `backend_pause`). A longer one is not from a sound worker.
pub const PAUSE_MAX_MS: u64 = 3_600_000;

/// See [`crate::dimensions`].
pub(crate) const DIMENSIONS: [usize; 3] = [PLACES, roster::WORDS_EACH, WORDS_EACH];

/// The tables, from one process's view.
#[derive(Clone, Debug)]
pub struct Backends {
    roster: Roster,
    marks: Arc<Words>,
    workers: usize,
    worker: usize,
    counts: Arc<Counts>,
}

/// A worker's own connections at each place, which no other process can change.
#[derive(Debug)]
struct Counts {
    all: Box<[AtomicU32]>,
    /// The number of the place to state next.
    next: AtomicUsize,
}

/// Counts that each new connection states again, so that all are stated after some 64 connections.
const STATED_AT_ONCE: usize = 16;

/// Descriptors of the two tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackendFds {
    /// The roster.
    pub roster: Fd,
    /// The marks.
    pub marks: Fd,
}

impl BackendFds {
    /// Closes both.
    pub fn close(self) {
        self.roster.close();
        self.marks.close();
    }
}

/// Change of a backend's health by a failure or a success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HealthChange {
    /// No change.
    None,
    /// The backend is marked down.
    Down,
    /// The backend has recovered.
    Up,
}

impl Backends {
    /// Creates the tables.
    pub fn create(workers: u32) -> io::Result<Backends> {
        let roster = Roster::create()?;
        let marks = Words::create("dormouse-backends", len(workers))
            .inspect_err(|_| roster.fd().close())?;
        Ok(Backends::of(roster, marks, workers, 0))
    }

    /// Maps the tables that main has created, for a worker, with the roster's descriptor from [`Backends::roster_reader`].
    pub fn adopt(fds: BackendFds, workers: u32, worker: u32) -> Result<Backends, AdoptError> {
        let marks = Words::adopt(fds.marks, len(workers))?;
        Ok(Backends::of(
            Roster::view(fds.roster)?,
            marks,
            workers,
            worker,
        ))
    }

    /// Maps the tables that main has created, for the main of another binary.
    pub fn adopt_as_main(fds: BackendFds, workers: u32) -> Result<Backends, AdoptError> {
        let marks = Words::adopt(fds.marks, len(workers))?;
        Ok(Backends::of(Roster::adopt(fds.roster)?, marks, workers, 0))
    }

    /// Maps the tables read-only, by descriptors from [`Backends::reader`].
    pub fn view(fds: BackendFds, workers: u32) -> Result<Backends, AdoptError> {
        let marks = Words::adopt_to_read(fds.marks, len(workers))?;
        Ok(Backends::of(Roster::view(fds.roster)?, marks, workers, 0))
    }

    fn of(roster: Roster, marks: Words, workers: u32, worker: u32) -> Backends {
        Backends {
            roster,
            marks: Arc::new(marks),
            workers: workers as usize,
            worker: worker.min(workers.saturating_sub(1)) as usize,
            counts: Arc::new(Counts {
                all: (0..PLACES).map(|_| AtomicU32::new(0)).collect(),
                next: AtomicUsize::new(0),
            }),
        }
    }

    /// Returns read-only descriptors for [`Backends::view`].
    pub fn reader(&self) -> io::Result<BackendFds> {
        let roster = self.roster.reader()?;
        let marks = self.marks.reader().inspect_err(|_| roster.close())?;
        Ok(BackendFds { roster, marks })
    }

    /// Returns a read-only descriptor of the roster, for workers.
    pub fn roster_reader(&self) -> io::Result<Fd> {
        self.roster.reader()
    }

    /// Returns the descriptors of this process.
    pub fn fds(&self) -> BackendFds {
        BackendFds {
            roster: self.roster.fd(),
            marks: self.marks.fd(),
        }
    }

    /// Number of workers of the program.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Returns the place of the backend with this address. Main takes a free place if the backend has none. 0:
    /// no place is left, or main does not know the backend.
    pub fn place(&self, address: &str) -> BackendPlace {
        self.roster.place(address)
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
        if self.count_one(place) {
            self.state(place);
            self.restate_some();
            // If two workers enter at once and then read the load, at least one of them sees both.
            fence(Ordering::SeqCst);
        }
    }

    /// Counts one less connection of this worker.
    pub fn leave(&self, place: BackendPlace) {
        if let Some(count) = self.count(place) {
            let less = count.load(Ordering::Relaxed).saturating_sub(1);
            count.store(less, Ordering::Relaxed);
            self.state(place);
        }
    }

    /// Recounts the connections that a new worker has taken over. There may be millions, so the others see the counts only
    /// when all are done.
    pub fn recount(&self, found: impl Iterator<Item = BackendPlace>) {
        let all = self.counts.all.iter();
        all.for_each(|count| count.store(0, Ordering::Relaxed));
        for place in found {
            self.count_one(place);
        }
        self.restate();
    }

    /// Forgets the connections of a worker that is gone for good; only main calls this.
    pub fn lose_worker(&self, worker: u32) {
        for place in 1..=PLACES as BackendPlace {
            self.own(worker as usize, place).store(0, Ordering::Relaxed);
        }
    }

    /// Writes this worker's counts again, in case that another process has changed them.
    pub fn restate(&self) {
        (1..=PLACES as BackendPlace).for_each(|place| self.state(place));
    }

    /// Writes the next few counts again. Without this, a backend that seems busy would get no connection, and so
    /// its count would stay wrong.
    fn restate_some(&self) {
        let next = &self.counts.next;
        let first = next.fetch_add(STATED_AT_ONCE, Ordering::Relaxed) % PLACES;
        (first + 1..=first + STATED_AT_ONCE).for_each(|place| self.state(place as BackendPlace));
    }

    /// Whether the backend may be tried, although another one is up.
    pub fn is_up(&self, place: BackendPlace, now_ms: u64) -> bool {
        place == 0 || !self.is_paused(place, now_ms) && self.checked(place) != CheckedHealth::Down
    }

    /// Whether the backend works, as far as is known. Unlike [`Backends::is_up`], it does not change at the end of a pause: a
    /// backend that was marked down is down until a connect or a check succeeds.
    pub fn works(&self, place: BackendPlace, now_ms: u64) -> bool {
        let until_ms = self.word(place, 0).load(Ordering::Relaxed);
        // A pause that no sound worker has set does not count.
        let is_marked = until_ms > 0 && until_ms <= now_ms.saturating_add(PAUSE_MAX_MS);
        place == 0 || !is_marked && self.checked(place) != CheckedHealth::Down
    }

    fn is_paused(&self, place: BackendPlace, now_ms: u64) -> bool {
        let until_ms = self.word(place, 0).load(Ordering::Relaxed);
        until_ms > now_ms && until_ms <= now_ms.saturating_add(PAUSE_MAX_MS)
    }

    /// The result of health checks.
    pub fn checked(&self, place: BackendPlace) -> CheckedHealth {
        self.roster.checked(place)
    }

    /// Notes the result of health checks; only main can do this. A backend that becomes healthy again has a
    /// slow start, and its failures of connections are forgotten.
    pub fn set_checked(&self, place: BackendPlace, checked: CheckedHealth, now_ms: u64) {
        if place == 0 {
            return;
        }
        let former = self.roster.set_checked(place, checked);
        if checked == CheckedHealth::Up && former == CheckedHealth::Down {
            self.word(place, 1).store(0, Ordering::Relaxed);
            self.word(place, 0).store(0, Ordering::Relaxed);
            self.word(place, 2).store(now_ms, Ordering::Relaxed);
        }
    }

    /// Number of connects that failed in a row.
    pub fn failures(&self, place: BackendPlace) -> u64 {
        self.word(place, 1).load(Ordering::Relaxed)
    }

    /// Time of the backend's recovery. 0: it never was down.
    pub fn up_since_ms(&self, place: BackendPlace) -> u64 {
        self.word(place, 2).load(Ordering::Relaxed)
    }

    /// Notes a failed connect. After `most` failures in a row, the backend is marked down, and skipped for `pause_ms` if there
    /// are others.
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
            .word(place, 1)
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        if streak < u64::from(most) {
            return HealthChange::None;
        }
        let former = self
            .word(place, 0)
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
        let until = self.word(place, 0);
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
        if place == 0 || self.word(place, 1).load(Ordering::Relaxed) == 0 {
            return HealthChange::None;
        }
        self.word(place, 1).store(0, Ordering::Relaxed);
        if self.word(place, 0).swap(0, Ordering::Relaxed) == 0 {
            return HealthChange::None;
        }
        self.word(place, 2).store(now_ms, Ordering::Relaxed);
        HealthChange::Up
    }

    /// The hash of the address at a place; 0 if the place is free.
    pub(crate) fn key(&self, place: BackendPlace) -> u64 {
        self.roster.key(place)
    }

    /// Clears and frees a place; only main can do this.
    pub(crate) fn free(&self, place: BackendPlace) {
        (0..WORDS_EACH).for_each(|n| self.word(place, n).store(0, Ordering::Relaxed));
        self.roster.free(place);
    }

    fn word(&self, place: BackendPlace, n: usize) -> &AtomicU64 {
        self.at(index(place) * WORDS_EACH + n)
    }

    /// This worker's own count. `None` without a place.
    fn count(&self, place: BackendPlace) -> Option<&AtomicU32> {
        self.counts.all.get(usize::from(place.checked_sub(1)?))
    }

    /// Counts one more connection at a place, and does not show it yet. Returns `false` without a place.
    fn count_one(&self, place: BackendPlace) -> bool {
        let count = self.count(place);
        if let Some(count) = count {
            let more = count.load(Ordering::Relaxed).saturating_add(1);
            count.store(more, Ordering::Relaxed);
        }
        count.is_some()
    }

    /// Shows this worker's count at a place to all workers.
    fn state(&self, place: BackendPlace) {
        if let Some(count) = self.count(place) {
            let count = u64::from(count.load(Ordering::Relaxed));
            self.own(self.worker, place).store(count, Ordering::Relaxed);
        }
    }

    fn own(&self, worker: usize, place: BackendPlace) -> &AtomicU64 {
        self.at(PLACES * WORDS_EACH + worker * PLACES + index(place))
    }

    fn at(&self, word: usize) -> &AtomicU64 {
        self.marks.word_at(8 * word)
    }
}

fn len(workers: u32) -> usize {
    (8 * PLACES * (WORDS_EACH + workers as usize)).next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests;
