//! A cache of short byte strings in one fixed mapping, shared by processes.
//!
//! The mapping is divided into buckets, chosen by the key. A bucket is a ring of words with an index before it:
//!
//! ```text
//!  bucket:  cursor | index: 128 entries | data, a ring: key, value, key, value, …
//!  cursor:  next data word (32) | next index entry (32)
//!  entry:   tag (24) | where (16) | key bytes (8) | value bytes (16)      0: empty
//! ```
//!
//! A writer reserves an index entry and words of the ring with one compare-and-swap on the cursor, writes
//! there, and publishes by storing the entry. It overwrites the oldest data, so eviction needs no work of its
//! own.
//!
//! Invariants:
//!
//! - **No process waits.** There is no lock. A process that is killed at any point leaves a place in the ring
//!   that is overwritten later.
//! - **A value that is found may be wrong.** A slow and a fast writer can use the same words if the ring has
//!   wrapped around in between. A reader compares the key, and checks the entry again after reading the value;
//!   any remaining error must be detectable from the value itself. So callers must authenticate their values.
//!   (Sealed tickets are authenticated.)
//! - **Only one taker succeeds**: the one whose compare-and-swap empties the entry.
//! - **The size never changes**, and a page uses memory only once it is written.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::{PAGE, Words};
use crate::{AdoptError, Fd};

const MAGIC: u64 = u64::from_le_bytes(*b"dm-cache");
const VERSION: u64 = 1;

const MAGIC_AT: usize = 0;
const VERSION_AT: usize = 8;
const BUCKETS_AT: usize = PAGE;

const BUCKET_LEN: usize = 16 * 1024;
const INDEX: usize = 128;
const INDEX_AT: usize = 8;
const DATA_AT: usize = INDEX_AT + 8 * INDEX;
const DATA_WORDS: usize = (BUCKET_LEN - DATA_AT) / 8;

/// Minimum size of a cache.
pub const BYTES_MIN: usize = BUCKETS_AT + BUCKET_LEN;
/// Maximum key length.
pub const KEY_MAX: usize = 64;
/// Maximum value length.
pub const VALUE_MAX: usize = 4096;

/// A mark: a bit that is set, the bucket's number, low bits of the tag.
const MARK_BUCKET_BITS: u32 = 18;
const MARK_TAG_BITS: u32 = 13;
const MARK_TAG: u32 = (1 << MARK_TAG_BITS) - 1;

const _: () = assert!(1 + MARK_BUCKET_BITS + MARK_TAG_BITS == u32::BITS);
const _: () = assert!(DATA_AT + 8 * DATA_WORDS <= BUCKET_LEN);
const _: () = assert!(KEY_MAX < 1 << 8 && VALUE_MAX < 1 << 16 && DATA_WORDS < 1 << 16);
const _: () = assert!(
    (KEY_MAX + VALUE_MAX) / 8 + 2 < DATA_WORDS / 2,
    "an entry must not lap itself"
);

/// The cache. Cheap to clone; every process has its own handle to the same memory.
#[derive(Clone, Debug)]
pub struct Cache {
    words: Arc<Words>,
    buckets: usize,
}

/// The contents of an index entry.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u64,
    at: usize,
    key_len: usize,
    value_len: usize,
}

impl Entry {
    /// Never returns 0, because every entry has a key.
    fn pack(self) -> u64 {
        self.tag << 40
            | (self.at as u64) << 24
            | (self.key_len as u64) << 16
            | self.value_len as u64
    }

    /// Returns `None` for an empty entry, or for a word that was never packed.
    fn unpack(word: u64) -> Option<Entry> {
        let entry = Entry {
            tag: word >> 40,
            at: (word >> 24) as usize & 0xffff,
            key_len: (word >> 16) as usize & 0xff,
            value_len: word as usize & 0xffff,
        };
        let is_valid = (1..=KEY_MAX).contains(&entry.key_len)
            && entry.value_len <= VALUE_MAX
            && entry.at < DATA_WORDS;
        is_valid.then_some(entry)
    }

    fn words(self) -> usize {
        self.key_len.div_ceil(8) + self.value_len.div_ceil(8)
    }
}

impl Cache {
    /// Creates a cache of at most `bytes` bytes. The descriptor stays open over an exec.
    ///
    /// # Errors
    /// The operating system's error; `InvalidInput` below [`BYTES_MIN`].
    pub fn create(name: &str, bytes: usize) -> io::Result<Cache> {
        let buckets = buckets(bytes);
        if buckets == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a cache needs at least {BYTES_MIN} bytes, not {bytes}"),
            ));
        }
        let words = Arc::new(Words::create(name, len(buckets))?);
        let cache = Cache { words, buckets };
        cache.at(VERSION_AT).store(VERSION, Ordering::Relaxed);
        cache.at(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok(cache)
    }

    /// Maps a cache that another process created. The header is not checked; see [`crate::shared::Shared::adopt`].
    ///
    /// # Errors
    /// The memory file is not a cache.
    pub fn adopt(fd: Fd) -> Result<Cache, AdoptError> {
        let file = fd
            .borrow()
            .map_err(AdoptError::system("use the descriptor"))?;
        let size = rustix::fs::fstat(file)
            .map_err(|errno| {
                AdoptError::system("read the length of the memory file")(errno.into())
            })?
            .st_size;
        let buckets = buckets(usize::try_from(size).unwrap_or(0)).max(1);
        let words = Arc::new(Words::adopt(fd, len(buckets))?);
        Ok(Cache { words, buckets })
    }

    /// Returns the descriptor of the memory file.
    pub fn fd(&self) -> Fd {
        self.words.fd()
    }

    /// Stores a value and removes any earlier value under the same key. Returns false if the key is empty, or
    /// if key or value is too long.
    pub fn put(&self, key: &[u8], value: &[u8]) -> bool {
        if key.is_empty() || key.len() > KEY_MAX || value.len() > VALUE_MAX {
            return false;
        }
        let hash = hash(key);
        let bucket = self.bucket(hash);
        while let Some((slot, word)) = self.find(bucket, hash, key) {
            let emptied = slot.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Acquire);
            if emptied.is_err() {
                break; // Another process took or overwrote it.
            }
        }
        let mut entry = Entry {
            tag: hash & 0xff_ffff,
            at: 0,
            key_len: key.len(),
            value_len: value.len(),
        };
        let (index, at) = self.reserve(bucket, entry.words());
        entry.at = at;
        let slot = self.at(bucket + INDEX_AT + 8 * index);
        // The entry's old value is about to be overwritten.
        slot.store(0, Ordering::Release);
        self.write(bucket, at, key);
        self.write(bucket, at + key.len().div_ceil(8), value);
        slot.store(entry.pack(), Ordering::Release);
        true
    }

    /// Returns the value under a key.
    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let hash = hash(key);
        let bucket = self.bucket(hash);
        let (slot, word) = self.find(bucket, hash, key)?;
        let value = self.value(bucket, Entry::unpack(word)?);
        (slot.load(Ordering::Acquire) == word).then_some(value)
    }

    /// Removes and returns the value under a key; only one caller gets it.
    pub fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let hash = hash(key);
        let bucket = self.bucket(hash);
        let (slot, word) = self.find(bucket, hash, key)?;
        let value = self.value(bucket, Entry::unpack(word)?);
        slot.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
            .then_some(value)
    }

    /// Returns a short name of a key, for [`Cache::forget`] by a caller that cannot keep the key. Never 0, except
    /// in a cache of more than 4 GiB, whose entries have no mark.
    pub fn mark(&self, key: &[u8]) -> u32 {
        let hash = hash(key);
        let bucket = hash_bucket(hash, self.buckets);
        match u32::try_from(bucket) {
            Ok(bucket) if bucket < 1 << MARK_BUCKET_BITS => {
                1 << 31 | bucket << MARK_TAG_BITS | hash as u32 & MARK_TAG
            }
            _ => 0,
        }
    }

    /// Removes the entries of this mark: the one that was meant, and rarely another one.
    pub fn forget(&self, mark: u32) {
        let bucket = (mark & !(1 << 31)) >> MARK_TAG_BITS;
        if mark == 0 || bucket as usize >= self.buckets {
            return;
        }
        for index in 0..INDEX {
            let slot = self.at(BUCKETS_AT + bucket as usize * BUCKET_LEN + INDEX_AT + 8 * index);
            let word = slot.load(Ordering::Acquire);
            if Entry::unpack(word)
                .is_some_and(|entry| entry.tag as u32 & MARK_TAG == mark & MARK_TAG)
            {
                // If this fails, another process has just taken or overwritten the entry.
                let _ = slot.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// Returns the index entry for a key, and its contents.
    fn find(&self, bucket: usize, hash: u64, key: &[u8]) -> Option<(&AtomicU64, u64)> {
        (0..INDEX).find_map(|index| {
            let slot = self.at(bucket + INDEX_AT + 8 * index);
            let word = slot.load(Ordering::Acquire);
            let entry = Entry::unpack(word)?;
            let named = entry.tag == hash & 0xff_ffff
                && entry.key_len == key.len()
                && self.read(bucket, entry.at, entry.key_len) == key;
            named.then_some((slot, word))
        })
    }

    fn value(&self, bucket: usize, entry: Entry) -> Vec<u8> {
        self.read(
            bucket,
            entry.at + entry.key_len.div_ceil(8),
            entry.value_len,
        )
    }

    /// Reserves an index entry and `words` data words; returns the entry and the first word.
    fn reserve(&self, bucket: usize, words: usize) -> (usize, usize) {
        let cursor = self.at(bucket);
        let mut seen = cursor.load(Ordering::Relaxed);
        loop {
            let at = (seen >> 32) as usize % DATA_WORDS;
            let index = seen as u32 as usize % INDEX;
            let next = ((at + words) % DATA_WORDS) as u64;
            let moved = next << 32 | ((index + 1) % INDEX) as u64;
            match cursor.compare_exchange_weak(seen, moved, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return (index, at),
                // Another process has moved the cursor, so there is progress; try again.
                Err(now) => seen = now,
            }
        }
    }

    fn write(&self, bucket: usize, at: usize, bytes: &[u8]) {
        for (n, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.data(bucket, at + n)
                .store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
    }

    fn read(&self, bucket: usize, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len.next_multiple_of(8));
        for n in 0..len.div_ceil(8) {
            let word = self.data(bucket, at + n).load(Ordering::Relaxed);
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.truncate(len);
        // The caller checks the entry again; that load must not move before these.
        std::sync::atomic::fence(Ordering::Acquire);
        bytes
    }

    fn data(&self, bucket: usize, word: usize) -> &AtomicU64 {
        self.at(bucket + DATA_AT + 8 * (word % DATA_WORDS))
    }

    fn bucket(&self, hash: u64) -> usize {
        BUCKETS_AT + hash_bucket(hash, self.buckets) * BUCKET_LEN
    }

    fn at(&self, offset: usize) -> &AtomicU64 {
        self.words.word_at(offset)
    }
}

/// FNV-1a with a final mix. Keys are random; a caller with badly chosen keys gets fewer hits.
fn hash(key: &[u8]) -> u64 {
    let fnv = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (fnv ^ fnv >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn hash_bucket(hash: u64, buckets: usize) -> usize {
    (hash >> 24) as usize % buckets
}

fn buckets(bytes: usize) -> usize {
    bytes.saturating_sub(BUCKETS_AT) / BUCKET_LEN
}

fn len(buckets: usize) -> usize {
    BUCKETS_AT + buckets * BUCKET_LEN
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    const MIB: usize = 1 << 20;

    fn cache(bytes: usize) -> Cache {
        Cache::create("test", bytes).unwrap()
    }

    fn key(n: u64) -> [u8; 32] {
        let mut key = [0; 32];
        for (to, n) in key.chunks_exact_mut(8).zip([n, n ^ 77, !n, n << 3]) {
            to.copy_from_slice(&n.to_le_bytes());
        }
        key
    }

    fn value(n: u64) -> Vec<u8> {
        n.to_le_bytes().repeat(20 + n as usize % 7)
    }

    #[test]
    fn a_value_is_forgotten_by_its_mark() {
        for bytes in [BYTES_MIN, MIB] {
            let ours = cache(bytes);
            let theirs = Cache::adopt(ours.fd()).unwrap();
            for n in 0..50 {
                assert!(ours.put(&key(n), &value(n)));
            }
            assert_ne!(ours.mark(&key(7)), 0);
            assert_eq!(ours.mark(&key(7)), theirs.mark(&key(7)));
            theirs.forget(ours.mark(&key(7)));
            assert_eq!(ours.get(&key(7)), None);
            let left = (0..50).filter(|&n| ours.get(&key(n)).is_some()).count();
            assert_eq!(left, 49, "no other value");
            // Marks that no key has.
            for mark in [0, 1, 1 << 31, u32::MAX] {
                ours.forget(mark);
            }
        }
    }

    #[test]
    fn values_are_found_by_every_process() {
        let ours = cache(MIB);
        let theirs = Cache::adopt(ours.fd()).unwrap();
        for n in 0..100 {
            assert!(ours.put(&key(n), &value(n)));
        }
        for n in 0..100 {
            assert_eq!(theirs.get(&key(n)), Some(value(n)));
            assert_eq!(theirs.take(&key(n)), Some(value(n)));
            assert_eq!(ours.get(&key(n)), None);
            assert_eq!(ours.take(&key(n)), None);
        }
        // A changed header stops no later process.
        ours.at(MAGIC_AT).store(u64::MAX, Ordering::Relaxed);
        assert!(Cache::adopt(ours.fd()).is_ok());
        ours.fd().close();
    }

    #[test]
    fn values_are_replaced_and_overlong_ones_refused() {
        let cache = cache(BYTES_MIN);
        for n in 0..10_000 {
            assert!(cache.put(&key(1), &value(n)));
            assert_eq!(cache.get(&key(1)), Some(value(n)));
        }
        assert!(cache.put(&key(2), &[7; VALUE_MAX]));
        assert_eq!(cache.get(&key(2)), Some(vec![7; VALUE_MAX]));
        assert!(!cache.put(&key(2), &[7; VALUE_MAX + 1]));
        assert!(!cache.put(&[], &[7]));
        assert!(!cache.put(&[1; KEY_MAX + 1], &[7]));
        assert_eq!(cache.get(&key(2)), Some(vec![7; VALUE_MAX]));
        cache.fd().close();
    }

    #[test]
    fn the_oldest_entries_are_evicted_and_nothing_grows() {
        let cache = cache(MIB);
        let many = 20_000;
        for n in 0..many {
            assert!(cache.put(&key(n), &value(n)));
        }
        let kept: Vec<u64> = (0..many)
            .filter(|&n| match cache.get(&key(n)) {
                Some(found) => {
                    assert_eq!(found, value(n), "the value of another key");
                    true
                }
                None => false,
            })
            .collect();
        // 63 buckets with some 70 entries of 220 bytes; the most recent ones remain.
        assert!((3_500..5_000).contains(&kept.len()), "{}", kept.len());
        assert!(kept[0] > many - 7_000, "{}", kept[0]);
        assert!(kept.contains(&(many - 1)));
        cache.fd().close();
    }

    #[test]
    fn invalid_words_are_not_entries() {
        let cache = cache(BYTES_MIN);
        // Words that a process could leave if it is killed at any store, or misbehaves.
        for garbage in [u64::MAX, 1, 1 << 40, 0xffff_ffff, 0x0000_0100_0041_ffff] {
            for word in 0..BUCKET_LEN / 8 {
                cache
                    .at(BUCKETS_AT + 8 * word)
                    .store(garbage, Ordering::Relaxed);
            }
            assert_eq!(cache.get(&key(1)), None);
            assert_eq!(cache.take(&key(1)), None);
            assert!(cache.put(&key(1), &value(1)));
            assert_eq!(cache.get(&key(1)), Some(value(1)));
        }
        cache.fd().close();
    }

    #[test]
    fn one_taker_wins_and_values_stay_whole() {
        let cache = cache(MIB); // room for all
        let won = AtomicUsize::new(0);
        let rounds = 3_000;
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (cache, won) = (cache.clone(), &won);
                scope.spawn(move || {
                    for n in 0..rounds {
                        if thread == 0 {
                            assert!(cache.put(&key(n), &value(n)));
                        } else if let Some(found) = cache.take(&key(n)) {
                            assert_eq!(found, value(n));
                            won.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let left = (0..rounds)
            .filter(|&n| cache.take(&key(n)).is_some())
            .count();
        assert_eq!(won.load(Ordering::Relaxed) + left, rounds as usize);
        cache.fd().close();
    }
}
