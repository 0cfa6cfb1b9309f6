//! Ticket keys shared by a fleet through Redis or Valkey.
//!
//! The store holds one value: the keys, encrypted with the fleet's secret. A separate process without
//! privileges polls it every few seconds. The first machine that finds a rotation due generates the next
//! keys, and writes them unless the value has changed since it was read (WATCH, MULTI, EXEC). So any
//! machine can rotate for all. Rotation promotes the *next* key, which every machine has known for a whole
//! period.
//!
//! Handshakes do not depend on the store: main receives new keys when there are any, and keeps its
//! current keys otherwise. Main parses nothing from the store but keys that were decrypted successfully.
//! Clocks may differ by minutes: a ticket from the near future is valid, and every machine knows the *next*
//! key long before it encrypts tickets.
//!
//! ```text
//!   link      main's side: starts the process, receives its reports
//!   member    the process: one machine of the fleet
//!   messages  messages between the two
//!   resp      the store's protocol: commands and bounded replies
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
pub use secret::{FILE_BYTES_MAX, Secret};
