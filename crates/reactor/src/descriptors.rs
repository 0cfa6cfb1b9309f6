//! How many descriptors this process may have, and has.

use std::io;

use rustix::process::{Resource, Rlimit};

use crate::Fd;
use crate::os_result::os_result;

/// Limits on the number of open descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// What holds now.
    pub soft: u64,
    /// What the soft limit can be raised to.
    pub hard: u64,
}

/// The limits of this process. No limit is [`u64::MAX`].
pub fn limits() -> Limits {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    Limits {
        soft: limit.current.unwrap_or(u64::MAX),
        hard: limit.maximum.unwrap_or(u64::MAX),
    }
}

/// Raises the soft limit to the hard one, and says what holds after it.
///
/// # Errors
/// What the operating system says.
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

/// How many descriptors are open in the table of this process.
///
/// # Errors
/// `/proc` cannot be read.
pub fn count() -> io::Result<usize> {
    // Reading the directory takes a descriptor itself.
    Ok(std::fs::read_dir("/proc/self/fd")?
        .count()
        .saturating_sub(1))
}

/// Closes every descriptor that is not among `known`: what a dead process left in a table that
/// nobody else knows the contents of. Sorts `known`.
///
/// # Errors
/// What the operating system says.
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
