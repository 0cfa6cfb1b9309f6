//! The set of slots in use, in the heap: rebuilt from the slots, never adopted.

/// Slots per group. The pages of a group are returned together.
pub(super) const GROUP: u32 = 64;

/// One bit per slot, and one bit per full group, so that finding the lowest free slot takes only a few words.
#[derive(Debug)]
pub(super) struct Occupancy {
    capacity: u32,
    taken: Vec<u64>,
    full: Vec<u64>,
    /// No word of `full` below this one has a zero bit.
    first_open: usize,
    count: u32,
}

impl Occupancy {
    pub(super) fn new(capacity: u32) -> Occupancy {
        let groups = capacity.div_ceil(GROUP) as usize;
        let mut taken = vec![0; groups];
        if let (Some(last), rest @ 1..) = (taken.last_mut(), capacity % GROUP) {
            // Slots beyond the capacity are permanently marked as used.
            *last = !0 << rest;
        }
        let mut full = vec![0; groups.div_ceil(64)];
        if let (Some(last), rest @ 1..) = (full.last_mut(), groups % 64) {
            *last = !0 << rest;
        }
        Occupancy {
            capacity,
            taken,
            full,
            first_open: 0,
            count: 0,
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn is_taken(&self, index: u32) -> bool {
        let word = self.taken.get((index / GROUP) as usize);
        index < self.capacity && word.is_some_and(|word| word >> (index % GROUP) & 1 == 1)
    }

    pub(super) fn is_group_empty(&self, group: u32) -> bool {
        let own = self.own_bits(group);
        self.taken
            .get(group as usize)
            .is_some_and(|word| word & own == 0)
    }

    pub(super) fn lowest_free(&mut self) -> Option<u32> {
        while let Some(word) = self.full.get(self.first_open) {
            if *word != !0 {
                let group = self.first_open as u32 * 64 + word.trailing_ones();
                let slots = self.taken.get(group as usize)?;
                return Some(group * GROUP + slots.trailing_ones());
            }
            self.first_open += 1;
        }
        None
    }

    /// Marks a slot as used. Returns false if it is already used or does not exist.
    pub(super) fn take(&mut self, index: u32) -> bool {
        if index >= self.capacity || self.is_taken(index) {
            return false;
        }
        let group = (index / GROUP) as usize;
        self.taken[group] |= 1 << (index % GROUP);
        if self.taken[group] == !0 {
            self.full[group / 64] |= 1 << (group % 64);
        }
        self.count += 1;
        true
    }

    /// Frees a slot. Returns false if it was not used.
    pub(super) fn release(&mut self, index: u32) -> bool {
        if !self.is_taken(index) {
            return false;
        }
        let group = (index / GROUP) as usize;
        self.taken[group] &= !(1 << (index % GROUP));
        self.full[group / 64] &= !(1 << (group % 64));
        self.first_open = self.first_open.min(group / 64);
        self.count -= 1;
        true
    }

    /// Returns the first used slot at or after `from`.
    pub(super) fn next_taken(&self, from: u32) -> Option<u32> {
        let mut group = from / GROUP;
        let mut mask = !0u64 << (from % GROUP);
        loop {
            let word = self.taken.get(group as usize)? & self.own_bits(group) & mask;
            if word != 0 {
                return Some(group * GROUP + word.trailing_zeros());
            }
            group += 1;
            mask = !0;
        }
    }

    pub(super) fn highest_taken(&self) -> Option<u32> {
        self.last_taken(self.capacity)
    }

    /// Returns the last used slot before `below`.
    pub(super) fn last_taken(&self, below: u32) -> Option<u32> {
        let mut group = below.min(self.capacity).checked_sub(1)? / GROUP;
        let mut mask = match below.min(self.capacity) % GROUP {
            0 => !0,
            some => !(!0u64 << some),
        };
        loop {
            let word = self.taken[group as usize] & mask;
            if word != 0 {
                return Some(group * GROUP + 63 - word.leading_zeros());
            }
            group = group.checked_sub(1)?;
            mask = !0;
        }
    }

    /// Returns the bits of a group that stand for existing slots.
    fn own_bits(&self, group: u32) -> u64 {
        match self.capacity.saturating_sub(group.saturating_mul(GROUP)) {
            0 => 0,
            left @ 1..GROUP => !(!0 << left),
            _ => !0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set(
            capacity in 1u32..10_000,
            steps in prop::collection::vec((any::<bool>(), any::<u32>()), 0..600),
        ) {
            let mut occupancy = Occupancy::new(capacity);
            let mut model = BTreeSet::new();
            for (take, number) in steps {
                if take {
                    let lowest = (0..capacity).find(|i| !model.contains(i));
                    prop_assert_eq!(occupancy.lowest_free(), lowest);
                    if let Some(index) = lowest {
                        prop_assert!(occupancy.take(index));
                        prop_assert!(!occupancy.take(index));
                        model.insert(index);
                    }
                } else {
                    let index = number % capacity.min(300);
                    prop_assert_eq!(occupancy.release(index), model.remove(&index));
                }
                prop_assert_eq!(occupancy.count() as usize, model.len());
                prop_assert_eq!(occupancy.highest_taken(), model.last().copied());
                let from = number % (capacity + 70);
                prop_assert_eq!(occupancy.next_taken(from), model.range(from..).next().copied());
                prop_assert_eq!(occupancy.last_taken(from), model.range(..from).next_back().copied());
            }
        }

        #[test]
        fn fills_up_and_no_further(capacity in 1u32..5000) {
            let mut occupancy = Occupancy::new(capacity);
            for expected in 0..capacity {
                prop_assert_eq!(occupancy.lowest_free(), Some(expected));
                prop_assert!(occupancy.take(expected));
            }
            prop_assert_eq!(occupancy.lowest_free(), None);
            prop_assert!(!occupancy.take(capacity));
            prop_assert!(occupancy.release(capacity / 2));
            prop_assert_eq!(occupancy.lowest_free(), Some(capacity / 2));
        }
    }
}
