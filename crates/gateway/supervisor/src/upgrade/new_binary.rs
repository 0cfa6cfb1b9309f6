//! The binary of an upgrade: opened once, checked before any of it runs, and executed by that
//! descriptor, so that exactly the checked file runs.

use dormouse_reactor::Fd;
use dormouse_reactor::memory::FileIdentity;
use dormouse_reactor::process::{self, ProgramFile};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Write permission of the group, and of all users.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
/// On a folder: only the owner of a file can replace it.
const STICKY: u32 = 0o1000;

/// A binary that may replace this one.
#[derive(Debug)]
pub(crate) struct NewBinary {
    path: PathBuf,
    file: Fd,
}

impl NewBinary {
    /// Opens and checks the file at `path`. Main would run it with all its privileges, so it must be a Dormouse, and only
    /// main's own user and root may be able to change or replace it: the request may come from a compromised process.
    pub(crate) fn open(path: &Path) -> Result<NewBinary, String> {
        let binary = NewBinary::open_safe(path)?;
        let shown = binary.path.display();
        match process::is_marked(binary.file) {
            Ok(true) => Ok(binary),
            Ok(false) => Err(format!("{shown} is not a Dormouse; it was not executed")),
            Err(error) => Err(format!("cannot read {shown}: {error}")),
        }
    }

    /// Opens a file that nobody else can change.
    fn open_safe(path: &Path) -> Result<NewBinary, String> {
        let path = path.canonicalize().map_err(|error| {
            let shown = path.display();
            format!("cannot find {shown}: {error}; install the new binary there, or name it with --binary")
        })?;
        let file = process::open_program(&path)
            .map_err(|error| format!("cannot open {}: {error}", path.display()))?;
        let binary = NewBinary { path, file };
        binary.check()?;
        Ok(binary)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file, open for executing it.
    pub(crate) fn file(&self) -> Fd {
        self.file
    }

    /// The program to execute.
    pub(crate) fn program(&self) -> ProgramFile {
        ProgramFile::Open(self.file)
    }

    /// Describes the file for keepers, which open it themselves and compare device and inode.
    pub(crate) fn description(&self) -> io::Result<String> {
        let FileIdentity { device, inode } = FileIdentity::of(self.file)?;
        Ok(format!("{device} {inode} {}", self.path.display()))
    }

    fn check(&self) -> Result<(), String> {
        let shown = self.path.display();
        // By descriptor, because the path may lead to another file by now.
        let opened = std::fs::metadata(format!("/proc/self/fd/{}", self.file));
        let opened = opened.map_err(|error| format!("cannot examine {shown}: {error}"))?;
        if !opened.is_file() {
            return Err(format!("{shown} is not a file"));
        }
        if let Some(why) = writable_by_others(&opened) {
            return Err(format!("{shown} is not safe to run: {why}"));
        }
        for folder in self.path.ancestors().skip(1) {
            let found = folder.metadata();
            let found =
                found.map_err(|error| format!("cannot examine {}: {error}", folder.display()))?;
            let is_sticky = found.mode() & STICKY != 0 && is_own_or_roots(&found);
            if let Some(why) = writable_by_others(&found).filter(|_| !is_sticky) {
                let folder = folder.display();
                return Err(format!(
                    "{shown} is not safe to run because of {folder}: {why}"
                ));
            }
        }
        Ok(())
    }
}

impl Drop for NewBinary {
    fn drop(&mut self) {
        self.file.close();
    }
}

/// Why a user other than main's own and root could change this file or folder.
fn writable_by_others(found: &Metadata) -> Option<String> {
    let mode = found.mode() & 0o7777;
    if !is_own_or_roots(found) {
        return Some(format!(
            "it belongs to user {}: chown it to root",
            found.uid()
        ));
    }
    if mode & OTHERS_WRITE != 0 {
        return Some(format!(
            "every user can change it (mode {mode:o}): chmod o-w"
        ));
    }
    let is_own_group = found.gid() == 0 || found.gid() == process::group_id();
    (mode & GROUP_WRITES != 0 && !is_own_group).then(|| {
        let group = found.gid();
        format!("group {group} can change it (mode {mode:o}): chmod g-w")
    })
}

fn is_own_or_roots(found: &Metadata) -> bool {
    found.uid() == 0 || found.uid() == process::user_id()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_binary_that_others_can_change_is_rejected() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let inner = folder.path().join("bin");
        fs::create_dir(&inner).expect("a folder");
        let path = inner.join("dormouse");
        fs::write(&path, "#!").expect("a file");
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("a file of the test");
        };
        mode(&path, 0o755);
        let binary = NewBinary::open_safe(&path).expect("only its owner can change it");
        let refused = NewBinary::open(&path).expect_err("a script");
        assert!(refused.contains("is not a Dormouse"), "{refused}");
        let description = binary.description().expect("open");
        assert!(description.ends_with(&format!(" {}", path.display())));
        for (changed, bad) in [(&path, 0o757), (&inner, 0o777), (&inner, 0o703)] {
            mode(changed, bad);
            let refused = NewBinary::open_safe(&path).expect_err("writable by others");
            assert!(refused.contains("is not safe to run"), "{refused}");
            mode(changed, 0o755);
        }
        // As in /tmp: other users can create files beside it, but cannot replace it.
        mode(&inner, 0o1777);
        assert!(NewBinary::open_safe(&path).is_ok());
        assert!(
            NewBinary::open_safe(&inner).is_err(),
            "the path is a folder"
        );
        assert!(
            NewBinary::open_safe(&inner.join("none")).is_err(),
            "the path does not exist"
        );
        if process::user_id() == 0 {
            std::os::unix::fs::chown(&path, Some(1), None).expect("a file of the test");
            let refused = NewBinary::open_safe(&path).expect_err("another user's file");
            assert!(refused.contains("belongs to user 1"), "{refused}");
        }
    }
}
