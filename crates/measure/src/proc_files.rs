//! Reads `/proc`: files that may vanish or be forbidden at any time, of processes that may be hostile.
//!
//! A process that is measured may belong to somebody else, and whoever measures may be root. So nothing is
//! opened by a name that the process chose: not what it has mapped, nor what its descriptors or its working
//! directory lead to. The only such file is its program, which [`open_program`] opens through the kernel's own
//! link. What the process can make long (its mappings, its arguments) is read up to a limit.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

use dormouse_reactor::process::User;
use rustix::fs::OFlags;

use crate::error::Error;

/// Most bytes of a file whose length the process decides.
const BYTES_MAX: u64 = 64 << 20;

/// Opens `/proc/PID/NAME`, a file that the kernel writes.
///
/// # Errors
/// What the operating system says; also when it is no regular file, or a link.
pub fn open(pid: i32, name: &str) -> io::Result<File> {
    open_regular(&format!("/proc/{pid}/{name}"), OFlags::NOFOLLOW)
}

/// Opens the program of a process, through the link that the kernel keeps.
///
/// # Errors
/// As [`open`].
pub fn open_program(pid: i32) -> io::Result<File> {
    open_regular(&format!("/proc/{pid}/exe"), OFlags::empty())
}

/// Opens a file that a process has mapped, through the link that the kernel keeps: `range` is `START-END` as in `maps`.
///
/// # Errors
/// As [`open`]; only root and those with `CAP_CHECKPOINT_RESTORE` may.
pub fn open_mapped(pid: i32, range: &str) -> io::Result<File> {
    let is_range = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    if !range.bytes().all(is_range) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    open_regular(&format!("/proc/{pid}/map_files/{range}"), OFlags::empty())
}

/// A pipe or a device would block, or act when it is opened.
fn open_regular(path: &str, flags: OFlags) -> io::Result<File> {
    let flags = (flags | OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let flags = i32::try_from(flags).map_err(io::Error::other)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    Ok(file)
}

/// The beginning of `/proc/PID/NAME`: up to 64 MiB.
///
/// # Errors
/// As [`open`].
pub fn read_beginning(pid: i32, name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(pid, name)?.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The mappings of a process, as `/proc/PID/maps` has them.
///
/// # Errors
/// As [`open`], and when there are more than 64 MiB of text.
pub fn maps(pid: i32) -> io::Result<String> {
    let bytes = read_beginning(pid, "maps")?;
    if bytes.len() as u64 >= BYTES_MAX {
        return Err(io::Error::other("it has too many mappings to be looked at"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads `/proc/PID/NAME`; `None` when the process is gone.
pub(crate) fn read(pid: i32, name: &str) -> Result<Option<String>, Error> {
    let path = format!("/proc/{pid}/{name}");
    match read_beginning(pid, name) {
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
    limit(&fs::read_to_string(format!("/proc/{pid}/limits")).ok()?)
}

/// The soft limit on descriptors in the text of a `limits` file.
pub(crate) fn limit(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The owner's numeric id, from the status file, which every user may read.
fn owner(pid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    id_field(&status, "Uid:", 0)
}

/// The user and the group in whose name a process acts: its effective ids.
pub fn acts_as(pid: i32) -> Option<User> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(User {
        uid: id_field(&status, "Uid:", 1)?,
        gid: id_field(&status, "Gid:", 1)?,
    })
}

/// One of the four ids in a line of a status file: real, effective, saved, of the file system.
pub(crate) fn id_field(status: &str, name: &str, place: usize) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().nth(place)?.parse().ok()
}

/// The short name of a process (`comm`).
pub(crate) fn command(pid: i32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    let name = String::from_utf8_lossy(&name);
    Some(dormouse_printable::line(name.trim()).to_string())
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
    fn effective_ids_are_those_that_count() {
        let status = "Name:\ta Uid: b\nUid:\t1000\t1001\t1002\t1003\nGid:\t100\t101\t102\t103\n";
        assert_eq!(id_field(status, "Uid:", 0), Some(1000));
        assert_eq!(id_field(status, "Gid:", 1), Some(101));
        assert_eq!(id_field(status, "Groups:", 0), None);
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(
            acts_as(own).unwrap().uid,
            rustix::process::geteuid().as_raw()
        );
    }

    #[test]
    fn only_files_of_the_kernel_are_opened() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(open(own, "maps").is_ok());
        // A link of the kernel's to a file, and folders.
        for name in ["exe", "cwd", "root", "fd", "no-such-file"] {
            assert!(open(own, name).is_err(), "{name}");
        }
        assert!(open_program(own).is_ok());
        assert!(maps(own).unwrap().contains("[stack]"));
    }

    #[test]
    fn a_name_which_begins_another_is_not_taken_for_it() {
        let text = "Pss_Anon:  4 kB\nPss:   12 kB\n";
        assert_eq!(kb_field(text, "Pss"), Some(12 * 1024));
        assert_eq!(kb_field(text, "Rss"), None);
    }
}
