//! The time of all tests.

use std::time::Duration;

use dormouse_engine::UnixTime;

/// When all tests take place: 2026-11-21.
pub const NOW_S: u64 = 1_795_219_200;

/// The same as the engine takes it.
pub fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(NOW_S))
}
