//! How much a step may receive: the limits from which it is decided, and the answer.
//!
//! The decision is the workspace's, which knows what is in use.

use crate::settings::Settings;
use dormouse_handover::slot::{Flag, PlainSide, Slot};
use dormouse_record::{CONTENT_MAX, RECORD_MAX};
use dormouse_tables::pace::Pace;
use std::collections::HashMap;

/// Full-size records that one receive can fill.
pub(crate) const RECORDS_PER_STEP: usize = 4;

/// Maximum bytes per receive, from either side: 64 KiB.
pub(crate) const RECEIVE_MAX: usize = RECORDS_PER_STEP * CONTENT_MAX;

/// Maximum bytes moved per event, before the next connection has its turn.
const TURN_BYTES_MAX: usize = 4 * RECEIVE_MAX;

/// Maximum pending memory reserved for steps that should not need any.
const RESERVE_BYTES_MAX: usize = 1 << 20;

/// How much a step receives, derived from the limits.
pub(crate) struct StepLimits {
    /// Maximum size of a socket's send queue. While more than that is free, no queue needs to be
    /// measured.
    pub(crate) send_buffer: usize,
    /// Maximum bytes per receive, which bounds a connection's pending bytes.
    pub(crate) receive_max: usize,
    /// Maximum bytes per step, before the next connection has its turn.
    pub(crate) turn_max: usize,
    /// Pending memory reserved for steps that should not need any.
    pub(crate) reserve: usize,
    /// Whether a route has `route_stall_timeout` or `route_memory_share`.
    pub(crate) limits_stalls: bool,
    /// `route_memory_share` of the routes that have it, by their numbers.
    shares: HashMap<u16, u32>,
    /// Maximum bytes of the current step because of its route's byte rate.
    of_route: Option<usize>,
    /// Records for which the next receive from a plain side has room.
    plain_records: usize,
}

impl StepLimits {
    /// The limits of a worker with this much pending memory, before [`StepLimits::follow`].
    pub(crate) fn new(pending_bytes_max: usize) -> StepLimits {
        StepLimits {
            reserve: (pending_bytes_max / 8).min(RESERVE_BYTES_MAX),
            send_buffer: 0,
            receive_max: 0,
            turn_max: 0,
            of_route: None,
            plain_records: 1,
            limits_stalls: false,
            shares: HashMap::new(),
        }
    }

    /// Applies these settings to the following steps. With a byte rate limit, a step moves at most a
    /// small part of the bytes of one second.
    pub(crate) fn follow(&mut self, settings: &Settings) {
        let sums = &settings.sums;
        // Existing connections keep their buffers.
        self.send_buffer = self.send_buffer.max(sums.send_buffer_max);
        self.shares.clone_from(&sums.memory_shares);
        self.limits_stalls = sums.has_stall_timeout || !self.shares.is_empty();
        let limits = &settings.limits;
        let paces = [limits.per_client.bytes, limits.per_client.bytes_of_all];
        let paces = paces.into_iter().flatten();
        let least = paces.map(Pace::step_bytes).min().unwrap_or(u64::MAX);
        let least = usize::try_from(least).unwrap_or(usize::MAX);
        let pending_max = receive_max(limits.pending_per_connection);
        self.receive_max = pending_max.min(whole_records(least));
        self.turn_max = TURN_BYTES_MAX.min(least.max(CONTENT_MAX));
    }

    /// Limits the next step by its route's byte rate. Steps of other routes keep their size.
    pub(crate) fn limit_to(&mut self, of_route: Option<Pace>) {
        let bytes = of_route.map(|pace| usize::try_from(pace.step_bytes()).unwrap_or(usize::MAX));
        self.of_route = bytes;
    }

    /// The share of the memory for slow peers that a route may hold, in percent.
    pub(crate) fn share_of_route(&self, route: u16) -> Option<u32> {
        // Most programs have none, and each step asks.
        if self.shares.is_empty() {
            return None;
        }
        self.shares.get(&route).copied()
    }

    /// Maximum bytes per receive of the current step.
    pub(crate) fn receive_max(&self) -> usize {
        let of_route = self.of_route.map_or(usize::MAX, whole_records);
        self.receive_max.min(of_route)
    }

    /// Maximum records per receive from a plain side. As many as the receives before needed: the kernel receives into one
    /// range faster than into several, and most messages are short.
    pub(crate) fn plain_records(&self) -> usize {
        self.plain_records.min(self.receive_max() / CONTENT_MAX)
    }

    /// Notes that a receive from a plain side with room for `most` bytes has brought `n`.
    pub(crate) fn note_plain(&mut self, n: usize, most: usize) {
        if n == most {
            self.plain_records = RECORDS_PER_STEP;
        } else if n <= CONTENT_MAX {
            self.plain_records = 1;
        }
    }

    /// Maximum bytes of the current step.
    pub(crate) fn turn_max(&self) -> usize {
        let of_route = self
            .of_route
            .map_or(usize::MAX, |bytes| bytes.max(CONTENT_MAX));
        self.turn_max.min(of_route)
    }
}

/// Bytes of as many full records as fit, of those that one receive can fill; at least one.
fn whole_records(bytes: usize) -> usize {
    (bytes / CONTENT_MAX).clamp(1, RECORDS_PER_STEP) * CONTENT_MAX
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
    pub(crate) fn is_reported(&self, slot: &Slot) -> bool {
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

/// What a check of a flow that waits has found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// A step would read it.
    Reads,
    /// There is no memory, although its destination has taken what it got before.
    Wants,
    /// Its destination has not, or its record is not complete.
    Waits,
}

impl Check {
    /// No memory.
    pub(crate) fn starved(moves: bool) -> Check {
        if moves { Check::Wants } else { Check::Waits }
    }
}
