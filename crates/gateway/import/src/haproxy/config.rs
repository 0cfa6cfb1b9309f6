//! A whole configuration, with its backends and certificates by name.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::condition::Files;
use super::store::Store;
use super::syntax::{HaproxySection, Line};

/// All sections of a haproxy.cfg.
pub(super) struct Config {
    pub(super) global: Vec<Line>,
    pub(super) parts: Vec<HaproxySection>,
    pub(super) backends: HashMap<String, usize>,
    /// The folder that relative paths start from, and the files in it.
    pub(super) files: Files,
    pub(super) store: Store,
    /// The addresses of all binds.
    pub(super) ipv4: HashSet<String>,
}

impl Config {
    pub(super) fn backend(&self, name: &str) -> Option<&HaproxySection> {
        self.backends.get(name).and_then(|at| self.parts.get(*at))
    }

    /// Returns the last line of `global` with this name.
    pub(super) fn global(&self, name: &str) -> Option<&Line> {
        self.all_global(name).last()
    }

    /// Returns all of them: options add to each other.
    pub(super) fn all_global(&self, name: &str) -> impl Iterator<Item = &Line> {
        self.global.iter().filter(move |line| line.word(0) == name)
    }

    /// Returns a file's path, relative to the folder that `global` sets for its kind.
    pub(super) fn path(&self, base: &str, file: &str) -> String {
        let base = self.global(base).map_or("", |line| line.word(1));
        let relative_to_file = self
            .global("default-path")
            .is_some_and(|line| line.word(1) == "config");
        let file = Path::new(base).join(file);
        match relative_to_file {
            true => self.files.folder.join(file).display().to_string(),
            false => file.display().to_string(),
        }
    }
}
