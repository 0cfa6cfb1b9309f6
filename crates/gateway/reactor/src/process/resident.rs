//! Memory and CPU time of a process, from files that every user can read (proc(5)).

use std::fs;
use std::time::SystemTime;

use super::{Pid, boottime_ms};
use crate::memory::PAGE;

/// Returns a process's resident memory in bytes, including pages that it shares with other processes. Returns
/// `None` if the process has ended.
pub fn resident_bytes(pid: i32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * PAGE as u64)
}

/// Returns the resident memory that belongs to no file: heap, stacks and shared memory, without the program.
pub fn own_bytes(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kilobytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    Some((kilobytes("RssAnon:")? + kilobytes("RssShmem:")?) * 1024)
}

/// Units of time in /proc/PID/stat: a constant of the kernel's interface (USER_HZ).
const TICKS_PER_S: f64 = 100.0;

/// Resource usage of a process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessUse {
    /// CPU time in seconds, all threads.
    pub cpu_s: f64,
    /// When the process was started, as Unix time in seconds.
    pub started_s: f64,
    /// Resident memory in bytes, including pages that it shares with other processes.
    pub resident_bytes: u64,
    /// Virtual memory in bytes.
    pub virtual_bytes: u64,
    /// Open descriptors, those of a shared table included. `None`: Linux is older than 6.2.
    pub open_descriptors: Option<u64>,
    /// Limit on descriptors.
    pub descriptors_max: Option<u64>,
}

/// Returns a process's parent; `None` if the process has ended, or is hidden.
pub(super) fn parent_of(pid: i32) -> Option<Pid> {
    let fields = stat(pid)?;
    i32::try_from(*fields.get(4 - FIRST_FIELD)?).ok().map(Pid)
}

/// Number of the first field of proc(5) that [`stat`] returns.
const FIRST_FIELD: usize = 4;

/// Returns the numbers in /proc/PID/stat.
fn stat(pid: i32) -> Option<Vec<u64>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain spaces and brackets. The state follows, which is no number; and some numbers are negative.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields = fields.split_whitespace().skip(1);
    Some(
        fields
            .map(|field| field.parse().unwrap_or_default())
            .collect(),
    )
}

/// Returns a process's resource usage; `None` if the process has ended.
pub fn process_use(pid: i32) -> Option<ProcessUse> {
    let fields = stat(pid)?;
    let field = |number: usize| fields.get(number - FIRST_FIELD).copied();
    let per_s = TICKS_PER_S;
    let started_after_boot_s = field(22)? as f64 / per_s;
    let since_boot_s = boottime_ms() as f64 / 1000.0;
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()?;
    Some(ProcessUse {
        cpu_s: (field(14)? + field(15)?) as f64 / per_s,
        // Rounded to seconds, because the two clocks are not read at the same moment.
        started_s: (now.as_secs_f64() - since_boot_s + started_after_boot_s).round(),
        resident_bytes: field(24)? * PAGE as u64,
        virtual_bytes: field(23)?,
        open_descriptors: open_descriptors(pid),
        descriptors_max: descriptors_max(pid),
    })
}

/// Every user may see the size of this directory, but only the owner its entries.
fn open_descriptors(pid: i32) -> Option<u64> {
    let count = fs::metadata(format!("/proc/{pid}/fd")).ok()?.len();
    // No process of ours is without descriptors: older kernels always say 0.
    (count > 0).then_some(count)
}

fn descriptors_max(pid: i32) -> Option<u64> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_part_of_resident_memory() {
        let own = std::process::id() as i32;
        let (all, part) = (resident_bytes(own), own_bytes(own));
        assert!(part > Some(0) && part < all, "{part:?} of {all:?}");
        assert_eq!(resident_bytes(-1), None);
        assert_eq!(own_bytes(-1), None);
    }

    #[test]
    fn process_use_is_plausible() {
        let used = process_use(std::process::id() as i32).expect("this process");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now_s = now.expect("after 1970").as_secs_f64();
        assert!(
            used.started_s <= now_s + 1.0 && used.started_s > now_s - 86_400.0,
            "{used:?}"
        );
        assert!(used.resident_bytes > 0 && used.virtual_bytes >= used.resident_bytes);
        assert!(used.cpu_s >= 0.0 && used.cpu_s < 86_400.0, "{used:?}");
        let open = used.open_descriptors.expect("Linux 6.2 or newer");
        let file = fs::File::open("/proc/self/stat").expect("a file");
        let more = process_use(std::process::id() as i32).and_then(|used| used.open_descriptors);
        drop(file);
        // Other tests open and close some meanwhile.
        assert!(open > 2 && more > Some(2), "{open} {more:?}");
        assert!(used.descriptors_max >= used.open_descriptors, "{used:?}");
        assert!(process_use(-1).is_none());
    }
}
