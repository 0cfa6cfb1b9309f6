//! Parsers of this crate that read untrusted bytes, exposed for `fuzz/` only; not a public interface.

use crate::{glibc, jvm, process, profile, python, v8};

/// Parses a text as each of the texts that a census reads.
pub fn proc_text(text: &str) {
    let _ = text.lines().filter_map(process::region).count();
    let _ = (
        jvm::parse(text),
        v8::count(text),
        v8::receive(&mut text.as_bytes()),
    );
}

/// Walks the bytes as a fully resident heap, as CPython pools and as the state of CPython's collector; returns the
/// number of blocks in use.
pub fn heap(bytes: &[u8]) -> u64 {
    let _ = python::has_collector(bytes, 4096);
    glibc::walk_bytes(bytes) + python::blocks_of(bytes)
}

/// Reads the bytes as a program and returns the names of the functions at some offsets of it.
pub fn symbols(bytes: &[u8], offsets: &[u64]) -> Vec<String> {
    profile::names(bytes, offsets)
}
