//! Connections, handshake rate and bytes of each client address.
//!
//! One table in shared memory serves all workers. Its size is fixed, whatever clients connect. A client
//! is an IPv4 address or an IPv6 /64, which is what a provider assigns to a subscriber. There are no
//! locks: an entry is three words that are changed atomically. A worker that is killed meanwhile leaves
//! at worst a count that is one too low. The counts of a worker that is gone for good are removed by counting again
//! ([`Clients::uncount`]).
//!
//! An entry can be reused for another client when it has no connections and its rate has recovered. If
//! all eight places for an address are taken, the client is admitted uncounted (and a counter says so):
//! a full table must not lock clients out.

use crate::hash;
use crate::pace::Pace;
use dormouse_reactor::memory::{PAGE, Words};
use dormouse_reactor::{AdoptError, Fd};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of places in which an address may have its entry.
const WAYS: usize = 8;
/// Words per entry: the client's key; connections; time at which its rate has recovered (ms).
const WORDS_EACH: usize = 3;
/// Place of the random seed, so that an attacker can't choose addresses that share their places.
const SEED_AT: usize = 0;
/// Place of the word for the bytes of all clients together ([`Pace`]).
const ALL_AT: usize = 8;
/// Place of the time until which entries keep their clients although they count no connections.
const FROZEN_AT: usize = 16;
const ENTRIES_AT: usize = 64;

/// Minimum and maximum number of entries.
const ENTRIES_MIN: u32 = 1 << 10;
const ENTRIES_MAX: u32 = 1 << 22;

/// See [`crate::dimensions`].
pub(crate) const DIMENSIONS: [usize; 5] = [
    WAYS,
    WORDS_EACH,
    ENTRIES_AT,
    ENTRIES_MIN as usize,
    ENTRIES_MAX as usize,
];

/// Time in which workers count their connections again.
const FREEZE_MS: u64 = 10_000;

/// Window of the handshake rate.
const RATE_WINDOW_MS: u64 = 60_000;

/// Limits per client address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientLimits {
    /// Concurrent connections.
    pub connections_max: Option<u32>,
    /// Handshakes per minute.
    pub handshakes_per_minute: Option<u32>,
    /// Bytes in both directions.
    pub bytes: Option<Pace>,
    /// Bytes in both directions of all clients together.
    pub bytes_of_all: Option<Pace>,
}

impl ClientLimits {
    /// Whether any limit needs an entry in the table.
    pub fn any(&self) -> bool {
        self.connections_max.is_some()
            || self.handshakes_per_minute.is_some()
            || self.bytes.is_some()
    }

    /// Whether there is a limit on bytes.
    pub fn any_bytes(&self) -> bool {
        self.bytes.is_some() || self.bytes_of_all.is_some()
    }
}

/// The limit that a client has reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exceeded {
    /// Concurrent connections.
    Connections,
    /// Handshakes per minute.
    Rate,
}

/// Number of an entry, stored in the connection's slot in 24 bits. 0: no entry.
pub(crate) type ClientPlace = u32;

/// The table.
#[derive(Debug)]
pub struct Clients {
    words: Words,
    entries: u32,
    made_for: u32,
    /// Whether this worker counts its connections.
    is_counting: bool,
}

impl Clients {
    /// Creates a table that is large enough for this number of connections.
    pub fn create(connections_max: u32, seed: u64) -> io::Result<Clients> {
        let entries = Self::entries(connections_max);
        let words = Words::create("dormouse-clients", len(entries))?;
        if let Some(word) = words.word(SEED_AT) {
            word.store(seed, Ordering::Release);
        }
        Ok(Clients {
            words,
            entries,
            made_for: connections_max,
            is_counting: true,
        })
    }

    /// Maps the table that main has created.
    pub fn adopt(fd: Fd, connections_max: u32) -> Result<Clients, AdoptError> {
        let entries = Self::entries(connections_max);
        Ok(Clients {
            words: Words::adopt(fd, len(entries))?,
            entries,
            made_for: connections_max,
            is_counting: true,
        })
    }

    /// Number of entries: twice the maximum of connections, so that conflicts are rare.
    fn entries(connections_max: u32) -> u32 {
        let twice = connections_max
            .saturating_mul(2)
            .clamp(ENTRIES_MIN, ENTRIES_MAX);
        twice.next_power_of_two().min(ENTRIES_MAX)
    }

    /// The number of connections for which the table was created.
    pub fn made_for(&self) -> u32 {
        self.made_for
    }

    /// Returns the table's descriptor, through which other processes adopt it.
    pub fn fd(&self) -> Fd {
        self.words.fd()
    }

    /// Checks whether a new client may begin a handshake, and counts the handshake.
    pub fn count_handshake(
        &self,
        address: IpAddr,
        limits: ClientLimits,
        now_ms: u64,
    ) -> Result<(), Exceeded> {
        let Some(place) = self.find(key(address), limits, now_ms) else {
            return Ok(());
        };
        let count = self.count(place).load(Ordering::Relaxed);
        if limits
            .connections_max
            .is_some_and(|max| count >= u64::from(max))
        {
            return Err(Exceeded::Connections);
        }
        match limits.handshakes_per_minute {
            Some(per_minute) => self.take_turn(place, per_minute, now_ms),
            None => Ok(()),
        }
    }

    /// Returns the entry of this client, and takes a free one if it has none. `None`: there is no room.
    pub fn place(&self, address: IpAddr, limits: ClientLimits, now_ms: u64) -> Option<ClientPlace> {
        self.find(key(address), limits, now_ms)
    }

    /// Counts an established connection. Handshakes are not counted: if their worker dies, its successor
    /// would not know of them, and the count would stay too high.
    pub fn enter(&self, place: ClientPlace, limits: ClientLimits) -> Result<(), Exceeded> {
        let count = self.count(place);
        let before = match self.is_counting {
            true => count.fetch_add(1, Ordering::Relaxed),
            false => count.load(Ordering::Relaxed),
        };
        let max = limits.connections_max;
        if max.is_some_and(|max| before >= u64::from(max)) {
            self.leave(place);
            return Err(Exceeded::Connections);
        }
        Ok(())
    }

    /// Counts the end of a connection.
    pub fn leave(&self, place: ClientPlace) {
        if place == 0 || place > self.entries || !self.is_counting {
            return;
        }
        let less = |count: u64| count.checked_sub(1);
        // The count may be 0 already, if a worker was killed between storing the place and counting.
        let _ = self
            .count(place)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Counts none of this worker's connections until [`Clients::count_again`]. Main then clears the table.
    pub fn uncount(&mut self) {
        self.is_counting = false;
    }

    /// Counts this worker's connections again. `found`: the entries of all of them.
    pub fn count_again(&mut self, found: impl Iterator<Item = ClientPlace>) {
        if std::mem::replace(&mut self.is_counting, true) {
            return;
        }
        for place in found.filter(|&place| place != 0) {
            self.count(place).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets entries keep their clients while workers count again; for main.
    pub fn freeze(&self, now_ms: u64) {
        if let Some(until_ms) = self.words.word(FROZEN_AT) {
            until_ms.store(now_ms + FREEZE_MS, Ordering::Relaxed);
        }
    }

    /// Clears all counts, while no worker counts; for main. Only pages with data are visited: touching others would allocate
    /// memory for them.
    pub fn clear(&self) {
        let all = || std::iter::once(0..len(self.entries)).collect();
        let data: Vec<Range<usize>> = self.words.data().unwrap_or_else(|_| all());
        let entry_at = |offset: usize| offset.saturating_sub(ENTRIES_AT) / (8 * WORDS_EACH);
        for range in data {
            let (first, last) = (entry_at(range.start), entry_at(range.end));
            for entry in first..=last.min(self.entries as usize - 1) {
                let count_at = ENTRIES_AT + 8 * (entry * WORDS_EACH + 1);
                if range.contains(&count_at) {
                    self.words.word_at(count_at).store(0, Ordering::Relaxed);
                }
            }
        }
    }

    fn is_frozen(&self, now_ms: u64) -> bool {
        // A later time is not from main.
        let frozen = now_ms + 1..=now_ms + FREEZE_MS;
        let until_ms = self.words.word(FROZEN_AT);
        until_ms.is_some_and(|until_ms| frozen.contains(&until_ms.load(Ordering::Relaxed)))
    }

    /// Charges bytes to a client. Returns how many milliseconds the connection that moved them must wait.
    pub fn pay(&self, place: ClientPlace, limits: ClientLimits, bytes: u64, now_ms: u64) -> u64 {
        match (limits.bytes, self.paid(place)) {
            (Some(pace), Some(paid)) if place != 0 => pace.pay(paid, bytes, now_ms, self.made_for),
            _ => 0,
        }
    }

    /// Charges bytes to the limit of all clients together. Returns how many milliseconds the connection
    /// must wait.
    pub fn pay_for_all(&self, limits: ClientLimits, bytes: u64, now_ms: u64) -> u64 {
        match (limits.bytes_of_all, self.words.word(ALL_AT)) {
            (Some(pace), Some(paid)) => pace.pay(paid, bytes, now_ms, self.made_for),
            _ => 0,
        }
    }

    /// The word for the bytes of an entry.
    fn paid(&self, place: ClientPlace) -> Option<&AtomicU64> {
        if place > self.entries {
            return None;
        }
        let paces_at = ENTRIES_AT + 8 * WORDS_EACH * self.entries as usize;
        self.words
            .word(paces_at + 8 * (place.clamp(1, self.entries) - 1) as usize)
    }

    /// Finds the entry with this key, or takes a free one.
    fn find(&self, key: u64, limits: ClientLimits, now_ms: u64) -> Option<ClientPlace> {
        let seed = self.words.word(SEED_AT)?.load(Ordering::Relaxed);
        let group = hash::mix(key ^ seed) as u32 & (self.entries / WAYS as u32 - 1);
        let places = (0..WAYS as u32).map(|way| group * WAYS as u32 + way + 1);
        if let Some(place) = places
            .clone()
            .find(|&place| self.owner(place).load(Ordering::Relaxed) == key)
        {
            return Some(place);
        }
        for place in places {
            let owner = self.owner(place);
            let former = owner.load(Ordering::Relaxed);
            let is_free =
                former == 0 || !self.is_frozen(now_ms) && self.is_done(place, limits, now_ms);
            if !is_free {
                continue;
            }
            let taken = owner.compare_exchange(former, key, Ordering::Relaxed, Ordering::Relaxed);
            // If two workers compete for the entry, the loser tries the next one, unless both have the same client.
            if taken.is_ok() || taken == Err(key) {
                return Some(place);
            }
        }
        None
    }

    /// Whether an entry has no connections, and its rate and bytes have recovered. A time that no sound worker can have
    /// stored keeps no entry: else a table full of such times would leave all new clients without limits.
    fn is_done(&self, place: ClientPlace, limits: ClientLimits, now_ms: u64) -> bool {
        let recovering = now_ms + 1..=now_ms + RATE_WINDOW_MS;
        let recovered_ms = self.recovered(place).load(Ordering::Relaxed);
        let bytes = limits.bytes.zip(self.paid(place));
        self.count(place).load(Ordering::Relaxed) == 0
            && !recovering.contains(&recovered_ms)
            && bytes.is_none_or(|(pace, paid)| pace.is_paid(paid, now_ms, self.made_for))
    }

    /// Counts a handshake against the rate. Each handshake advances the recovery time by its share of the
    /// minute; the recovery time must not be more than a minute ahead. So a client may use its whole rate
    /// at once after a quiet minute.
    fn take_turn(&self, place: ClientPlace, per_minute: u32, now_ms: u64) -> Result<(), Exceeded> {
        let n = u64::from(per_minute.max(1)).min(RATE_WINDOW_MS);
        // All times are on a grid of n per minute, so that no fraction of a millisecond adds up.
        let after = |at_ms: u64| ((at_ms * n / RATE_WINDOW_MS + 1) * RATE_WINDOW_MS).div_ceil(n);
        let latest_ms = now_ms + RATE_WINDOW_MS;
        let later = |recovered_ms: u64| {
            // A later time is not from a sound worker, and must not refuse the client for ever.
            let recovered_ms = Some(recovered_ms).filter(|&at_ms| at_ms <= latest_ms);
            let next_ms = after(recovered_ms.unwrap_or(0).max(now_ms));
            (next_ms <= latest_ms).then_some(next_ms)
        };
        self.recovered(place)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later)
            .map(drop)
            .map_err(|_| Exceeded::Rate)
    }

    fn owner(&self, place: ClientPlace) -> &AtomicU64 {
        self.word(place, 0)
    }

    fn count(&self, place: ClientPlace) -> &AtomicU64 {
        self.word(place, 1)
    }

    fn recovered(&self, place: ClientPlace) -> &AtomicU64 {
        self.word(place, 2)
    }

    fn word(&self, place: ClientPlace, n: usize) -> &AtomicU64 {
        let entry = (place.clamp(1, self.entries) - 1) as usize;
        self.words
            .word_at(ENTRIES_AT + 8 * (entry * WORDS_EACH + n))
    }
}

/// Bytes of the table. The words for the clients' bytes come after all entries.
fn len(entries: u32) -> usize {
    (ENTRIES_AT + 8 * (WORDS_EACH + 1) * entries as usize).next_multiple_of(PAGE)
}

/// Returns the key of a client: its IPv4 address or its IPv6 /64. Never 0.
pub fn key(address: IpAddr) -> u64 {
    match v4(address) {
        // ff00::/8 is multicast, so no client's prefix has these high bits.
        Ok(ip) => 0xffff_ffff_0000_0000 | u64::from(u32::from(ip)),
        Err(ip) => ((u128::from(ip) >> 64) as u64).max(1),
    }
}

/// Returns the IPv4 address of a client, also if it is written as an IPv6 address (RFC 4291 §2.5.5.2), or if the client
/// comes through a translator (RFC 6052 §2.1), behind which all of IPv4 would be one /64.
fn v4(address: IpAddr) -> Result<Ipv4Addr, Ipv6Addr> {
    match address {
        IpAddr::V4(ip) => Ok(ip),
        IpAddr::V6(ip) => match (ip.segments(), ip.to_ipv4_mapped()) {
            ([0x64, 0xff9b, 0, 0, 0, 0, ..], _) => Ok(Ipv4Addr::from(u128::from(ip) as u32)),
            (_, Some(mapped)) => Ok(mapped),
            (_, None) => Err(ip),
        },
    }
}

#[cfg(test)]
mod tests;
