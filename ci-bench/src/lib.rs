//! Instruction counts of what must not become dearer: a wake, a record, a handshake.
//!
//! Time on a shared machine says little; the number of instructions is the same however busy it is. Valgrind's callgrind
//! counts them, of a build that is optimised where it matters (see `build`), and the test `counts` compares them with
//! `counts.toml`.
//!
//! ```text
//! tests/counts.rs ── build ──▶ the binary `counted`, optimised
//!        │                          │
//!        │        callgrind ── runs each of `cases` under valgrind ──▶ target/tmp/counts/CASE.callgrind
//!        ▼
//!      figures: counts.toml, what is compared and how it is said
//! ```
#![forbid(unsafe_code)]

pub mod build;
pub mod callgrind;
pub mod cases;
pub mod figures;
pub mod watch;
