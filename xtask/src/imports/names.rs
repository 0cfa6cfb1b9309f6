//! Name resolution: from a path to the item, and the module that defines it.

use super::modules::{Meaning, Modules};

/// Returns what `path` names in `module`: each item's defining module and its name there. Empty if
/// the path leads to another crate.
pub(super) fn resolve(modules: &Modules, module: usize, path: &[String]) -> Vec<(usize, String)> {
    let mut search = Search {
        modules,
        open: Vec::new(),
    };
    let found = search.path(module, path);
    let items = found.into_iter().filter_map(|found| match found {
        Found::Item(definer, name) => Some((definer, name)),
        Found::Module(_) => None,
    });
    items.collect()
}

enum Found {
    Module(usize),
    /// An item, by the module that defines it and its name.
    Item(usize, String),
}

struct Search<'a> {
    modules: &'a Modules,
    /// Names that are being looked up, so that circular imports terminate.
    open: Vec<(usize, String)>,
}

impl Search<'_> {
    fn path(&mut self, module: usize, path: &[String]) -> Vec<Found> {
        let Some((first, rest)) = path.split_first() else {
            return vec![Found::Module(module)];
        };
        let start = match first.as_str() {
            "crate" => vec![Found::Module(0)],
            "self" => vec![Found::Module(module)],
            "super" => {
                let parent = self.modules.get(module).parent;
                parent.map(Found::Module).into_iter().collect()
            }
            name => self.name(module, name),
        };
        let ends = start.into_iter().flat_map(|found| match found {
            Found::Module(next) => self.within(next, rest),
            // A name after an item is a variant or an associated item.
            item @ Found::Item(..) => vec![item],
        });
        ends.collect()
    }

    /// Resolves the rest of a path whose beginning led to `module`.
    fn within(&mut self, module: usize, path: &[String]) -> Vec<Found> {
        let found = self.path(module, path);
        match path.first() {
            // The compiler knows this name: a macro must have defined it.
            Some(name) if found.is_empty() => vec![Found::Item(module, name.clone())],
            _ => found,
        }
    }

    /// Returns what `name` means in the scope of `module`.
    fn name(&mut self, module: usize, name: &str) -> Vec<Found> {
        let key = (module, name.to_string());
        if self.open.contains(&key) {
            return Vec::new();
        }
        self.open.push(key);
        let modules = self.modules;
        let declared = modules.get(module).names.get(name);
        let mut found = Vec::new();
        for meaning in declared.into_iter().flatten() {
            match meaning {
                Meaning::Module(child) => found.push(Found::Module(*child)),
                Meaning::Item(definer) => found.push(Found::Item(*definer, name.to_string())),
                Meaning::Import(path) => found.extend(self.path(module, path)),
            }
        }
        if declared.is_none() {
            for glob in &modules.get(module).globs {
                for source in self.path(module, glob) {
                    if let Found::Module(source) = source {
                        found.extend(self.name(source, name));
                    }
                }
            }
        }
        self.open.pop();
        found
    }
}
