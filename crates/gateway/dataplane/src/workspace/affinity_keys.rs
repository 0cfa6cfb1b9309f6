//! Keys by which backends are chosen, while the connections to the backends begin: of server names, and of clients that a
//! trusted proxy has named. A further choice of a backend could not find them otherwise.

use std::collections::BTreeMap;

/// Keys by the generations of the connections, each with the end of its time.
#[derive(Default)]
pub(crate) struct AffinityKeys(BTreeMap<u32, (u64, u64)>);

impl AffinityKeys {
    /// Notes a key until a time after which no backend is chosen for its connection any more.
    pub(crate) fn note(&mut self, generation: u32, key: u64, until_ms: u64, now_ms: u64) {
        // Those whose connections ended early. Later connections are behind them.
        while let Some(oldest) = self.0.first_entry()
            && oldest.get().1 < now_ms
        {
            oldest.remove();
        }
        self.0.insert(generation, (key, until_ms));
    }

    /// The key of this connection, if it was noted.
    pub(crate) fn of(&self, generation: u32) -> Option<u64> {
        self.0.get(&generation).map(|(key, _)| *key)
    }

    /// Forgets a key, whose connection has a backend.
    pub(crate) fn forget(&mut self, generation: u32) {
        self.0.remove(&generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_forgotten_after_their_time() {
        let mut keys = AffinityKeys::default();
        for n in 1..=3 {
            keys.note(n, 70 + u64::from(n), 100 + u64::from(n), 1);
        }
        assert_eq!(keys.of(2), Some(72));
        keys.forget(2);
        assert_eq!(keys.of(2), None);
        keys.note(4, 74, 300, 200);
        assert_eq!(keys.0.keys().copied().collect::<Vec<_>>(), [4]);
    }
}
