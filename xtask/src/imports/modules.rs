//! The modules of a crate, the names each declares, and the paths each mentions.

use std::collections::HashMap;

/// All modules of one crate; the first is its root. A module is referred to by its index.
pub(super) struct Modules {
    all: Vec<Module>,
}

pub(super) struct Module {
    /// File of its text; an inline module is in the file around it.
    pub(super) file: String,
    pub(super) parent: Option<usize>,
    /// One name can be a module and a function at once.
    pub(super) names: HashMap<String, Vec<Meaning>>,
    /// Paths of `use path::*`.
    pub(super) globs: Vec<Vec<String>>,
    mentions: Vec<Mention>,
}

#[derive(Clone)]
pub(super) enum Meaning {
    Module(usize),
    /// An item that this module defines.
    Item(usize),
    /// Items that `use` imported.
    Import(Vec<String>),
}

/// A path written in the code of a module.
pub(super) struct Mention {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
    /// From `pub use` and the like.
    pub(super) is_reexport: bool,
}

impl Modules {
    pub(super) fn new() -> Modules {
        Modules { all: Vec::new() }
    }

    pub(super) fn add(&mut self, file: &str, parent: Option<usize>) -> usize {
        self.all.push(Module {
            file: file.to_string(),
            parent,
            names: HashMap::new(),
            globs: Vec::new(),
            mentions: Vec::new(),
        });
        self.all.len() - 1
    }

    pub(super) fn get(&self, module: usize) -> &Module {
        &self.all[module]
    }

    pub(super) fn declare(&mut self, module: usize, name: &str, meaning: Meaning) {
        let names = &mut self.all[module].names;
        names.entry(name.to_string()).or_default().push(meaning);
    }

    pub(super) fn import_all(&mut self, module: usize, path: Vec<String>) {
        self.all[module].globs.push(path);
    }

    pub(super) fn mention(&mut self, module: usize, mention: Mention) {
        self.all[module].mentions.push(mention);
    }

    pub(super) fn mentions(&self) -> impl Iterator<Item = (usize, &Mention)> {
        let all = self.all.iter().enumerate();
        all.flat_map(|(index, module)| module.mentions.iter().map(move |mention| (index, mention)))
    }

    /// Returns whether `module` is a descendant of `ancestor`.
    pub(super) fn is_below(&self, module: usize, ancestor: usize) -> bool {
        let mut above = self.all[module].parent;
        while let Some(parent) = above {
            if parent == ancestor {
                return true;
            }
            above = self.all[parent].parent;
        }
        false
    }
}
