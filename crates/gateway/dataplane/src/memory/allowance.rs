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

use crate::io::Io;
use crate::memory::holders::UNCOUNTED_MAX;
use crate::memory::starved::{LATER_MS, SOON_MS};
use crate::settings::Settings;
use crate::workspace::Workspace;
use crate::workspace::scratch::{RECEIVE_MAX, RECORDS_PER_STEP};
use dormouse_handover::slot::{Flag, PlainSide, Slot};
use dormouse_reactor::Fd;
use dormouse_record::{CONTENT_MAX, RECORD_MAX};
use dormouse_tables::counters::Count;
use dormouse_tables::pace::Pace;

/// Maximum bytes moved per event, before the next connection has its turn.
const TURN_BYTES_MAX: usize = 4 * RECEIVE_MAX;

/// Maximum pending memory reserved for steps that should not need any.
const RESERVE_BYTES_MAX: usize = 1 << 20;

/// Minimum bytes to receive at a time when memory is short.
const LEAN_MIN: usize = 2048;

/// Memory that the kernel needs for a message besides its bytes; a fifth of them is added for each segment's.
const OVERHEAD: usize = 1024;

/// How much a step receives, derived from the limits.
#[derive(Default)]
pub(crate) struct StepLimits {
    /// Maximum size of a socket's send queue. While more than that is free, no queue needs to be
    /// measured.
    send_buffer: usize,
    /// Maximum bytes per receive, which bounds a connection's pending bytes.
    receive_max: usize,
    /// Maximum bytes per step, before the next connection has its turn.
    turn_max: usize,
    /// Pending memory reserved for steps that should not need any.
    reserve: usize,
}

impl StepLimits {
    /// The limits of a worker with this much pending memory, before [`StepLimits::follow`].
    pub(crate) fn new(pending_bytes_max: usize) -> StepLimits {
        StepLimits {
            reserve: (pending_bytes_max / 8).min(RESERVE_BYTES_MAX),
            ..StepLimits::default()
        }
    }

    /// Applies these settings to the following steps. With a byte rate limit, a step moves at most a
    /// small part of the bytes of one second.
    pub(crate) fn follow(&mut self, settings: &Settings) {
        // Existing connections keep their buffers.
        for route in &settings.routes {
            let send_buffer = route.sockets.send_buffer_bytes();
            self.send_buffer = self.send_buffer.max(send_buffer);
        }
        let limits = &settings.limits;
        let paces = [limits.per_client.bytes, limits.per_client.bytes_of_all];
        let paces = paces.into_iter().flatten();
        let least = paces.map(Pace::step_bytes).min().unwrap_or(u64::MAX);
        let least = usize::try_from(least).unwrap_or(usize::MAX);
        let records = (least / CONTENT_MAX).clamp(1, RECORDS_PER_STEP);
        let pending_max = receive_max(limits.pending_per_connection);
        self.receive_max = pending_max.min(records * CONTENT_MAX);
        self.turn_max = TURN_BYTES_MAX.min(least.max(CONTENT_MAX));
    }
}

/// Returns the maximum per receive that keeps a connection's pending bytes within its limit.
fn receive_max(pending_per_connection: usize) -> usize {
    let records = pending_per_connection.saturating_sub(RECORD_MAX + 64) / CONTENT_MAX;
    records.clamp(1, RECORDS_PER_STEP) * CONTENT_MAX
}

/// The flags of a flow that waits.
pub(crate) struct StarvedFlow {
    pub(crate) starved: Flag,
    /// An event reports when the destination has drained.
    pub(crate) held: Flag,
}

/// The opening flow.
pub(crate) const OPENING: StarvedFlow = StarvedFlow {
    starved: Flag::Starved,
    held: Flag::OpeningHeld,
};

/// The sealing flow.
pub(crate) const SEALING: StarvedFlow = StarvedFlow {
    starved: Flag::SealingStarved,
    held: Flag::SealingHeld,
};

impl StarvedFlow {
    /// Whether an event can report that the destination has drained: not that of a unix socket.
    fn is_reported(&self, slot: &Slot) -> bool {
        let goes_to_unix = matches!(slot.plain_side(), PlainSide::Unix | PlainSide::Joint);
        !(self.held == Flag::OpeningHeld && goes_to_unix)
    }

    /// Lets the flow be read again.
    pub(crate) fn resume(&self, slot: &mut Slot) {
        slot.clear(self.starved);
        slot.clear(self.held);
    }
}

/// How much a step may receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Allowance {
    /// All available bytes: pending memory could hold them.
    Full,
    /// Memory is short, because other peers do not read. The step receives whole records of at most `room` bytes, which
    /// the destination's socket takes. Nothing, if that is 0. `moves`: the destination has taken what it got before.
    Lean { room: usize, moves: bool },
}

impl Allowance {
    /// No memory.
    pub(crate) const NOTHING: Allowance = Allowance::Lean {
        room: 0,
        moves: true,
    };
}

impl<I: Io> Workspace<I> {
    /// Number of received bytes after which a step ends.
    pub(crate) fn turn_max(&self) -> usize {
        self.step.turn_max
    }

    /// Maximum bytes per receive.
    pub(crate) fn receive_max(&self) -> usize {
        self.step.receive_max
    }

    /// Decides how much to receive that will be sent to `destination`.
    pub(crate) fn allowance(&self, destination: Fd) -> Allowance {
        let has_memory = self.has_memory();
        let queue_max = self.kernel.queue_max();
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
            let of_reserve = content_max(self.kernel.moving_queue_max(), queue.sent);
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
    fn has_memory(&self) -> bool {
        let most = self.step.receive_max + RECORD_MAX;
        let in_use = self.pending.bytes_in_use();
        in_use + most + self.step.reserve <= self.pending.bytes_max() && self.pending.can_hold(most)
    }

    /// Whether the reserve has room for a record that the kernel refuses although its queue has room.
    fn has_memory_for_one(&self) -> bool {
        self.pending.can_hold(RECORD_MAX)
    }

    /// Whether a part of a record may be stored. While memory is short, only if it `fills` its receive queue, so that the
    /// rest can't arrive, and while half of the reserve is free.
    pub(crate) fn may_store_part(&self, fills: bool) -> bool {
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
    pub(crate) fn starve(&self, slot: &mut Slot, flow: &StarvedFlow, moves: bool) -> u64 {
        slot.set(flow.starved);
        let is_reported = !moves && flow.is_reported(slot);
        if is_reported {
            slot.set(flow.held);
        }
        let exhausted = if self.has_memory() {
            Count::KernelExhausted
        } else {
            Count::PendingExhausted
        };
        self.count.add(exhausted, 1);
        if is_reported { LATER_MS } else { SOON_MS }
    }

    // ---- connections that make no progress ----

    /// How long a connection may hold memory without progress. `None`: memory is not short.
    pub(crate) fn patience_ms(&self, settings: &Settings) -> Option<u64> {
        let stall_ms = settings.limits.stall_timeout_ms;
        let is_refused = self.kernel.is_refused(self.now_ms);
        if is_refused || self.kernel.is_used_up() || !self.has_memory_for_one() {
            return Some(stall_ms / 4);
        }
        self.is_short().then_some(stall_ms)
    }

    /// Whether steps receive less than they could, because memory is short.
    fn is_short(&self) -> bool {
        !self.has_memory() || self.kernel.is_short() || self.kernel.is_refused(self.now_ms)
    }

    /// Time of the next measurement of send queues.
    pub(crate) fn next_measurement_ms(&self) -> Option<u64> {
        self.kernel.next_deadline_ms(self.is_short())
    }

    /// Returns the connections to measure again now.
    pub(crate) fn next_measured(&mut self) -> Vec<u32> {
        let is_short = self.is_short();
        self.kernel.next_checks(is_short, self.now_ms)
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
            kernel.note(kernel.sum() as u32, held, 0);
        }
        assert!(kernel.sum() <= 1 << 20);
    }
}
