//! Main: the process with the stable pid, the only one with privileges.
//!
//! It reads configuration, certificates and keys, opens the listeners, makes the shared memory and
//! starts one keeper per worker. Then it waits: for signals, for processes that end, for clients that
//! ask for the status. It holds no connection and reads nothing from the network.
//!
//! ```text
//!   supervisor    the loop, and how main's parts affect each other
//!
//!   serving       the configuration in force, and what serves it
//!     edition       a configuration with its certificates, counted
//!     material      certificates, keys and authorities from files
//!     contexts      TLS contexts, built once to find mistakes
//!     listening     sockets that all workers poll         route_numbers  what slots name routes by
//!     pairs         keepers and workers                   shared_memory  memory of all workers
//!     ticket_keys   keys of tickets, and their rotation   session_files  sessions of originations
//!
//!   load          a configuration with what it names: `serve`, `check` and reload do it alike
//!     examine     addresses, users and files are tried    findings      what is wrong with them
//!
//!   start         a program that starts                   resume         one that goes on for another
//!   reload        from one configuration to the next      reload_report  what became of it
//!   upgrade       another binary in place of this one     main_state     what that one gets
//!   drain         closing all connections slowly
//!
//!   control       the process that answers requests       control_addresses  where it does
//!   scout         names and health of backends            authorities    OCSP responders, ACME servers
//!   certificate_watch   files that change                 systemd        notifications, inherited sockets
//!   syslog        sockets for messages to syslog
//!   redirect      the process that answers plain HTTP     connection_log the process that writes the log of connections
//! ```
#![forbid(unsafe_code)]

mod authorities;
mod certificate_watch;
mod connection_log;
mod contexts;
mod control;
mod control_addresses;
mod drain;
mod edition;
mod error;
mod examine;
mod findings;
#[doc(hidden)]
pub mod fuzzed;
mod listening;
mod load;
mod main_state;
mod material;
mod new_binary;
mod occasion;
mod pairs;
mod process_setup;
mod redirect;
mod reload;
mod reload_report;
mod resume;
mod route_numbers;
mod scout;
mod serving;
mod session_files;
mod shared_memory;
mod source;
mod start;
mod supervisor;
mod syslog;
mod systemd;
mod ticket_keys;
mod tokens;
mod upgrade;
mod worker_user;

pub use error::ServeError;
pub use load::{Ready, load};
pub use material::acme::file_of as acme_file;
pub use occasion::{LookUp, Occasion, Occupied};
pub use resume::{resume, try_resume};
pub use source::Source;
pub use start::serve;
pub use upgrade::CAN_RESUME;
