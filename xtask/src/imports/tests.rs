use super::*;
use crate::tidy::package;

/// Returns imports as `importer:line > imported name`, for a crate with these files.
fn imports(files: &[(&str, &str)]) -> Vec<String> {
    let tree = Tree::of(files);
    let graphs = read(&tree, &package("a", &[])).expect("valid source");
    let all = files.iter().map(|(path, _)| *path).collect();
    let short = |path: &str| {
        path.trim_start_matches("a/src/")
            .trim_end_matches(".rs")
            .to_string()
    };
    let mut lines = Vec::new();
    for arrow in graphs[0].arrows(&all) {
        for (name, place) in arrow.names {
            lines.push(format!(
                "{}:{} > {} {name}",
                short(arrow.from),
                place.line,
                short(arrow.to)
            ));
        }
    }
    lines
}

const THREE: (&str, &str) = ("a/src/lib.rs", "mod b; mod c; mod d;");

#[test]
fn reads_use_trees_and_paths() {
    let found = imports(&[
        THREE,
        (
            "a/src/b.rs",
            "use crate::{c::{self, C as See}, d};\nuse std::fmt;\nfn f() {\n  d::run();\n  c::C::new();\n}",
        ),
        (
            "a/src/c.rs",
            "pub struct C;\nfn g(_: &super::d::D<crate::b::B>) {}",
        ),
        ("a/src/d.rs", "pub struct D; pub fn run() {}"),
    ]);
    assert_eq!(
        found,
        ["b:1 > c C", "b:4 > d run", "c:2 > b B", "c:2 > d D"]
    );
}

#[test]
fn re_exports_lead_to_the_definition() {
    let found = imports(&[
        (
            "a/src/lib.rs",
            "mod b; mod c; mod d;\npub use b::B;\npub(crate) use b::deep as steep;",
        ),
        ("a/src/b.rs", "pub mod deep;\npub use deep::B;"),
        ("a/src/b/deep.rs", "pub struct B;\npub fn run() {}"),
        ("a/src/c.rs", "use crate::B;\nuse crate::steep::run;"),
        ("a/src/d.rs", "use crate::c::*;\nfn f(_: B) {}"),
    ]);
    assert_eq!(
        found,
        ["c:1 > b/deep B", "c:2 > b/deep run", "d:2 > b/deep B"]
    );
}

#[test]
fn a_parent_that_uses_what_it_re_exports_imports_it() {
    let found = imports(&[
        ("a/src/lib.rs", "mod b;\npub use b::B;\nfn f(b: B) {}"),
        ("a/src/b.rs", "pub struct B;"),
    ]);
    assert_eq!(found, ["lib:3 > b B"]);
}

#[test]
fn macros_and_attributes_are_read() {
    let found = imports(&[
        THREE,
        (
            "a/src/b.rs",
            "fn f() {\n  println!(\"{}\", x.d::<u8>(crate::c::go(1)));\n  made!();\n}\n#[arg(value_parser = super::d::parse)]\nstruct S;\nuse crate::c::Generated;",
        ),
        ("a/src/c.rs", "make!(Generated);"),
        ("a/src/d.rs", "pub fn parse() {}"),
    ]);
    assert_eq!(found, ["b:7 > c Generated", "b:2 > c go", "b:5 > d parse"]);
}

#[test]
fn tests_are_left_out() {
    let found = imports(&[
        THREE,
        (
            "a/src/b.rs",
            "#[cfg(test)]\nmod tests { use crate::c::C; }\n#[cfg(test)]\nfn f() { crate::c::C; }\n#[cfg(all(test, unix))]\nuse crate::d::D;",
        ),
        (
            "a/src/c.rs",
            "pub struct C;\nimpl C {\n  #[cfg(test)]\n  fn f() { crate::d::D; }\n}\n#[cfg(test)]\nmod tests;",
        ),
        ("a/src/d.rs", "pub struct D;"),
    ]);
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn cycles_are_found_and_the_cuts_end_them() {
    let tree = Tree::of(&[
        ("a/src/lib.rs", "mod b; mod c; mod d; mod e;"),
        (
            "a/src/b.rs",
            "use crate::{c::C, d::D, e::E};\npub struct B;",
        ),
        ("a/src/c.rs", "use crate::d::D;\npub struct C;"),
        ("a/src/d.rs", "pub struct D;\nuse crate::b::B;"),
        ("a/src/e.rs", "pub struct E;"),
    ]);
    let graphs = read(&tree, &package("a", &[])).expect("valid source");
    let components = graphs[0].components();
    assert_eq!(components.len(), 1);
    assert_eq!(components[0].len(), 3);
    let cycle = graphs[0].shortest_cycle(&components[0]);
    let cycle: Vec<_> = cycle
        .iter()
        .map(|arrow| (arrow.from, arrow.place().line, arrow.to))
        .collect();
    assert_eq!(
        cycle,
        [
            ("a/src/b.rs", 1, "a/src/d.rs"),
            ("a/src/d.rs", 2, "a/src/b.rs")
        ]
    );
    let cuts = graphs[0].cuts(&components[0]);
    assert_eq!(cuts.len(), 1);
    assert_eq!((cuts[0].from, cuts[0].to), ("a/src/d.rs", "a/src/b.rs"));
}
