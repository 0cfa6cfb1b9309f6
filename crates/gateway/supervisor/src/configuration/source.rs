//! The source of a configuration.

use dormouse_config::{Flag, STANDARD_INPUT, Section};
use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// The source of a configuration, which a reload reads again.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// The section that the flags of the command line describe.
    pub section: Section,
    /// The flags of the command line.
    pub flags: Vec<Flag>,
}

impl Source {
    /// The file, as processes in other directories can name it.
    pub(crate) fn absolute_file(&self) -> Option<PathBuf> {
        let file = self.file.as_deref()?;
        let absolute = match file == Path::new(STANDARD_INPUT) {
            true => None,
            false => std::path::absolute(file).ok(),
        };
        Some(absolute.unwrap_or_else(|| file.to_owned()))
    }

    /// Whether the file is standard input or a pipe, which can be read once.
    pub fn is_read_once(&self) -> bool {
        let Some(path) = self.file.as_deref() else {
            return false;
        };
        let is_pipe = |found: Metadata| found.file_type().is_fifo();
        // A shell's `<(command)` is a descriptor of this process, which the next binary does not have.
        path == Path::new(STANDARD_INPUT)
            || path.starts_with("/dev/fd")
            || path.metadata().is_ok_and(is_pipe)
    }
}
