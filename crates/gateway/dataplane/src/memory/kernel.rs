//! Kernel memory in the send queues of slow peers, with a bound on the sum.
//!
//! A send queue grows only when we read from the other side. So the worker keeps to the bound by
//! reading less: each connection may have at most an eighth of the remaining memory in its queue. While
//! few peers are slow, that is more than a socket takes. The more peers are slow, the less is left for
//! each, and the sum approaches its bound but never exceeds it.
//!
//! The last quarter is a reserve for queues that move: the peer's window is open, and nothing waits for
//! it in the kernel. So peers that take nothing can't slow down those that do. A queue that stops to
//! move has got at most one record of the reserve. Many such records use up the reserve, too: then a queue
//! that moves gets the room of those that have made no progress for the longest time.
//!
//! Queues of up to 4 KiB are not counted, and every connection may have one: that is a constant per
//! connection. The kernel does not report that a queue drains, so a number here is what the queue was
//! when last measured, or more; when little is left, queues are measured again.
//!
//! A measurement of a queue costs a system call, so a quiet connection that sends a small message is usually
//! not measured: every forwarded byte has the same chance to cause a measurement of the queue that it went to. A slow
//! peer is measured after about 2 KiB; so is an exchange of small messages, but its queues are empty.

use crate::memory::holders::{Held, Holders, OfRoute, Stall, UNCOUNTED_MAX};

/// Average number of forwarded bytes between two measurements.
const CHECK_BYTES: u64 = 2048;

/// Minimum overhead of the kernel per message.
const MESSAGE_OVERHEAD: u64 = 256;

/// One connection may use this fraction of the remaining memory.
const PARTS: usize = 8;

/// This fraction of the limit is the reserve.
const RESERVE_PARTS: usize = 4;

/// Kernel memory for one record, whatever the size of its segments.
const RECORD_BYTES: usize = 32 << 10;

/// Memory is short while a queue may not grow to this size.
const SHORT_BYTES: usize = 64 << 10;

/// Time after a refusal during which the kernel's memory for sockets counts as short.
const REFUSED_MS: u64 = 10_000;

/// Interval at which queues are measured again while some get shorter.
const CHECK_MS: u64 = 50;
/// The same while none does.
const CHECK_LATE_MS: u64 = 3_200;
/// Queues measured at once.
const CHECKS: usize = 512;

/// Who wants a record of a reserve that is used up.
#[derive(Clone, Copy)]
pub(crate) enum Wish {
    /// A connection that begins to wait.
    New,
    /// One that has waited.
    Old,
}

/// The bound on send queues, and when to measure them.
pub(crate) struct KernelMemory {
    limit: usize,
    holders: Holders,
    check_ms: u64,
    interval_ms: u64,
    /// Whether a peer has taken bytes since the last round of measurements.
    has_moved: bool,
    look_from: u32,
    /// Memory that queues which move did not get since the reserve is used up.
    wanted: usize,
    /// When others lose their room to them.
    displace_ms: u64,
    refused_until_ms: u64,
    /// Bytes until the next measurement.
    unmeasured: u64,
    /// State of a random generator: a periodic sender must not fall into the same gap each time.
    random: u64,
}

impl KernelMemory {
    pub(crate) fn new(limit: u64, seed: u64) -> KernelMemory {
        KernelMemory {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            holders: Holders::default(),
            check_ms: 0,
            interval_ms: CHECK_MS,
            has_moved: false,
            look_from: 0,
            wanted: 0,
            displace_ms: 0,
            refused_until_ms: 0,
            unmeasured: 0,
            random: seed | 1,
        }
    }

    /// Whether to measure the queues of a connection that has just forwarded `received` bytes.
    pub(crate) fn is_due(&mut self, index: u32, received: u64) -> bool {
        if self.holds(index) {
            return true;
        }
        if received == 0 {
            return false;
        }
        let cost = received + MESSAGE_OVERHEAD;
        if cost < self.unmeasured {
            self.unmeasured -= cost;
            return false;
        }
        // Xorshift (Marsaglia 2003): predictable, which is fine for sampling.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.unmeasured = CHECK_BYTES / 2 + self.random % CHECK_BYTES;
        true
    }

    /// Whether a connection held memory when it was last measured.
    pub(crate) fn holds(&self, index: u32) -> bool {
        self.holders.contains(index)
    }

    /// Changes the limit.
    pub(crate) fn limit_to(&mut self, limit: u64) {
        self.limit = usize::try_from(limit).unwrap_or(usize::MAX);
    }

    /// Notes what a connection of a route holds, as measured after a step.
    pub(crate) fn note(&mut self, at: (u32, u16), held: Held, now_ms: u64) {
        if self.holders.note(at, held, now_ms) {
            self.has_moved = true;
            self.interval_ms = CHECK_MS;
            self.check_ms = self.check_ms.min(now_ms + CHECK_MS);
        }
    }

    /// Removes a connection.
    pub(crate) fn forget(&mut self, index: u32) {
        self.holders.forget(index);
    }

    /// Updates the index of a moved slot.
    pub(crate) fn moved(&mut self, from: u32, to: u32) {
        self.holders.moved(from, to);
    }

    /// The part with which a connection has made no progress for `patience_ms`.
    pub(crate) fn stall(&self, index: u32, patience_ms: u64, now_ms: u64) -> Option<Stall> {
        self.holders.stall(index, patience_ms, now_ms)
    }

    /// Sum of all counted queues.
    pub(crate) fn sum(&self) -> usize {
        self.holders.sum()
    }

    /// What the connections of a route hold.
    pub(crate) fn of_route(&self, route: u16) -> OfRoute {
        self.holders.of_route(route)
    }

    /// The limit on the sum.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Maximum queue of one connection.
    pub(crate) fn queue_max(&self) -> usize {
        queue_max(self.limit, self.sum())
    }

    /// Maximum queue of a connection whose queue moves.
    pub(crate) fn moving_queue_max(&self) -> usize {
        moving_queue_max(self.limit, self.sum())
    }

    /// Whether a slow peer gets less than it could use.
    pub(crate) fn is_short(&self) -> bool {
        self.queue_max() < SHORT_BYTES
    }

    /// Notes that the kernel has refused bytes for a socket with room: it has no memory for sockets, whatever our limit is.
    pub(crate) fn note_refused(&mut self, now_ms: u64) {
        self.refused_until_ms = now_ms + REFUSED_MS;
    }

    /// Whether the kernel has refused bytes lately.
    pub(crate) fn is_refused(&self, now_ms: u64) -> bool {
        now_ms < self.refused_until_ms
    }

    /// Whether no record fits into the reserve either.
    pub(crate) fn is_used_up(&self) -> bool {
        self.sum() + RECORD_BYTES > self.limit
    }

    /// Notes that a queue which moves does not get a record, because the reserve is used up.
    pub(crate) fn note_wanted(&mut self, wish: Wish, now_ms: u64) {
        if !self.is_used_up() {
            return;
        }
        if self.wanted == 0 {
            self.displace_ms = self.displace_ms.max(now_ms);
        }
        let wanted = match wish {
            Wish::New => self.wanted + RECORD_BYTES,
            Wish::Old => self.wanted.max(RECORD_BYTES),
        };
        self.wanted = wanted.min(self.limit / RESERVE_PARTS);
    }

    /// Whether some connections lose their room now.
    pub(crate) fn is_taken_from(&self, now_ms: u64) -> bool {
        self.wanted > 0 && now_ms >= self.displace_ms
    }

    /// Returns the connections that lose their room to queues that move: those without progress for the longest
    /// time, at least `patience_ms`. They are measured before, and only as many are closed as [`KernelMemory::is_wanted`].
    pub(crate) fn next_displaced(&mut self, patience_ms: u64, now_ms: u64) -> Vec<u32> {
        self.displace_ms = now_ms + CHECK_MS;
        if !self.is_used_up() {
            // Others have made room. Whoever still finds none says so at its next check.
            self.wanted = 0;
            return Vec::new();
        }
        self.holders.stalled(CHECKS, patience_ms, now_ms)
    }

    /// Whether there is less room than queues that move have wanted. If not, nothing is wanted any more.
    pub(crate) fn is_wanted(&mut self) -> bool {
        if self.sum() + self.wanted <= self.limit {
            self.wanted = 0;
        }
        self.wanted > 0
    }

    /// Returns the connections to measure again now. There are some while half of the limit is used, or while memory
    /// is short for another reason and queues hold some of it (`is_held`).
    pub(crate) fn next_checks(&mut self, is_held: bool, now_ms: u64) -> Vec<u32> {
        if !self.is_checked(is_held) || now_ms < self.check_ms {
            return Vec::new();
        }
        let next = self.holders.from(self.look_from, CHECKS);
        // The next call continues after the last one, or starts again.
        match next.last() {
            Some(&last) if next.len() == CHECKS => {
                self.look_from = last + 1;
                self.check_ms = now_ms + CHECK_MS;
            }
            _ => {
                self.look_from = 0;
                self.interval_ms = match std::mem::take(&mut self.has_moved) {
                    true => CHECK_MS,
                    false => (2 * self.interval_ms).min(CHECK_LATE_MS),
                };
                self.check_ms = now_ms + self.interval_ms;
            }
        }
        next
    }

    /// Whether queues hold memory.
    pub(crate) fn has_holders(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Whether queues are measured again.
    fn is_checked(&self, is_held: bool) -> bool {
        let is_half_full = self.sum() > 0 && self.sum() >= self.limit / 2;
        is_half_full || is_held
    }

    /// Time of the next measurement.
    pub(crate) fn next_deadline_ms(&self, is_held: bool) -> Option<u64> {
        let check_ms = self.is_checked(is_held).then_some(self.check_ms);
        match self.wanted {
            0 => check_ms,
            _ => Some(check_ms.map_or(self.displace_ms, |check_ms| check_ms.min(self.displace_ms))),
        }
    }
}

/// Maximum queue of one connection, if there is so much memory for all and this much in use.
pub(crate) fn queue_max(limit: usize, used: usize) -> usize {
    let shared = limit - limit / RESERVE_PARTS;
    (shared.saturating_sub(used) / PARTS).max(UNCOUNTED_MAX)
}

/// The same of a connection whose queue moves.
pub(crate) fn moving_queue_max(limit: usize, used: usize) -> usize {
    let left = limit.saturating_sub(used);
    (left / PARTS)
        .max(left.min(RECORD_BYTES))
        .max(UNCOUNTED_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::holders::Waiting;

    /// A connection whose TLS peer has not taken this much.
    fn queue(bytes: usize) -> Held {
        let tls = Waiting {
            queue: bytes,
            ..Waiting::default()
        };
        Held {
            tls,
            ..Held::default()
        }
    }

    /// The sum stays within its bound, however many peers are slow, and leaves the reserve to those that are not.
    #[test]
    fn the_sum_approaches_its_bound_and_never_exceeds_it() {
        const LIMIT: usize = 64 << 20;
        const SHARED: usize = LIMIT - LIMIT / RESERVE_PARTS;
        for slow in [1, 100, 5_000, 10_000] {
            let mut memory = KernelMemory::new(LIMIT as u64, 7);
            let mut queues = vec![0_usize; slow];
            for _ in 0..200 {
                for (index, bytes) in queues.iter_mut().enumerate() {
                    *bytes = memory.queue_max().max(*bytes);
                    memory.note((index as u32, 0), queue(*bytes), 0);
                }
            }
            assert!(memory.sum() <= SHARED, "{slow} hold {}", memory.sum());
            assert!(slow == 1 || memory.sum() > SHARED / 2);
            assert!(memory.queue_max() >= UNCOUNTED_MAX);
            assert!(memory.moving_queue_max() >= LIMIT / RESERVE_PARTS / PARTS);
            assert!(!memory.is_used_up());
            for index in 0..slow as u32 {
                memory.forget(index);
            }
            assert_eq!((memory.sum(), memory.holders.is_empty()), (0, true));
        }
    }

    /// Queues that have moved and stop keep one record each; the reserve lasts for many of them, and is never exceeded.
    #[test]
    fn the_reserve_is_given_in_records() {
        const LIMIT: usize = 8 << 20;
        let mut memory = KernelMemory::new(LIMIT as u64, 7);
        memory.note((0, 0), queue(LIMIT - LIMIT / RESERVE_PARTS), 0);
        assert!(memory.is_short() && memory.queue_max() == UNCOUNTED_MAX);
        let mut given = 0;
        while !memory.is_used_up() {
            assert!(memory.moving_queue_max() >= RECORD_BYTES);
            given += 1;
            memory.note((given, 0), queue(RECORD_BYTES), 0);
        }
        assert_eq!(given as usize, LIMIT / RESERVE_PARTS / RECORD_BYTES);
        assert!(memory.sum() <= LIMIT);
    }

    /// A queue that moves gets the room of those that stall, longest first, and only as much as is wanted.
    #[test]
    fn a_reserve_that_is_used_up_is_taken_from_those_that_stall() {
        const LIMIT: usize = 8 << 20;
        const PATIENCE_MS: u64 = 1_000;
        let mut memory = KernelMemory::new(LIMIT as u64, 7);
        memory.note_wanted(Wish::New, 0);
        assert!(!memory.is_wanted(), "there is room");
        for index in 0..(LIMIT / RECORD_BYTES) as u32 {
            memory.note((index, 0), queue(RECORD_BYTES), u64::from(index));
        }
        assert!(memory.is_used_up());
        assert!(!memory.is_taken_from(5_000), "nobody asks");
        // One waits for two checks more, another has come.
        for wish in [Wish::New, Wish::Old, Wish::Old, Wish::New] {
            memory.note_wanted(wish, 1_001);
        }
        assert_eq!(memory.next_deadline_ms(false), Some(0));
        assert_eq!(memory.next_displaced(PATIENCE_MS, 1_001), [0, 1]);
        assert!(!memory.is_taken_from(1_002), "too soon");
        let stalled = memory.next_displaced(PATIENCE_MS, 5_000);
        let closed = stalled.iter().take_while(|&&index| {
            let is_wanted = memory.is_wanted();
            if is_wanted {
                memory.forget(index);
            }
            is_wanted
        });
        assert_eq!(closed.count(), 2);
        assert!(!memory.is_taken_from(9_000), "there is room");
    }

    /// A worker whose connections have taken everything, or are gone, is not woken for a wish of the past.
    #[test]
    fn a_wish_ends_with_the_shortage() {
        const LIMIT: usize = 8 << 20;
        let mut memory = KernelMemory::new(LIMIT as u64, 7);
        memory.note((1, 0), queue(LIMIT), 0);
        memory.note_wanted(Wish::New, 10);
        assert!(memory.next_displaced(1_000, 10).is_empty(), "too early");
        memory.forget(1);
        assert!(memory.is_taken_from(100) && memory.next_displaced(1_000, 100).is_empty());
        assert_eq!(memory.next_deadline_ms(false), None);
    }

    /// No connection forwards much without a measurement, whatever its rhythm; small messages rarely
    /// cause one; and a counted queue is measured each time.
    #[test]
    fn measurements_follow_the_bytes() {
        let mut memory = KernelMemory::new(1 << 20, 7);
        for (many, bytes) in [(1, 6), (5, 1_000), (2, 2_000), (7, 300)] {
            let mut unmeasured = vec![0_u64; many];
            let mut most = 0;
            let mut checks = 0;
            for turn in 0..20_000 {
                let one = &mut unmeasured[turn % many];
                *one += bytes + MESSAGE_OVERHEAD;
                most = most.max(*one);
                if memory.is_due((turn % many) as u32, bytes) {
                    checks += 1;
                    *one = 0;
                }
            }
            assert!(
                most < 64 * CHECK_BYTES,
                "{most} not measured: {many} x {bytes}"
            );
            let passed = 20_000 * (bytes + MESSAGE_OVERHEAD);
            assert!(
                checks <= passed / CHECK_BYTES * 2,
                "{checks} measurements: {many} x {bytes}"
            );
        }
        assert!(memory.is_due(1, 65_536));
        memory.note((1, 0), queue(8_192), 0);
        assert!((0..100).all(|n| memory.is_due(1, n)));
    }

    #[test]
    fn measures_all_queues_in_turn() {
        let mut memory = KernelMemory::new(1 << 20, 7);
        for index in 0..1_000 {
            memory.note((index * 3, 0), queue(8_192), 0);
        }
        let mut seen: Vec<u32> = (0..2)
            .flat_map(|n| memory.next_checks(false, n * CHECK_MS))
            .collect();
        assert!(seen.iter().copied().eq((0..1_000).map(|index| index * 3)));
        seen.clear();
        assert!(
            memory.next_checks(false, 2 * CHECK_MS).is_empty(),
            "too soon"
        );
    }

    /// Measurements of peers that take nothing become rare, until one takes something.
    #[test]
    fn idle_queues_are_measured_less_and_less() {
        let mut memory = KernelMemory::new(1 << 20, 7);
        (0..90).for_each(|index| memory.note((index, 0), queue(8_192), 0));
        let mut now_ms = 0;
        let mut rounds = Vec::new();
        while now_ms < 30_000 {
            now_ms = memory
                .next_deadline_ms(false)
                .expect("half of the limit is used");
            rounds.push(now_ms);
            for index in memory.next_checks(false, now_ms) {
                memory.note((index, 0), queue(8_192), now_ms);
            }
        }
        assert_eq!(rounds[..5], [0, 100, 300, 700, 1_500]);
        assert!(rounds.len() < 20, "{rounds:?}");
        memory.note((3, 0), queue(8_000), now_ms);
        assert_eq!(memory.next_deadline_ms(false), Some(now_ms + CHECK_MS));
        // Below half of the limit only for another reason.
        (0..50).for_each(|index| memory.forget(index));
        assert_eq!(memory.next_deadline_ms(false), None);
        assert!(memory.next_deadline_ms(true).is_some());
    }
}
