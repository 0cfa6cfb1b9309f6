//! Ticket keys shared by a fleet through Redis or Valkey.
//!
//! The store holds one value: the keys, sealed with the fleet's secret. A process of its own, which
//! has no privileges and nothing else to do, looks at it every few seconds. Whoever finds the keys
//! due makes the next ones and puts them there if the value is still the one it has seen (WATCH,
//! MULTI, EXEC); so one machine rotates for all, and any may. What a machine rotates to is *next*,
//! which all of them have had for a whole period.
//!
//! Handshakes know nothing of this: main is told of new keys when there are any, and goes on with
//! the ones it has when there are none. It reads nothing that the store has sent but keys which
//! were unsealed. Clocks may differ by minutes: a ticket from the near future is good, and *next* is
//! known to everybody long before it seals.
//!
//! ```text
//!   link      main's end: starts the process, takes its reports
//!   member    the process: one machine of the fleet
//!   messages  what both tell each other
//!   resp      its protocol: commands and bounded replies
//! ```

mod link;
mod member;
mod messages;
pub(crate) mod resp;
mod secret;

pub use link::StoreLink;
pub use member::process_entry;
pub use messages::StoreSettings;
pub(crate) use messages::StoreState;
pub use secret::{Secret, read_private};
