//! Counters and gauges of all workers, in one mapping of fixed size.
//!
//! Every worker writes to its own block, so that no two share a cache line; a total is the sum over all blocks.
//! There is no lock: a worker that is killed while it writes leaves an old or a new word, and blocks no other
//! process. There are also some words common to all: limits, switches, epochs.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::{PAGE, Words};
use crate::{AdoptError, Fd};

const MAGIC: u64 = u64::from_le_bytes(*b"dm-share");
const VERSION: u64 = 2;

/// Words per worker.
pub const WORDS: usize = 256;
/// Words common to all.
pub const COMMON: usize = 256;
/// Maximum number of workers.
pub const WORKERS_MAX: usize = 4096;

const MAGIC_AT: usize = 0;
const VERSION_AT: usize = 8;
const WORKERS_AT: usize = 16;
const COMMON_AT: usize = 1024;
const BLOCKS_AT: usize = PAGE;
const _: () = assert!(COMMON_AT + 8 * COMMON <= BLOCKS_AT);
/// Cache lines come in pairs: two kilobytes are far enough apart for any machine.
const BLOCK_LEN: usize = 8 * WORDS;

/// The mapping. Cheap to clone; every process has its own handle to the same memory.
#[derive(Clone, Debug)]
pub struct Shared {
    words: Arc<Words>,
    workers: usize,
}

/// The block of one worker.
#[derive(Clone, Debug)]
pub struct Block {
    shared: Shared,
    worker: usize,
}

impl Shared {
    /// Creates the mapping for this many workers. The descriptor stays open over an exec.
    ///
    /// # Errors
    /// The operating system's error; `InvalidInput` for 0 or more than [`WORKERS_MAX`] workers.
    pub fn create(name: &str, workers: usize) -> io::Result<Shared> {
        if workers == 0 || workers > WORKERS_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the number of workers must be 1 to {WORKERS_MAX}, not {workers}"),
            ));
        }
        let words = Arc::new(Words::create(name, len(workers))?);
        let shared = Shared { words, workers };
        shared.at(VERSION_AT).store(VERSION, Ordering::Relaxed);
        shared
            .at(WORKERS_AT)
            .store(workers as u64, Ordering::Relaxed);
        shared.at(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok(shared)
    }

    /// Maps the memory that another process created.
    ///
    /// The header is not checked, because a compromised worker could stop all later processes by changing it.
    /// The descriptor comes from main, and an upgrade compares the formats of both builds.
    ///
    /// # Errors
    /// It is not sealed, or has another length.
    pub fn adopt(fd: Fd, workers: usize) -> Result<Shared, AdoptError> {
        let workers = workers.clamp(1, WORKERS_MAX);
        let words = Arc::new(Words::adopt(fd, len(workers))?);
        Ok(Shared { words, workers })
    }

    /// Returns the descriptor of the memory file.
    pub fn fd(&self) -> Fd {
        self.words.fd()
    }

    /// Returns a read-only descriptor for [`View::open`].
    ///
    /// # Errors
    /// The operating system's error.
    pub fn reader(&self) -> io::Result<Fd> {
        self.words.reader()
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Returns a common word; `None` from [`COMMON`] on.
    pub fn common(&self, index: usize) -> Option<&AtomicU64> {
        (index < COMMON).then(|| self.at(COMMON_AT + 8 * index))
    }

    /// Returns the block of a worker, if it exists.
    pub fn block(&self, worker: usize) -> Option<Block> {
        (worker < self.workers).then(|| Block {
            shared: self.clone(),
            worker,
        })
    }

    /// Returns the sum of a word over all workers.
    pub fn sum(&self, word: usize) -> u64 {
        (0..self.workers)
            .filter_map(|worker| self.word(worker, word))
            .fold(0, |sum, word| {
                sum.wrapping_add(word.load(Ordering::Relaxed))
            })
    }

    fn word(&self, worker: usize, word: usize) -> Option<&AtomicU64> {
        (word < WORDS).then(|| self.at(BLOCKS_AT + worker * BLOCK_LEN + 8 * word))
    }

    fn at(&self, offset: usize) -> &AtomicU64 {
        self.words.word_at(offset)
    }
}

impl Block {
    /// Returns a word of the worker; `None` from [`WORDS`] on.
    pub fn word(&self, word: usize) -> Option<&AtomicU64> {
        self.shared.word(self.worker, word)
    }

    /// Adds to a counter or gauge; no effect for words that do not exist.
    pub fn add(&self, word: usize, amount: u64) {
        if let Some(word) = self.word(word) {
            word.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Sets a gauge.
    pub fn set(&self, word: usize, value: u64) {
        if let Some(word) = self.word(word) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Reads a word; 0 if it does not exist.
    pub fn load(&self, word: usize) -> u64 {
        self.word(word)
            .map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Sets gauges to zero, before a new worker counts again. Counters stay.
    pub fn clear(&self, words: Range<usize>) {
        for word in words {
            self.set(word, 0);
        }
    }
}

/// A read-only view of the mapping: a process without another descriptor of it cannot write.
#[derive(Debug)]
pub struct View {
    words: Words,
    workers: usize,
}

impl View {
    /// Maps the memory of [`Shared::create`] through a descriptor from [`Shared::reader`].
    ///
    /// # Errors
    /// See [`Shared::adopt`].
    pub fn open(fd: Fd, workers: usize) -> Result<View, AdoptError> {
        let workers = workers.clamp(1, WORKERS_MAX);
        let words = Words::adopt_to_read(fd, len(workers))?;
        Ok(View { words, workers })
    }

    /// Returns the number of workers with a block.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Returns a word of a worker's block; 0 if it does not exist.
    pub fn load(&self, worker: usize, word: usize) -> u64 {
        if worker >= self.workers || word >= WORDS {
            return 0;
        }
        let offset = BLOCKS_AT + worker * BLOCK_LEN + 8 * word;
        self.words.word_at(offset).load(Ordering::Relaxed)
    }

    /// Returns a common word; 0 if it does not exist.
    pub fn common(&self, index: usize) -> u64 {
        if index >= COMMON {
            return 0;
        }
        let offset = COMMON_AT + 8 * index;
        self.words.word_at(offset).load(Ordering::Relaxed)
    }

    /// Returns the sum of a word over all workers.
    pub fn sum(&self, word: usize) -> u64 {
        (0..self.workers).fold(0, |sum, worker| sum.wrapping_add(self.load(worker, word)))
    }
}

/// A page for each worker, although two blocks share one: so the length of the file, which no process can change,
/// gives the number of workers. Unused pages take no memory.
fn len(workers: usize) -> usize {
    BLOCKS_AT + workers * BLOCK_LEN.next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_separate_and_add_up() {
        let shared = Shared::create("test", 3).unwrap();
        for worker in 0..3 {
            let block = shared.block(worker).unwrap();
            for word in 0..WORDS {
                assert_eq!(block.load(word), 0);
                block.add(word, (1000 * worker + word) as u64);
            }
        }
        assert!(shared.block(3).is_none());
        assert_eq!(shared.sum(63), 63 + 1063 + 2063);
        shared
            .common(COMMON - 1)
            .unwrap()
            .store(9, Ordering::Relaxed);
        assert!(shared.common(COMMON).is_none());

        let again = Shared::adopt(shared.fd(), 3).unwrap();
        assert_eq!(again.sum(63), 63 + 1063 + 2063);
        let block = again.block(1).unwrap();
        block.clear(0..63);
        assert_eq!(shared.sum(7), 7 + 2007);
        assert_eq!(shared.sum(63), 63 + 1063 + 2063);
        block.add(WORDS, 1);
        assert_eq!(block.load(WORDS), 0);
        shared.fd().close();
    }

    #[test]
    fn a_view_sees_writes_and_cannot_write() {
        let shared = Shared::create("test", 2).unwrap();
        let reader = shared.reader().unwrap();
        let view = View::open(reader, 2).unwrap();
        shared.block(1).unwrap().add(5, 7);
        assert_eq!((view.load(1, 5), view.load(0, 5), view.sum(5)), (7, 0, 7));
        assert_eq!((view.load(2, 5), view.load(0, WORDS)), (0, 0));
        assert!(Shared::adopt(reader, 2).is_err(), "mapped for writing");
        assert!(View::open(reader, 3).is_err());
        reader.close();
        shared.fd().close();
    }

    #[test]
    fn a_changed_header_stops_no_later_process() {
        let shared = Shared::create("test", 2).unwrap();
        for at in [MAGIC_AT, VERSION_AT, WORKERS_AT] {
            shared.at(at).store(u64::MAX, Ordering::Relaxed);
        }
        let again = Shared::adopt(shared.fd(), 2).unwrap();
        assert_eq!(again.workers(), 2);
        let reader = shared.reader().unwrap();
        assert_eq!(View::open(reader, 2).unwrap().workers(), 2);
        [reader, shared.fd()].into_iter().for_each(Fd::close);
    }

    #[test]
    fn another_length_is_refused() {
        let shared = Shared::create("test", 3).unwrap();
        for workers in (1..100).filter(|&workers| workers != 3) {
            assert!(Shared::adopt(shared.fd(), workers).is_err(), "{workers}");
        }
        shared.fd().close();
    }
}
