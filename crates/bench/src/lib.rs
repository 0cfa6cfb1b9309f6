//! Loads TLS servers, and reports what a server spends on it.
//!
//! Any server is measured as ours is: load comes from [`load`], memory and CPU time are read from
//! the operating system for the whole process tree (`dormouse-measure`), and a run yields one
//! [`model::Run`] in which every figure has its unit. The library prints nothing; a [`Console`] is
//! told how far a run is.
//!
//! `audit` stands on this crate: its load, its session with a server and its charts are these. Nothing
//! here knows of findings or advice.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod fuzzed;
pub mod load;
pub mod model;
mod modes;
pub mod report;
mod session;
mod spec;

pub use modes::run;
pub use session::{Console, MeasuredSide, Progress, Session};
pub use spec::{Bulk, Churn, Hold, Mode, Request, Spec, Wake};
