//! Number of descriptors of this process, and their limits.

use std::io;

use rustix::process::{Resource, Rlimit};

use crate::Fd;
use crate::outcome::os_result;

/// Limits on the number of open descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The current limit.
    pub soft: u64,
    /// The maximum for the soft limit.
    pub hard: u64,
}

/// Returns the limits of this process. [`u64::MAX`] means no limit.
pub fn limits() -> Limits {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    Limits {
        soft: limit.current.unwrap_or(u64::MAX),
        hard: limit.maximum.unwrap_or(u64::MAX),
    }
}

/// Raises the soft limit to the hard one, and returns the new limits.
///
/// # Errors
/// The operating system's error.
pub fn raise_limit() -> io::Result<Limits> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )?;
    Ok(limits())
}

/// Returns the number of open descriptors in this process's table.
///
/// # Errors
/// `/proc` cannot be read.
pub fn count() -> io::Result<usize> {
    // Reading the directory needs a descriptor itself.
    Ok(std::fs::read_dir("/proc/self/fd")?
        .count()
        .saturating_sub(1))
}

/// Closes every descriptor that is not in `known`: those that a dead process left in the shared table. Sorts
/// `known`.
///
/// # Errors
/// The operating system's error.
pub fn close_all_but(known: &mut [Fd]) -> io::Result<()> {
    known.sort_unstable();
    let mut first = 0;
    for fd in known.iter().filter(|fd| fd.is_some()) {
        let number = fd.0 as u32;
        if number > first {
            close_range(first, number - 1)?;
        }
        first = number + 1;
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: no memory depends on a descriptor (see `Fd`).
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    os_result(result)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_soft_limit_reaches_the_hard_one() {
        let limits = super::raise_limit().unwrap();
        assert_eq!(limits.soft, limits.hard);
        assert!(super::count().unwrap() as u64 <= limits.soft);
    }
}
