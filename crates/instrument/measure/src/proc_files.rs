//! Reads `/proc`: files that may vanish or be forbidden at any time, of processes that may be hostile.
//!
//! A measured process may belong to another user, and this process may be root. So no path is opened that the process
//! chose: neither the targets of its descriptors nor its working directory. The only exceptions are its program and its
//! mapped files, which [`open_program`] and [`open_mapped`] open through the kernel's own links. Files whose length the
//! process controls (its mappings, its arguments) are read up to a limit.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

use dormouse_reactor::process::User;
use rustix::fs::OFlags;

use crate::error::Error;

/// Maximum bytes of a file whose length the process controls.
pub const BYTES_MAX: u64 = 64 << 20;

/// Opens `/proc/PID/NAME`, a file that the kernel writes.
///
/// # Errors
/// The operating system's error; also if it is a link, or not a regular file.
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

/// A pipe or a device could block, or act when it is opened.
fn open_regular(path: &str, flags: OFlags) -> io::Result<File> {
    let flags = (flags | OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let flags = i32::try_from(flags).map_err(io::Error::other)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// Reads the beginning of `/proc/PID/NAME`: up to 64 MiB.
///
/// # Errors
/// As [`open`].
pub fn read_beginning(pid: i32, name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(pid, name)?.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the mappings of a process, as in `/proc/PID/maps`.
///
/// # Errors
/// As [`open`], and if there are more than 64 MiB of text.
pub fn maps(pid: i32) -> io::Result<String> {
    let bytes = read_beginning(pid, "maps")?;
    if bytes.len() as u64 >= BYTES_MAX {
        return Err(io::Error::other("it has too many mappings to read"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads `/proc/PID/NAME`; `None` if the process is gone.
pub(crate) fn read(pid: i32, name: &str) -> Result<Option<String>, Error> {
    let path = format!("/proc/{pid}/{name}");
    match read_beginning(pid, name) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(forbidden(pid, name)),
        Err(error) => Err(Error::system(format!("cannot read {path}: {error}"))),
    }
}

/// Counts the entries of `/proc/PID/NAME/`; 0 if it cannot be read.
pub(crate) fn count_entries(pid: i32, name: &str) -> u64 {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/{name}")) else {
        return 0;
    };
    entries.count().try_into().unwrap_or(u64::MAX)
}

/// Returns whether the process is gone: `ENOENT` when opening the file, `ESRCH` when reading it.
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

/// Returns the reason and the remedy. A process that holds keys can forbid all users except root to
/// read its memory, even its own user (`PR_SET_DUMPABLE`); `dormouse serve` and OpenSSH do.
fn why_forbidden(owner: Option<u32>, own: u32) -> String {
    match owner {
        _ if own == 0 => "may not be measured although you are root: CAP_SYS_PTRACE is missing, as in most \
             containers; add it (docker run --cap-add SYS_PTRACE) or measure from outside"
            .into(),
        Some(owner) if owner == own => {
            "is yours, but forbids reading its memory, as servers that hold keys in memory do; run as root \
             (sudo dormouse bench …)"
                .into()
        }
        Some(owner) => format!(
            "belongs to another user ({owner}); run as that user or as root (sudo dormouse bench …)"
        ),
        None => "belongs to another user; run as that user or as root (sudo dormouse bench …)".into(),
    }
}

/// Returns the maximum descriptors of process `pid`, if its limits can be read.
pub(crate) fn descriptors_max(pid: i32) -> Option<u64> {
    limit(&fs::read_to_string(format!("/proc/{pid}/limits")).ok()?)
}

/// Returns the soft limit on descriptors in the text of a `limits` file.
pub(crate) fn limit(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the owner's numeric id from the status file, which every user may read.
fn owner(pid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    id_field(&status, "Uid:", 0)
}

/// Returns the effective user and group of a process.
pub fn acts_as(pid: i32) -> Option<User> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(User {
        uid: id_field(&status, "Uid:", 1)?,
        gid: id_field(&status, "Gid:", 1)?,
    })
}

/// Returns one of the four ids in a line of a status file: real, effective, saved, file system.
pub(crate) fn id_field(status: &str, name: &str, place: usize) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().nth(place)?.parse().ok()
}

/// Returns the short name of a process (`comm`).
pub fn command(pid: i32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    let name = String::from_utf8_lossy(&name);
    Some(dormouse_printable::line(name.trim()).to_string())
}

/// Returns the fields of `/proc/PID/stat` after the command, which may itself contain spaces and
/// brackets. Index 0 is the state (field 3 in proc(5)).
pub(crate) fn stat_fields(stat: &str) -> Vec<&str> {
    stat.rsplit_once(')')
        .map_or_else(Vec::new, |(_, rest)| rest.split_whitespace().collect())
}

/// Returns the value of a line `Name: 123 kB` in bytes, in files such as `smaps_rollup` and
/// `meminfo`.
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
    fn every_reader_without_permission_gets_a_remedy() {
        assert!(why_forbidden(Some(1000), 1000).contains("is yours"));
        assert!(why_forbidden(Some(33), 1000).contains("belongs to another user (33)"));
        assert!(why_forbidden(Some(0), 0).contains("CAP_SYS_PTRACE"));
    }

    #[test]
    fn finds_the_descriptor_limit() {
        let own = i32::try_from(std::process::id()).unwrap();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        assert_eq!(descriptors_max(own), limit.current);
    }

    #[test]
    fn finds_effective_ids() {
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
    fn opens_only_files_of_the_kernel() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(open(own, "maps").is_ok());
        // A link of the kernel to a file, and directories.
        for name in ["exe", "cwd", "root", "fd", "no-such-file"] {
            assert!(open(own, name).is_err(), "{name}");
        }
        assert!(open_program(own).is_ok());
        assert!(maps(own).unwrap().contains("[stack]"));
    }

    #[test]
    fn a_prefix_of_a_name_does_not_match() {
        let text = "Pss_Anon:  4 kB\nPss:   12 kB\n";
        assert_eq!(kb_field(text, "Pss"), Some(12 * 1024));
        assert_eq!(kb_field(text, "Rss"), None);
    }
}
