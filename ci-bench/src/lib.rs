//! Instruction counts of a wake, a record and a handshake, to detect when one of them becomes more expensive.
//!
//! On a shared machine times vary; the number of instructions does not. Valgrind's callgrind counts the instructions of a
//! build in which the counted crates are optimised (see `build`), and the test `counts` compares the counts with
//! `counts.toml`.
//!
//! ```text
//! tests/counts.rs ── build ──▶ the binary `counted`, optimised
//!        │                          │
//!        │        callgrind ── runs each of `cases` under valgrind ──▶ target/tmp/counts/CASE.callgrind
//!        ▼
//!      figures: compares the counts with counts.toml
//! ```
#![forbid(unsafe_code)]

pub mod build;
pub mod callgrind;
pub mod cases;
pub mod figures;
pub mod watch;
