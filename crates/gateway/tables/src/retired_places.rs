//! Places whose backends were removed from the configuration.

use crate::backends::{BackendPlace, Backends, PLACES};
use std::collections::{HashMap, HashSet};

/// Time for which an unused place is kept after its backend was removed from the configuration: a
/// worker may still be about to connect to it.
const RETIRED_MS: u64 = 60_000;

/// Places whose backends were removed from the configuration. Only main keeps this.
#[derive(Debug, Default)]
pub struct RetiredPlaces {
    /// Time of the removal, or of the last connection.
    retired: HashMap<BackendPlace, u64>,
}

impl RetiredPlaces {
    /// Frees the places of backends that are not in `named` and have had no connection for a while.
    /// Returns the freed places.
    pub fn sweep(
        &mut self,
        all: &Backends,
        named: &HashSet<u64>,
        now_ms: u64,
    ) -> Vec<BackendPlace> {
        let mut freed = Vec::new();
        for place in 1..=PLACES as BackendPlace {
            let key = all.key(place);
            if key == 0 || named.contains(&key) {
                self.retired.remove(&place);
                continue;
            }
            let since_ms = self.retired.entry(place).or_insert(now_ms);
            if all.load(place) > 0 {
                *since_ms = now_ms;
            } else if now_ms.saturating_sub(*since_ms) >= RETIRED_MS {
                all.free(place);
                self.retired.remove(&place);
                freed.push(place);
            }
        }
        freed
    }

    /// Whether any place waits to be freed.
    pub fn any_retired(&self) -> bool {
        !self.retired.is_empty()
    }
}
