//! A directory that a configuration names, and how many files it may have.

use crate::error::unreadable;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of certificates in one directory.
pub(super) const CERTIFICATES_MAX: usize = 4096;
/// Maximum number of certificate, CA or CRL files in one directory.
const FILES_MAX: usize = 4 * CERTIFICATES_MAX;

/// The entries of a directory that are not hidden, ordered by name.
pub(super) fn entries(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let cannot = |error: io::Error| unreadable(directory, &error);
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if name.starts_with(b".") {
            continue;
        }
        if paths.len() == FILES_MAX {
            return Err(format!(
                "{}: more than {FILES_MAX} files in this directory",
                directory.display()
            ));
        }
        paths.push(path);
    }
    paths.sort();
    Ok(paths)
}
