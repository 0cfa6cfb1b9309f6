//! Allowance: how much a step may receive for a destination, also while memory is short.
//!
//! ```text
//!  kernel_memory   |---- any queue: an eighth of what is left ----|-- queues that move: a record at a time --|
//!  pending_memory  |---- any step ----------------------------------------------------------|-- emergencies --|
//! ```
//!
//! While pending memory is short, a step receives only what the destination's socket certainly takes. While kernel
//! memory is short, a destination that does not read gets nothing, and one that reads has its queue empty and gets a
//! record at a time. Steps and the checks of waiting connections apply the same rule, so a check never wakes a
//! connection whose step would only wait again.

use super::Workspace;
use crate::io::Io;
use crate::memory::allowance::{Allowance, StarvedFlow};
use crate::memory::holders::UNCOUNTED_MAX;
use crate::memory::kernel::Wish;
use crate::memory::starved::{LATER_MS, SOON_MS};
use crate::settings::Settings;
use dormouse_handover::slot::Slot;
use dormouse_reactor::Fd;
use dormouse_record::RECORD_MAX;
use dormouse_tables::counters::Count;
use dormouse_tables::traffic::{Row, Tally};

/// Minimum bytes to receive at a time when memory is short.
const LEAN_MIN: usize = 2048;

/// Memory that the kernel needs for a message besides its bytes; a fifth of them is added for each segment's.
const OVERHEAD: usize = 1024;

/// A connection without progress loses its room to one that makes some after this part of `stall_timeout`,
const DISPLACED_PARTS: u64 = 30;
/// but not earlier than a packet may take to be repeated.
const DISPLACED_MIN_MS: u64 = 1_000;

impl<I: Io> Workspace<I> {
    /// Number of received bytes after which a step ends.
    pub(crate) fn turn_max(&self) -> usize {
        self.step.turn_max()
    }

    /// Maximum bytes per receive.
    pub(crate) fn receive_max(&self) -> usize {
        self.step.receive_max()
    }

    /// Decides how much to receive that will be sent to `destination`, for a connection of this route.
    pub(crate) fn allowance(&self, route: u16, destination: Fd) -> Allowance {
        let share = self.share(route);
        let most = self.step_memory_max();
        let has_memory = self.has_memory() && share.is_none_or(|share| share.can_hold(most));
        let of_share = share.map_or(usize::MAX, |share| share.queue_max());
        let queue_max = self.kernel.queue_max().min(of_share);
        // The kernel also counts its overhead, which is at most as much again.
        if has_memory && queue_max >= 2 * self.step.send_buffer {
            return Allowance::Full;
        }
        let Ok(queue) = self.io.queues(destination) else {
            return Allowance::NOTHING;
        };
        let mut room = content_max(queue_max, queue.sent);
        if has_memory && room >= self.step.receive_max {
            return Allowance::Full;
        }
        let is_empty = queue.sent <= UNCOUNTED_MAX;
        let moves = is_empty || self.io.held_back(destination).is_ok_and(|bytes| bytes == 0);
        if moves {
            let of_share = share.map_or(usize::MAX, |share| share.moving_queue_max());
            let of_reserve = self.kernel.moving_queue_max().min(of_share);
            let of_reserve = content_max(of_reserve, queue.sent);
            room = room.max(of_reserve.min(RECORD_MAX));
        }
        // The smallest send queue that can be configured takes a record when it is empty.
        if !has_memory && !is_empty {
            room = match self.has_memory_for_one() {
                true => room.min(content_max(queue.sent_max, queue.sent)),
                false => 0,
            };
        }
        if room < LEAN_MIN {
            room = 0;
        }
        Allowance::Lean { room, moves }
    }

    /// Whether a handshake may receive more than its next record. What follows a handshake has to be stored.
    pub(crate) fn may_read_ahead(&self) -> bool {
        self.has_memory()
    }

    /// Whether pending memory has room for a whole step.
    pub(super) fn has_memory(&self) -> bool {
        let most = self.step_memory_max();
        let in_use = self.pending.bytes_in_use();
        in_use + most + self.step.reserve <= self.pending.bytes_max() && self.pending.can_hold(most)
    }

    /// Maximum pending memory that a step needs.
    pub(super) fn step_memory_max(&self) -> usize {
        self.step.receive_max + RECORD_MAX
    }

    /// Whether the reserve has room for a record that the kernel refuses although its queue has room.
    fn has_memory_for_one(&self) -> bool {
        self.pending.can_hold(RECORD_MAX)
    }

    /// Whether a part of a record may be stored for a connection of this route. While memory is short, only if it `fills`
    /// its receive queue, so that the rest can't arrive, and while half of the reserve is free.
    pub(crate) fn may_store_part(&self, route: u16, fills: bool) -> bool {
        if !self.share_holds_part(route, fills) {
            return false;
        }
        let in_use = self.pending.bytes_in_use() + 2 * RECORD_MAX + self.step.reserve / 2;
        let has_reserve =
            || in_use <= self.pending.bytes_max() && self.pending.can_hold(RECORD_MAX);
        self.has_memory() || (fills && has_reserve())
    }

    /// Whether the peer can't send more until we read: its window may be closed.
    pub(crate) fn is_receive_queue_full(&self, fd: Fd) -> bool {
        let queues = self.io.queues(fd);
        queues.is_ok_and(|queues| queues.received >= queues.received_max / 2)
    }

    /// Stops a flow until there is memory, or until its destination has drained, if it doesn't move. Returns the time after
    /// which the connection is looked at again.
    #[must_use]
    pub(crate) fn starve(&mut self, slot: &mut Slot, flow: &StarvedFlow, moves: bool) -> u64 {
        slot.set(flow.starved);
        if moves {
            self.kernel.note_wanted(Wish::New, self.now_ms);
        }
        let is_reported = !moves && flow.is_reported(slot);
        if is_reported {
            slot.set(flow.held);
        }
        let is_of_share = self.is_limited_by_share(slot.route);
        if is_of_share {
            let row = Row::of_route(slot.route);
            self.traffic.add(row, Tally::MemoryWaits, 1);
        }
        let exhausted = match (is_of_share, self.has_memory()) {
            (true, _) => Count::ShareExhausted,
            (false, true) => Count::KernelExhausted,
            (false, false) => Count::PendingExhausted,
        };
        self.count.add(exhausted, 1);
        if is_reported { LATER_MS } else { SOON_MS }
    }

    // ---- connections that make no progress ----

    /// How long a connection may hold memory without progress. `None`: memory is not short.
    pub(crate) fn patience_ms(&self, settings: &Settings) -> Option<u64> {
        let stall_ms = settings.limits.stall_timeout_ms;
        let is_refused = self.kernel.is_refused(self.now_ms);
        if is_refused || !self.has_memory_for_one() {
            return Some(stall_ms / 4);
        }
        self.is_short().then_some(stall_ms)
    }

    /// Returns the connections that lose their memory now because others want it and they make no progress, and for how long
    /// they have made none.
    pub(crate) fn next_displaced(&mut self, settings: &Settings) -> (u64, Vec<u32>) {
        if !self.kernel.is_taken_from(self.now_ms) {
            return (0, Vec::new());
        }
        let patience_ms = settings.limits.stall_timeout_ms / DISPLACED_PARTS;
        let patience_ms = patience_ms.max(DISPLACED_MIN_MS);
        let displaced = self.kernel.next_displaced(patience_ms, self.now_ms);
        (patience_ms, displaced)
    }

    /// Whether steps receive less than they could, because memory is short.
    fn is_short(&self) -> bool {
        !self.has_memory() || self.kernel.is_short() || self.kernel.is_refused(self.now_ms)
    }

    /// Whether memory is short, or a route limits stalls or memory, and a queue holds some of it. Each turn asks, and most
    /// workers have no such queue.
    fn is_held_while_short(&self) -> bool {
        self.kernel.has_holders() && (self.step.limits_stalls || self.is_short())
    }

    /// Time of the next measurement of send queues.
    pub(crate) fn next_measurement_ms(&self) -> Option<u64> {
        self.kernel.next_deadline_ms(self.is_held_while_short())
    }

    /// Returns the connections to measure again now.
    pub(crate) fn next_measured(&mut self) -> Vec<u32> {
        let is_held = self.is_held_while_short();
        self.kernel.next_checks(is_held, self.now_ms)
    }
}

/// Bytes that a queue which has `used` bytes of memory takes until it has `most`.
fn content_max(most: usize, used: usize) -> usize {
    most.saturating_sub(used).saturating_sub(OVERHEAD) / 5 * 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::holders::{Held, Waiting};
    use crate::memory::kernel::KernelMemory;

    /// Whatever else is in use, an empty queue takes a piece of plaintext, and a longest record while the reserve lasts.
    #[test]
    fn an_empty_queue_takes_a_record() {
        let mut kernel = KernelMemory::new(1 << 20, 7);
        assert!(content_max(UNCOUNTED_MAX, 0) >= LEAN_MIN);
        while !kernel.is_used_up() {
            let room = content_max(kernel.moving_queue_max(), UNCOUNTED_MAX);
            assert!(room >= RECORD_MAX, "{room}");
            let held = Held {
                tls: Waiting {
                    queue: 20_000,
                    ..Waiting::default()
                },
                ..Held::default()
            };
            kernel.note((kernel.sum() as u32, 0), held, 0);
        }
        assert!(kernel.sum() <= 1 << 20);
    }
}
