//! The file of a unix socket on which this program listens.

use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// The path of a listener, and the file that it has there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SocketFile {
    path: PathBuf,
    file: Option<FileIdentity>,
}

/// Device, inode number and time of creation. A file system can use an inode number again.
type FileIdentity = (u64, u64, Option<Duration>);

impl SocketFile {
    /// The file that has this path now.
    pub(crate) fn at(path: &Path) -> SocketFile {
        SocketFile {
            path: path.to_owned(),
            file: identity(path),
        }
    }

    /// The file at `path` of a listener that another binary in this process has opened, which knows its own files. The
    /// file that has the path now may be another program's.
    pub(crate) fn adopt(path: &Path, known: &[SocketFile]) -> SocketFile {
        let own = known.iter().find(|known| known.path == path);
        own.cloned().unwrap_or_else(|| SocketFile::at(path))
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
    let created = found.created().ok();
    let since_1970 = created.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Some((found.dev(), found.ino(), since_1970))
}
