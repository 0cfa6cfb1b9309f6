//! Load for TLS servers, and measuring a live process from outside.
//!
//! Any server is measured as ours is: load comes from [`load`], memory and CPU time are read from
//! the operating system for the whole process tree ([`measure`]), and a run yields one [`model::Run`]
//! in which every figure has its unit. The library prints nothing; a [`Console`] is told how far
//! a run is.
#![forbid(unsafe_code)]

pub mod audit;
mod ending;
pub mod load;
pub mod measure;
pub mod model;
mod modes;
pub mod report;
mod server;
mod session;
mod signals;
mod spec;
pub mod stats;
mod trouble;

pub use modes::run;
pub use server::ServerSource;
pub use session::{Console, Progress, Whose};
pub use spec::{Bulk, Churn, Hold, Mode, Request, Spec, Wake};
pub use trouble::{Blame, Trouble};
