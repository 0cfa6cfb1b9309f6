//! The fixed time of the tests.

use std::time::Duration;

use dormouse_engine::UnixTime;

/// The Unix time of the tests: 2026-11-21.
pub const NOW_S: u64 = 1_795_219_200;

/// [`NOW_S`] as a time for the engine.
pub fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(NOW_S))
}
