//! Main: the process with the stable pid, and the only one with privileges.
//!
//! Main reads the configuration, certificates and keys, opens the listeners, creates the shared memory,
//! and starts one keeper per worker. Then it waits for signals, exits of processes, and orders from
//! control. It holds no connection and reads nothing from the network.
//!
//! ```text
//!   supervisor    the loop, and the effects of main's parts on each other
//!
//!   serving       the running configuration, and what serves it
//!     edition       a configuration with its certificates, and its number
//!     reported      what control is told of it
//!     material      certificates, keys and CAs from files
//!     contexts      TLS contexts, built once to find errors
//!     listening     sockets that all workers poll         route_numbers  numbers of routes in slots
//!     pairs         keepers and workers                   shared_memory  memory of all workers
//!     ticket_keys   ticket keys and their rotation        session_files  sessions of originations
//!
//!   load          a configuration with all that it names, for `serve`, `check` and reload alike
//!     examine     tries addresses, users and files        findings      the problems found
//!
//!   start         the start of the program                resume         the start after an upgrade
//!   reload        from one configuration to the next      reload_report  its result
//!     reload_answer  what its caller may not expect      ctl_changes  what orders have changed until then
//!   upgrade       replacement by another binary           main_state     what that binary gets
//!   drain         gradual closing of all connections
//!
//!   control       the process that answers requests       control_addresses  its listeners
//!   scout         names and health of backends            authorities    OCSP responders, ACME servers
//!   certificate_watch   changes of files                  systemd        notifications, inherited sockets
//!   syslog        sockets to syslog                       helper_process start and end of a helper
//!   redirect      the process that answers plain HTTP     connection_log the process that writes the connection log
//! ```
#![forbid(unsafe_code)]

mod authorities;
mod certificate_watch;
mod connection_log;
mod contexts;
mod control;
mod control_addresses;
mod ctl_changes;
mod deep_rest;
mod directories;
mod drain;
mod edition;
mod error;
mod examine;
mod expiry_notice;
mod findings;
mod helper_process;
mod listening;
mod load;
mod main_state;
mod material;
mod new_binary;
mod occasion;
mod pages;
mod pairs;
mod process_setup;
mod recount;
mod redirect;
mod reload;
mod reload_answer;
mod reload_report;
mod reported;
mod resume;
mod route_numbers;
mod scout;
mod serving;
mod session_files;
mod shared_memory;
mod socket_file;
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
pub use occasion::{LookUp, Occasion, Occupied, Purpose};
pub use resume::{resume, try_resume};
pub use source::Source;
pub use start::serve;
pub use upgrade::CAN_RESUME;
