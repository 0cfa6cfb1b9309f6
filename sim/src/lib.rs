//! Seeded simulations: what must hold for every byte boundary, every bit and every order of events.
//!
//! Every simulation prints its seed, and `SEED=… cargo test -p dormouse-sim` runs it again, step for step.
//!
//! Whole connections through the data path are a [`World`]: a simulated kernel, the real worker
//! over it, and peers with plans; see `docs/internals/simulation.md`.
#![forbid(unsafe_code)]

mod content;
mod io;
mod kernel;
mod peer;
mod random;
mod world;

pub use kernel::{Buffers, Faults, Sabotage};
pub use random::{Random, seeds};
pub use world::check::Violation;
pub use world::counted::CountedWorker;
pub use world::scenario::{Command, DEAF_US, Options, ProxyHeaders, Scenario, Way};
pub use world::{Report, World};
