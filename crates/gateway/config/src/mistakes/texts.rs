//! The texts of a configuration: its file, and those that the file includes.

use std::path::{Path, PathBuf};

/// The path that stands for standard input.
pub const STANDARD_INPUT: &str = "-";

/// The texts, numbered as if they were one: an offset identifies a byte in any of them.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    list: Vec<Text>,
}

/// One file.
#[derive(Debug)]
pub(crate) struct Text {
    /// Where it was read. `None`: the configuration's own file.
    pub(crate) included: Option<PathBuf>,
    /// The directory that paths in it are relative to.
    base: Option<PathBuf>,
    pub(crate) text: String,
    /// Offset of its first byte.
    pub(crate) start: usize,
}

impl Text {
    /// Returns the number, from 1, of the line at this offset.
    pub(crate) fn line(&self, place: usize) -> usize {
        let before = self.text.as_bytes().get(..place - self.start);
        let before = before.unwrap_or(self.text.as_bytes());
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }
}

impl Texts {
    /// Returns the text of the configuration's own file; empty if there are only flags.
    pub(crate) fn of(file: Option<&Path>, text: &str) -> Self {
        let own = Text {
            included: None,
            base: parent(file),
            text: text.to_owned(),
            start: 0,
        };
        Self { list: vec![own] }
    }

    /// Adds the text of a file that is included.
    pub(crate) fn add(&mut self, path: &Path, text: String) {
        // One byte lies between two texts, so that the end of one is not the beginning of the next.
        let start = self.bytes() + self.list.len();
        self.list.push(Text {
            base: parent(Some(path)),
            included: Some(path.to_owned()),
            text,
            start,
        });
    }

    /// Returns the length of all texts.
    pub(crate) fn bytes(&self) -> usize {
        self.list.iter().map(|text| text.text.len()).sum()
    }

    /// Returns the text that was added last.
    pub(crate) fn last(&self) -> Option<&Text> {
        self.list.last()
    }

    /// Returns the text at this offset.
    pub(crate) fn at(&self, place: usize) -> Option<&Text> {
        self.list.iter().rev().find(|text| text.start <= place)
    }

    /// Returns the directory that paths at this offset are relative to. `None`: the current one, as
    /// for flags.
    pub(crate) fn base(&self, place: Option<usize>) -> Option<&Path> {
        self.at(place?)?.base.as_deref()
    }
}

fn parent(file: Option<&Path>) -> Option<PathBuf> {
    file.and_then(Path::parent).map(Path::to_owned)
}
