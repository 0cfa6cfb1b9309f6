//! The files of a configuration.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};

use crate::error::{ImportError, Position};

/// Limits that no real configuration reaches.
const FILE_MAX: u64 = 4 << 20;
const LINE_MAX: usize = 64 << 10;
const ENTRIES_MAX: usize = 5000;

/// Reads the text of a configuration.
pub(super) fn read(path: &Path, position: &Position) -> Result<String, ImportError> {
    let fault = |line, what: String, help: &str| ImportError::new(position, line, what, help);
    let unreadable = |why: std::io::Error| {
        let help = "name the file that the program itself reads, as a user who may read it";
        fault(0, format!("this file cannot be read: {why}"), help)
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > FILE_MAX {
        let help = "no configuration is that long; is this the right file?";
        return Err(fault(0, "this file is larger than 4 MiB".to_owned(), help));
    }
    for (n, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let help = "a configuration is text; is this the right file?";
        if line.contains(&0) {
            let what = "there is a zero byte in this line".to_owned();
            return Err(fault(n + 1, what, help));
        }
        // What cannot be converted becomes a comment, and this would be a key.
        if line.trim_ascii_start().starts_with(b"-----BEGIN ") {
            let what = "a certificate or key (PEM) begins in this line".to_owned();
            return Err(fault(n + 1, what, help));
        }
        if line.len() > LINE_MAX {
            let length = line.len();
            let what = format!("this line has {length} bytes, more than the limit of 64 KiB");
            return Err(fault(n + 1, what, help));
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    // Some editors put a byte order mark in front.
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}

/// Reads a file that a configuration names. A pipe would never end, so it has to be a file; the configuration itself may
/// come through a pipe.
pub(super) fn read_named(path: &Path, position: &Position) -> Result<String, ImportError> {
    if path.exists() && !path.is_file() {
        let what = "this is a pipe, a device or a directory".to_owned();
        return Err(ImportError::new(position, 0, what, "name a file"));
    }
    read(path, position)
}

/// Returns the files that match a pattern (glob(7)), in the order of their names, without hidden files. A relative
/// pattern starts from the folder. `**` is `*`, as in C.
///
/// # Errors
/// The pattern stands for too large a part of the machine.
pub(super) fn files_matching(folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, TooManyFiles> {
    let as_a_shell = MatchOptions {
        require_literal_separator: true,
        require_literal_leading_dot: true,
        ..MatchOptions::new()
    };
    let mut left = ENTRIES_MAX;
    let start = match pattern.starts_with('/') {
        true => Path::new("/"),
        false => folder,
    };
    let mut found = vec![start.to_owned()];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        if !part.contains(['*', '?', '[']) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let mut part = part.to_owned();
        while part.contains("**") {
            part = part.replace("**", "*");
        }
        let Ok(part) = Pattern::new(&part) else {
            return Ok(Vec::new());
        };
        let mut next = Vec::new();
        for entry in found
            .iter()
            .filter_map(|path| path.read_dir().ok())
            .flatten()
        {
            left = left.checked_sub(1).ok_or(TooManyFiles)?;
            let Ok(entry) = entry else { continue };
            if part.matches_with(&entry.file_name().to_string_lossy(), as_a_shell) {
                next.push(entry.path());
            }
        }
        found = next;
    }
    found.retain(|path| path.is_file());
    found.sort();
    Ok(found)
}

/// A pattern for which more directory entries would have to be read than any configuration needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyFiles;

#[cfg(test)]
mod tests {
    use super::*;

    /// Each would read the whole machine, some many times.
    #[test]
    fn a_pattern_for_everything_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for one in 0..120 {
            let inner = folder.path().join(format!("{one}/x"));
            std::fs::create_dir_all(&inner).expect("a folder");
            std::fs::write(inner.join("a.conf"), "").expect("written");
        }
        let find = |pattern: &str| files_matching(folder.path(), pattern);
        assert_eq!(find("*/x/*.conf").map(|all| all.len()), Ok(120));
        // As in C, `**` stands for one part of a path.
        assert_eq!(find("**/*.conf"), Ok(Vec::new()));
        assert_eq!(find("**/**/*.conf").map(|all| all.len()), Ok(120));
        for one in 120..ENTRIES_MAX {
            std::fs::create_dir(folder.path().join(one.to_string())).expect("a folder");
        }
        assert_eq!(find("**/**/**/*"), Err(TooManyFiles));
    }
}
