//! Start times of connects in progress, to measure their durations.
//!
//! The times are in a table of fixed size, so that slots don't grow. If several connects share a place
//! at the same time, only the last one is measured.

/// Number of places, and so of connects measured at a time.
const PLACES: usize = 256;

/// The places: the generation of a slot, and the start time of its connect.
pub(crate) struct ConnectTimes([(u32, u64); PLACES]);

impl ConnectTimes {
    pub(crate) fn new() -> ConnectTimes {
        ConnectTimes([(0, 0); PLACES])
    }

    /// Notes the start of a connect. Another backend for the same slot keeps the first start time.
    pub(crate) fn began(&mut self, generation: u32, now_ms: u64) {
        let place = self.place(generation);
        if place.0 != generation || place.1 == 0 {
            *place = (generation, now_ms);
        }
    }

    /// Ends a measurement. Returns the duration in milliseconds, if it is known.
    pub(crate) fn done(&mut self, generation: u32, now_ms: u64) -> Option<u64> {
        let place = self.place(generation);
        if place.0 != generation || place.1 == 0 {
            return None;
        }
        Some(now_ms.saturating_sub(std::mem::take(&mut place.1)))
    }

    fn place(&mut self, generation: u32) -> &mut (u32, u64) {
        &mut self.0[generation as usize % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_is_measured_from_its_first_attempt() {
        let mut connects = ConnectTimes::new();
        connects.began(7, 100);
        connects.began(7, 120);
        connects.began(8, 110);
        assert_eq!(connects.done(7, 150), Some(50));
        assert_eq!(connects.done(7, 151), None, "measured once");
        connects.began(8 + PLACES as u32, 130);
        assert_eq!(connects.done(8, 140), None, "its place was taken");
        assert_eq!(connects.done(8 + PLACES as u32, 140), Some(10));
    }
}
