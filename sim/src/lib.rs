//! Deterministic simulations with random cuts, flipped bits and orders of events.
//!
//! Each simulation prints its seed, and `SEED=… cargo test -p dormouse-sim` replays it step by step.
//!
//! A [`World`] simulates whole connections through the data path: the real worker over a simulated
//! kernel, and peers with plans. See `docs/internals/simulation.md`.
#![forbid(unsafe_code)]

mod content;
mod io;
mod kernel;
mod peer;
mod random;
mod world;

pub use kernel::{Buffers, Faults, RepairCounts, Sabotage};
pub use random::{Random, seeds};
pub use world::check::Violation;
pub use world::counted::CountedWorker;
pub use world::crowd::{Crowd, Effort, Hog};
pub use world::scenario::{Command, Options, ProxyHeaders, RouteKind, STALL_US, Scenario};
pub use world::{Report, World};
