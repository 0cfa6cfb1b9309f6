//! Kernel memory in the send queues of slow peers, with a bound on the sum.
//!
//! A send queue grows only when we read from the other side. So the worker keeps to the bound by
//! reading less: each connection may have at most an eighth of the remaining memory in its queue. While
//! few peers are slow, that is more than a socket takes. The more peers are slow, the less is left for
//! each, and the sum approaches its bound but never exceeds it. A peer that reads has an empty queue
//! and is served.
//!
//! Queues of up to 4 KiB are not counted, and every connection may have one: that is a constant per
//! connection. The kernel does not report that a queue drains, so a number here is what the queue was
//! when last measured, or more; when little is left, queues are measured again.
//!
//! A measurement costs two system calls, so a quiet connection that sends a small message is usually
//! not measured: every forwarded byte has the same chance to cause a measurement. A slow peer is
//! measured after about 2 KiB; so is an exchange of small messages, but its queues are empty.

use std::collections::BTreeMap;

/// Queues up to this size are not counted, and every connection may have one.
pub(crate) const UNCOUNTED_MAX: usize = 4096;

/// Average number of forwarded bytes between two measurements.
const CHECK_BYTES: u64 = 2048;

/// Minimum overhead of the kernel per message.
const MESSAGE_OVERHEAD: u64 = 256;

/// One connection may use this fraction of the remaining memory.
const PARTS: usize = 8;

/// Interval at which queues are measured again.
const CHECK_MS: u64 = 50;
/// Queues measured at once.
const CHECKS: usize = 512;

/// Send queues by slot index.
pub(crate) struct KernelMemory {
    limit: usize,
    sum: usize,
    queues: BTreeMap<u32, usize>,
    check_ms: u64,
    look_from: u32,
    /// Bytes until the next measurement.
    unmeasured: u64,
    /// State of a random generator: a periodic sender must not fall into the same gap each time.
    random: u64,
}

impl KernelMemory {
    pub(crate) fn new(limit: u64, seed: u64) -> KernelMemory {
        KernelMemory {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            sum: 0,
            queues: BTreeMap::new(),
            check_ms: 0,
            look_from: 0,
            unmeasured: 0,
            random: seed | 1,
        }
    }

    /// Whether to measure the queues of a connection that has just forwarded `received` bytes.
    pub(crate) fn is_due(&mut self, index: u32, received: u64) -> bool {
        if self.queues.contains_key(&index) {
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

    /// Changes the limit.
    pub(crate) fn limit_to(&mut self, limit: u64) {
        self.limit = usize::try_from(limit).unwrap_or(usize::MAX);
    }

    /// Notes the measured size of a connection's queues.
    pub(crate) fn note(&mut self, index: u32, bytes: usize) {
        if bytes <= UNCOUNTED_MAX {
            self.forget(index);
            return;
        }
        let former = self.queues.insert(index, bytes).unwrap_or(0);
        self.sum = self.sum + bytes - former;
    }

    /// Removes a connection.
    pub(crate) fn forget(&mut self, index: u32) {
        if !self.queues.is_empty()
            && let Some(former) = self.queues.remove(&index)
        {
            self.sum -= former;
        }
    }

    /// Sum of all counted queues.
    pub(crate) fn sum(&self) -> usize {
        self.sum
    }

    /// Maximum queue of one connection.
    pub(crate) fn queue_max(&self) -> usize {
        (self.limit.saturating_sub(self.sum) / PARTS).max(UNCOUNTED_MAX)
    }

    /// Whether the limit is reached.
    pub(crate) fn is_used_up(&self) -> bool {
        self.sum >= self.limit
    }

    /// Returns the queues to measure again now. There are some while half of the limit is used.
    pub(crate) fn next_checks(&mut self, now_ms: u64) -> Vec<u32> {
        if self.sum < self.limit / 2 || now_ms < self.check_ms {
            return Vec::new();
        }
        self.check_ms = now_ms + CHECK_MS;
        let next: Vec<u32> = (self.queues.range(self.look_from..))
            .map(|(&index, _)| index)
            .take(CHECKS)
            .collect();
        // The next call continues after the last one, or starts again.
        self.look_from = match next.last() {
            Some(&last) if next.len() == CHECKS => last + 1,
            _ => 0,
        };
        next
    }

    /// Time of the next measurement.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        (self.sum >= self.limit / 2 && self.sum > 0).then_some(self.check_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum stays within its bound, however many peers are slow.
    #[test]
    fn the_sum_approaches_its_bound_and_never_exceeds_it() {
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
            // A peer that reads is still served.
            assert!(memory.queue_max() >= UNCOUNTED_MAX);
            for index in 0..slow as u32 {
                memory.forget(index);
            }
            assert_eq!((memory.sum(), memory.queues.len()), (0, 0));
        }
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
        memory.note(1, 8_192);
        assert!((0..100).all(|n| memory.is_due(1, n)));
    }

    #[test]
    fn measures_all_queues_in_turn() {
        let mut memory = KernelMemory::new(1 << 20, 7);
        for index in 0..1_000 {
            memory.note(index * 3, 8_192);
        }
        let mut seen: Vec<u32> = (0..3)
            .flat_map(|n| memory.next_checks(n * CHECK_MS))
            .collect();
        seen.truncate(1_000);
        assert!(seen.iter().copied().eq((0..1_000).map(|index| index * 3)));
        assert!(memory.next_checks(2 * CHECK_MS + 1).is_empty(), "too soon");
    }
}
