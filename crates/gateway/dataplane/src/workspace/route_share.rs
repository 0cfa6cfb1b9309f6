//! A route's share of the memory for slow peers (`route_memory_share`).
//!
//! Each worker applies it to its own part of `kernel_memory` and `pending_memory`. The connections of a route share its part
//! as all connections share the whole: while the route is short of memory, those whose peers take everything get a record
//! at a time, and the others wait, or end after `stall_timeout`.

use super::Workspace;
use crate::io::Io;
use crate::memory::holders::{Held, OfRoute};
use crate::memory::kernel::{moving_queue_max, queue_max};
use crate::settings::Settings;
use dormouse_config::share_of;
use dormouse_record::RECORD_MAX;
use dormouse_tables::traffic::{Row, Tally};

/// A route's share, and what its connections hold of it.
#[derive(Clone, Copy)]
pub(super) struct RouteShare {
    queues_max: usize,
    pending_max: usize,
    held: OfRoute,
}

impl RouteShare {
    /// Maximum queue of one connection.
    pub(super) fn queue_max(&self) -> usize {
        queue_max(self.queues_max, self.held.queues)
    }

    /// Maximum queue of a connection whose queue moves.
    pub(super) fn moving_queue_max(&self) -> usize {
        moving_queue_max(self.queues_max, self.held.queues)
    }

    /// Whether this much pending memory is left.
    pub(super) fn can_hold(&self, bytes: usize) -> bool {
        self.held.pending + bytes <= self.pending_max
    }

    /// Whether connections of the route must make progress: they hold half of the share.
    fn is_half_held(&self) -> bool {
        2 * self.held.queues > self.queues_max || 2 * self.held.pending > self.pending_max
    }
}

impl<I: Io> Workspace<I> {
    /// The share of a route. `None`: it has no limit.
    pub(super) fn share(&self, route: u16) -> Option<RouteShare> {
        let percent = self.step.share_of_route(route)?;
        let part = |limit: usize| share_of(limit as u64, percent) as usize;
        Some(RouteShare {
            queues_max: part(self.kernel.limit()),
            pending_max: part(self.pending.bytes_max()),
            held: self.kernel.of_route(route),
        })
    }

    /// Whether a part of a record may be stored for a connection of this route. While the share is held, only if it `fills`
    /// its receive queue, so that the rest can't arrive; in a share that is too small for that, one connection at a time.
    pub(super) fn share_holds_part(&self, route: u16, fills: bool) -> bool {
        let most = self.step_memory_max();
        self.share(route).is_none_or(|share| {
            let has_room = share.held.pending == 0 || share.can_hold(2 * RECORD_MAX);
            share.can_hold(most) || fills && has_room
        })
    }

    /// Whether it is its route's share that lets a connection receive less, and not the memory of all.
    pub(super) fn is_limited_by_share(&self, route: u16) -> bool {
        let most = self.step_memory_max();
        let limits = |share: RouteShare| {
            share.queue_max() < self.kernel.queue_max() || !share.can_hold(most)
        };
        self.has_memory() && self.share(route).is_some_and(limits)
    }

    /// How long a connection of this route may hold memory without progress, because others of the route need it. `None`:
    /// as long as it likes.
    pub(crate) fn patience_in_share_ms(&self, route: u16, settings: &Settings) -> Option<u64> {
        let stall_ms = settings.limits.stall_timeout_ms;
        let share = self.share(route)?;
        share.is_half_held().then_some(stall_ms)
    }

    /// Notes what a connection holds, as measured after a step.
    pub(crate) fn note_held(&mut self, at: (u32, u16), held: Held) {
        self.kernel.note(at, held, self.now_ms);
        self.report_held(at.1);
    }

    /// Notes that a connection holds nothing any more.
    pub(crate) fn forget_held(&mut self, (index, route): (u32, u16)) {
        self.kernel.forget(index);
        self.report_held(route);
    }

    /// Writes what the connections of a route hold into the table of traffic, if the route has a limit.
    fn report_held(&self, route: u16) {
        if let Some(RouteShare { held, .. }) = self.share(route) {
            let bytes = (held.queues + held.pending) as u64;
            self.traffic
                .set(Row::of_route(route), Tally::HeldBytes, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::holders::UNCOUNTED_MAX;

    const MIB: usize = 1 << 20;

    fn share(queues: usize, pending: usize) -> RouteShare {
        RouteShare {
            queues_max: MIB,
            pending_max: MIB,
            held: OfRoute { queues, pending },
        }
    }

    #[test]
    fn a_share_is_divided_as_the_whole_is() {
        let empty = share(0, 0);
        assert_eq!(empty.queue_max(), MIB / 4 * 3 / 8);
        assert!(empty.can_hold(MIB) && !empty.is_half_held());
        let full = share(MIB, MIB);
        assert_eq!(
            (full.queue_max(), full.moving_queue_max()),
            (UNCOUNTED_MAX, UNCOUNTED_MAX)
        );
        assert!(!full.can_hold(1) && full.is_half_held());
        // What is reserved for queues that move.
        let nearly = share(MIB - MIB / 4, 0);
        assert_eq!(nearly.queue_max(), UNCOUNTED_MAX);
        assert!(nearly.moving_queue_max() >= RECORD_MAX);
        assert!(share(0, MIB / 2 + 1).is_half_held());
    }
}
