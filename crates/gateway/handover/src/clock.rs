//! The wall clock, as certificates and tickets need it.

use dormouse_engine::UnixTime;
use std::time::SystemTime;

/// Returns the time since 1970; zero if the clock is set before 1970.
pub fn unix_time() -> UnixTime {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    UnixTime::since_unix_epoch(since)
}
