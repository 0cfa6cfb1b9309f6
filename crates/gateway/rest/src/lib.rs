//! Deep rest: a quiet connection whose TCP state is a record of 64 bytes instead of a socket.
//!
//! ```text
//!   repair     takes connections out of the kernel and brings them back, one process for all workers
//!   message    what that process and a worker tell each other
//!   answer     the decision about a packet that came for a record: a pure function
//!   segment    TCP headers, read and written
//!   record     the 64 bytes
//! ```
//!
//! `docs/internals/deep-rest.md` has the design.
#![forbid(unsafe_code)]

mod answer;
mod bounds;
mod message;
mod record;
mod repair;
mod segment;
mod waiting;

pub use answer::{Answer, answer};
pub use message::{Detail, MESSAGE_LEN, Message, Subject};
pub use record::{Phase, Record, Records, RecordsReader};
pub use repair::{Channel, Counts, Parts, Repair};
pub use segment::{Checked, Flags, Segment, acknowledge, check, copy};
