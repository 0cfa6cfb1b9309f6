//! The real imports inside one crate: which file names items of which other file, read with `syn`.
//!
//! A file depends on another if it names an item that the other defines: in a `use`, or by a path in
//! its code. A path through a re-export leads to the file that defines the item. Declaring a module
//! (`mod x;`) and re-exporting from below (`pub use x::Y;`) are no dependencies: so a parent may present
//! its children, which must not import the parent. Whatever is marked `#[cfg(test)]` is left out.

mod graph;
mod modules;
mod names;
mod reader;

pub(crate) use graph::Graph;

use crate::tree::Tree;
use crate::workspace::{Package, Target};

/// Kinds of targets whose files are not examined.
const TESTS: [&str; 3] = ["test", "bench", "example"];

/// The imports of each library and program in `package`.
pub(crate) fn read(tree: &Tree, package: &Package) -> Result<Vec<Graph>, String> {
    let shipped = package.targets.iter().filter(|target| {
        // A root that the tree does not hold is a link to one that it does.
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
