//! How many connections each client address has, how often it begins a handshake, and how many
//! bytes pass for it.
//!
//! One table for all workers, in shared memory of fixed size: it never grows, whoever connects. A
//! client is an IPv4 address or an IPv6 /64, which is what one subscriber gets. Nobody waits for
//! anybody: an entry is three words that are changed atomically, and a worker that is killed while
//! it does so leaves at worst a count that is one too low.
//!
//! An entry is free for somebody else when it has no connection and its rate has recovered. Should
//! all eight places for an address be taken, it is let in uncounted (and that is counted): a full
//! table must not be a way to lock others out.

use crate::hash;
use crate::pace::Pace;
use dormouse_reactor::memory::{PAGE, Words};
use dormouse_reactor::{AdoptError, Fd};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};

/// Places in which the entry of an address may be.
const WAYS: usize = 8;
/// Whose it is; connections; when its rate has recovered (ms).
const WORDS_EACH: usize = 3;
/// Random, so that nobody can choose addresses which share their places.
const SEED_AT: usize = 0;
/// What all clients together have passed ([`Pace`]).
const ALL_AT: usize = 8;
const ENTRIES_AT: usize = 64;

/// Fewest and most entries.
const ENTRIES_MIN: u32 = 1 << 10;
const ENTRIES_MAX: u32 = 1 << 22;

/// Over what time a rate is counted.
const RATE_WINDOW_MS: u64 = 60_000;

/// What one client address may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientLimits {
    /// Connections at a time.
    pub connections_max: Option<u32>,
    /// Handshakes begun in a minute.
    pub handshakes_per_minute: Option<u32>,
    /// Bytes in both directions.
    pub bytes: Option<Pace>,
    /// The same for all clients together.
    pub bytes_of_all: Option<Pace>,
}

impl ClientLimits {
    /// Whether there is anything to count.
    pub fn any(&self) -> bool {
        self.connections_max.is_some()
            || self.handshakes_per_minute.is_some()
            || self.bytes.is_some()
    }

    /// Whether bytes are to be paid for.
    pub fn any_bytes(&self) -> bool {
        self.bytes.is_some() || self.bytes_of_all.is_some()
    }
}

/// Why a client is not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exceeded {
    /// It has as many connections as it may have.
    Connections,
    /// It has begun as many handshakes as it may.
    Rate,
}

/// A place in the table, to be kept with the connection: 0 is none. 24 bits.
pub(crate) type ClientPlace = u32;

/// The table.
#[derive(Debug)]
pub struct Clients {
    words: Words,
    entries: u32,
    made_for: u32,
    /// Behind the entries there is a word for each, for its bytes. A table that was made by an
    /// older binary has none.
    has_paces: bool,
}

impl Clients {
    /// Makes a table that is large enough for so many connections.
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
        })
    }

    /// Maps what main has made.
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
        })
    }

    /// Twice as many as there may be connections, so that places are rarely taken.
    fn entries(connections_max: u32) -> u32 {
        let wanted = connections_max
            .saturating_mul(2)
            .clamp(ENTRIES_MIN, ENTRIES_MAX);
        wanted.next_power_of_two().min(ENTRIES_MAX)
    }

    /// The number of connections that it was made for.
    pub fn made_for(&self) -> u32 {
        self.made_for
    }

    /// Whether bytes can be paid for, in this table.
    pub fn has_paces(&self) -> bool {
        self.has_paces
    }

    /// Returns the table's descriptor, through which other processes adopt it.
    pub fn fd(&self) -> Fd {
        self.words.fd()
    }

    /// May a client that has just come begin a handshake? Its turn is counted.
    pub fn knock(
        &self,
        address: IpAddr,
        limits: ClientLimits,
        now_ms: u64,
    ) -> Result<(), Exceeded> {
        let Some(place) = self.find(key(address), now_ms) else {
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

    /// Where this client is counted. `None`: there is no room.
    pub fn place(&self, address: IpAddr, now_ms: u64) -> Option<ClientPlace> {
        self.find(key(address), now_ms)
    }

    /// Counts a connection that is established; those in a handshake are not counted, because
    /// whoever dies with them leaves nobody who knows of them.
    pub fn enter(&self, place: ClientPlace, limits: ClientLimits) -> Result<(), Exceeded> {
        let before = self.count(place).fetch_add(1, Ordering::Relaxed);
        let max = limits.connections_max;
        if max.is_some_and(|max| before >= u64::from(max)) {
            self.leave(place);
            return Err(Exceeded::Connections);
        }
        Ok(())
    }

    /// A connection has ended.
    pub fn leave(&self, place: ClientPlace) {
        if place == 0 || place > self.entries {
            return;
        }
        let less = |count: u64| count.checked_sub(1);
        // At 0 it stays: a worker was killed between counting and noting.
        let _ = self
            .count(place)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// For this client these bytes have passed. Returns for how many milliseconds the connection
    /// has to wait which has passed them.
    pub fn pay(&self, place: ClientPlace, limits: ClientLimits, bytes: u64, now_ms: u64) -> u64 {
        match (limits.bytes, self.paid(place)) {
            (Some(pace), Some(paid)) if place != 0 => pace.pay(paid, bytes, now_ms),
            _ => 0,
        }
    }

    /// The same for all clients together.
    pub fn pay_for_all(&self, limits: ClientLimits, bytes: u64, now_ms: u64) -> u64 {
        match (limits.bytes_of_all, self.words.word(ALL_AT)) {
            (Some(pace), Some(paid)) => pace.pay(paid, bytes, now_ms),
            _ => 0,
        }
    }

    /// The word by which an entry's bytes are paid for.
    fn paid(&self, place: ClientPlace) -> Option<&AtomicU64> {
        if !self.has_paces || place > self.entries {
            return None;
        }
        let paces_at = ENTRIES_AT + 8 * WORDS_EACH * self.entries as usize;
        self.words
            .word(paces_at + 8 * (place.clamp(1, self.entries) - 1) as usize)
    }

    /// The entry of this address, or one that is free and becomes its.
    fn find(&self, key: u64, now_ms: u64) -> Option<ClientPlace> {
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
            let free = former == 0
                || (self.count(place).load(Ordering::Relaxed) == 0
                    && self.recovered(place).load(Ordering::Relaxed) <= now_ms
                    && self
                        .paid(place)
                        .is_none_or(|paid| Pace::is_paid(paid, now_ms)));
            // Two that meet here: one of them looks on.
            if free
                && owner
                    .compare_exchange(former, key, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            {
                return Some(place);
            }
        }
        None
    }

    /// So many per minute, all of them at once if there were none before: the time at which the
    /// rate has recovered moves on by a share of the minute, and must not be more than one ahead.
    fn take_turn(&self, place: ClientPlace, per_minute: u32, now_ms: u64) -> Result<(), Exceeded> {
        let share_ms = RATE_WINDOW_MS / u64::from(per_minute.max(1)).min(RATE_WINDOW_MS);
        let later = |recovered_ms: u64| {
            let next_ms = recovered_ms.max(now_ms) + share_ms;
            (next_ms <= now_ms + RATE_WINDOW_MS).then_some(next_ms)
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
        match self.words.word(ENTRIES_AT + 8 * (entry * WORDS_EACH + n)) {
            Some(word) => word,
            None => unreachable!("entry {entry} lies in the mapping by construction"),
        }
    }
}

fn len(entries: u32, with_paces: bool) -> usize {
    let words_each = WORDS_EACH + usize::from(with_paces);
    (ENTRIES_AT + 8 * words_each * entries as usize).next_multiple_of(PAGE)
}

/// What is counted as one client, never 0.
pub fn key(address: IpAddr) -> u64 {
    let v4 = |bits: u32| 0xffff_ffff_0000_0000 | u64::from(bits);
    match address {
        // No client has an address under ff00::/8.
        IpAddr::V4(ip) => v4(ip.into()),
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => v4(ip.into()),
            None => prefix(ip).max(1),
        },
    }
}

fn prefix(ip: Ipv6Addr) -> u64 {
    (u128::from(ip) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

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
        let place = clients.place(ip(address), 0).expect("room");
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
            assert_eq!(clients.knock(ip(same), TWO, 0), Err(Exceeded::Connections));
            assert!(enter(&clients, other).is_ok());
            clients.leave(place);
            assert_eq!(enter(&clients, first), Ok(place), "one has left");
        }
    }

    #[test]
    fn a_rate_is_used_up_and_recovers() {
        let clients = table();
        let limits = ClientLimits {
            handshakes_per_minute: Some(6),
            ..ClientLimits::default()
        };
        let client = ip("192.0.2.1");
        for _ in 0..6 {
            clients.knock(client, limits, 1_000_000).unwrap();
        }
        assert_eq!(
            clients.knock(client, limits, 1_000_000),
            Err(Exceeded::Rate)
        );
        assert_eq!(
            clients.knock(client, limits, 1_009_999),
            Err(Exceeded::Rate)
        );
        clients.knock(client, limits, 1_010_000).unwrap();
        assert_eq!(
            clients.knock(client, limits, 1_010_000),
            Err(Exceeded::Rate)
        );
    }

    /// Many more addresses than there is room for: nobody is refused for it, nothing grows, and
    /// places come free when their owners have left.
    #[test]
    fn a_full_table_locks_nobody_out() {
        let clients = table();
        let address = |n: u32| IpAddr::V4(n.into());
        let places: Vec<Option<ClientPlace>> = (0..20_000)
            .map(|n| clients.place(address(n), 0))
            .inspect(|place| {
                if let Some(place) = *place {
                    clients.enter(place, TWO).unwrap();
                }
            })
            .collect();
        assert_eq!(places.iter().flatten().count(), clients.entries as usize);
        assert_eq!(clients.knock(address(19_999), TWO, 0), Ok(()));
        for place in places.into_iter().flatten() {
            clients.leave(place);
        }
        assert!(clients.place(address(30_000), 0).is_some());
    }

    /// A count never goes below zero, and a place that makes no sense is nobody's.
    #[test]
    fn leaving_once_too_often_does_no_harm() {
        let clients = table();
        let place = enter(&clients, "192.0.2.1").unwrap();
        for place in [place, place, 0, u32::MAX] {
            clients.leave(place);
        }
        assert_eq!(clients.count(place).load(Ordering::Relaxed), 0);
        assert_eq!(enter(&clients, "192.0.2.1"), Ok(place));
    }

    /// Bytes are paid for by address, over all workers; a debt outlives the connection, and its
    /// entry is nobody else's before it is paid.
    #[test]
    fn bytes_are_paid_for_per_address() {
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
        let place = |address| clients.place(ip(address), 0).unwrap();
        let (one, two) = (place("2001:db8::1"), place("192.0.2.1"));
        assert_eq!(clients.pay(one, limits, 1_000, 0), 0);
        assert_eq!(other.pay(one, limits, 500, 0), 500);
        assert_eq!(other.pay(two, limits, 1_000, 0), 0, "an account of its own");
        assert_eq!(clients.pay(0, limits, 1 << 40, 0), 0, "not counted");
        assert_eq!(clients.pay_for_all(limits, 2_000, 0), 100);
        assert_eq!(place("2001:db8::9"), one, "the same network");
        // All others take what is free.
        let all =
            (0..20_000).filter_map(|n| clients.place(IpAddr::V4(Ipv4Addr::from_bits(n)), 1_499));
        assert!(all.into_iter().all(|taken| taken != one));
        let mut all =
            (0..20_000).filter_map(|n| clients.place(IpAddr::V4(Ipv4Addr::from_bits(n)), 1_500));
        assert!(all.any(|taken| taken == one), "its debt is paid");
        clients.fd().close();
    }

    /// A table of a binary that knew nothing of bytes goes on without them.
    #[test]
    fn a_table_without_room_for_bytes_is_adopted() {
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
}
