//! The bound on connections that have sockets (`max_awake`), and the choice of those that rest before their time.
//!
//! A connection has a *place* while any of its sides has a socket, so one of which only a side rests may always wake.
//! Packets wake connections in another process, which must not ask first. So some places are promised to it: it may
//! wake connections up to a number, and gets the next promise when it has used a part of the last one. New clients find
//! a place only beside those, so they cannot keep resting connections from waking.
//!
//! A route with `route_memory_share` has a part of the places. When few of them are free, connections of this route go to
//! rest as below, and when none is, it gets no new ones. Packets wake its connections all the same: to refuse them would
//! break connections.
//!
//! When few places are free, a hand goes round the connections that have one, and those that are quiet go to rest. At
//! first they must have been quiet for some seconds; with each round that finds none, for half of that.

use dormouse_config::share_of;
use std::collections::{HashMap, HashSet};

/// The part of all places that is promised to packets, and the part that is kept free.
const PART: usize = 8;

/// Maximum promise. More do not wake between two messages.
const PROMISE_MAX: usize = 256;

/// Longest time for which a connection must have been quiet when few places are free.
const PATIENCE_MAX_S: u32 = 8;

/// Connections that the hand passes in a turn.
const LOOKS_PER_TURN: usize = 256;

/// Time between two turns of the hand, and after a round that found none to rest.
const TURN_MS: u64 = 5;
const ROUND_MS: u64 = 20;

/// Time without a shortage after which patience doubles.
const CALM_MS: u64 = 1_000;

/// The connections of a worker that have places.
#[derive(Debug)]
pub(crate) struct Places {
    most: usize,
    /// Their slots, in any order.
    all: Vec<u32>,
    /// Where in `all` a slot is, and its route.
    at: HashMap<u32, (u32, u16)>,
    /// Of routes with a share, by their numbers.
    shares: HashMap<u16, PlacesOfRoute>,
    /// Those of them that should have more free places. Each turn asks, and thousands of routes may have a share.
    short: HashSet<u16>,
    /// Sockets of handshakes in flight, which become connections.
    handshakes: usize,
    /// Connections that have woken since the exchange with the repair process.
    woken: u32,
    /// The number up to which packets may wake connections.
    promised: u32,
    /// Whether there has been such an exchange.
    is_known: bool,
    hand: Hand,
}

/// The share of a route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShareOfPlaces {
    pub(crate) route: u16,
    pub(crate) percent: u32,
    /// Whether its connections may go to rest.
    pub(crate) may_rest: bool,
}

/// The places of a route.
#[derive(Debug)]
struct PlacesOfRoute {
    most: usize,
    taken: usize,
    may_rest: bool,
}

impl PlacesOfRoute {
    /// How many of its connections should go to rest.
    fn missing(&self) -> usize {
        match self.may_rest {
            true => missing(self.most, self.most.saturating_sub(self.taken)),
            // The hand would go round for nothing, and grow impatient with those of other routes.
            false => 0,
        }
    }
}

/// How many of `most` places should become free, if so many are.
fn missing(most: usize, free: usize) -> usize {
    (most / PART).max(1).saturating_sub(free)
}

/// The choice of connections that rest before their time.
#[derive(Debug)]
struct Hand {
    at: usize,
    /// Connections passed in this round, and how many of them went to rest.
    looked: usize,
    found: usize,
    round: u32,
    patience_s: u32,
    /// When patience has changed, or places were short.
    changed_ms: u64,
    next_ms: u64,
}

impl Places {
    /// Places for this many connections.
    pub(crate) fn new(most: u32) -> Places {
        Places {
            most: most as usize,
            all: Vec::new(),
            at: HashMap::new(),
            shares: HashMap::new(),
            short: HashSet::new(),
            handshakes: 0,
            woken: 0,
            promised: 0,
            is_known: false,
            hand: Hand {
                at: 0,
                looked: 0,
                found: 0,
                round: 0,
                patience_s: PATIENCE_MAX_S,
                changed_ms: 0,
                next_ms: 0,
            },
        }
    }

    /// Changes the number of places.
    pub(crate) fn limit_to(&mut self, most: u32) {
        self.most = most as usize;
    }

    /// Changes the shares of routes.
    pub(crate) fn follow_shares(&mut self, shares: impl Iterator<Item = ShareOfPlaces>) {
        let most = self.most as u64;
        let shares = shares.map(|share| {
            let of_route = PlacesOfRoute {
                most: share_of(most, share.percent) as usize,
                taken: 0,
                may_rest: share.may_rest,
            };
            (share.route, of_route)
        });
        self.shares = shares.collect();
        for (_, route) in self.at.values() {
            if let Some(of_route) = self.shares.get_mut(route) {
                of_route.taken += 1;
            }
        }
        let short = self.shares.iter().filter(|(_, one)| one.missing() > 0);
        self.short = short.map(|(route, _)| *route).collect();
    }

    /// Changes the number of places that a route has, if it has a share.
    fn count(&mut self, route: u16, change: impl FnOnce(usize) -> usize) {
        if let Some(of_route) = self.shares.get_mut(&route) {
            of_route.taken = change(of_route.taken);
            match of_route.missing() > 0 {
                true => self.short.insert(route),
                false => self.short.remove(&route),
            };
        }
    }

    /// Whether a route may have another place beside those that its connections have. `own`: the number of those that do not
    /// count.
    pub(crate) fn has_place_for(&self, route: u16, own: usize) -> bool {
        let of_route = self.shares.get(&route);
        of_route.is_none_or(|of_route| of_route.taken < of_route.most + own)
    }

    /// Notes the number of handshakes in flight.
    pub(crate) fn note_handshakes(&mut self, handshakes: usize) {
        self.handshakes = handshakes;
    }

    /// The number of connections that have a place.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The number of connections that have a place or are promised one.
    pub(crate) fn taken(&self) -> usize {
        self.all.len() + self.outstanding()
    }

    fn free(&self) -> usize {
        self.most.saturating_sub(self.taken() + self.handshakes)
    }

    fn outstanding(&self) -> usize {
        usize::try_from(self.promised.wrapping_sub(self.woken) as i32).unwrap_or(0)
    }

    /// The slots that have a place, in any order.
    pub(crate) fn all(&self) -> &[u32] {
        &self.all
    }

    /// Whether a slot has a place.
    pub(crate) fn has(&self, index: u32) -> bool {
        self.at.contains_key(&index)
    }

    /// Gives a slot a place, if one is free or it has one.
    pub(crate) fn try_enter(&mut self, index: u32, route: u16) -> bool {
        let may_enter = self.has(index) || self.free() > 0;
        if may_enter {
            self.enter(index, route);
        }
        may_enter
    }

    /// Notes that a connection has a place.
    pub(crate) fn enter(&mut self, index: u32, route: u16) {
        let next = self.all.len() as u32;
        let (place, _) = *self.at.entry(index).or_insert((next, route));
        if place == next {
            self.all.push(index);
            self.count(route, |taken| taken + 1);
        }
    }

    /// Takes the place of a connection that rests or has ended.
    pub(crate) fn leave(&mut self, index: u32) {
        let Some((place, route)) = self.at.remove(&index) else {
            return;
        };
        self.all.swap_remove(place as usize);
        let moved = self.all.get(place as usize);
        if let Some((at, _)) = moved.and_then(|moved| self.at.get_mut(moved)) {
            *at = place;
        }
        self.count(route, |taken| taken.saturating_sub(1));
        if self.all.len() < self.all.capacity() / 4 {
            self.all.shrink_to_fit();
            self.at.shrink_to_fit();
        }
    }

    /// Updates the index of a moved slot.
    pub(crate) fn moved(&mut self, from: u32, to: u32) {
        if let Some((place, route)) = self.at.remove(&from) {
            self.at.insert(to, (place, route));
            if let Some(index) = self.all.get_mut(place as usize) {
                *index = to;
            }
        }
    }

    // ---- promises ----

    /// Notes that one of both processes is new: the promise is void, and nothing wakes by a packet before the next one.
    pub(crate) fn forget_promise(&mut self) {
        (self.woken, self.promised, self.is_known) = (0, 0, false);
    }

    /// Notes that the repair process waits for a promise. It has counted no wake since.
    pub(crate) fn begin_promises(&mut self) {
        (self.woken, self.promised, self.is_known) = (0, 0, true);
    }

    /// Notes that a connection has woken.
    pub(crate) fn note_woken(&mut self) {
        self.woken = self.woken.wrapping_add(1);
    }

    /// Returns the next promise, if it is time for one.
    pub(crate) fn next_promise(&mut self) -> Option<u32> {
        let wanted = (self.most / PART).clamp(1, PROMISE_MAX);
        let outstanding = self.outstanding();
        if !self.is_known || outstanding > wanted / 2 {
            return None;
        }
        let more = (wanted - outstanding).min(self.free());
        if more == 0 {
            return None;
        }
        // What was woken on request beyond the last promise is not part of this one.
        let from = match outstanding {
            0 => self.woken,
            _ => self.promised,
        };
        self.promised = from.wrapping_add(more as u32);
        Some(self.promised)
    }

    // ---- rest before its time ----

    /// Returns how many connections should go to rest, of which `leaving` are about to.
    fn missing(&self, leaving: usize) -> usize {
        let of_all = missing(self.most, self.free() + leaving);
        let short = self.short.iter().filter_map(|route| self.shares.get(route));
        let of_routes = short.map(PlacesOfRoute::missing).max();
        of_all.max(of_routes.unwrap_or(0).saturating_sub(leaving))
    }

    /// Whether a connection may be one that should rest: any one while few places are free, and one of a route while few of
    /// this route are.
    fn is_asked(&self, index: u32, leaving: usize) -> bool {
        if missing(self.most, self.free() + leaving) > 0 {
            return true;
        }
        let place = self.at.get(&index);
        place.is_some_and(|(_, route)| self.short.contains(route))
    }

    /// When the hand moves next, if it must.
    pub(crate) fn next_deadline_ms(&self, leaving: usize) -> Option<u64> {
        (self.missing(leaving) > 0 && !self.all.is_empty()).then_some(self.hand.next_ms)
    }

    /// Returns connections of which those that are quiet for [`Places::patience_s`] should rest, and how many should.
    pub(crate) fn candidates(&mut self, leaving: usize, now_ms: u64) -> (Vec<u32>, usize) {
        let missing = self.missing(leaving);
        let hand = &mut self.hand;
        if missing == 0 || self.all.is_empty() {
            if now_ms >= hand.changed_ms + CALM_MS {
                hand.patience_s = (2 * hand.patience_s).clamp(1, PATIENCE_MAX_S);
                hand.changed_ms = now_ms;
            }
            return (Vec::new(), 0);
        }
        hand.changed_ms = now_ms;
        if now_ms < hand.next_ms {
            return (Vec::new(), 0);
        }
        hand.next_ms = now_ms + TURN_MS;
        if hand.looked >= self.all.len() {
            if hand.found == 0 {
                hand.patience_s /= 2;
                hand.next_ms = now_ms + ROUND_MS;
            }
            (hand.looked, hand.found) = (0, 0);
            hand.round = hand.round.wrapping_add(1);
        }
        let count = LOOKS_PER_TURN.min(self.all.len());
        let from = hand.at;
        hand.at = (from + count) % self.all.len();
        hand.looked += count;
        let candidates = (from..from + count).map(|place| self.all[place % self.all.len()]);
        let candidates = candidates.filter(|index| self.is_asked(*index, leaving));
        (candidates.collect(), missing)
    }

    /// For how long a connection must have been quiet.
    pub(crate) fn patience_s(&self) -> u32 {
        self.hand.patience_s
    }

    /// Whether a connection with this many attempts to rest is tried in this round: half as often with each.
    pub(crate) fn is_tried(&self, attempts: u8) -> bool {
        self.hand.round & ((1 << attempts.min(7)) - 1) == 0
    }

    /// Notes that the hand has found a connection that goes to rest.
    pub(crate) fn note_found(&mut self) {
        self.hand.found += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares<const N: usize>(shares: [(u16, u32); N]) -> impl Iterator<Item = ShareOfPlaces> {
        shares.into_iter().map(|(route, percent)| ShareOfPlaces {
            route,
            percent,
            may_rest: true,
        })
    }

    #[test]
    fn places_are_found_by_slot() {
        let mut places = Places::new(100);
        (0..50).for_each(|index| places.enter(3 * index, 0));
        places.enter(3, 0);
        assert_eq!(places.len(), 50);
        places.moved(0, 1_000);
        assert!(places.has(1_000) && !places.has(0));
        (0..25).for_each(|index| places.leave(6 * index));
        places.leave(1_000);
        places.leave(7);
        assert_eq!(places.len(), 25);
        for index in 0..25 {
            assert!(places.has(6 * index + 3));
            places.leave(6 * index + 3);
        }
        assert_eq!((places.len(), places.at.len()), (0, 0));
    }

    /// A route with a share has its own bound, and only its connections rest for it.
    #[test]
    fn a_route_has_its_share_of_the_places() {
        let mut places = Places::new(1_000);
        (0..5).for_each(|index| places.enter(index, 7));
        places.follow_shares(shares([(7, 10), (9, 0)]));
        (5..87).for_each(|index| places.enter(index, 7));
        (200..500).for_each(|index| places.enter(index, 8));
        assert_eq!(places.next_deadline_ms(0), None);
        (87..100).for_each(|index| {
            assert!(places.has_place_for(7, 0));
            places.enter(index, 7);
        });
        assert!(!places.has_place_for(7, 0) && places.has_place_for(7, 1));
        assert!(places.has_place_for(8, 0) && places.has_place_for(9, 0));
        let (mut now_ms, mut asked) = (0, Vec::new());
        for _ in 0..2 {
            let (candidates, missing) = places.candidates(0, now_ms);
            assert_eq!(missing, 12);
            asked.extend(candidates);
            now_ms = places.next_deadline_ms(0).expect("few are free");
        }
        asked.sort_unstable();
        asked.dedup();
        assert_eq!(asked, (0..100).collect::<Vec<_>>());
        places.moved(0, 700);
        (1..13).for_each(|index| places.leave(index));
        assert_eq!(places.next_deadline_ms(0), None, "enough are free");
        places.leave(700);
        places.follow_shares(shares([(7, 1)]));
        assert!(!places.has_place_for(7, 0), "87 of 10");
    }

    /// The connections of such a route keep their places. The hand does not look for others to rest, again and again.
    #[test]
    fn a_share_of_connections_that_never_rest_moves_no_hand() {
        let mut places = Places::new(1_000);
        let share = shares([(7, 10)]).map(|share| ShareOfPlaces {
            may_rest: false,
            ..share
        });
        places.follow_shares(share);
        (0..100).for_each(|index| places.enter(index, 7));
        (100..200).for_each(|index| places.enter(index, 8));
        assert!(!places.has_place_for(7, 0) && places.has_place_for(8, 0));
        assert_eq!(places.next_deadline_ms(0), None);
        assert_eq!(places.candidates(0, 0), (Vec::new(), 0));
    }

    /// The sum of places and promises stays within the bound, whoever wakes connections.
    #[test]
    fn promises_are_places() {
        let mut places = Places::new(80);
        assert_eq!(places.next_promise(), None, "before the exchange");
        places.begin_promises();
        assert_eq!(places.next_promise(), Some(10));
        assert_eq!((places.taken(), places.next_promise()), (10, None));
        let mut index = 0;
        while places.try_enter(index, 0) {
            index += 1;
        }
        assert_eq!((places.len(), places.taken()), (70, 80));
        // Packets wake six; there is no room for another promise.
        for index in 100..106 {
            places.note_woken();
            places.enter(index, 0);
        }
        assert_eq!((places.taken(), places.next_promise()), (80, None));
        // When some rest, packets come first.
        (0..3).for_each(|index| places.leave(index));
        assert_eq!(places.next_promise(), Some(13));
        assert_eq!(places.taken(), 80);
        // Handshakes have sockets, too.
        places.leave(3);
        places.note_handshakes(1);
        assert!(!places.try_enter(500, 0) && places.try_enter(5, 0));
        places.note_handshakes(0);
        assert!(places.try_enter(500, 0));
        // Those that were woken on request use up the promise, although they have places.
        (0..20).for_each(|_| places.note_woken());
        assert_eq!(places.taken(), 73);
        assert_eq!(places.next_promise(), Some(26 + 7));
        places.forget_promise();
        assert_eq!((places.taken(), places.next_promise()), (73, None));
        // What comes before the answer was counted before it.
        places.note_woken();
        places.begin_promises();
        assert_eq!(places.next_promise(), Some(7));
    }

    #[test]
    fn the_hand_passes_all_and_grows_impatient() {
        let mut places = Places::new(1_000);
        (0..800).for_each(|index| places.enter(index, 0));
        assert_eq!(places.candidates(0, 0), (Vec::new(), 0), "enough are free");
        (800..1_000).for_each(|index| places.enter(index, 0));
        let (mut now_ms, mut seen) = (0, Vec::new());
        while places.patience_s() == PATIENCE_MAX_S {
            now_ms = places.next_deadline_ms(0).expect("none is free");
            let (candidates, missing) = places.candidates(0, now_ms);
            assert_eq!(missing, 125);
            seen.extend(candidates);
        }
        let mut first: Vec<u32> = seen[..1_000].to_vec();
        first.sort_unstable();
        assert!(first.into_iter().eq(0..1_000));
        // With many attempts, a connection is tried in few rounds.
        let tried = |attempts| {
            let mut places = Places::new(10);
            places.enter(1, 0);
            (0..128)
                .filter(|round| {
                    places.hand.round = *round;
                    places.is_tried(attempts)
                })
                .count()
        };
        assert_eq!([tried(0), tried(1), tried(3), tried(9)], [128, 64, 16, 1]);
        // When enough are free for a while, it is patient again.
        while places.patience_s() > 0 {
            now_ms = places.next_deadline_ms(0).expect("none is free");
            places.candidates(0, now_ms);
        }
        assert_eq!(places.next_deadline_ms(125), None);
        let calm = [500, 1_000, 1_500, 2_000, 3_000, 4_000, 5_000].map(|later_ms| {
            places.candidates(125, now_ms + later_ms);
            places.patience_s()
        });
        assert_eq!(calm, [0, 1, 1, 2, 4, 8, 8]);
    }
}
