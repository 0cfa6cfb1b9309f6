//! The table of resting connections: from the digest of two addresses to the number of a record.
//!
//! An array of buckets of one cache line, in memory that the programs and one process share. Each digest is in one
//! of two buckets. If both are full, an entry of them moves to its other bucket, so that four fifths of the table
//! are filled before some connections find no place, and stay awake.
//! Only one process writes. An entry's second word is written before its digest, and is meaningless without it;
//! a program that reads while an entry changes may take a packet for one of another connection, which the
//! reader of the ring finds out, or drop it, and the peer repeats it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Fd;
use crate::memory::Words;

/// A bucket: four entries of two words, as in programs.c.
pub(super) const BUCKET_LEN: usize = 64;
const ENTRY_LEN: usize = 16;

/// The writer's view of the table.
#[derive(Debug)]
pub struct Table {
    words: Words,
    buckets: u32,
    key: [u64; 2],
}

/// The keyed hash of a connection's addresses; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest(pub u64);

/// Returns the number of buckets for this many connections.
pub(super) fn buckets(connections: u32) -> u32 {
    connections.div_ceil(16) * 5 + 8
}

impl Table {
    /// Maps the array `map`.
    pub(super) fn open(map: Fd, buckets: u32, key: [u64; 2]) -> io::Result<Table> {
        let words = Words::window(map, 0, buckets as usize * BUCKET_LEN)?;
        Ok(Table {
            words,
            buckets,
            key,
        })
    }

    /// Returns the digest of a connection, as the programs compute it.
    pub fn digest(&self, local: SocketAddr, peer: SocketAddr) -> Digest {
        let mut hash = self.key[0];
        match (peer, local) {
            (SocketAddr::V4(peer), SocketAddr::V4(local)) => {
                let [peer, local] = [peer, local].map(|a| u32::from_ne_bytes(a.ip().octets()));
                hash = mix(hash, u64::from(peer) | u64::from(local) << 32);
            }
            _ => {
                for word in [peer, local].into_iter().flat_map(halves) {
                    hash = mix(hash, word);
                }
            }
        }
        let [peer, local] = [peer, local].map(|a| u32::from(a.port().to_be()));
        hash = mix(hash, self.key[1] ^ u64::from(peer | local << 16));
        Digest(hash.max(1))
    }

    /// Enters a connection: packets that find no socket go to a sink from now on, and come with `record`. Returns
    /// `false` if there is no room, or it is already there.
    #[must_use]
    pub fn insert(&self, digest: Digest, receive_next: u32, record: u32) -> bool {
        if self.find(digest).is_some() {
            return false;
        }
        let Some(entry) = self.free_entry(digest) else {
            return false;
        };
        entry.set(digest, u64::from(receive_next) | u64::from(record) << 32);
        true
    }

    fn free_entry(&self, digest: Digest) -> Option<Entry<'_>> {
        let free = |bucket| self.bucket(bucket).filter(Entry::is_free);
        let [first, second] = self.buckets_of(digest);
        let emptier = match free(first).count() >= free(second).count() {
            true => first,
            false => second,
        };
        free(emptier).next().or_else(|| {
            let mut full = self.bucket(first).chain(self.bucket(second));
            full.find(|entry| self.moves_away(entry))
        })
    }

    /// Moves an entry to its other bucket, if there is room. It is never missing: for a moment it is in both.
    fn moves_away(&self, entry: &Entry<'_>) -> bool {
        let digest = Digest(entry.digest.load(Ordering::Relaxed));
        let Some(free) = self.entries(digest).find(Entry::is_free) else {
            return false;
        };
        free.set(digest, entry.value.load(Ordering::Relaxed));
        entry.digest.store(0, Ordering::Release);
        true
    }

    /// Returns the number of a connection's record.
    pub fn find(&self, digest: Digest) -> Option<u32> {
        let entry = self.entries(digest).find(|entry| entry.is(digest))?;
        Some((entry.value.load(Ordering::Relaxed) >> 32) as u32)
    }

    /// Removes a connection, if it is there. Its packets find a socket, or are answered with a reset.
    pub fn remove(&self, digest: Digest) {
        if let Some(entry) = self.entries(digest).find(|entry| entry.is(digest)) {
            crate::step::step();
            entry.digest.store(0, Ordering::Release);
        }
    }

    /// Returns the number of connections in the table, by counting them.
    pub fn count(&self) -> usize {
        let all = (0..self.buckets).flat_map(|bucket| self.bucket(bucket));
        all.filter(|entry| !entry.is_free()).count()
    }

    /// The entries that may have this digest.
    fn entries(&self, digest: Digest) -> impl Iterator<Item = Entry<'_>> {
        let [first, second] = self.buckets_of(digest);
        self.bucket(first).chain(self.bucket(second))
    }

    fn buckets_of(&self, digest: Digest) -> [u32; 2] {
        let halves = [digest.0 & u64::from(u32::MAX), digest.0 >> 32];
        halves.map(|half| ((half * u64::from(self.buckets)) >> 32) as u32)
    }

    fn bucket(&self, number: u32) -> impl Iterator<Item = Entry<'_>> {
        let start = number as usize * BUCKET_LEN;
        let places = (start..start + BUCKET_LEN).step_by(ENTRY_LEN);
        places.map(|at| Entry {
            digest: self.words.word_at(at),
            value: self.words.word_at(at + 8),
        })
    }
}

struct Entry<'a> {
    /// 0: free.
    digest: &'a AtomicU64,
    /// Next sequence number to receive, then the record's number.
    value: &'a AtomicU64,
}

impl Entry<'_> {
    fn set(&self, digest: Digest, value: u64) {
        crate::step::step();
        self.value.store(value, Ordering::Relaxed);
        self.digest.store(digest.0, Ordering::Release);
    }

    fn is(&self, digest: Digest) -> bool {
        self.digest.load(Ordering::Relaxed) == digest.0
    }

    fn is_free(&self) -> bool {
        self.digest.load(Ordering::Relaxed) == 0
    }
}

/// The halves of an IPv6 address as they lie in a packet.
fn halves(address: SocketAddr) -> [u64; 2] {
    let ip = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let number = u128::from_ne_bytes(ip.octets());
    [number as u64, (number >> 64) as u64]
}

/// As in programs.c. A collision harms nobody: a second connection with one digest is not let in, and a packet is
/// compared with its record. The key keeps attackers from filling a bucket.
fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ hash >> 32).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 29
}
