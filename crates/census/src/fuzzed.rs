//! Parsers of this crate that take strangers' bytes, for `fuzz/` alone: no interface.

use crate::{glibc, jvm, process, python, v8};

/// Reads a text as each of those that a census reads.
pub fn proc_text(text: &str) {
    let _ = text.lines().filter_map(process::region).count();
    let own = ["4711".to_owned()].into();
    let _ = text
        .lines()
        .filter_map(|line| v8::listener(line, &own))
        .count();
    let _ = (
        jvm::parse(text),
        v8::count(text),
        v8::receive(&mut text.as_bytes()),
    );
}

/// Walks bytes as a heap, all of whose pages are resident, and as pools of CPython: blocks in use.
pub fn heap(bytes: &[u8]) -> u64 {
    glibc::walk_bytes(bytes) + python::blocks_of(bytes)
}
