//! The table of options. Everything else is generated from it: the fields of
//! [`Config`](crate::Config), defaults, reading, checking, the flags of the command line and the
//! reference.
//!
//! An entry is `name: type = default "…"` (or `required "an example"`), then when a change of it
//! takes effect (unless the group says so for all of its options), then the range, then what
//! raising it costs, then (`like`) an example for the reference, if the example of its kind is not
//! good enough. Sizes and durations are written as a user writes them.

mod originate;
mod program;
mod route;

pub use originate::Originate;
pub use program::{Acme, Limits, Log, Process, Redirect, Sockets, Tickets, Timeouts};
pub use route::Route;
