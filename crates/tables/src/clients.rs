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
    /// Whether each entry has a word for its bytes, after all entries. Tables of older binaries have
    /// none.
    has_paces: bool,
    /// Whether this worker counts its connections.
    is_counting: bool,
}

impl Clients {
    /// Creates a table that is large enough for this number of connections.
    pub fn create(connections_max: u32, seed: u64) -> io::Result<Clients> {
        let entries = Self::entries(connections_max);
        let words = Words::create("dormouse-clients", len(entries, true))?;
        if let Some(word) = words.word(SEED_AT) {
            word.store(seed, Ordering::Release);
        }
        Ok(Clients {
            words,
            entries,
            made_for: connections_max,
            has_paces: true,
            is_counting: true,
        })
    }

    /// Maps the table that main has created.
    pub fn adopt(fd: Fd, connections_max: u32) -> Result<Clients, AdoptError> {
        let entries = Self::entries(connections_max);
        let (words, has_paces) = match Words::adopt(fd, len(entries, true)) {
            Ok(words) => (words, true),
            Err(_) => (Words::adopt(fd, len(entries, false))?, false),
        };
        Ok(Clients {
            words,
            entries,
            made_for: connections_max,
            has_paces,
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

    /// Whether the table has words for byte rates.
    pub fn has_paces(&self) -> bool {
        self.has_paces
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
        let all = || std::iter::once(0..len(self.entries, self.has_paces)).collect();
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
        if !self.has_paces || place > self.entries {
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

fn len(entries: u32, with_paces: bool) -> usize {
    let words_each = WORDS_EACH + usize::from(with_paces);
    (ENTRIES_AT + 8 * words_each * entries as usize).next_multiple_of(PAGE)
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
mod tests {
    use super::*;

    fn table() -> Clients {
        Clients::create(16, 7).unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    const TWO: ClientLimits = ClientLimits {
        connections_max: Some(2),
        handshakes_per_minute: None,
        bytes: None,
        bytes_of_all: None,
    };

    fn enter(clients: &Clients, address: &str) -> Result<ClientPlace, Exceeded> {
        let place = clients.place(ip(address), TWO, 0).expect("room");
        clients.enter(place, TWO).map(|()| place)
    }

    #[test]
    fn connections_are_counted_per_address_and_per_64() {
        let clients = table();
        for (first, same, other) in [
            ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
            ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"),
            ("::1", "::2", "1::1"),
        ] {
            let place = enter(&clients, first).unwrap();
            assert_eq!(enter(&clients, same), Ok(place));
            assert_eq!(enter(&clients, same), Err(Exceeded::Connections));
            let exceeded = clients.count_handshake(ip(same), TWO, 0);
            assert_eq!(exceeded, Err(Exceeded::Connections));
            assert!(enter(&clients, other).is_ok());
            clients.leave(place);
            assert_eq!(enter(&clients, first), Ok(place), "after one has closed");
        }
    }

    /// No rate is rounded up, wherever in the minute it begins.
    #[test]
    fn a_client_may_use_exactly_its_rate_at_once() {
        for per_minute in [1, 6, 7, 700, 7_000, 20_001, 35_000, 60_000] {
            for now_ms in [1_000_000, 1_004_999] {
                let clients = table();
                let limits = ClientLimits {
                    handshakes_per_minute: Some(per_minute),
                    ..ClientLimits::default()
                };
                let client = ip("192.0.2.1");
                let count = || clients.count_handshake(client, limits, now_ms);
                for _ in 0..per_minute {
                    count().unwrap();
                }
                assert_eq!(count(), Err(Exceeded::Rate), "{per_minute}");
            }
        }
    }

    #[test]
    fn two_workers_find_one_entry_for_a_new_client() {
        let clients = Clients::create(40_000, 7).unwrap();
        let places = || -> Vec<Option<ClientPlace>> {
            let addresses = (0..10_000).map(|n| IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n)));
            addresses
                .map(|address| clients.place(address, TWO, 0))
                .collect()
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(places);
            let own = places();
            assert_eq!(own, other.join().unwrap());
        });
    }

    #[test]
    fn a_rate_is_exhausted_and_recovers() {
        let clients = table();
        let limits = ClientLimits {
            handshakes_per_minute: Some(6),
            ..ClientLimits::default()
        };
        let client = ip("192.0.2.1");
        for _ in 0..6 {
            clients.count_handshake(client, limits, 1_000_000).unwrap();
        }
        assert_eq!(
            clients.count_handshake(client, limits, 1_000_000),
            Err(Exceeded::Rate)
        );
        assert_eq!(
            clients.count_handshake(client, limits, 1_009_999),
            Err(Exceeded::Rate)
        );
        clients.count_handshake(client, limits, 1_010_000).unwrap();
        assert_eq!(
            clients.count_handshake(client, limits, 1_010_000),
            Err(Exceeded::Rate)
        );
    }

    /// A compromised worker sets the client's recovery to the end of time.
    #[test]
    fn a_forged_recovery_refuses_nobody_for_ever() {
        let clients = table();
        let limits = ClientLimits {
            handshakes_per_minute: Some(6),
            ..ClientLimits::default()
        };
        let client = ip("192.0.2.1");
        let place = clients.place(client, limits, 0).expect("room");
        clients.recovered(place).store(u64::MAX, Ordering::Relaxed);
        assert_eq!(clients.count_handshake(client, limits, 1_000_000), Ok(()));
        clients.recovered(place).store(1_060_000, Ordering::Relaxed);
        let refused = clients.count_handshake(client, limits, 1_000_000);
        assert_eq!(refused, Err(Exceeded::Rate), "as after a burst");
        assert_eq!(clients.count_handshake(client, limits, 1_010_000), Ok(()));
    }

    /// A compromised worker stores far times, or the latest that a sound one could, in every entry. Far times keep none of
    /// them, and the others do for a minute.
    #[test]
    fn forged_times_keep_no_entries_for_ever() {
        let pace = Pace {
            bytes_per_s: 100_000,
            burst_bytes: 100_000,
        };
        let limits = ClientLimits {
            handshakes_per_minute: Some(6),
            bytes: Some(pace),
            ..ClientLimits::default()
        };
        let client = ip("2001:db8::1");
        let full = |recovered_ms: u64, bytes: u64| {
            let clients = table();
            for place in 1..=clients.entries {
                clients.owner(place).store(place.into(), Ordering::Relaxed);
                let recovered = clients.recovered(place);
                recovered.store(recovered_ms, Ordering::Relaxed);
                clients.pay(place, limits, bytes, 1_000);
            }
            clients
        };
        for far_ms in [61_001, u64::MAX] {
            let clients = full(far_ms, 0);
            assert!(clients.place(client, limits, 1_000).is_some(), "{far_ms}");
        }
        let clients = full(61_000, 0);
        assert_eq!(clients.place(client, limits, 1_000), None);
        assert!(clients.place(client, limits, 61_000).is_some());

        // 16 connections cannot owe more than 16 steps of 128 KiB and a burst, and a last step on top.
        let clients = full(0, 1 << 20);
        assert_eq!(clients.place(client, limits, 1_000), None);
        let clients = full(0, 1 << 40);
        assert!(clients.place(client, limits, 1_000).is_some());
    }

    #[test]
    fn ipv4_clients_of_a_translator_are_not_one_client() {
        for (first, second) in [
            ("64:ff9b::192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("64:ff9b::1:0:0", "64:ff9b::2:0:0"),
            ("64:ff9b:1::1", "64:ff9b:1::2"),
        ] {
            assert_eq!(key(ip(first)), key(ip(second)), "{first}");
        }
        assert_ne!(key(ip("64:ff9b::192.0.2.1")), key(ip("64:ff9b::192.0.2.2")));
        assert_ne!(key(ip("64:ff9b::1:0:1")), key(ip("64:ff9b::0.0.0.1")));
    }

    /// With more addresses than entries, no client is refused for it, the table does not grow, and
    /// entries become free when their connections have closed.
    #[test]
    fn a_full_table_refuses_no_client() {
        let clients = table();
        let address = |n: u32| IpAddr::V4(n.into());
        let places: Vec<Option<ClientPlace>> = (0..20_000)
            .map(|n| clients.place(address(n), TWO, 0))
            .inspect(|place| {
                if let Some(place) = *place {
                    clients.enter(place, TWO).unwrap();
                }
            })
            .collect();
        assert_eq!(places.iter().flatten().count(), clients.entries as usize);
        assert_eq!(clients.count_handshake(address(19_999), TWO, 0), Ok(()));
        for place in places.into_iter().flatten() {
            clients.leave(place);
        }
        assert!(clients.place(address(30_000), TWO, 0).is_some());
    }

    /// A count never goes below zero, and an invalid place is ignored.
    #[test]
    fn leaving_too_often_is_harmless() {
        let clients = table();
        let place = enter(&clients, "192.0.2.1").unwrap();
        for place in [place, place, 0, u32::MAX] {
            clients.leave(place);
        }
        assert_eq!(clients.count(place).load(Ordering::Relaxed), 0);
        assert_eq!(enter(&clients, "192.0.2.1"), Ok(place));
    }

    /// Bytes are charged per address, over all workers. A debt outlives the connection, and its entry is
    /// not reused before the debt is paid.
    #[test]
    fn bytes_are_charged_per_address() {
        let pace = Pace {
            bytes_per_s: 1_000,
            burst_bytes: 1_000,
        };
        let limits = ClientLimits {
            bytes: Some(pace),
            bytes_of_all: Some(Pace {
                bytes_per_s: 10_000,
                ..pace
            }),
            ..ClientLimits::default()
        };
        let clients = table();
        let other = Clients::adopt(clients.fd(), 16).unwrap();
        let place = |address| clients.place(ip(address), limits, 0).unwrap();
        let (one, two) = (place("2001:db8::1"), place("192.0.2.1"));
        assert_eq!(clients.pay(one, limits, 1_000, 0), 0);
        assert_eq!(other.pay(one, limits, 500, 0), 500);
        assert_eq!(other.pay(two, limits, 1_000, 0), 0, "another client");
        assert_eq!(clients.pay(0, limits, 1 << 40, 0), 0, "without an entry");
        assert_eq!(clients.pay_for_all(limits, 2_000, 0), 100);
        assert_eq!(place("2001:db8::9"), one, "the same network");
        // Other clients take all free entries.
        let all = (0..20_000)
            .filter_map(|n| clients.place(IpAddr::V4(Ipv4Addr::from_bits(n)), limits, 1_499));
        assert!(all.into_iter().all(|taken| taken != one));
        let mut all = (0..20_000)
            .filter_map(|n| clients.place(IpAddr::V4(Ipv4Addr::from_bits(n)), limits, 1_500));
        assert!(all.any(|taken| taken == one), "the debt is paid");
        clients.fd().close();
    }

    /// A table from an older binary, without words for bytes, is used without a byte limit.
    #[test]
    fn adopts_a_table_without_words_for_bytes() {
        let words = Words::create("clients", len(ENTRIES_MIN, false)).unwrap();
        let clients = Clients::adopt(words.fd(), 16).unwrap();
        let limits = ClientLimits {
            bytes: Some(Pace {
                bytes_per_s: 1,
                burst_bytes: 1,
            }),
            ..TWO
        };
        let place = enter(&clients, "192.0.2.1").unwrap();
        assert_eq!(clients.pay(place, limits, 1 << 40, 0), 0);
        words.fd().close();
    }

    #[test]
    fn workers_share_one_table() {
        let clients = table();
        let other = Clients::adopt(clients.fd(), 16).unwrap();
        let place = enter(&clients, "192.0.2.1");
        assert_eq!(enter(&other, "192.0.2.1"), place);
        assert_eq!(enter(&clients, "192.0.2.1"), Err(Exceeded::Connections));
        clients.fd().close();
    }

    /// Most of the table of a program with few clients was never touched.
    #[test]
    fn clearing_allocates_nothing() {
        use std::os::unix::fs::MetadataExt as _;
        let clients = Clients::create(100_000, 7).unwrap();
        let limits = ClientLimits::default();
        let places =
            ["192.0.2.1", "192.0.2.2"].map(|one| clients.place(ip(one), limits, 1).unwrap());
        for place in places {
            clients.enter(place, limits).unwrap();
        }
        let file = format!("/proc/self/fd/{}", clients.fd().0);
        let blocks = || std::fs::metadata(&file).unwrap().blocks();
        let before = blocks();
        clients.clear();
        assert_eq!(blocks(), before);
        for place in places {
            assert_eq!(clients.count(place).load(Ordering::Relaxed), 0);
        }
        clients.fd().close();
    }

    /// A worker is gone for good: the others count again, and no entry changes its client meanwhile.
    #[test]
    fn connections_of_a_lost_worker_are_forgotten() {
        let main = table();
        let mut worker = Clients::adopt(main.fd(), 16).unwrap();
        let limits = ClientLimits {
            connections_max: Some(3),
            ..ClientLimits::default()
        };
        let place = worker.place(ip("192.0.2.1"), limits, 1).unwrap();
        // Two of the lost worker, then one of this one.
        for _ in 0..3 {
            main.enter(place, limits).unwrap();
        }
        assert!(worker.enter(place, limits).is_err());
        main.freeze(1);
        worker.uncount();
        // Those that come and go meanwhile are not counted.
        assert!(
            worker.enter(place, limits).is_err(),
            "a client at its limit"
        );
        worker.leave(place);
        assert!(worker.enter(place, limits).is_err(), "counted");
        let former: Vec<_> = (0..=255)
            .filter_map(|n| main.place(ip(&format!("198.51.100.{n}")), limits, 2))
            .filter(|&other| other == place)
            .collect();
        assert!(former.is_empty(), "the entry was given away");
        main.clear();
        worker.count_again([0, place].into_iter());
        worker.count_again([0, place].into_iter());
        for _ in 0..2 {
            worker.enter(place, limits).unwrap();
        }
        assert!(worker.enter(place, limits).is_err());
    }
}
