//! A directory that a configuration names, and how many files it may have.

use crate::error::unreadable;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of certificates in one directory.
pub(super) const CERTIFICATES_MAX: usize = 4096;
/// Maximum number of certificate, CA or CRL files in one directory.
const FILES_MAX: usize = 4 * CERTIFICATES_MAX;

/// A file or directory in a directory.
pub(super) struct Entry {
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
}

/// What a path leads to, through symbolic links.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    /// A pipe, a socket, a device, or a link to nothing.
    Other,
}

impl Entry {
    pub(super) fn is_file(&self) -> bool {
        self.kind == Kind::File
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }
}

/// The entries of a directory that are not hidden, ordered by name. Only links are followed one by one: to ask for each of
/// thousands of files what it is takes longer than to read the directory.
pub(super) fn entries(directory: &Path) -> Result<Vec<Entry>, String> {
    let cannot = |error: io::Error| unreadable(directory, &error);
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if found.len() == FILES_MAX {
            return Err(format!(
                "{}: more than {FILES_MAX} files in this directory",
                directory.display()
            ));
        }
        found.push((name, kind(&entry)));
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    let entry = |(name, kind)| Entry {
        path: directory.join(name),
        kind,
    };
    Ok(found.into_iter().map(entry).collect())
}

fn kind(entry: &DirEntry) -> Kind {
    let own = entry.file_type();
    let kind = match own {
        Ok(kind) if kind.is_symlink() => fs::metadata(entry.path()).map(|found| found.file_type()),
        own => own,
    };
    match kind {
        Ok(kind) if kind.is_file() => Kind::File,
        Ok(kind) if kind.is_dir() => Kind::Directory,
        _ => Kind::Other,
    }
}
