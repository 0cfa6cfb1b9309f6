//! What the kernel holds in the send queues of peers that are slow to read, bounded in sum.
//!
//! A send queue grows only when we read something from the other side. So the sum is kept by
//! reading less: one connection may have an eighth of what is left in its queue. While few are
//! slow, that is more than a socket takes; the more there are, the less is left for each, and the
//! sum comes near its bound but does not pass it. A peer that reads has an empty queue, and is served.
//!
//! Queues of up to 4 KiB are not counted, and every connection may have one: that is a constant per
//! connection. The kernel does not report that a queue drains, so a number here is what the queue was
//! when last measured, or more; when little is left, queues are measured again.
//!
//! A measurement costs two system calls, so a quiet connection that sends a small message is mostly
//! not measured: every byte that is passed on has the same chance to cause a measurement. A peer that
//! is slow to read is measured after some 2 KiB; so is an exchange of small messages, but it has
//! nothing queued.

use std::collections::BTreeMap;

/// Queues up to this are not counted, and no connection gets less.
pub(crate) const UNCOUNTED_MAX: usize = 4096;

/// Bytes that are passed on between two looks, on average.
const LOOK_BYTES: u64 = 2048;

/// What the kernel spends on a message besides, at least.
const MESSAGE_OVERHEAD: u64 = 256;

/// Of what is left, one connection may have one part in this many.
const PARTS: usize = 8;

/// How often queues are looked at again, and how many at once.
const LOOK_MS: u64 = 50;
const LOOKS: usize = 512;

/// Send queues by the index of their slot.
pub(crate) struct KernelMemory {
    limit: usize,
    sum: usize,
    queues: BTreeMap<u32, usize>,
    look_ms: u64,
    look_from: u32,
    /// Bytes that may still pass without a look.
    unseen: u64,
    /// The state of a random generator: a sender with a rhythm must not hit the same gap each time.
    chance: u64,
}

impl KernelMemory {
    pub(crate) fn new(limit: u64, seed: u64) -> KernelMemory {
        KernelMemory {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            sum: 0,
            queues: BTreeMap::new(),
            look_ms: 0,
            look_from: 0,
            unseen: 0,
            chance: seed | 1,
        }
    }

    /// Whether the queues of a connection are to be looked at, for which `received` bytes were just
    /// passed on.
    pub(crate) fn wants_look(&mut self, index: u32, received: u64) -> bool {
        if self.queues.contains_key(&index) {
            return true;
        }
        if received == 0 {
            return false;
        }
        let cost = received + MESSAGE_OVERHEAD;
        if cost < self.unseen {
            self.unseen -= cost;
            return false;
        }
        // Xorshift (Marsaglia 2003): of no value to anybody but as a rhythm that is none.
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.unseen = LOOK_BYTES / 2 + self.chance % LOOK_BYTES;
        true
    }

    /// Another limit, from now on.
    pub(crate) fn limit_to(&mut self, limit: u64) {
        self.limit = usize::try_from(limit).unwrap_or(usize::MAX);
    }

    /// A connection has so much in its queues.
    pub(crate) fn note(&mut self, index: u32, bytes: usize) {
        if bytes <= UNCOUNTED_MAX {
            self.forget(index);
            return;
        }
        let former = self.queues.insert(index, bytes).unwrap_or(0);
        self.sum = self.sum + bytes - former;
    }

    /// The connection is gone.
    pub(crate) fn forget(&mut self, index: u32) {
        if !self.queues.is_empty()
            && let Some(former) = self.queues.remove(&index)
        {
            self.sum -= former;
        }
    }

    /// All that is counted.
    pub(crate) fn sum(&self) -> usize {
        self.sum
    }

    /// What a connection may have in its queue.
    pub(crate) fn queue_max(&self) -> usize {
        (self.limit.saturating_sub(self.sum) / PARTS).max(UNCOUNTED_MAX)
    }

    /// Is there nothing left?
    pub(crate) fn is_used_up(&self) -> bool {
        self.sum >= self.limit
    }

    /// Which queues to look at again now; there are some when little is left.
    pub(crate) fn next_looks(&mut self, now_ms: u64) -> Vec<u32> {
        if self.sum < self.limit / 2 || now_ms < self.look_ms {
            return Vec::new();
        }
        self.look_ms = now_ms + LOOK_MS;
        let next: Vec<u32> = (self.queues.range(self.look_from..))
            .map(|(&index, _)| index)
            .take(LOOKS)
            .collect();
        // Round and round.
        self.look_from = match next.last() {
            Some(&last) if next.len() == LOOKS => last + 1,
            _ => 0,
        };
        next
    }

    /// When that is due.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        (self.sum >= self.limit / 2 && self.sum > 0).then_some(self.look_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many are slow and however greedy, what is counted stays within the bound.
    #[test]
    fn the_sum_comes_near_its_bound_and_does_not_pass_it() {
        const LIMIT: usize = 64 << 20;
        for slow in [1, 100, 5_000, 20_000] {
            let mut memory = KernelMemory::new(LIMIT as u64, 7);
            let mut queues = vec![0_usize; slow];
            for _ in 0..200 {
                for (index, queue) in queues.iter_mut().enumerate() {
                    *queue = memory.queue_max().max(*queue);
                    memory.note(index as u32, *queue);
                }
            }
            assert!(memory.sum() <= LIMIT, "{slow} hold {}", memory.sum());
            assert!(slow == 1 || memory.sum() > LIMIT / 2);
            // One who reads goes on.
            assert!(memory.queue_max() >= UNCOUNTED_MAX);
            for index in 0..slow as u32 {
                memory.forget(index);
            }
            assert_eq!((memory.sum(), memory.queues.len()), (0, 0));
        }
    }

    /// Nobody passes much unseen, whatever the rhythm; small talk is hardly looked at; and who is
    /// counted is looked at each time.
    #[test]
    fn looks_follow_the_bytes() {
        let mut memory = KernelMemory::new(1 << 20, 7);
        for (many, bytes) in [(1, 6), (5, 1_000), (2, 2_000), (7, 300)] {
            let mut unseen = vec![0_u64; many];
            let mut most = 0;
            let mut looks = 0;
            for turn in 0..20_000 {
                let one = &mut unseen[turn % many];
                *one += bytes + MESSAGE_OVERHEAD;
                most = most.max(*one);
                if memory.wants_look((turn % many) as u32, bytes) {
                    looks += 1;
                    *one = 0;
                }
            }
            assert!(most < 64 * LOOK_BYTES, "{most} unseen of {many} x {bytes}");
            let passed = 20_000 * (bytes + MESSAGE_OVERHEAD);
            assert!(
                looks <= passed / LOOK_BYTES * 2,
                "{looks} of {many} x {bytes}"
            );
        }
        assert!(memory.wants_look(1, 65_536));
        memory.note(1, 8_192);
        assert!((0..100).all(|n| memory.wants_look(1, n)));
    }

    #[test]
    fn all_queues_are_looked_at_in_turn() {
        let mut memory = KernelMemory::new(1 << 20, 7);
        for index in 0..1_000 {
            memory.note(index * 3, 8_192);
        }
        let mut seen: Vec<u32> = (0..3)
            .flat_map(|n| memory.next_looks(n * LOOK_MS))
            .collect();
        seen.truncate(1_000);
        assert!(seen.iter().copied().eq((0..1_000).map(|index| index * 3)));
        assert!(memory.next_looks(2 * LOOK_MS + 1).is_empty(), "not so soon");
    }
}
