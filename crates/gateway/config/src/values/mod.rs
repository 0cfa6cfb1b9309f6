//! Types of options, each with its parser.

pub(crate) mod acme_name;
pub(crate) mod address;
pub(crate) mod admin;
pub(crate) mod amounts;
pub(crate) mod choices;
pub(crate) mod client_match;
pub(crate) mod dns_server;
pub(crate) mod endpoints;
pub(crate) mod host_name;
pub(crate) mod key_source;
pub(crate) mod log_target;
pub(crate) mod metrics_address;
pub(crate) mod network;
pub(crate) mod pem_files;
pub(crate) mod probe;
pub(crate) mod quantities;
pub(crate) mod route_name;
pub(crate) mod route_timeout;
pub(crate) mod server_name;
pub(crate) mod source_address;
pub(crate) mod spiffe;
pub(crate) mod step;
pub(crate) mod syslog;
pub(crate) mod token_key;
pub(crate) mod units;
pub(crate) mod upstream;
