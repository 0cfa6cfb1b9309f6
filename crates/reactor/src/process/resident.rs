//! Resident memory of a process, from files that every user may read (proc(5)).

use std::fs;

use crate::memory::PAGE;

/// Returns a process's resident memory in bytes, pages that it shares with other processes included.
/// None if the process has ended.
pub fn resident_bytes(pid: i32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * PAGE as u64)
}

/// Returns the part of it that belongs to no file: heap, stacks and shared memory, without the program.
pub fn own_bytes(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kilobytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    Some((kilobytes("RssAnon:")? + kilobytes("RssShmem:")?) * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_a_part_of_the_resident() {
        let own = std::process::id() as i32;
        let (all, part) = (resident_bytes(own), own_bytes(own));
        assert!(part > Some(0) && part < all, "{part:?} of {all:?}");
        assert_eq!(resident_bytes(-1), None);
        assert_eq!(own_bytes(-1), None);
    }
}
