//! The file of a unix socket on which this program listens.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The path of a listener, and the file that it has there.
#[derive(Clone, Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    file: Option<FileIdentity>,
}

/// A file system can use an inode number again. The time tells the two files apart.
type FileIdentity = (u64, u64, Option<SystemTime>);

impl SocketFile {
    /// The file that has this path now.
    pub(crate) fn at(path: &Path) -> SocketFile {
        SocketFile {
            path: path.to_owned(),
            file: identity(path),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether no client can find the listener: its file was removed or replaced.
    pub(crate) fn is_lost(&self) -> bool {
        self.file.is_none() || identity(&self.path) != self.file
    }

    /// Removes the file, so that new clients are refused. A file that has replaced it stays.
    pub(crate) fn remove(&self) {
        if !self.is_lost() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<FileIdentity> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.created().ok()))
}
