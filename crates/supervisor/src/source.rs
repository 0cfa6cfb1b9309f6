//! The source of a configuration.

use dormouse_config::{Flag, STANDARD_INPUT, Section};
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
    /// Whether the file is standard input, which can be read once.
    pub fn is_standard_input(&self) -> bool {
        self.file.as_deref() == Some(Path::new(STANDARD_INPUT))
    }
}
