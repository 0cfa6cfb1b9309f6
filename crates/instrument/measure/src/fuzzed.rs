//! Parsers of this crate that read untrusted bytes, for `fuzz/` only: not an interface.

use crate::cpu::CpuTime;
use crate::memory::Memory;
use crate::{interrupts, kernel, limits, machine, proc_files, sockets, tree};

/// Parses a text as each of the files under `/proc` that a measurement reads.
pub fn proc_text(text: &str) {
    let _ = Memory::parse(text);
    let _ = CpuTime::ticks(text);
    let _ = tree::stat(1, text);
    let _ = text.lines().filter_map(sockets::parse).count();
    let _ = (
        proc_files::limit(text),
        proc_files::id_field(text, "Uid:", 1),
    );
    let _ = (
        proc_files::kb_field(text, "MemTotal"),
        proc_files::stat_fields(text),
    );
    let _ = (
        kernel::counter(text, "TCP", "mem"),
        kernel::slab_bytes(text),
    );
    let _ = (machine::processor(text), interrupts::ignored_in(text));
    let _ = (limits::groups_in(text), limits::processors_in(text));
    let _ = (limits::quota(text), limits::memory_left(text, text, text));
}
