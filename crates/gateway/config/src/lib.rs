//! The configuration: plain data, checked as a whole.
//!
//! ```text
//! a file, flags ──> raw values with locations ──> Config ──> Plan for this machine
//!     input/                  input/              checks/        plan/
//! ```
//!
//! The tables in `options/` are the only place where an option is described; `values/` has the
//! types that an option may have. All mistakes are collected, and each has its location, the reason
//! and the remedy (`mistakes/`).
#![forbid(unsafe_code)]

mod checks;
mod config;
mod finding;
mod former;
mod input;
mod load;
mod mistakes;
mod option;
mod options;
mod plan;
mod reference;
mod schema;
mod section;
mod values;

#[cfg(test)]
mod tests;

pub use checks::listeners::{
    item_of as listen_item, metrics_overlap, overlap as listeners_overlap,
};
pub use config::{Config, Lifetime, RouteDefaults};
pub use finding::{Finding, Place};
pub use input::flags::Flag;
pub use load::{
    Examine, Loaded, admin_of, judge, load, load_with, look_up, plan_for, plan_with, read_duration,
    read_network,
};
pub use mistakes::mistake::{Blame, Mistake, Mistakes, Severity, Source};
pub use mistakes::texts::STANDARD_INPUT;
pub use option::group::OptionGroup;
pub use option::option_type::Kind;
pub use option::spec::{Applies, OptionDefault, OptionSpec};
pub use options::{
    Acme, Limits, Log, Originate, Process, Redirect, Route, Sockets, Tickets, Timeouts,
};
pub use plan::budget::Cost;
pub use plan::machine::Machine;
pub use plan::sizing::{Plan, is_own_network};
pub use plan::systemd::{
    SYSTEMD_VARIABLES, environment_number, hands_in_listeners, is_for_this_process,
};
pub use reference::reference;
pub use schema::schema;
pub use section::Section;
pub use values::acme_name::AcmeName;
pub use values::address::{of_one_family, usable};
pub use values::admin::Admin;
pub use values::amounts::Amount;
pub use values::choices::{
    AcmeChallenge, BackendDown, Balance, ClientAsk, ConnectTime, LogFormat, LogLevel, NameUnknown,
    ProxyProtocol, Recheck, RedirectStatus, ResolveNames, Sandbox, StapledOcsp, Starttls,
    SyslogFacility, TlsGroup, TlsProfile, TlsSuite, TlsVersion, Truncation,
};
pub use values::client_match::ClientMatch;
pub use values::dns_server::DnsServer;
pub use values::endpoints::{Backend, Listen, PlainListen, Server};
pub use values::key_source::{KeySource, StoreAddress};
pub use values::log_target::{LogDestination, LogTarget};
pub use values::metrics_address::MetricsAddress;
pub use values::network::Network;
pub use values::pem_files::{Ca, CertificateFiles, ClientCa};
pub use values::probe::{Probe, StatusCodes};
pub use values::quantities::{ByteSize, Count, share_of};
pub use values::route_name::RouteName;
pub use values::route_timeout::RouteTimeout;
pub use values::server_name::ServerName;
pub use values::source_address::SourceAddress;
pub use values::spiffe::{SpiffeAgent, SpiffeCertificate, SpiffeRule, TrustDomain};
pub use values::step::Step;
pub use values::syslog::SyslogAddress;
pub use values::token_key::TokenKey;
pub use values::units::{milliseconds, seconds, show_duration, show_number};
pub use values::upstream::{Upstream, WEIGHT_MAX};
