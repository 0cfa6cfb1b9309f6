//! Measures a program from outside: its process tree, memory, CPU time and the kernel's memory.
//!
//! A server is a *tree*: a process, all its descendants, and processes that were re-parented but
//! still belong to it. Figures are sums over the tree. Memory that several processes of the tree
//! map is counted once in PSS (each has its share) and several times in RSS, so bytes per
//! connection are always taken from PSS.
//!
//! The crate knows neither TLS nor load. It is below `bench`, `audit` and `demo`, because all three
//! must agree on what a byte per connection is. It also starts and stops programs, because a tree is
//! found differently when this process is the parent. Main uses it to name the process that holds an
//! address.
#![forbid(unsafe_code)]

mod cpu;
mod error;
#[doc(hidden)]
pub mod fuzzed;
mod interrupts;
mod kernel;
pub mod limits;
mod machine;
mod memory;
pub mod proc_files;
mod sample;
mod server;
pub mod sockets;
mod stats;
pub mod termination;
mod tree;

pub use cpu::CpuTime;
pub use error::{Blame, Error};
pub use interrupts::Interrupts;
pub use kernel::{KernelMemory, SLAB_CACHES};
pub use machine::{Machine, page_bytes};
pub use memory::Memory;
pub use sample::TreeSample;
pub use server::{Server, ServerSource};
pub use stats::{Growth, Latencies, Slope, SparseHistogram, Summary, Verdict};
pub use tree::{ProcessInfo, ProcessTree, descendants, parent_of_same_name};
