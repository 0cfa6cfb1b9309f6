//! Puts load on TLS servers, and reports what it costs the server.
//!
//! Every server is measured in the same way: load comes from [`load`], memory and CPU time are read
//! from the operating system for the whole process tree (`dormouse-measure`), and a run yields one
//! [`model::Run`] in which every figure has its unit. The library prints nothing; it reports the
//! progress of a run to a [`Console`].
//!
//! `audit` is built on this crate: it uses this load, this session with a server and these charts.
//! Nothing here knows of findings or advice.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod fuzzed;
mod garbage;
pub mod load;
pub mod model;
mod modes;
pub mod report;
mod session;
mod spec;

pub use modes::run;
pub use session::{Console, MeasuredSide, Progress, Session};
pub use spec::{Bulk, Churn, Hold, Mode, Request, Spec, Wake};
