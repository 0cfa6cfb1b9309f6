//! Waiting with a limit.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Maximum time for anything that should happen at once. It is far more than a busy machine needs, so
/// reaching it means that the event would never happen.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Calls `look` repeatedly until it returns a value.
///
/// # Panics
/// When `within` has passed; `what` names the missing event.
pub fn until<T>(what: &str, within: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + within;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "expected {what} within {within:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Calls `is_so` repeatedly until it returns `true`, for at most [`PATIENCE`].
///
/// # Panics
/// When that time has passed; `what` names the missing event.
pub fn until_true(what: &str, mut is_so: impl FnMut() -> bool) {
    until(what, PATIENCE, || is_so().then_some(()));
}

/// Waits until a program listens at this address, for at most [`PATIENCE`].
///
/// # Panics
/// When that time has passed; `program` names it.
pub fn until_listening(program: &str, address: SocketAddr) {
    until_true(&format!("{program} to listen"), || {
        TcpStream::connect(address).is_ok()
    });
}

/// Watches a number until it has not changed for a while, and returns it.
///
/// # Panics
/// When it keeps changing for [`PATIENCE`].
pub fn until_still(what: &str, mut number: impl FnMut() -> u64) -> u64 {
    const STILL: Duration = Duration::from_millis(500);
    let mut last = (number(), Instant::now());
    until(&format!("{what} to stop changing"), PATIENCE, || {
        let now = number();
        if now != last.0 {
            last = (now, Instant::now());
        }
        (last.1.elapsed() >= STILL).then_some(now)
    })
}
