//! Reads `/proc`: files that may vanish or be forbidden at any time.

use std::fs;
use std::io;

use crate::error::Error;

/// Reads `/proc/PID/NAME`; `None` when the process is gone.
pub(crate) fn read(pid: i32, name: &str) -> Result<Option<String>, Error> {
    let path = format!("/proc/{pid}/{name}");
    match fs::read(&path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(forbidden(pid, name)),
        Err(error) => Err(Error::system(format!("cannot read {path}: {error}"))),
    }
}

/// Counts the entries of `/proc/PID/NAME/`; 0 where it cannot be read.
pub(crate) fn count_entries(pid: i32, name: &str) -> u64 {
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

fn forbidden(pid: i32, name: &str) -> Error {
    let name_of = command(pid).unwrap_or_else(|| "?".into());
    let own = rustix::process::geteuid().as_raw();
    let why = why_forbidden(owner(pid), own);
    Error::system(format!(
        "process {pid} ({name_of}) {why} (/proc/{pid}/{name} may not be read)"
    ))
}

/// Three reasons, three remedies. A process that holds keys can forbid all users but root to read its memory, its
/// own user too (`PR_SET_DUMPABLE`); `dormouse serve` and OpenSSH do.
fn why_forbidden(owner: Option<u32>, own: u32) -> String {
    match owner {
        _ if own == 0 => "may not be measured although you are root: CAP_SYS_PTRACE is missing, as in most \
             containers; add it (docker run --cap-add SYS_PTRACE) or measure from outside"
            .into(),
        Some(owner) if owner == own => {
            "is yours, but forbids that its memory is read, as servers with keys in memory do; run as root \
             (sudo dormouse bench …)"
                .into()
        }
        Some(owner) => format!(
            "is somebody else's process (user {owner}); run as its owner or as root (sudo dormouse bench …)"
        ),
        None => "is somebody else's process; run as its owner or as root (sudo dormouse bench …)".into(),
    }
}

/// The most descriptors that process `pid` may have, where its limits can be read.
pub(crate) fn descriptors_max(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The owner's numeric id, from the status file, which every user may read.
fn owner(pid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The short name of a process (`comm`).
pub(crate) fn command(pid: i32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim().to_owned())
}

/// The fields of `/proc/PID/stat` behind the command, which may itself hold blanks and brackets.
/// Index 0 is the state (field 3 in proc(5)).
pub(crate) fn stat_fields(stat: &str) -> Vec<&str> {
    stat.rsplit_once(')')
        .map_or_else(Vec::new, |(_, rest)| rest.split_whitespace().collect())
}

/// The value in kB of `Name:   123 kB` in files such as `smaps_rollup` and `meminfo`, in bytes.
pub(crate) fn kb_field(text: &str, name: &str) -> Option<u64> {
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
    fn everybody_who_may_not_read_is_told_what_helps_him() {
        assert!(why_forbidden(Some(1000), 1000).contains("is yours"));
        assert!(why_forbidden(Some(33), 1000).contains("somebody else's process (user 33)"));
        assert!(why_forbidden(Some(0), 0).contains("CAP_SYS_PTRACE"));
    }

    #[test]
    fn the_limit_of_descriptors_is_found() {
        let own = i32::try_from(std::process::id()).unwrap();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        assert_eq!(descriptors_max(own), limit.current);
    }

    #[test]
    fn a_name_which_begins_another_is_not_taken_for_it() {
        let text = "Pss_Anon:  4 kB\nPss:   12 kB\n";
        assert_eq!(kb_field(text, "Pss"), Some(12 * 1024));
        assert_eq!(kb_field(text, "Rss"), None);
    }
}
