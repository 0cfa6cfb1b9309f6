//! Timers: one per slot, without memory of their own.
//!
//! A hashed wheel with ticks of 100 ms. A bucket is a doubly linked list whose links are in the slots
//! ([`Timer`]), so that arming and cancelling take constant time and no allocation. Time is an argument:
//! milliseconds of boot time ([`crate::process::boottime_ms`]), which continues over an exec and is the same
//! for all processes. Invariants:
//!
//! - A timer never fires early; it fires at the first [`Wheel::expired`] at or after the end of the tick in
//!   which it is due.
//! - An armed timer is in exactly one list. **Cancel it before its slot is freed or moved.**
//! - The list heads are in the heap. After a crash the next worker clears the links and arms the timers again.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::slab::{Slab, Slot};
use std::cell::Cell;

/// Length of a tick.
const TICK_MS: u64 = 100;
/// Number of buckets. A round takes about seven minutes; later timers stay in their bucket for several rounds.
const BUCKETS: usize = 4096;
/// Timers of later rounds that one call passes in a bucket. Those of a million connections may be in the same one.
const PASSED_PER_CALL: usize = 256;

/// The links of a timer in a slot. All-zero: not armed.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Timer {
    /// Index of the next timer in the list, plus one.
    next: u32,
    /// Index of the previous timer, plus one; 0 for the first.
    previous: u32,
    /// The tick in which it fires (never 0); 0 if not armed.
    due_tick: u32,
}

impl Timer {
    /// Whether it is armed.
    fn is_armed(&self) -> bool {
        self.due_tick != 0
    }

    /// Returns when it is due, in milliseconds of boot time, rounded up to a tick.
    pub fn due_ms(&self) -> Option<u64> {
        self.is_armed().then(|| u64::from(self.due_tick) * TICK_MS)
    }
}

/// A collection of timers by index.
pub trait Timers {
    /// Returns the timer of this index; `None` if there is no such slot.
    fn timer(&self, index: u32) -> Option<&Timer>;
    /// Returns the timer for changes.
    fn timer_mut(&mut self, index: u32) -> Option<&mut Timer>;
}

/// A slot with a timer.
pub trait Timed {
    /// Returns the timer.
    fn timer(&self) -> &Timer;
    /// Returns the timer for changes.
    fn timer_mut(&mut self) -> &mut Timer;
}

impl<T: Slot + Timed> Timers for Slab<T> {
    fn timer(&self, index: u32) -> Option<&Timer> {
        self.get(index).map(Timed::timer)
    }

    fn timer_mut(&mut self, index: u32) -> Option<&mut Timer> {
        self.get_mut(index).map(Timed::timer_mut)
    }
}

/// The wheel: the list heads and the time.
#[derive(Debug)]
pub struct Wheel {
    buckets: Vec<Bucket>,
    /// One bit per bucket that is not empty.
    occupied: Vec<u64>,
    /// List of timers that have fired and wait to be fetched.
    fired: u32,
    /// Index of the next timer to look at in the current tick's bucket, plus one; 0: the end.
    looks_at: u32,
    /// The last tick whose timers have fired.
    tick: u32,
    /// A tick before which no timer is due; not known if that is not after `tick`. Each turn asks for it, and thousands of
    /// buckets may have only timers of later rounds.
    earliest: Cell<u32>,
    armed: u32,
}

#[derive(Clone, Debug, Default)]
struct Bucket {
    first: u32,
    /// No timer in the bucket is due before this tick.
    earliest: u32,
    /// No timer in the bucket is due after this tick.
    latest: u32,
}

impl Wheel {
    /// Creates a wheel at the time `now_ms`.
    pub fn new(now_ms: u64) -> Wheel {
        Wheel::with_buckets(now_ms, BUCKETS)
    }

    /// Creates a wheel with this number of buckets, rounded up to a power of two (at least 64).
    fn with_buckets(now_ms: u64, buckets: usize) -> Wheel {
        let buckets = buckets.next_power_of_two().max(64);
        Wheel {
            buckets: vec![Bucket::default(); buckets],
            occupied: vec![0; buckets / 64],
            fired: 0,
            looks_at: 0,
            tick: tick_of(now_ms),
            earliest: Cell::new(0),
            armed: 0,
        }
    }

    /// Returns the number of armed timers.
    pub fn armed(&self) -> u32 {
        self.armed
    }

    /// Arms a timer, or changes its time. A timer that is already due fires within a tick.
    pub fn arm(&mut self, timers: &mut impl Timers, index: u32, due_ms: u64) {
        self.cancel(timers, index);
        let due_tick = tick_of(due_ms.saturating_add(TICK_MS - 1)).max(self.tick + 1);
        let at = self.bucket_of(due_tick);
        let bucket = &mut self.buckets[at];
        (bucket.earliest, bucket.latest) = match bucket.first {
            0 => (due_tick, due_tick),
            _ => (bucket.earliest.min(due_tick), bucket.latest.max(due_tick)),
        };
        if push(timers, &mut bucket.first, index, due_tick) {
            self.occupied[at / 64] |= 1 << (at % 64);
            self.armed += 1;
            let earliest = self.earliest.get_mut();
            *earliest = due_tick.min(*earliest);
        }
    }

    /// Disarms a timer. No effect if it is not armed.
    pub fn cancel(&mut self, timers: &mut impl Timers, index: u32) {
        let Some(&timer) = timers.timer(index).filter(|timer| timer.is_armed()) else {
            return;
        };
        let at = self.bucket_of(timer.due_tick);
        if self.looks_at == index + 1 {
            self.looks_at = timer.next;
        }
        if self.fired == index + 1 {
            unlink(timers, &mut self.fired, index);
        } else {
            unlink(timers, &mut self.buckets[at].first, index);
        }
        self.armed -= 1;
        self.note_if_empty(at);
    }

    /// Disarms and returns a timer that is due at `now_ms`. While more may be due, [`Wheel::next_deadline`] is in the past:
    /// also after `None`, if a call has come to its end among many timers that are not. Timers may be armed and cancelled
    /// in between.
    pub fn expired(&mut self, now_ms: u64, timers: &mut impl Timers) -> Option<u32> {
        let now = tick_of(now_ms);
        let mut left = PASSED_PER_CALL;
        loop {
            if let Some(index) = self.fired.checked_sub(1) {
                unlink(timers, &mut self.fired, index);
                self.armed -= 1;
                return Some(index);
            }
            if self.looks_at != 0 {
                left = left.checked_sub(1)?;
                self.look_at_next(timers);
                continue;
            }
            if self.tick >= now {
                return None;
            }
            // After a long time, one round reaches every bucket.
            let round = self.buckets.len() as u32;
            self.tick = (self.tick + 1).max(now.saturating_sub(round - 1));
            self.fire_bucket();
        }
    }

    /// Returns a time before which no timer fires. It may be too early (after a timer was cancelled), never too
    /// late.
    pub fn next_deadline(&self) -> Option<u64> {
        if self.armed == 0 {
            return None;
        }
        if self.fired != 0 || self.looks_at != 0 {
            return Some(u64::from(self.tick) * TICK_MS);
        }
        if self.earliest.get() > self.tick {
            return Some(u64::from(self.earliest.get()) * TICK_MS);
        }
        let mut earliest = u32::MAX;
        let start = self.bucket_of(self.tick + 1);
        for at in self.occupied_from(start) {
            let due = self.buckets[at].earliest;
            let turn = (at.wrapping_sub(start) & (self.buckets.len() - 1)) as u32;
            earliest = earliest.min(due);
            if due <= self.tick + 1 + turn {
                // Due in this round, so all later buckets are due later.
                break;
            }
        }
        self.earliest.set(earliest);
        Some(u64::from(earliest) * TICK_MS)
    }

    /// Moves the timers of the current tick's bucket to the fired list, which is empty, or begins to look for the due ones.
    fn fire_bucket(&mut self) {
        let at = self.bucket_of(self.tick);
        let bucket = &mut self.buckets[at];
        if bucket.latest <= self.tick {
            // The timers of a million connections that began in the same second: the list is taken as it is.
            self.fired = std::mem::take(&mut bucket.first);
            return self.note_if_empty(at);
        }
        self.looks_at = bucket.first;
        (bucket.earliest, bucket.latest) = (u32::MAX, 0);
    }

    /// Moves the next timer of the current tick's bucket to the fired list, if it is due.
    fn look_at_next(&mut self, timers: &mut impl Timers) {
        let at = self.bucket_of(self.tick);
        let index = self.looks_at - 1;
        let timer = timers.timer(index).filter(|timer| timer.is_armed());
        debug_assert!(
            timer.is_some(),
            "slot {index} was freed with its timer armed"
        );
        // The rest of the list is lost then, but nothing hangs.
        let timer = timer.copied().unwrap_or_default();
        self.looks_at = timer.next;
        let bucket = &mut self.buckets[at];
        if timer.due_tick > self.tick {
            bucket.earliest = bucket.earliest.min(timer.due_tick);
            bucket.latest = bucket.latest.max(timer.due_tick);
        } else if timer.is_armed() {
            unlink(timers, &mut bucket.first, index);
            push(timers, &mut self.fired, index, timer.due_tick);
            self.note_if_empty(at);
        }
    }

    fn note_if_empty(&mut self, at: usize) {
        if self.buckets[at].first == 0 {
            self.occupied[at / 64] &= !(1 << (at % 64));
        }
    }

    fn bucket_of(&self, tick: u32) -> usize {
        tick as usize & (self.buckets.len() - 1)
    }

    /// Returns the non-empty buckets of one round, starting at `start`.
    fn occupied_from(&self, start: usize) -> impl Iterator<Item = usize> + '_ {
        let words = self.occupied.len();
        let (first_word, first_bit) = (start / 64, start % 64);
        // The first word is read twice: its upper part first, its lower part at the end.
        (0..=words).flat_map(move |step| {
            let word = (first_word + step) % words;
            let mask = match step {
                0 => !0 << first_bit,
                _ if step == words => !(!0 << first_bit),
                _ => !0,
            };
            bits(self.occupied[word] & mask).map(move |bit| word * 64 + bit)
        })
    }
}

fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}

/// 32 bits of ticks cover 13 years of uptime; later timers never fire.
fn tick_of(ms: u64) -> u32 {
    u32::try_from(ms / TICK_MS)
        .unwrap_or(u32::MAX)
        .min(u32::MAX - 1)
}

/// Inserts a timer at the front of a list. Returns false if there is no such slot.
fn push(timers: &mut impl Timers, first: &mut u32, index: u32, due_tick: u32) -> bool {
    let Some(timer) = timers.timer_mut(index) else {
        return false;
    };
    *timer = Timer {
        next: *first,
        previous: 0,
        due_tick,
    };
    if let Some(second) = first.checked_sub(1).and_then(|i| timers.timer_mut(i)) {
        second.previous = index + 1;
    }
    *first = index + 1;
    true
}

/// Removes a timer from its list, possibly from its front.
fn unlink(timers: &mut impl Timers, first: &mut u32, index: u32) {
    let Some(timer) = timers.timer_mut(index).map(std::mem::take) else {
        // Freed with its timer armed: the rest of the list is lost, but nothing hangs.
        debug_assert!(false, "slot {index} was freed with its timer armed");
        *first = 0;
        return;
    };
    match timer.previous.checked_sub(1) {
        None => *first = timer.next,
        Some(previous) => {
            if let Some(previous) = timers.timer_mut(previous) {
                previous.next = timer.next;
            }
        }
    }
    if let Some(next) = timer.next.checked_sub(1).and_then(|i| timers.timer_mut(i)) {
        next.previous = timer.previous;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    impl Timers for Vec<Timer> {
        fn timer(&self, index: u32) -> Option<&Timer> {
            self.as_slice().get(index as usize)
        }
        fn timer_mut(&mut self, index: u32) -> Option<&mut Timer> {
            self.as_mut_slice().get_mut(index as usize)
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Arm {
            index: u32,
            in_ms: u64,
        },
        Cancel {
            index: u32,
        },
        /// At most `most` of the due timers are fetched.
        Pass {
            ms: u64,
            most: usize,
            rearm: bool,
        },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let far = prop_oneof![0u64..300, 0u64..20_000, 0u64..2_000_000];
        let most = prop_oneof![3 => Just(usize::MAX), 1 => 0usize..4];
        let step = prop_oneof![
            8 => (0u32..40, far).prop_map(|(index, in_ms)| Step::Arm { index, in_ms }),
            3 => (0u32..40).prop_map(|index| Step::Cancel { index }),
            6 => (prop_oneof![0u64..250, 0u64..30_000, 0u64..3_000_000], most, any::<bool>())
                .prop_map(|(ms, most, rearm)| Step::Pass { ms, most, rearm }),
        ];
        prop::collection::vec(step, 1..200)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]
        /// The model: a map from index to the tick in which it fires.
        #[test]
        fn agrees_with_a_naive_model(start in 0u64..10_000_000_000, steps in steps()) {
            let mut now = start;
            let mut timers = vec![Timer::default(); 40];
            let mut wheel = Wheel::with_buckets(now, 64);
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            let due = |wheel: &Wheel, due: u64| {
                due.div_ceil(TICK_MS).max(u64::from(wheel.tick) + 1)
            };
            for step in steps {
                match step {
                    Step::Arm { index, in_ms } => {
                        model.insert(index, due(&wheel, now + in_ms));
                        wheel.arm(&mut timers, index, now + in_ms);
                    }
                    Step::Cancel { index } => {
                        wheel.cancel(&mut timers, index);
                        model.remove(&index);
                    }
                    Step::Pass { ms, most, rearm } => {
                        let deadline = wheel.next_deadline();
                        now += ms;
                        let mut fetched = 0;
                        while fetched < most {
                            let Some(index) = wheel.expired(now, &mut timers) else {
                                prop_assert!(model.values().all(|&tick| tick > now / TICK_MS));
                                break;
                            };
                            fetched += 1;
                            prop_assert!(!timers[index as usize].is_armed());
                            let tick = model.remove(&index);
                            prop_assert!(tick.is_some_and(|tick| tick <= now / TICK_MS));
                            prop_assert!(deadline.is_some_and(|ms| ms <= now));
                            if rearm && index % 3 == 0 {
                                model.insert(index, due(&wheel, now + 1000));
                                wheel.arm(&mut timers, index, now + 1000);
                            }
                            // A timer that may have fired too, but was not fetched yet.
                            wheel.cancel(&mut timers, index + 1);
                            model.remove(&(index + 1));
                        }
                    }
                }
                prop_assert_eq!(wheel.armed() as usize, model.len());
                for (index, timer) in timers.iter().enumerate() {
                    let expected = model.get(&(index as u32)).map(|tick| tick * TICK_MS);
                    prop_assert_eq!(timer.due_ms(), expected);
                }
                match (wheel.next_deadline(), model.values().min()) {
                    (Some(ms), Some(tick)) => prop_assert!(ms <= now.max(tick * TICK_MS)),
                    (deadline, none) => prop_assert!(deadline.is_none() && none.is_none()),
                }
            }
        }
    }

    /// Timers that count how many of them were changed, and how many looked at.
    struct Counted(Vec<Timer>, usize, Cell<usize>);

    impl Timers for Counted {
        fn timer(&self, index: u32) -> Option<&Timer> {
            self.2.set(self.2.get() + 1);
            self.0.timer(index)
        }
        fn timer_mut(&mut self, index: u32) -> Option<&mut Timer> {
            self.1 += 1;
            self.0.timer_mut(index)
        }
    }

    /// The caller bounds its work per turn by the number of timers that it fetches.
    #[test]
    fn the_first_of_many_due_timers_costs_as_much_as_any_other() {
        let mut timers = Counted(vec![Timer::default(); 10_000], 0, Cell::new(0));
        let mut wheel = Wheel::new(1_000_000);
        for index in 0..10_000 {
            wheel.arm(&mut timers, index, 1_060_000);
        }
        timers.1 = 0;
        for fetched in 1..=10_000 {
            assert!(wheel.expired(1_060_000, &mut timers).is_some());
            assert!(timers.1 <= 3 * fetched, "{} for {fetched}", timers.1);
        }
        assert_eq!(wheel.expired(1_060_000, &mut timers), None);
        assert_eq!(wheel.next_deadline(), None);
    }

    /// Ten thousand timers of the next round are in the bucket of some that are due. Others are cancelled and armed meanwhile.
    #[test]
    fn a_call_passes_few_timers_of_later_rounds() {
        const ROUND_MS: u64 = BUCKETS as u64 * TICK_MS;
        let mut timers = Counted(vec![Timer::default(); 10_200], 0, Cell::new(0));
        let mut wheel = Wheel::new(1_000_000);
        let due_ms = |index| match index % 1_000 {
            500 => 1_060_000,
            _ => 1_060_000 + ROUND_MS,
        };
        for index in 0..10_000 {
            wheel.arm(&mut timers, index, due_ms(index));
        }
        let (mut fetched, mut calls) = (Vec::new(), 0);
        while wheel.next_deadline().is_some_and(|ms| ms <= 1_060_000) {
            timers.2.set(0);
            fetched.extend(wheel.expired(1_060_000, &mut timers));
            assert!(timers.2.get() <= PASSED_PER_CALL + 1, "{}", timers.2.get());
            // The one that is looked at next, others, and new ones.
            let next = wheel.looks_at;
            next.checked_sub(1)
                .into_iter()
                .chain([calls, 9_999 - calls])
                .filter(|index| index % 1_000 != 500)
                .for_each(|index| wheel.cancel(&mut timers, index));
            wheel.arm(&mut timers, 10_000 + calls, 1_060_000 + ROUND_MS);
            calls += 1;
        }
        fetched.sort_unstable();
        let expected: Vec<u32> = (0..10).map(|n| 1_000 * n + 500).collect();
        assert_eq!(fetched, expected);
        assert!(calls >= 10_000 / PASSED_PER_CALL as u32 - 1);
        let left = wheel.armed();
        assert_eq!(
            wheel.expired(1_060_000 + ROUND_MS - TICK_MS, &mut timers),
            None
        );
        let last_ms = 1_060_000 + ROUND_MS;
        let rest = std::iter::from_fn(|| wheel.expired(last_ms, &mut timers));
        assert_eq!(rest.count() as u32, left);
        assert_eq!(wheel.next_deadline(), None);
    }

    #[test]
    fn the_deadline_is_exact_when_nothing_was_cancelled() {
        let mut timers = vec![Timer::default(); 3];
        let mut wheel = Wheel::new(1_000_000);
        wheel.arm(&mut timers, 0, 1_000_000 + 3_600_000);
        assert_eq!(wheel.next_deadline(), Some(4_600_000));
        wheel.arm(&mut timers, 1, 1_001_234);
        assert_eq!(wheel.next_deadline(), Some(1_001_300));
        assert_eq!(wheel.expired(1_001_299, &mut timers), None);
        assert_eq!(wheel.expired(1_001_300, &mut timers), Some(1));
        assert_eq!(wheel.next_deadline(), Some(4_600_000));
        assert_eq!(wheel.earliest.get(), 46_000, "not looked for again");
    }
}
