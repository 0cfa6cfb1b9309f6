//! The repository's text, read once and shared by all rules.

use crate::lex;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Directories without source: build output, and what the lab's peers install.
const SKIPPED: [&str; 4] = ["target", "node_modules", "__pycache__", ".cache"];

/// Maximum size of a source file; larger files are data.
const SOURCE_BYTES_MAX: u64 = 1 << 20;

pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    files: BTreeMap<String, File>,
    /// Files that are not text, which links may lead to.
    pictures: Vec<String>,
}

pub(crate) struct File {
    pub(crate) text: String,
    /// Rust only: the text with comments and literals blanked, byte for byte as long as `text`.
    pub(crate) code: String,
}

impl Tree {
    pub(crate) fn read(root: &Path) -> Result<Tree, String> {
        let mut tree = Tree {
            root: root.to_path_buf(),
            files: BTreeMap::new(),
            pictures: Vec::new(),
        };
        tree.read_directory(root)
            .map_err(|error| format!("reading {}: {error}", root.display()))?;
        Ok(tree)
    }

    fn read_directory(&mut self, directory: &Path) -> std::io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if name != ".git" && !SKIPPED.contains(&name.as_str()) {
                    self.read_directory(&entry.path())?;
                }
            } else if kind.is_file() && entry.metadata()?.len() <= SOURCE_BYTES_MAX {
                let path = entry.path();
                let relative = path
                    .strip_prefix(&self.root)
                    .unwrap_or(&path)
                    .to_string_lossy()
                    .into_owned();
                match fs::read_to_string(&path) {
                    Ok(text) => self.insert(relative, text),
                    Err(_) => self.pictures.push(relative),
                }
            }
        }
        Ok(())
    }

    fn insert(&mut self, path: String, text: String) {
        let code = if path.ends_with(".rs") {
            lex::code_only(&text)
        } else {
            String::new()
        };
        self.files.insert(path, File { text, code });
    }

    /// Returns a tree that exists only in memory.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree {
            root: PathBuf::new(),
            files: BTreeMap::new(),
            pictures: Vec::new(),
        };
        for (path, text) in files {
            tree.insert((*path).to_string(), (*text).to_string());
        }
        tree
    }

    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file))
    }

    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &File)> {
        self.iter().filter(|(path, _)| path.ends_with(".rs"))
    }

    pub(crate) fn markdown(&self) -> impl Iterator<Item = (&str, &File)> {
        self.iter().filter(|(path, _)| path.ends_with(".md"))
    }

    /// Returns whether a file or a directory of this name exists.
    pub(crate) fn holds(&self, path: &str) -> bool {
        let directory = format!("{}/", path.trim_end_matches('/'));
        path.is_empty()
            || self
                .files
                .keys()
                .chain(&self.pictures)
                .any(|known| known == path || known.starts_with(&directory))
    }
}

pub(crate) fn directory_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// Joins and resolves `..`.
pub(crate) fn join(directory: &str, path: &str) -> String {
    let mut parts: Vec<&str> = directory
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}
