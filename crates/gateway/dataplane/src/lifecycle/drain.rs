//! A drain: closes connections evenly over a given time.
//!
//! A drain closes as many connections as it takes for their number to fall in a straight line to zero.
//! Connections that close by themselves count, so the clients that reconnect elsewhere arrive at an
//! even rate. The line is the drain's only state: after a crash, main orders the rest of it. To choose
//! connections, the drain searches all slots for many at once. A turn of the worker looks at some slots and closes some
//! connections, so other connections do not wait long, however many there are.
//!
//! A connection with TLS to its backend is two slots, and counts as two. The drain ends the backend's; then both count as
//! closed. The client's follows when its client has had a second to close.

use crate::close_reason::CloseReason;
use crate::established::Connections;
use crate::established::close;
use crate::established::step::Event;
use crate::io::Io;
use crate::settings::Settings;
use crate::workspace::Workspace;
use dormouse_handover::control::DrainOrder;
use dormouse_handover::slot::{Phase, Slot};
use std::collections::BinaryHeap;

/// Interval of the drain's steps.
const STEP_MS: u64 = 100;
/// Maximum connections closed by one turn, which takes some milliseconds.
const CLOSED_PER_TURN: usize = 64;
/// Slots looked at by one turn, by each kind of search.
const LOOKS_PER_TURN: usize = 1024;
/// Candidates that one search collects: at least this many, and at least this fraction of all.
const CANDIDATES_MIN: usize = 1024;
const CANDIDATES_PART: usize = 64;
/// Interval of the search for clients' halves whose backend's half has ended.
const LOOK_MS: u64 = 1_000;
/// Time after the drain in which a half of a connection with TLS to its backend may wait for the other half.
const LATE_MS: u64 = 5_000;

/// A straight line from the initial number of connections to zero.
pub(crate) struct Drain {
    begun_ms: u64,
    over_ms: u64,
    at_beginning: u32,
    order: DrainOrder,
    next_ms: u64,
    /// Time of the next search for halves.
    look_ms: u64,
    /// The slot at which the search for halves continues.
    look_from: Option<u32>,
    /// Connections to close next; the next one is the last element.
    candidates: Vec<Candidate>,
    /// The search for the next candidates.
    search: Option<Search>,
    /// Whether none of the last candidates could be closed so far.
    is_in_vain: bool,
}

/// A search of all slots for the connections to close first, some slots per turn.
struct Search {
    /// The slot at which it continues.
    from: u32,
    /// How many are wanted.
    most: usize,
    /// The candidate to close last is on top of the heap, and gives way to a better one.
    best: BinaryHeap<Candidate>,
}

/// A connection to close, ordered by its rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Candidate {
    /// The smallest rank is closed first.
    rank: u32,
    index: u32,
    generation: u32,
}

impl Drain {
    /// Creates a drain that begins now; `at_beginning` counts connections and handshakes.
    pub(crate) fn new(now_ms: u64, over_ms: u64, order: DrainOrder, at_beginning: u32) -> Drain {
        Drain {
            begun_ms: now_ms,
            over_ms,
            at_beginning,
            order,
            next_ms: now_ms,
            look_ms: now_ms,
            look_from: None,
            candidates: Vec::new(),
            search: None,
            is_in_vain: false,
        }
    }

    /// Time of the next step.
    pub(crate) fn next_deadline_ms(&self) -> u64 {
        self.next_ms
    }

    /// Closes connections down to the line.
    pub(crate) fn turn<I: Io>(
        &mut self,
        connections: &mut Connections,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        if self.next_ms > work.now_ms {
            return;
        }
        let may_be_left = self.may_be_left(work.now_ms);
        let leaving =
            connections.draining() + connections.half_ended() + connections.closing_later();
        let staying = connections.live().saturating_sub(leaving);
        let excess = staying.saturating_sub(may_be_left) as usize;
        let most = excess.min(CLOSED_PER_TURN);
        let mut closed = self.close_some(most, connections, settings, work);
        let mut is_behind = false;
        if closed < most {
            is_behind = self.search_some(connections, work.now_ms);
            closed += self.close_some(most - closed, connections, settings, work);
        }
        is_behind |= closed >= CLOSED_PER_TURN && closed < excess;
        is_behind |= self.end_other_halves(connections, settings, work);
        let wait_ms = if is_behind { 0 } else { STEP_MS };
        self.next_ms = work.now_ms + wait_ms;
    }

    /// Closes about this number of candidates, as long as there are some. Returns how many.
    fn close_some<I: Io>(
        &mut self,
        most: usize,
        connections: &mut Connections,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) -> usize {
        let mut closed = 0;
        while closed < most
            && let Some(index) = self.next_candidate(connections, work.now_ms)
        {
            self.is_in_vain = false;
            let slot = connections.slots().get(index);
            closed += if slot.is_some_and(|slot| slot.is_joined()) {
                2
            } else {
                1
            };
            let close = Event::Close(CloseReason::Drained);
            connections.step(index, close, settings, work);
        }
        closed
    }

    /// Closes some of the halves of connections whose other half has ended. Returns whether the next turn must go on.
    fn end_other_halves<I: Io>(
        &mut self,
        connections: &mut Connections,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) -> bool {
        if self.look_from.is_none() {
            if connections.half_ended() == 0 || self.look_ms > work.now_ms {
                return false;
            }
            self.look_from = Some(0);
            self.look_ms = work.now_ms + LOOK_MS;
        }
        let is_over = self.may_be_left(work.now_ms) == 0;
        let is_late = self.is_late(work.now_ms);
        let now_s = work.now_s();
        let is_due = |slot: &Slot| {
            let is_quiet = slot.at_rest() && slot.active_s < now_s;
            let may_end = !close::awaits_other_half(slot) && (is_quiet || is_over);
            close::is_half_ended(slot) && (may_end || is_late)
        };
        let mut closed = 0;
        for _ in 0..LOOKS_PER_TURN {
            let next = self
                .look_from
                .and_then(|from| connections.slots().next_live(from));
            self.look_from = next.map(|index| index + 1);
            let Some(index) = next else {
                return false;
            };
            if is_due(connections.slots().at(index)) {
                let close = Event::Close(CloseReason::Drained);
                connections.step(index, close, settings, work);
                closed += 1;
            }
            if closed == CLOSED_PER_TURN {
                break;
            }
        }
        true
    }

    /// The number of connections on the line at this time.
    fn may_be_left(&self, now_ms: u64) -> u32 {
        let left_ms = (self.begun_ms + self.over_ms).saturating_sub(now_ms);
        let share = u64::from(self.at_beginning) * left_ms;
        share.div_ceil(self.over_ms.max(1)) as u32
    }

    /// The rank of a connection by the time of its last activity.
    fn rank(&self, active_s: u32) -> u32 {
        match self.order {
            DrainOrder::Longest => active_s,
            DrainOrder::Shortest => u32::MAX - active_s,
        }
    }

    /// Whether halves of connections do not wait for their other half any more.
    fn is_late(&self, now_ms: u64) -> bool {
        self.begun_ms + self.over_ms + LATE_MS <= now_ms
    }

    fn next_candidate(&mut self, connections: &Connections, now_ms: u64) -> Option<u32> {
        let is_late = self.is_late(now_ms);
        while let Some(candidate) = self.candidates.pop() {
            // It may have closed since the search.
            let Some(slot) = connections.slots().get(candidate.index) else {
                continue;
            };
            // A connection that was active since the search has another rank now.
            let is_current = slot.generation == candidate.generation
                && self.rank(slot.active_s) == candidate.rank;
            // One that is woken has been chosen, or will be chosen when it is awake.
            let must_wait = close::awaits_other_half(slot) && !is_late
                || close::is_half_ended(slot)
                || slot.is_wanted();
            if is_current && slot.phase() != Phase::Draining && !must_wait {
                return Some(candidate.index);
            }
        }
        None
    }

    /// Looks at some slots for the connections to close first. After the drain's time, connections with pending bytes are
    /// also closed; their bytes are delivered within `drain_timeout`. Returns whether the next turn must go on.
    fn search_some(&mut self, connections: &Connections, now_ms: u64) -> bool {
        if self.search.is_none() && std::mem::take(&mut self.is_in_vain) {
            // Not again before the next step.
            return false;
        }
        let slots = connections.slots();
        let (is_over, is_late) = (self.may_be_left(now_ms) == 0, self.is_late(now_ms));
        let Search {
            mut from,
            most,
            mut best,
        } = (self.search.take()).unwrap_or_else(|| Search::among(slots.live()));
        for _ in 0..LOOKS_PER_TURN {
            let Some(index) = slots.next_live(from) else {
                self.candidates = best.into_sorted_vec();
                self.candidates.reverse();
                self.is_in_vain = !self.candidates.is_empty();
                return self.is_in_vain;
            };
            from = index + 1;
            let slot = slots.at(index);
            if may_be_closed(slot, is_over, is_late) {
                let candidate = Candidate {
                    rank: self.rank(slot.active_s),
                    index,
                    generation: slot.generation,
                };
                keep_better(&mut best, most, candidate);
            }
        }
        self.search = Some(Search { from, most, best });
        true
    }
}

impl Search {
    /// A search among this many connections.
    fn among(live: u32) -> Search {
        Search {
            from: 0,
            most: CANDIDATES_MIN.max(live as usize / CANDIDATES_PART),
            best: BinaryHeap::new(),
        }
    }
}

/// Whether a drain may close a connection. `is_over`: its time has passed; `is_late`: so long ago that halves do not wait.
fn may_be_closed(slot: &Slot, is_over: bool, is_late: bool) -> bool {
    match slot.phase() {
        _ if slot.is_wanted() => false,
        // A PROXY header for the backend may wait with the client; it is not needed any more.
        Phase::Connecting => slot.awaits_client() || is_over,
        Phase::Established if close::is_half_ended(slot) => false,
        Phase::Established if close::awaits_other_half(slot) => is_late,
        Phase::Established => slot.at_rest() || is_over,
        Phase::Warm => true,
        Phase::Draining | Phase::Free => false,
    }
}

/// Keeps the `most` smallest candidates. Most of the others cost one comparison.
fn keep_better(best: &mut BinaryHeap<Candidate>, most: usize, candidate: Candidate) {
    if best.len() < most {
        best.push(candidate);
    } else if let Some(mut last) = best.peek_mut()
        && candidate < *last
    {
        *last = candidate;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(order: DrainOrder) -> Drain {
        Drain {
            begun_ms: 1_000,
            over_ms: 600_000,
            at_beginning: 6_000,
            order,
            next_ms: 0,
            look_ms: 0,
            look_from: None,
            candidates: Vec::new(),
            search: None,
            is_in_vain: false,
        }
    }

    #[test]
    fn the_number_of_connections_falls_in_a_straight_line() {
        let drain = drain(DrainOrder::Longest);
        assert_eq!(drain.may_be_left(1_000), 6_000);
        let mut closed_by_step = Vec::new();
        for step in 0..600 {
            let now_ms = 1_000 + step * 1_000;
            closed_by_step.push(drain.may_be_left(now_ms) - drain.may_be_left(now_ms + 1_000));
        }
        assert_eq!(closed_by_step, vec![10; 600]);
        assert_eq!(drain.may_be_left(601_000), 0);
        assert_eq!(drain.may_be_left(u64::MAX), 0);
    }

    #[test]
    fn few_connections_are_spread_evenly() {
        let few = Drain {
            at_beginning: 3,
            ..drain(DrainOrder::Longest)
        };
        let left: Vec<u32> = [0, 199_999, 200_000, 399_999, 400_000, 599_999, 600_000]
            .map(|passed_ms| few.may_be_left(1_000 + passed_ms))
            .to_vec();
        assert_eq!(left, [3, 3, 2, 2, 1, 1, 0]);
    }

    #[test]
    fn a_search_keeps_the_candidates_to_close_first() {
        let of_rank = |rank| Candidate {
            rank,
            index: 0,
            generation: 0,
        };
        let mut best = BinaryHeap::new();
        for rank in [5, 9, 1, 7, 3, 3, 8] {
            keep_better(&mut best, 3, of_rank(rank));
        }
        assert_eq!(best.into_sorted_vec(), [1, 3, 3].map(of_rank));
    }

    #[test]
    fn the_rank_follows_the_idle_time() {
        let longest = drain(DrainOrder::Longest);
        assert!(longest.rank(10) < longest.rank(20));
        let shortest = drain(DrainOrder::Shortest);
        assert!(shortest.rank(20) < shortest.rank(10));
    }
}
