//! Reading `/proc`: files that may vanish or be forbidden at any time.

use std::fs;
use std::io;

use crate::trouble::Trouble;

/// Reads `/proc/PID/NAME`; `None` when the process is gone.
pub(super) fn read(pid: i32, name: &str) -> Result<Option<String>, Trouble> {
    let path = format!("/proc/{pid}/{name}");
    match fs::read(&path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(forbidden(pid, name)),
        Err(error) => Err(Trouble::system(format!("cannot read {path}: {error}"))),
    }
}

/// How many entries `/proc/PID/NAME/` has; 0 when it cannot be told.
pub(super) fn count_entries(pid: i32, name: &str) -> u64 {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/{name}")) else {
        return 0;
    };
    entries.count().try_into().unwrap_or(u64::MAX)
}

/// `ENOENT` before the file is opened, `ESRCH` when the process ends while it is read.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc_esrch())
}

fn libc_esrch() -> i32 {
    rustix::io::Errno::SRCH.raw_os_error()
}

fn forbidden(pid: i32, name: &str) -> Trouble {
    let owner = owner(pid).map_or_else(String::new, |uid| format!(" (user {uid})"));
    let name_of = command(pid).unwrap_or_else(|| "?".into());
    Trouble::system(format!(
        "process {pid} ({name_of}) is somebody else's process{owner}: /proc/{pid}/{name} may not be read; \
         run as its owner or as root (sudo dormouse bench …)"
    ))
}

/// The owner's numeric id, from the status file, which everybody may read.
fn owner(pid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The short name of a process (`comm`).
pub(super) fn command(pid: i32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim().to_owned())
}

/// The fields of `/proc/PID/stat` behind the command, which may itself hold blanks and brackets.
/// Index 0 is the state (field 3 in proc(5)).
pub(super) fn stat_fields(stat: &str) -> Vec<&str> {
    stat.rsplit_once(')')
        .map_or_else(Vec::new, |(_, rest)| rest.split_whitespace().collect())
}

/// The value in kB of `Name:   123 kB` in files such as `smaps_rollup` and `meminfo`, in bytes.
pub(super) fn kb_field(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kb: u64 = line.split_whitespace().next()?.parse().ok()?;
    kb.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_brackets_does_not_shift_the_fields() {
        let stat = "12 (a ) S (b)) R 7 12 12 0 -1";
        assert_eq!(stat_fields(stat)[..3], ["R", "7", "12"]);
        assert!(stat_fields("").is_empty());
    }

    #[test]
    fn a_name_which_begins_another_is_not_taken_for_it() {
        let text = "Pss_Anon:  4 kB\nPss:   12 kB\n";
        assert_eq!(kb_field(text, "Pss"), Some(12 * 1024));
        assert_eq!(kb_field(text, "Rss"), None);
    }
}
