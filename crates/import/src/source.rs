//! The files of a configuration.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use glob::MatchOptions;

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

/// Returns the files that match a pattern (glob(7)), in the order of their names, without hidden files. A relative
/// pattern starts from the folder.
pub(super) fn files_matching(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let folder = glob::Pattern::escape(&folder.to_string_lossy());
    let whole = Path::new(&folder).join(pattern);
    let as_a_shell = MatchOptions {
        require_literal_separator: true,
        require_literal_leading_dot: true,
        ..MatchOptions::new()
    };
    let found = glob::glob_with(&whole.to_string_lossy(), as_a_shell);
    let paths = found.into_iter().flatten().flatten();
    paths.filter(|path| path.is_file()).collect()
}
