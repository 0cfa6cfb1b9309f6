//! A time limit on reading a process that may never answer.
//!
//! A page or a file of an audited process may be on a file system whose server hangs (FUSE, NFS), or wait for another
//! process to fill it (userfaultfd). Such a read has no timeout, and some of them cannot be killed. So the work runs in
//! a thread of its own, which is left behind when its time is over. If it was only slow, it ends at its next read. If not,
//! the audit reports without it, but the kernel may keep this process until the file system answers.

use std::cell::Cell;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Time for one census. The largest heaps that are copied need a part of it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What a reader that waits for ever probably waits for.
const WHY: &str = "a page or a file of it may be on a file system that does not answer (FUSE, NFS)";

/// Threads whose time is over.
type Late = Mutex<Vec<JoinHandle<()>>>;

static LATE: Late = Mutex::new(Vec::new());

thread_local! {
    /// The end of the time for this thread's work.
    static UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Does work that reads a process, within this time.
///
/// # Errors
/// If the time is over; also at once if earlier work still waits, because this would wait for the same.
pub fn limited<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    limited_in(&LATE, patience, work)
}

fn limited_in<T: Send + 'static>(
    late: &Late,
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let late = || late.lock().unwrap_or_else(PoisonError::into_inner);
    late().retain(|thread| !thread.is_finished());
    if !late().is_empty() {
        return Err(format!("an earlier attempt to read it still waits: {WHY}"));
    }
    let (sender, receiver) = channel();
    let until = Instant::now() + patience;
    let thread = Builder::new().spawn(move || {
        UNTIL.set(Some(until));
        let _ = sender.send(work());
    });
    let thread = thread.map_err(|error| format!("no thread can be started: {error}"))?;
    receiver.recv_timeout(patience).map_err(|_| {
        late().push(thread);
        let s = patience.as_secs_f64();
        format!("reading it did not end within {s:.1} s: {WHY}")
    })
}

/// Refuses to read on when the time for this thread's work is over.
pub(crate) fn check() -> Result<(), String> {
    match UNTIL.get() {
        Some(until) if Instant::now() > until => Err("the time for reading it is over".into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::ProcessMemory;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_read_that_never_ends_is_left_behind() {
        static LATE: Late = Mutex::new(Vec::new());
        let (answer, wait) = channel::<u8>();
        let none = limited_in(&LATE, Duration::ZERO, move || wait.recv());
        assert!(none.unwrap_err().contains("does not answer"));
        // The next one does not wait as long again.
        let refused = limited_in(&LATE, LONG, || 1);
        assert!(refused.unwrap_err().contains("still waits"));
        answer.send(1).unwrap();
        while limited_in(&LATE, LONG, || 2) != Ok(2) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_slow_reader_ends_at_its_next_read() {
        let own = i32::try_from(std::process::id()).unwrap();
        let block = std::hint::black_box(vec![1_u8; 8]);
        let at = block.as_ptr() as u64;
        let read = move || {
            let reader = ProcessMemory::open(own).unwrap();
            reader.read(at, &mut [0; 8])
        };
        let (in_time, late) = (limited(LONG, read), move || {
            UNTIL.set(Instant::now().checked_sub(Duration::from_millis(1)));
            read()
        });
        assert_eq!(in_time, Ok(Ok(())));
        assert!(limited(LONG, late).unwrap().unwrap_err().contains("time"));
    }
}
