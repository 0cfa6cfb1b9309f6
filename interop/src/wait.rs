//! Waiting with a limit.

use std::time::{Duration, Instant};

/// How long anything may take that should happen at once. Far more than it needs on a
/// busy machine: reaching it means that it would never have happened.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Asks `look` again and again until it gives something.
///
/// # Panics
/// When `within` has passed; `what` says what did not happen.
pub fn until<T>(what: &str, within: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + within;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            Instant::now() < end,
            "expected {what} within {within:?}, it did not happen"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Watches a number until it has stood still for a while, and returns it.
///
/// # Panics
/// When it does not come to rest within [`PATIENCE`].
pub fn until_still(what: &str, mut number: impl FnMut() -> u64) -> u64 {
    const STILL: Duration = Duration::from_millis(500);
    let mut last = (number(), Instant::now());
    until(&format!("{what} to stand still"), PATIENCE, || {
        let now = number();
        if now != last.0 {
            last = (now, Instant::now());
        }
        (last.1.elapsed() >= STILL).then_some(now)
    })
}
