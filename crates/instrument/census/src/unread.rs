//! Allocators and runtimes whose memory a census cannot walk.
//!
//! In such a process, malloc blocks are only a part of the memory that connections use. Without this list, a heap that
//! was already large would make connections look free of cost.

use std::collections::BTreeSet;
use std::fs;

use dormouse_measure::proc_files;

/// Part of the name of a library or program, and the allocator that it contains.
const KNOWN: [(&str, &str); 8] = [
    ("libjvm.so", "the JVM"),
    ("libnode.so", "V8"),
    ("libjemalloc", "jemalloc"),
    ("libtcmalloc", "tcmalloc"),
    ("libmimalloc", "mimalloc"),
    ("libcoreclr.so", ".NET"),
    ("libruby", "Ruby"),
    ("beam.smp", "Erlang's VM"),
];
/// Programs that contain V8 themselves.
const WITH_V8: [&str; 3] = ["node", "nodejs", "deno"];

/// Returns the allocators of a process that cannot be read.
pub(super) fn allocators(pid: i32) -> BTreeSet<String> {
    let maps = proc_files::maps(pid).unwrap_or_default();
    let files = maps.lines().filter_map(|line| line.get(line.find('/')?..));
    let mut found: BTreeSet<String> = files
        .flat_map(|file| KNOWN.iter().filter(move |(part, _)| file.contains(part)))
        .map(|(_, name)| (*name).to_owned())
        .collect();
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    if WITH_V8.contains(&&*program) {
        found.insert("V8".into());
    }
    found
}
