//! The name and title of this process in process lists.
//!
//! The name (`ps`, `top`) is kept by the kernel. The title (`ps -f`, `top -c`) is read from the memory where
//! the kernel put the command line, so a process that was forked without exec shows its parent's title until it
//! writes its own.

use std::ffi::CString;
use std::fs;
use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

/// Where the kernel put the command line. Looked up once: a process forked from this one has it at the same
/// place, and may be unable to open files.
static COMMAND_LINE: OnceLock<Option<Range<usize>>> = OnceLock::new();

/// Names the calling thread (and, from the first thread, the process) in process lists. The kernel keeps 15
/// bytes.
///
/// # Errors
/// The operating system's error.
pub fn set_name(name: &str) -> io::Result<()> {
    Ok(rustix::thread::set_name(&CString::new(name)?)?)
}

/// Replaces the command line in process lists with `title`, truncated to the length of the command line. Call
/// it while this process has one thread, and after it has read its arguments. Without /proc it has no effect.
pub fn set_title(title: &str) {
    let place =
        COMMAND_LINE.get_or_init(|| command_line_in(&fs::read_to_string("/proc/self/stat").ok()?));
    let Some(place) = place else {
        return;
    };
    let start: *mut u8 = ptr::with_exposed_provenance_mut(place.start);
    let room = place.len();
    // A zero byte must end it, or the kernel also shows the environment that follows.
    let length = title.len().min(room.saturating_sub(1));
    // SAFETY: the kernel put the command line there, on this process's own stack, which exists as long as the
    // process. No other code reads it: arguments were copied before, and there is one thread.
    unsafe {
        ptr::write_bytes(start, 0, room);
        ptr::copy_nonoverlapping(title.as_ptr(), start, length);
    }
}

/// Reads `arg_start` and `arg_end` from /proc/PID/stat (proc(5)): numbers 48 and 49, counted after the name,
/// which may contain any character.
fn command_line_in(stat: &str) -> Option<Range<usize>> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut numbers = after_name.split_whitespace().skip(48 - 3);
    let mut next = || numbers.next()?.parse::<usize>().ok();
    let (start, end) = (next()?, next()?);
    (start != 0 && start < end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_command_line() {
        let before = "7 (a ) name) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44";
        let stat = |start: u64, end: u64| format!("{before} {start} {end} 99 100 0\n");
        assert_eq!(command_line_in(&stat(4096, 4100)), Some(4096..4100));
        assert_eq!(command_line_in(&stat(0, 0)), None, "not shown to this user");
        assert_eq!(command_line_in(&stat(9, 8)), None);
        assert_eq!(command_line_in(before), None);
        assert_eq!(command_line_in(""), None);
    }
}
