//! What the operating system lets a process use: the limits of its control groups (cgroup v2), and its processors.
//!
//! A container or a systemd unit may have far less than the machine. Where a limit cannot be read, none is known.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::Machine;
use crate::proc_files;

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";
/// Most processors that are looked at: the kernel's own limit.
const PROCESSORS_MAX: usize = 8_192;

/// Returns how many more bytes a process's control groups let it take; `None`: they set no limit.
pub fn memory_left_bytes(pid: i32) -> Option<u64> {
    let left = |group: PathBuf| {
        let read = |name: &str| fs::read_to_string(group.join(name)).ok();
        memory_left(
            &read("memory.max")?,
            &read("memory.current")?,
            &read("memory.stat").unwrap_or_default(),
        )
    };
    groups(pid).into_iter().filter_map(left).min()
}

/// Returns how many more bytes this program may take: of the machine's memory, and of its control groups.
pub fn free_bytes() -> u64 {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let left = memory_left_bytes(own).unwrap_or(u64::MAX);
    left.min(Machine::available_bytes())
}

/// Returns the cores whose time a process's control groups let it use; `None`: they set no limit.
pub fn quota_cores(pid: i32) -> Option<f64> {
    let quota = |group: PathBuf| quota(&fs::read_to_string(group.join("cpu.max")).ok()?);
    groups(pid).into_iter().filter_map(quota).reduce(f64::min)
}

/// Returns the numbers of the processors that a process may run on.
pub fn processors(pid: i32) -> Option<BTreeSet<usize>> {
    let status = proc_files::read_beginning(pid, "status").ok()?;
    processors_in(&String::from_utf8_lossy(&status))
}

/// Returns the control group of a process, and those that contain it.
fn groups(pid: i32) -> Vec<PathBuf> {
    let text = proc_files::read_beginning(pid, "cgroup").unwrap_or_default();
    groups_in(&String::from_utf8_lossy(&text))
}

/// Parses the text of `/proc/PID/cgroup`. A group outside of this program's namespace begins with `/..`: its files are
/// not visible here.
pub(crate) fn groups_in(text: &str) -> Vec<PathBuf> {
    let Some(name) = text.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if !Path::new(name).components().all(is_plain) {
        return Vec::new();
    }
    let within = Path::new(name).ancestors();
    within.map(|group| Path::new(GROUPS).join(group)).collect()
}

/// Memory that can be reclaimed at once does not count against the limit.
pub(crate) fn memory_left(max: &str, current: &str, stat: &str) -> Option<u64> {
    let max: u64 = max.trim().parse().ok()?;
    let current: u64 = current.trim().parse().ok()?;
    let mut lines = stat.lines();
    let cached = lines.find_map(|line| line.strip_prefix("inactive_file "));
    let cached = cached.and_then(|bytes| bytes.trim().parse().ok());
    Some(max.saturating_sub(current.saturating_sub(cached.unwrap_or(0))))
}

/// Parses `cpu.max`: microseconds of CPU time in a period, and the period.
pub(crate) fn quota(text: &str) -> Option<f64> {
    let (time, period) = text.trim().split_once(' ')?;
    let (time, period): (f64, f64) = (time.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then(|| time / period)
}

/// Parses the list of processors in the text of `/proc/PID/status`: `0-3,8`.
pub(crate) fn processors_in(status: &str) -> Option<BTreeSet<usize>> {
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut all = BTreeSet::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        all.extend(first..=last.min(PROCESSORS_MAX));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_enclosing_group_limits_a_process() {
        let groups = groups_in("1:name=systemd:/x\n0::/system.slice/nginx.service\n");
        let paths = ["/system.slice/nginx.service", "/system.slice", "/"];
        let expected = paths.map(|path| PathBuf::from(format!("{GROUPS}{path}")));
        assert_eq!(groups, expected);
        for outside in ["0::/../../etc\n", "0::/a/../b\n", "4:memory:/x\n", ""] {
            assert!(groups_in(outside).is_empty(), "{outside:?}");
        }
        assert_eq!(groups_in("0::/\n"), [Path::new(GROUPS)]);
    }

    #[test]
    fn limits_are_those_of_the_kernels_files() {
        let stat = "anon 5\ninactive_file 30\nactive_file 7\n";
        assert_eq!(memory_left("100\n", "80\n", stat), Some(50));
        assert_eq!(memory_left("100\n", "180\n", ""), Some(0));
        assert_eq!(memory_left("max\n", "80\n", stat), None);
        assert_eq!(quota("25000 100000\n"), Some(0.25));
        assert_eq!(quota("max 100000\n"), None);
        assert_eq!(quota("5 0\n"), None);
    }

    #[test]
    fn a_list_of_processors_has_ranges() {
        let of = |list: &str| processors_in(&format!("Name:\tx\nCpus_allowed_list:\t{list}\n"));
        assert_eq!(of("0-2,8"), Some(BTreeSet::from([0, 1, 2, 8])));
        assert_eq!(of("3"), Some(BTreeSet::from([3])));
        assert!(of("0-18446744073709551615").is_some_and(|all| all.len() <= PROCESSORS_MAX + 1));
        assert_eq!(of("x"), None);
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!processors(own).unwrap().is_empty());
    }
}
