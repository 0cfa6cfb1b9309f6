//! The set of connections that wait for a backend, one bit each: a reload finds them without a look at every slot.

/// Slots by index.
#[derive(Default)]
pub(super) struct Connecting {
    words: Vec<u64>,
}

impl Connecting {
    /// Notes whether a slot belongs to the set.
    pub(super) fn note(&mut self, index: u32, belongs: bool) {
        let (at, bit) = (index as usize / 64, 1 << (index % 64));
        if belongs && self.words.len() <= at {
            self.words.resize(at + 1, 0);
        }
        if let Some(word) = self.words.get_mut(at) {
            *word = if belongs { *word | bit } else { *word & !bit };
        }
    }

    /// Follows a slot that was moved.
    pub(super) fn moved(&mut self, from: u32, to: u32) {
        let word = self.words.get(from as usize / 64);
        let belongs = word.is_some_and(|word| word >> (from % 64) & 1 == 1);
        self.note(to, belongs);
        self.note(from, false);
    }

    /// The slots of the set, in order.
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> {
        let words = (0..).zip(self.words.iter().copied());
        words
            .filter(|(_, word)| *word != 0)
            .flat_map(|(at, word): (u32, u64)| {
                (0..64)
                    .filter(move |bit| word >> bit & 1 == 1)
                    .map(move |bit| 64 * at + bit)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_found_in_order_and_followed() {
        let mut connecting = Connecting::default();
        for index in [1_000, 0, 63, 64, 5] {
            connecting.note(index, true);
        }
        connecting.note(63, false);
        connecting.note(1 << 20, false);
        connecting.moved(1_000, 2);
        connecting.moved(7, 64);
        assert_eq!(connecting.indices().collect::<Vec<_>>(), [0, 2, 5]);
        assert_eq!(
            connecting.words.len(),
            16,
            "no word for what never was in it"
        );
    }
}
