//! Traffic by route and by backend: connections, handshakes, bytes and close reasons; and the ages of connections.
//!
//! The table has a fixed size and lies in shared memory, with a part for each worker and a row for each
//! route and backend. A worker writes only its own part, so it needs no atomic additions; readers sum the
//! parts. Pages without used rows take no memory. A connection at rest needs no memory for it, because
//! its slot already has the numbers of its rows.
//!
//! Behind the rows of a worker are the numbers of its connections by age ([`crate::ages`]).
//!
//! A compromised worker can write any number here, so sums wrap around.

use crate::ages::{self, Ages, Births};
use crate::backends::{BackendPlace, PLACES};
use crate::pace::Pace;
use dormouse_reactor::memory::{PAGE, Words};
use dormouse_reactor::{AdoptError, Fd};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of route numbers: more than a configuration has routes, so that those of removed routes are not used again
/// soon.
pub const ROUTE_NUMBERS: usize = 1 << 14;

/// The rows of the routes, then those of the backends, whose places begin at 1.
const ROWS: usize = ROUTE_NUMBERS + PLACES;
/// Words per row: the tallies, room for more, and the two words of a route's limits.
const WORDS_EACH: usize = 32;
/// What is paid of a route's limits of handshakes and bytes ([`Pace`]). All workers change these two words, in the
/// part of the first one.
const HANDSHAKES_PAID_AT: usize = WORDS_EACH - 2;
const BYTES_PAID_AT: usize = WORDS_EACH - 1;

/// Words of a worker's part.
const PART: usize = ROWS * WORDS_EACH + ages::WORDS;

const _: () = assert!(Tally::ALL.len() <= HANDSHAKES_PAID_AT);

/// See [`crate::dimensions`].
pub(crate) const DIMENSIONS: [usize; 4] = [ROUTE_NUMBERS, ROWS, WORDS_EACH, ages::WORDS];

/// Returns the maximum memory, in bytes, of a worker's part of the table for these numbers of routes and
/// backends. A hash places the backends, so each can be on a different page.
pub fn bytes_used(routes: usize, backends: usize) -> usize {
    let rows_per_page = PAGE / (WORDS_EACH * size_of::<u64>());
    let of_routes = routes.min(ROUTE_NUMBERS).div_ceil(rows_per_page);
    let of_backends = backends.min(PLACES.div_ceil(rows_per_page));
    (of_routes + of_backends) * PAGE + ages::WORDS * size_of::<u64>()
}

/// The row of a route or of a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row(u16);

impl Row {
    /// Returns the row of the route with this number; `None` if no route can have it.
    pub fn of_route(number: u16) -> Option<Row> {
        (usize::from(number) < ROUTE_NUMBERS).then_some(Row(number))
    }

    /// Returns the row of the backend at this place; `None` for place 0.
    pub fn of_backend(place: BackendPlace) -> Option<Row> {
        let index = usize::from(place.checked_sub(1)?);
        (index < PLACES).then_some(Row((ROUTE_NUMBERS + index) as u16))
    }
}

/// A counter in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Tally {
    /// Current connections.
    Connections,
    /// Established connections: TLS with the client, or TCP with the backend.
    Opened,
    /// Full handshakes.
    HandshakesFull,
    /// Resumed handshakes.
    HandshakesResumed,
    /// Failed handshakes; for a backend, failed connects.
    Failed,
    /// Ciphertext bytes received.
    TlsBytesIn,
    /// Ciphertext bytes sent.
    TlsBytesOut,
    /// Plaintext bytes received from the plain side.
    PlainBytesIn,
    /// Plaintext bytes sent to the plain side.
    PlainBytesOut,
    /// Closed properly in both directions.
    ClosedClean,
    /// The TLS peer closed without close_notify.
    ClosedTlsTruncated,
    /// The TLS side failed.
    ClosedTlsFailed,
    /// The TLS peer broke the protocol.
    ClosedRefused,
    /// The plain side failed.
    ClosedPlainFailed,
    /// No backend could be reached.
    ClosedBackendDown,
    /// A limit was reached.
    ClosedLimit,
    /// The gateway stopped.
    ClosedStopping,
    /// A drain closed the connection.
    ClosedDrained,
    /// The worker died while working on the connection.
    ClosedByCrash,
    /// An administrator closed the connection.
    ClosedByAdmin,
    /// Refused because of `route_max_connections`.
    RefusedConnections,
    /// Refused because of `route_handshakes_per_second`.
    RefusedRate,
    /// Waits because of `route_bytes_per_second`.
    Paced,
    /// Refused because of `route_memory_share`.
    RefusedMemory,
    /// Waits because of `route_memory_share`.
    MemoryWaits,
    /// Bytes that wait for slow peers now; of routes with `route_memory_share` only.
    HeldBytes,
}

impl Tally {
    /// All tallies, in the order of a row.
    pub const ALL: &'static [Tally] = &[
        Tally::Connections,
        Tally::Opened,
        Tally::HandshakesFull,
        Tally::HandshakesResumed,
        Tally::Failed,
        Tally::TlsBytesIn,
        Tally::TlsBytesOut,
        Tally::PlainBytesIn,
        Tally::PlainBytesOut,
        Tally::ClosedClean,
        Tally::ClosedTlsTruncated,
        Tally::ClosedTlsFailed,
        Tally::ClosedRefused,
        Tally::ClosedPlainFailed,
        Tally::ClosedBackendDown,
        Tally::ClosedLimit,
        Tally::ClosedStopping,
        Tally::ClosedDrained,
        Tally::ClosedByCrash,
        Tally::ClosedByAdmin,
        Tally::RefusedConnections,
        Tally::RefusedRate,
        Tally::Paced,
        Tally::RefusedMemory,
        Tally::MemoryWaits,
        Tally::HeldBytes,
    ];
}

/// The table, from one process's view.
#[derive(Clone, Debug)]
pub struct Traffic {
    words: Arc<Words>,
    workers: usize,
    worker: usize,
}

impl Traffic {
    /// Creates the table.
    pub fn create(workers: u32) -> io::Result<Traffic> {
        let words = Words::create("dormouse-traffic", len(workers))?;
        Ok(Traffic::of(words, workers, 0))
    }

    /// Maps the table that main has created, for a worker.
    pub fn adopt(fd: Fd, workers: u32, worker: u32) -> Result<Traffic, AdoptError> {
        let words = Words::adopt(fd, len(workers))?;
        Ok(Traffic::of(words, workers, worker))
    }

    /// Maps the table read-only, by a descriptor from [`Traffic::reader`].
    pub fn view(fd: Fd, workers: u32) -> Result<Traffic, AdoptError> {
        let words = Words::adopt_to_read(fd, len(workers))?;
        Ok(Traffic::of(words, workers, 0))
    }

    fn of(words: Words, workers: u32, worker: u32) -> Traffic {
        Traffic {
            words: Arc::new(words),
            workers: workers as usize,
            worker: worker.min(workers.saturating_sub(1)) as usize,
        }
    }

    /// Returns a read-only descriptor for [`Traffic::view`].
    pub fn reader(&self) -> io::Result<Fd> {
        self.words.reader()
    }

    /// Returns the table's descriptor, through which other processes adopt it.
    pub fn fd(&self) -> Fd {
        self.words.fd()
    }

    /// Adds `n` in this worker's part. Without a row, nothing is counted.
    pub fn add(&self, row: Option<Row>, tally: Tally, n: u64) {
        if let (Some(row), true) = (row, n > 0) {
            let word = self.word(self.worker, row, tally);
            // No other process writes this word.
            word.store(
                word.load(Ordering::Relaxed).wrapping_add(n),
                Ordering::Relaxed,
            );
        }
    }

    /// Sets this worker's part of a number that goes up and down.
    pub fn set(&self, row: Option<Row>, tally: Tally, value: u64) {
        if let Some(row) = row {
            self.word(self.worker, row, tally)
                .store(value, Ordering::Relaxed);
        }
    }

    /// Counts one more connection of this worker, with the second of CLOCK_BOOTTIME in which it was established.
    pub fn enter(&self, row: Option<Row>, opened_s: u32) {
        self.add(row, Tally::Connections, 1);
        if row.is_some() {
            self.with_births(self.worker, |births| births.enter(opened_s));
        }
    }

    /// Counts one less connection of this worker.
    pub fn leave(&self, row: Option<Row>, opened_s: u32) {
        if let Some(row) = row {
            self.with_births(self.worker, |births| births.leave(opened_s));
            let word = self.word(self.worker, row, Tally::Connections);
            let less = word.load(Ordering::Relaxed).saturating_sub(1);
            word.store(less, Ordering::Relaxed);
        }
    }

    /// Returns the numbers of connections by age.
    pub fn ages(&self, now_s: u32) -> Ages {
        let mut ages = Ages::default();
        for worker in 0..self.workers {
            self.with_births(worker, |births| births.add_to(&mut ages, now_s));
        }
        ages
    }

    fn with_births(&self, worker: usize, act: impl FnOnce(Births<'_>)) {
        let word = |at: usize| {
            self.words
                .word_at(8 * (worker * PART + ROWS * WORDS_EACH + at))
        };
        act(Births {
            latest: word(0),
            older: word(1),
            ring: &|at| word(at + 2),
        });
    }

    /// Forgets all connections of this worker, before a new one enters those that it has taken over.
    pub fn forget_own(&self) {
        self.with_births(self.worker, |births| births.clear());
        for row in self.used_rows() {
            for tally in [Tally::Connections, Tally::HeldBytes] {
                self.set(Some(row), tally, 0);
            }
        }
    }

    /// This worker's rows in pages with data: touching others would allocate memory for them.
    fn used_rows(&self) -> impl Iterator<Item = Row> {
        let data = self.words.data();
        let all = || std::iter::once(0..len(self.workers as u32)).collect();
        let data: Vec<Range<usize>> = data.unwrap_or_else(|_| all());
        let first = self.worker * PART;
        let is_used = move |row: &u16| {
            let at = 8 * (first + WORDS_EACH * usize::from(*row));
            // The ranges are in order.
            let after = data.partition_point(|range| range.end <= at);
            data.get(after).is_some_and(|range| range.contains(&at))
        };
        (0..ROWS as u16).filter(is_used).map(Row)
    }

    /// Counts the connections of a worker that is gone for good as ended by a crash; only main calls this.
    pub fn lose_worker(&self, worker: u32) {
        let lost = Traffic {
            worker: (worker as usize).min(self.workers - 1),
            ..self.clone()
        };
        for row in lost.used_rows() {
            let connections = lost.word(lost.worker, row, Tally::Connections);
            let left = connections.load(Ordering::Relaxed);
            lost.add(Some(row), Tally::ClosedByCrash, left);
        }
        lost.forget_own();
    }

    /// Returns the sum over all workers; 0 without a row.
    pub fn sum(&self, row: Option<Row>, tally: Tally) -> u64 {
        let Some(row) = row else {
            return 0;
        };
        (0..self.workers)
            .map(|worker| self.word(worker, row, tally).load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add)
    }

    /// Charges a handshake to a route's limit. Returns `false` if the limit is reached; then nothing is charged.
    pub fn take_handshake(&self, row: Option<Row>, pace: Pace, now_ms: u64) -> bool {
        let paid = |row| self.word_at(0, row, HANDSHAKES_PAID_AT);
        row.is_none_or(|row| pace.take(paid(row), 1, now_ms))
    }

    /// Charges bytes that one of at most `payers` connections of a route has moved. Returns how many milliseconds
    /// the connection must wait.
    pub fn pay_bytes(
        &self,
        row: Option<Row>,
        pace: Pace,
        bytes: u64,
        now_ms: u64,
        payers: u32,
    ) -> u64 {
        let paid = |row| self.word_at(0, row, BYTES_PAID_AT);
        row.map_or(0, |row| pace.pay(paid(row), bytes, now_ms, payers))
    }

    /// Number of workers that have a part.
    pub fn workers(&self) -> u32 {
        self.workers as u32
    }

    /// Clears an unused row before another route or backend gets it; only main calls this.
    pub fn forget(&self, row: Option<Row>) {
        let Some(row) = row else {
            return;
        };
        for worker in 0..self.workers {
            for &tally in Tally::ALL {
                self.word(worker, row, tally).store(0, Ordering::Relaxed);
            }
        }
        for at in [HANDSHAKES_PAID_AT, BYTES_PAID_AT] {
            self.word_at(0, row, at).store(0, Ordering::Relaxed);
        }
    }

    fn word(&self, worker: usize, row: Row, tally: Tally) -> &AtomicU64 {
        self.word_at(worker, row, tally as usize)
    }

    fn word_at(&self, worker: usize, row: Row, at: usize) -> &AtomicU64 {
        let word = worker * PART + usize::from(row.0) * WORDS_EACH + at;
        self.words.word_at(8 * word)
    }
}

fn len(workers: u32) -> usize {
    (8 * PART * workers.max(1) as usize).next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_by_the_pages_of_the_rows() {
        assert_eq!(bytes_used(0, 0), 2 * PAGE);
        assert_eq!(bytes_used(1, 1), 4 * PAGE);
        assert_eq!(bytes_used(17, 3), 7 * PAGE);
        let all = (PART * size_of::<u64>()).next_multiple_of(PAGE);
        assert!(bytes_used(usize::MAX, usize::MAX) <= all + PAGE);
    }

    #[test]
    fn readers_see_the_sum_of_all_workers() {
        let main = Traffic::create(2).expect("memory");
        let workers = [0, 1].map(|n| Traffic::adopt(main.fd(), 2, n).expect("a part"));
        let view = Traffic::view(main.reader().expect("a descriptor"), 2).expect("a view");
        let (route, backend) = (Row::of_route(7), Row::of_backend(1));
        assert_eq!((Row::of_backend(0), Row::of_route(1 << 14)), (None, None));
        for worker in &workers {
            worker.enter(route, 5);
            worker.add(route, Tally::TlsBytesIn, 10);
            worker.add(backend, Tally::TlsBytesIn, 1);
            worker.add(None, Tally::TlsBytesIn, 100);
        }
        assert_eq!(view.sum(route, Tally::TlsBytesIn), 20);
        assert_eq!(view.sum(backend, Tally::TlsBytesIn), 2);
        assert_eq!(view.sum(None, Tally::TlsBytesIn), 0);
        // The second worker dies; its successor finds three connections, two of this route.
        let found = [route, Row::of_route(8), route];
        workers[1].forget_own();
        found
            .into_iter()
            .for_each(|row| workers[1].enter(row, 5_000));
        let ages = view.ages(5_000);
        assert_eq!((ages.under_hour, ages.under_day), (3, 1));
        assert_eq!(view.sum(route, Tally::Connections), 3);
        assert_eq!(view.sum(route, Tally::TlsBytesIn), 20, "bytes are kept");
        workers[0].leave(route, 5);
        workers[0].leave(route, 5);
        assert_eq!(view.ages(5_000).under_day, 0);
        assert_eq!(view.sum(route, Tally::Connections), 2, "never below zero");
        main.forget(route);
        assert_eq!(view.sum(route, Tally::Connections), 0);
        assert_eq!(view.sum(route, Tally::TlsBytesIn), 0);
        assert_eq!(view.sum(backend, Tally::TlsBytesIn), 2);
    }

    #[test]
    fn unused_rows_take_no_memory() {
        let main = Traffic::create(4).expect("memory");
        let last = Traffic::adopt(main.fd(), 4, 3).expect("a part");
        last.forget_own();
        last.enter(Row::of_route((1 << 14) - 1), 0);
        last.add(Row::of_backend(PLACES as u16), Tally::ClosedByCrash, 1);
        assert_eq!(
            main.sum(Row::of_route((1 << 14) - 1), Tally::Connections),
            1
        );
        let file = std::fs::metadata(format!("/proc/self/fd/{}", main.fd().0)).expect("open");
        use std::os::unix::fs::MetadataExt as _;
        // The route's page in the parts of four workers, since reading also allocates it, and the
        // backend's page; and the two pages of one worker's ages.
        assert!(file.blocks() * 512 <= 7 * PAGE as u64, "{}", file.blocks());
    }
}
