//! The files of a configuration.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::error::{ImportError, Position};

/// Limits that no real configuration reaches.
const FILE_MAX: u64 = 4 << 20;
const LINE_MAX: usize = 64 << 10;

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

/// Returns the matching files of a folder, in the order of their names, without hidden files.
pub(super) fn files_in(folder: &Path, fits: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_wanted = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy());
        path.is_file() && name.is_some_and(|name| !name.starts_with('.') && fits(&name))
    };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(is_wanted)
        .collect();
    files.sort();
    files
}
