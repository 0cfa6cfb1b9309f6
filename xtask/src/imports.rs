//! The actual imports inside a crate, and between the scripts of the bindings: which file names items
//! of which other file. Rust is read with `syn`.
//!
//! A file depends on another if it names an item that the other defines: in a `use`, or by a path
//! in its code. A path through a re-export leads to the file that defines the item. Declaring a
//! module (`mod x;`) and re-exporting from below (`pub use x::Y;`) are not dependencies: a parent
//! may present its children, which must not import the parent. Items marked `#[cfg(test)]` are left
//! out.

mod folders;
mod graph;
mod modules;
mod names;
mod reader;
mod scripts;

pub(crate) use graph::Graph;
pub(crate) use scripts::read as read_scripts;

use crate::tree::Tree;
use crate::workspace::{Package, Target};

/// Kinds of targets that are not examined.
const TESTS: [&str; 3] = ["test", "bench", "example"];

/// Returns the imports of each library and program in `package`.
pub(crate) fn read(tree: &Tree, package: &Package) -> Result<Vec<Graph>, String> {
    let shipped = package.targets.iter().filter(|target| {
        // A root outside the tree is a link to one inside it.
        !TESTS.contains(&target.kind.as_str()) && tree.get(&target.path).is_some()
    });
    shipped.map(|target| read_target(tree, target)).collect()
}

fn read_target(tree: &Tree, target: &Target) -> Result<Graph, String> {
    let modules = reader::read(tree, &target.path)?;
    let mut graph = Graph::default();
    for (module, mention) in modules.mentions() {
        let from = &modules.get(module).file;
        for (definer, name) in names::resolve(&modules, module, &mention.path) {
            if !(mention.is_reexport && modules.is_below(definer, module)) {
                graph.add(from, &modules.get(definer).file, mention.line, &name);
            }
        }
    }
    Ok(graph)
}

#[cfg(test)]
mod tests;
