//! Imports between files of the languages that the bindings are for, read line by line: `require` in
//! JavaScript, `from .x import` in Python, `import` in Java. An import inside a function counts too.

use super::graph::Graph;
use crate::tree::{Tree, directory_of, join};

const FOLDER: &str = "bindings/";

/// Returns the imports of all scripts in the folder of the bindings.
pub(crate) fn read(tree: &Tree) -> Graph {
    let mut graph = Graph::default();
    for (from, file) in tree.iter().filter(|(path, _)| path.starts_with(FOLDER)) {
        let imported: fn(&Tree, &str, &str) -> Vec<String> = match from.rsplit_once('.') {
            Some((_, "js")) => required,
            Some((_, "py")) => imported_by_python,
            Some((_, "java")) => imported_by_java,
            _ => continue,
        };
        for (index, line) in file.text.lines().enumerate() {
            for to in imported(tree, from, line) {
                let name = to.rsplit('/').next().unwrap_or(&to);
                graph.add(from, &to, index + 1, name);
            }
        }
    }
    graph
}

/// `require('./x')`: the file beside it.
fn required(tree: &Tree, from: &str, line: &str) -> Vec<String> {
    let named = line
        .split("require('")
        .skip(1)
        .filter_map(|rest| rest.split('\'').next());
    let beside = named.filter(|name| name.starts_with('.'));
    let paths = beside.flat_map(|name| {
        let path = join(directory_of(from), name);
        [format!("{path}.js"), format!("{path}/index.js"), path]
    });
    paths.filter(|path| tree.get(path).is_some()).collect()
}

/// `from .x import y` and `from . import x`: modules of the same package.
fn imported_by_python(tree: &Tree, from: &str, line: &str) -> Vec<String> {
    let Some((module, names)) = line
        .trim_start()
        .strip_prefix("from .")
        .and_then(|rest| rest.split_once(" import "))
    else {
        return Vec::new();
    };
    let directory = directory_of(from);
    let modules: Vec<&str> = match module {
        "" => names.split(',').map(str::trim).collect(),
        _ => vec![module],
    };
    let paths = modules
        .iter()
        .map(|module| format!("{directory}/{}.py", module.replace('.', "/")));
    paths.filter(|path| tree.get(path).is_some()).collect()
}

/// `import a.B;`: the file of that class. Classes of one package need no import, so that only
/// packages can form a cycle.
fn imported_by_java(tree: &Tree, from: &str, line: &str) -> Vec<String> {
    let name = line
        .strip_prefix("import ")
        .map(|rest| rest.trim_start_matches("static "));
    let Some((name, root)) = name
        .and_then(|name| name.strip_suffix(';'))
        .zip(source_root(from))
    else {
        return Vec::new();
    };
    // A static import names a member of the class.
    let class = name.replace('.', "/");
    let paths = [class.as_str(), directory_of(&class)].map(|class| format!("{root}{class}.java"));
    paths
        .into_iter()
        .filter(|path| tree.get(path).is_some())
        .collect()
}

/// Returns the folder in which a Java file's packages are.
fn source_root(path: &str) -> Option<&str> {
    path.find("/java/dormouse/")
        .map(|at| &path[..at + "/java/".len()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn reads_three_languages() {
        let tree = Tree::of(&[
            (
                "bindings/n/lib/a.js",
                "function f() {\n  const { b } = require('./b'); require('x');\n}",
            ),
            ("bindings/n/lib/b.js", "const { A } = require('../lib/a');"),
            (
                "bindings/p/m/_a.py",
                "from . import _native, _b\nfrom ._c import C",
            ),
            (
                "bindings/p/m/_b.py",
                "if TYPE_CHECKING:\n    from ._a import A",
            ),
            ("bindings/p/m/_c.py", "import os"),
            (
                "bindings/j/src/main/java/dormouse/A.java",
                "import java.util.List;",
            ),
            (
                "bindings/j/src/main/java/dormouse/netty/B.java",
                "import dormouse.A;\nimport static dormouse.A.x;",
            ),
            ("lab/c.js", "require('../bindings/n/lib/a')"),
        ]);
        let graph = read(&tree);
        let all: BTreeSet<&str> = tree.iter().map(|(path, _)| path).collect();
        let arrows = graph.arrows(&all);
        let found: Vec<String> = arrows
            .iter()
            .map(|arrow| format!("{} > {}", arrow.place(), arrow.to))
            .collect();
        assert_eq!(
            found,
            [
                "bindings/j/src/main/java/dormouse/netty/B.java:1 > bindings/j/src/main/java/dormouse/A.java",
                "bindings/n/lib/a.js:2 > bindings/n/lib/b.js",
                "bindings/n/lib/b.js:1 > bindings/n/lib/a.js",
                "bindings/p/m/_a.py:1 > bindings/p/m/_b.py",
                "bindings/p/m/_a.py:2 > bindings/p/m/_c.py",
                "bindings/p/m/_b.py:2 > bindings/p/m/_a.py",
            ]
        );
    }
}
