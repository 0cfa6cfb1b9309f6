//! `record` and `engine` know no sockets, clocks, threads or files.

use super::finding::Finding;
use crate::lex;
use crate::tree::Tree;
use crate::workspace::Package;

const SANS_IO: [&str; 2] = ["crates/tls/record/src/", "crates/tls/engine/src/"];

/// Parts of `std` that they must not name.
const PATHS: [&str; 8] = [
    "std::net",
    "std::os",
    "std::fs",
    "std::env",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::*",
];

/// Addresses are values, not sockets.
const ADDRESSES: [&str; 3] = [
    "std::net::IpAddr",
    "std::net::Ipv4Addr",
    "std::net::Ipv6Addr",
];

/// Calls that read a clock under any name: time is an argument.
const CALLS: [&str; 3] = ["Instant::now", "SystemTime::now", "UnixTime::now"];

pub(super) fn check(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let shipped = tree
        .rust()
        .filter(|(path, _)| SANS_IO.iter().any(|place| path.starts_with(place)));
    for (path, file) in shipped.filter(|(path, _)| !is_test_module(tree, path)) {
        let code = lex::without_tests(&file.code);
        for (at, used) in std_paths(&code) {
            if names_any(&used, &PATHS) && !names_any(&used, &ADDRESSES) {
                let message = format!("`{used}` is not allowed in this crate");
                findings.push(Finding::new(path, lex::line_of(&code, at), message));
            }
        }
        for call in CALLS {
            for at in lex::words(&code, call) {
                let message = format!("`{call}` is not allowed in this crate: time is an argument");
                findings.push(Finding::new(path, lex::line_of(&code, at), message));
            }
        }
    }
    findings
}

/// Returns whether a path is one of the listed paths, or below one.
fn names_any(used: &str, listed: &[&str]) -> bool {
    let below = |path: &&str| {
        used.strip_prefix(*path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    listed.iter().any(below)
}

/// Returns whether a parent declares the file as `#[cfg(test)] mod name;`.
fn is_test_module(tree: &Tree, path: &str) -> bool {
    let Some((directory, file)) = path.rsplit_once('/') else {
        return false;
    };
    let name = file.trim_end_matches(".rs");
    let parents = [
        format!("{directory}/lib.rs"),
        format!("{directory}/mod.rs"),
        format!("{directory}.rs"),
    ];
    let declaration = format!("mod {name};");
    parents
        .iter()
        .filter_map(|parent| tree.get(parent))
        .any(|parent| {
            parent.code.contains(&declaration)
                && !lex::without_tests(&parent.code).contains(&declaration)
        })
}

/// Returns every path that begins with `std`, with groups such as `std::{fs, time::{self,
/// Instant}}` expanded.
fn std_paths(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for at in lex::words(code, "std") {
        let rest = code[at + 3..].trim_start();
        if let Some(rest) = rest.strip_prefix("::") {
            take_apart("std", rest.trim_start(), &mut |path| found.push((at, path)));
        }
    }
    found
}

fn take_apart(prefix: &str, rest: &str, found: &mut dyn FnMut(String)) {
    if rest.starts_with('{') {
        let end = lex::matching_brace(rest, 0);
        for part in split_group(&rest[1..end.saturating_sub(1)]) {
            take_apart(prefix, part, found);
        }
        return;
    }
    let length = rest
        .bytes()
        .take_while(|byte| lex::is_word(*byte) || *byte == b'*')
        .count();
    let path = format!("{prefix}::{}", &rest[..length]);
    match rest[length..].trim_start().strip_prefix("::") {
        Some(deeper) if length > 0 => take_apart(&path, deeper.trim_start(), found),
        _ => found(path),
    }
}

/// Splits at the commas that are not inside a nested group.
fn split_group(group: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    let parts = group.split(move |c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)]), &[]).len()
    }

    #[test]
    fn finds_forbidden_names_in_sans_io_crates() {
        let engine = "crates/tls/engine/src/a.rs";
        assert_eq!(found(engine, "use std::net::TcpStream;"), 1);
        assert_eq!(
            found(
                engine,
                "use std::{collections::HashMap, fs, time::{Duration, Instant}};"
            ),
            2
        );
        assert_eq!(found(engine, "fn a() { std::thread::sleep(d); }"), 1);
        assert_eq!(
            found(
                engine,
                "use rustls_pki_types::UnixTime; fn a() { UnixTime::now(); }"
            ),
            1
        );
    }

    #[test]
    fn allows_other_names_and_other_crates() {
        assert_eq!(
            found(
                "crates/tls/engine/src/a.rs",
                "use std::time::Duration; // std::fs\n"
            ),
            0
        );
        assert_eq!(
            found(
                "crates/tls/engine/src/a.rs",
                "#[cfg(test)]\nmod tests { use std::fs; }"
            ),
            0
        );
        assert_eq!(
            found(
                "crates/tls/engine/src/a.rs",
                "use std::net::{IpAddr, Ipv4Addr}; fn a() { std::net::Ipv6Addr::from(b) }"
            ),
            0
        );
        assert_eq!(found("crates/tls/engine/tests/a.rs", "use std::fs;"), 0);
        assert_eq!(
            found("crates/gateway/dataplane/src/a.rs", "use std::fs;"),
            0
        );
    }

    #[test]
    fn a_module_for_tests_only_may_read_files() {
        let tests = ("crates/tls/record/src/vectors.rs", "use std::fs;");
        let marked = Tree::of(&[
            ("crates/tls/record/src/lib.rs", "#[cfg(test)]\nmod vectors;"),
            tests,
        ]);
        assert!(check(&marked, &[]).is_empty());
        let shipped = Tree::of(&[("crates/tls/record/src/lib.rs", "mod vectors;"), tests]);
        assert_eq!(check(&shipped, &[]).len(), 1);
    }
}
