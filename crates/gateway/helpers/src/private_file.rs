//! Files with secrets, which only their owner may read.

use dormouse_reactor::file::open_regular;
use dormouse_reactor::process;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use zeroize::Zeroizing;

/// Maximum length of a file with one line.
const SECRET_LINE_MAX: u64 = 1024;

/// Reads a file that only its owner may read, or a file of root's that a group of this user may read, as Kubernetes
/// mounts secrets. `None`: the file does not exist.
///
/// # Errors
/// The file cannot be read, is longer than `bytes_max`, or other users may read it.
pub fn read_private(path: &Path, bytes_max: u64) -> Result<Option<Zeroizing<Vec<u8>>>, String> {
    let opened = open_private(path)?;
    opened
        .map(|(file, _)| read_up_to(file, path, bytes_max))
        .transpose()
}

/// Reads a secret from such a file, whose only line it is. `what` names it.
///
/// # Errors
/// Those of [`read_private`]; the file does not exist, or has another form.
pub fn read_secret_line(path: &Path, what: &str) -> Result<Zeroizing<Vec<u8>>, String> {
    let shown = path.display();
    let mut line = read_private(path, SECRET_LINE_MAX)?.ok_or_else(|| {
        format!("{shown}: no such file\nwrite {what} there, readable only by its owner")
    })?;
    // Some editors put a byte order mark in front.
    if line.starts_with("\u{feff}".as_bytes()) {
        line.drain(.."\u{feff}".len());
    }
    for end in [b'\n', b'\r'] {
        if line.last() == Some(&end) {
            line.pop();
        }
    }
    match line.is_empty() || line.contains(&b'\n') {
        true => Err(format!("{shown}: expected one line, {what}")),
        false => Ok(line),
    }
}

/// As [`read_private`], for a file whose contents must come from this program.
///
/// # Errors
/// Those of [`read_private`].
pub fn read_own(path: &Path, bytes_max: u64) -> Result<OwnFile, String> {
    let Some((file, found)) = open_private(path)? else {
        return Ok(OwnFile::Missing);
    };
    match [0, process::user_id()].contains(&found.uid()) {
        true => read_up_to(file, path, bytes_max).map(OwnFile::Contents),
        false => Ok(OwnFile::OfAnother(found.uid())),
    }
}

/// A file that this program writes.
pub enum OwnFile {
    /// What is in it.
    Contents(Zeroizing<Vec<u8>>),
    /// It does not exist.
    Missing,
    /// It belongs to this user, who could have written anything.
    OfAnother(u32),
}

fn open_private(path: &Path) -> Result<Option<(File, Metadata)>, String> {
    let shown = path.display();
    let file = match open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(format!(
                "cannot read {shown}: {error}\n  remedy: make the user who starts dormouse its owner"
            ));
        }
        Err(error) => return Err(format!("cannot read {shown}: {error}")),
    };
    // Checks the open file, because the path may lead to another file by now.
    let found = file.metadata();
    let found = found.map_err(|error| format!("cannot read {shown}: {error}"))?;
    if !is_private(found.mode(), found.uid(), process::user_id()) {
        return Err(format!(
            "{shown}: mode {:o} lets users other than the owner use this file, which holds secrets\n  remedy: chmod 600 {shown}, and replace the secrets",
            found.mode() & 0o777
        ));
    }
    Ok(Some((file, found)))
}

fn read_up_to(file: File, path: &Path, bytes_max: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    let shown = path.display();
    let len = file.metadata().map_or(0, |found| found.len());
    // All room from the start: a growing vector would leave copies behind.
    let room = usize::try_from(len.min(bytes_max)).unwrap_or(0) + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    file.take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read {shown}: {error}"))?;
    match bytes.len() as u64 > bytes_max {
        true => Err(format!("{shown}: longer than {bytes_max} bytes")),
        false => Ok(bytes),
    }
}

/// Whether no stranger may read or change a file of this mode and owner. A program that is not root can read
/// a file of root's only if root has chosen a group for it.
fn is_private(mode: u32, owner: u32, reader: u32) -> bool {
    const ROOT: u32 = 0;
    let by_group = owner == ROOT && reader != ROOT;
    let forbidden = if by_group { 0o037 } else { 0o077 };
    mode & forbidden == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn only_private_files_of_bounded_length_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        assert!(read_private(&path, 3).expect("no file yet").is_none());
        assert!(matches!(read_own(&path, 3), Ok(OwnFile::Missing)));
        fs::write(&path, "one").expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("changed");
        let read = read_private(&path, 3).expect("a private file");
        assert_eq!(read.expect("an existing file").as_slice(), b"one");
        let long = read_private(&path, 2).expect_err("a long file");
        assert!(long.contains("longer than 2 bytes"), "{long}");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("changed");
        let refused = read_private(&path, 3).expect_err("readable by the group");
        assert!(refused.contains("mode 640"), "{refused}");
        assert!(refused.contains("chmod 600"), "{refused}");
    }

    /// As in PEM and TOML files: some editors put one in front, and no one means it.
    #[test]
    fn a_byte_order_mark_is_no_part_of_a_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("passphrase");
        let read = |text: &str| {
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("changed");
            read_secret_line(&path, "a secret").map(|line| line.to_vec())
        };
        for text in ["\u{feff}sesame", "\u{feff}sesame\r\n", "sesame\n"] {
            assert_eq!(read(text).as_deref(), Ok(&b"sesame"[..]), "{text:?}");
        }
        for text in ["\u{feff}", "\u{feff}\n", "\u{feff}one\ntwo\n"] {
            let refused = read(text).expect_err("no secret");
            assert!(refused.contains("expected one line"), "{refused}");
        }
    }

    /// Only root can read a file of another user with mode 600.
    #[test]
    fn a_file_of_another_user_is_not_our_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sessions");
        fs::write(&path, "one").expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("changed");
        assert!(matches!(read_own(&path, 3), Ok(OwnFile::Contents(_))));
        if process::user_id() == 0 {
            std::os::unix::fs::chown(&path, Some(1), None).expect("changed");
            assert!(matches!(read_own(&path, 3), Ok(OwnFile::OfAnother(1))));
            // `user` may be this owner.
            assert!(matches!(read_private(&path, 3), Ok(Some(_))));
        }
    }

    #[test]
    fn a_group_may_read_only_what_root_lets_it() {
        for (mode, owner, reader, expected) in [
            (0o600, 0, 0, true),
            (0o600, 1000, 1000, true),
            (0o440, 0, 65532, true),
            (0o640, 0, 65532, true),
            (0o440, 0, 0, false),
            (0o440, 1000, 1000, false),
            (0o440, 1000, 65532, false),
            (0o460, 0, 65532, false),
            (0o444, 0, 65532, false),
        ] {
            assert_eq!(
                is_private(mode, owner, reader),
                expected,
                "{mode:o} {owner} {reader}"
            );
        }
    }
}
