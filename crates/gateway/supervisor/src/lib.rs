//! Main: the process with the stable pid, and the only one with privileges.
//!
//! Main reads the configuration, certificates and keys, opens the listeners, creates the shared memory,
//! and starts one keeper per worker. Then it waits for signals, exits of processes, and orders from
//! control. It holds no connection and reads nothing from the network.
//!
//! ```text
//!   supervisor     the loop, and the effects of main's parts on each other
//!
//!   serving        the running configuration, and what serves it
//!     reported       what control is told of it
//!     contexts       TLS contexts, built once to find errors
//!     pairs          keepers and workers                   shared_memory  memory of all workers
//!     ticket_keys    ticket keys and their rotation        session_files  sessions of originations
//!     route_numbers  numbers of routes in slots
//!
//!   configuration  with all that it names
//!     load           reads it, for `serve`, `check` and reload alike
//!     examine        tries addresses, users and files
//!     edition        a configuration with its certificates, and its number
//!     certificate_watch   changes of files                 expiry_notice  certificates that expire soon
//!   material       certificates, keys and CAs from files   findings       the problems found
//!   sockets        listeners, unix sockets, systemd, syslog
//!
//!   start          the start of the program                resume         the start after an upgrade
//!   reload         from one configuration to the next      report         its result
//!     answer         what its caller may not expect        ctl_changes    what orders have changed until then
//!   ctl            changes by orders                       kept           those that a reload does not end
//!   upgrade        replacement by another binary           main_state     what that binary gets
//!   drain          gradual closing of all connections
//!
//!   helper_process start and end of a helper:
//!     control        answers requests                      addresses      its listeners
//!     scout          names and health of backends          authorities    OCSP responders, ACME servers
//!     redirect       answers plain HTTP                    connection_log writes the connection log
//!     deep_rest      takes quiet connections out of the kernel
//! ```
#![forbid(unsafe_code)]

mod authorities;
mod configuration;
mod connection_log;
mod contexts;
mod control;
mod ctl;
mod deep_rest;
mod drain;
mod error;
mod helper_process;
mod material;
mod pages;
mod pairs;
mod recheck;
mod recount;
mod redirect;
mod reload;
mod reported;
mod route_numbers;
mod scout;
mod serving;
mod session_files;
mod shared_memory;
mod signer;
mod sockets;
mod spiffe;
mod start;
mod supervisor;
mod ticket_keys;
mod tokens;
mod traces;
mod upgrade;
mod worker_user;

pub use configuration::load::{Ready, load};
pub use configuration::occasion::{LookUp, Occasion, Occupied, Purpose};
pub use configuration::source::Source;
pub use error::ServeError;
pub use material::acme::file_of as acme_file;
pub use start::resume::{resume, try_resume};
pub use start::serve;
pub use upgrade::CAN_RESUME;
