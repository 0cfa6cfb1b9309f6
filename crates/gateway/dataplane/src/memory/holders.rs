//! Holders: the connections that hold memory, and since when none of it was taken.
//!
//! A connection holds memory for its TLS peer and for its plain side (in the kernel's send queue, and in pending memory
//! after it), and for the beginning of a record that its TLS peer has sent. Each of the three makes progress separately:
//! a client that reads nothing gains no time by sending.
//!
//! Invariants:
//!
//! - A side has taken bytes if it holds less than it held before, and what the step has passed to it since. (The kernel's
//!   overhead only makes a queue longer, so bytes that are passed are never mistaken for progress.)
//! - The rest of a record makes progress with each byte.
//! - A connection is a holder exactly if its queues are longer than [`UNCOUNTED_MAX`], or something is pending; a
//!   connection at rest with short queues has no entry.
//! - `sums` has the kernel memory in all queues of the holders with longer ones, also divided by route.

use std::collections::{BTreeMap, HashMap};

/// Queues up to this size are not counted, and every connection may have one.
pub(crate) const UNCOUNTED_MAX: usize = 4096;

/// Bytes that wait for one side.
#[derive(Clone, Copy, Default)]
pub(crate) struct Waiting {
    /// Kernel memory of the send queue.
    pub(crate) queue: usize,
    /// Pending bytes.
    pub(crate) pending: usize,
    /// Bytes that the last step has passed to this side.
    pub(crate) passed: usize,
}

impl Waiting {
    fn held(self) -> usize {
        self.queue + self.pending
    }
}

/// What a connection holds after a step.
#[derive(Clone, Copy, Default)]
pub(crate) struct Held {
    pub(crate) tls: Waiting,
    pub(crate) plain: Waiting,
    /// Length of the stored beginning of a record.
    pub(crate) partial: usize,
    /// Pending memory, which is more than the bytes in it.
    pub(crate) pending_memory: usize,
}

impl Held {
    /// Kernel memory that counts.
    fn counted(&self) -> usize {
        let queues = self.tls.queue + self.plain.queue;
        if queues > UNCOUNTED_MAX { queues } else { 0 }
    }

    fn is_nothing(&self) -> bool {
        self.counted() == 0 && self.tls.pending + self.plain.pending + self.partial == 0
    }
}

/// The part of its memory with which a connection makes no progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stall {
    /// The TLS peer takes nothing.
    Tls,
    /// The plain side takes nothing.
    Plain,
    /// The TLS peer does not complete its record.
    Partial,
}

impl Stall {
    /// The words of a log line.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Stall::Tls => "TLS side reads nothing",
            Stall::Plain => "plain side reads nothing",
            Stall::Partial => "TLS side sends no more of its record",
        }
    }
}

/// What all holders of a route hold.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct OfRoute {
    /// Kernel memory in counted queues.
    pub(crate) queues: usize,
    /// Pending memory.
    pub(crate) pending: usize,
}

struct Holder {
    route: u16,
    held: Held,
    /// Last progress of the three parts.
    tls_ms: u64,
    plain_ms: u64,
    partial_ms: u64,
}

impl Holder {
    /// Last progress of the queue that has made none for longer, if the queues count.
    fn queued_since_ms(&self) -> Option<u64> {
        let queues = [
            (self.held.tls.queue, self.tls_ms),
            (self.held.plain.queue, self.plain_ms),
        ];
        let used = queues.into_iter().filter(|&(queue, _)| queue > 0);
        let since_ms = used.map(|(_, since_ms)| since_ms).min();
        since_ms.filter(|_| self.held.counted() > 0)
    }
}

/// The connections that hold memory, by slot index.
#[derive(Default)]
pub(crate) struct Holders {
    all: BTreeMap<u32, Holder>,
    sums: Sums,
}

/// What all holders hold.
#[derive(Default)]
struct Sums {
    /// Kernel memory in counted queues.
    queues: usize,
    /// Of routes with holders.
    routes: HashMap<u16, OfRoute>,
}

impl Sums {
    fn add(&mut self, route: u16, held: &Held) {
        self.queues += held.counted();
        let of_route = self.routes.entry(route).or_default();
        of_route.queues += held.counted();
        of_route.pending += held.pending_memory;
    }

    fn subtract(&mut self, route: u16, held: &Held) {
        self.queues -= held.counted();
        if let Some(of_route) = self.routes.get_mut(&route) {
            of_route.queues -= held.counted();
            of_route.pending -= held.pending_memory;
            if *of_route == OfRoute::default() {
                self.routes.remove(&route);
            }
        }
    }
}

impl Holders {
    /// Notes what a connection of this route holds. Returns whether a side has taken bytes.
    pub(crate) fn note(&mut self, (index, route): (u32, u16), held: Held, now_ms: u64) -> bool {
        if held.is_nothing() {
            return self.forget(index);
        }
        self.sums.add(route, &held);
        let Some(holder) = self.all.get_mut(&index) else {
            let holder = Holder {
                route,
                held,
                tls_ms: now_ms,
                plain_ms: now_ms,
                partial_ms: now_ms,
            };
            self.all.insert(index, holder);
            return false;
        };
        let former_route = std::mem::replace(&mut holder.route, route);
        let former = std::mem::replace(&mut holder.held, held);
        self.sums.subtract(former_route, &former);
        let mut has_taken = false;
        for (former, now, since_ms) in [
            (former.tls, held.tls, &mut holder.tls_ms),
            (former.plain, held.plain, &mut holder.plain_ms),
        ] {
            if former.held() + now.passed > now.held() || former.held() == 0 {
                has_taken |= former.held() > 0;
                *since_ms = now_ms;
            }
        }
        if former.partial != held.partial {
            holder.partial_ms = now_ms;
        }
        has_taken
    }

    /// Removes a connection. Returns whether it held memory.
    pub(crate) fn forget(&mut self, index: u32) -> bool {
        if self.all.is_empty() {
            return false;
        }
        let Some(holder) = self.all.remove(&index) else {
            return false;
        };
        self.sums.subtract(holder.route, &holder.held);
        true
    }

    /// What the connections of a route hold.
    pub(crate) fn of_route(&self, route: u16) -> OfRoute {
        let of_route = self.sums.routes.get(&route);
        of_route.copied().unwrap_or_default()
    }

    /// Updates the index of a moved slot.
    pub(crate) fn moved(&mut self, from: u32, to: u32) {
        if let Some(holder) = self.all.remove(&from) {
            self.all.insert(to, holder);
        }
    }

    /// The part with which a connection has made no progress for `patience_ms`.
    pub(crate) fn stall(&self, index: u32, patience_ms: u64, now_ms: u64) -> Option<Stall> {
        let holder = self.all.get(&index)?;
        let is_over = |since_ms: u64| since_ms + patience_ms <= now_ms;
        let counts = holder.held.counted() > 0;
        let holds = |side: Waiting| side.pending > 0 || (counts && side.queue > 0);
        if holds(holder.held.tls) && is_over(holder.tls_ms) {
            Some(Stall::Tls)
        } else if holds(holder.held.plain) && is_over(holder.plain_ms) {
            Some(Stall::Plain)
        } else if holder.held.partial > 0 && is_over(holder.partial_ms) {
            Some(Stall::Partial)
        } else {
            None
        }
    }

    /// The connections whose queues have made no progress for `patience_ms`: at most `most`, longest first.
    pub(crate) fn stalled(&self, most: usize, patience_ms: u64, now_ms: u64) -> Vec<u32> {
        let stalled = self.all.iter().filter_map(|(&index, holder)| {
            let since_ms = holder.queued_since_ms()?;
            (since_ms + patience_ms <= now_ms).then_some((since_ms, index))
        });
        let mut stalled: Vec<_> = stalled.collect();
        // Sorting all of them would take too long if there are hundreds of thousands.
        if stalled.len() > most {
            stalled.select_nth_unstable(most);
            stalled.truncate(most);
        }
        stalled.sort_unstable();
        stalled.into_iter().map(|(_, index)| index).collect()
    }

    /// Whether a connection holds memory.
    pub(crate) fn contains(&self, index: u32) -> bool {
        self.all.contains_key(&index)
    }

    /// The next holders from this index on, at most `most`.
    pub(crate) fn from(&self, index: u32, most: usize) -> Vec<u32> {
        let next = self.all.range(index..).map(|(&index, _)| index);
        next.take(most).collect()
    }

    /// Kernel memory in all counted queues.
    pub(crate) fn sum(&self) -> usize {
        self.sums.queues
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE_MS: u64 = 1_000;

    fn tls(queue: usize, pending: usize, passed: usize) -> Held {
        let tls = Waiting {
            queue,
            pending,
            passed,
        };
        Held {
            tls,
            ..Held::default()
        }
    }

    fn stall(holders: &Holders, now_ms: u64) -> Option<Stall> {
        holders.stall(1, PATIENCE_MS, now_ms)
    }

    /// A reader that takes nothing makes no progress, whatever is passed to it.
    #[test]
    fn passed_bytes_are_no_progress() {
        let mut holders = Holders::default();
        assert!(!holders.note((1, 0), tls(20_000, 0, 16_406), 0));
        // The kernel counts more than the bytes, and takes what was pending.
        assert!(!holders.note((1, 0), tls(60_000, 5_000, 40_000), 400));
        assert!(!holders.note((1, 0), tls(65_900, 0, 0), 600));
        assert_eq!(stall(&holders, 999), None);
        assert_eq!(stall(&holders, 1_000), Some(Stall::Tls));
    }

    /// A slow reader is served as long as it takes something, although its queue stays full.
    #[test]
    fn a_full_queue_that_moves_is_progress() {
        let mut holders = Holders::default();
        holders.note((1, 0), tls(60_000, 0, 60_000), 0);
        for n in 1..20 {
            assert!(holders.note((1, 0), tls(60_000, 0, 10), n * 900));
            assert_eq!(stall(&holders, n * 900 + 999), None);
        }
        assert_eq!(stall(&holders, 19 * 900 + 1_000), Some(Stall::Tls));
    }

    /// A client that reads nothing gains no time by sending to a backend that reads, or a record byte by byte.
    #[test]
    fn each_side_has_its_own_progress() {
        let mut holders = Holders::default();
        for n in 0..10 {
            let mut held = tls(60_000, 0, 0);
            held.plain.queue = 5_000 * (n as usize % 2);
            held.partial = n as usize;
            holders.note((1, 0), held, n * 200);
        }
        assert_eq!(stall(&holders, 1_800), Some(Stall::Tls));
        let mut held = Held {
            partial: 500,
            ..Held::default()
        };
        holders.note((1, 0), held, 2_000);
        assert_eq!(stall(&holders, 2_999), None);
        assert_eq!(stall(&holders, 3_000), Some(Stall::Partial));
        held.partial = 501;
        holders.note((1, 0), held, 3_000);
        assert_eq!(stall(&holders, 3_001), None);
    }

    /// None whose peer has just taken something, or whose queue is not counted.
    #[test]
    fn stalled_queues_are_found_longest_first() {
        let mut holders = Holders::default();
        for (index, since_ms) in [(1, 300), (2, 100), (3, 200), (4, 0)] {
            holders.note((index, 0), tls(20_000, 0, 20_000), since_ms);
        }
        holders.note((4, 0), tls(19_000, 0, 0), 350);
        holders.note((5, 0), tls(UNCOUNTED_MAX, 100_000, 0), 0);
        assert_eq!(holders.stalled(9, PATIENCE_MS, 1_099), [0; 0]);
        assert_eq!(holders.stalled(9, PATIENCE_MS, 1_300), [2, 3, 1]);
        assert_eq!(holders.stalled(2, PATIENCE_MS, 1_300), [2, 3]);
    }

    /// Short queues are no memory that counts.
    #[test]
    fn a_short_queue_is_not_held() {
        let mut holders = Holders::default();
        holders.note((1, 0), tls(UNCOUNTED_MAX, 0, 0), 0);
        assert!(holders.is_empty());
        holders.note((1, 0), tls(UNCOUNTED_MAX, 1, 0), 0);
        holders.note((2, 0), tls(UNCOUNTED_MAX + 1, 0, 0), 0);
        assert_eq!(holders.sum(), UNCOUNTED_MAX + 1);
        assert_eq!(holders.from(0, 9), [1, 2]);
        holders.moved(2, 7);
        assert_eq!(holders.stall(7, PATIENCE_MS, 5_000), Some(Stall::Tls));
        assert!(holders.note((7, 0), Held::default(), 5_000));
        holders.forget(1);
        assert!(holders.is_empty() && holders.sum() == 0);
    }

    #[test]
    fn each_route_has_its_sum() {
        let mut holders = Holders::default();
        let pending = |bytes| Held {
            pending_memory: bytes,
            ..tls(5_000, 1, 0)
        };
        holders.note((1, 7), pending(8_192), 0);
        holders.note((2, 7), pending(4_096), 0);
        holders.note((3, 8), pending(0), 0);
        let of_route = |queues, pending| OfRoute { queues, pending };
        assert_eq!(holders.of_route(7), of_route(10_000, 12_288));
        assert_eq!(holders.of_route(8), of_route(5_000, 0));
        holders.note((1, 7), pending(0), 0);
        holders.moved(2, 9);
        // Another connection at the same place.
        holders.note((3, 7), pending(0), 0);
        assert_eq!(holders.of_route(7), of_route(15_000, 4_096));
        for index in [1, 3, 9] {
            holders.forget(index);
        }
        assert!(holders.sums.routes.is_empty() && holders.sum() == 0);
    }
}
