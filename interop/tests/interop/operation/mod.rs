//! Operation: the start and its errors, control, metrics, pages and logs.

mod agreement;
mod connection_log;
mod connections;
mod control;
mod day;
mod deep_rest;
mod fleets;
mod foreign_text;
mod instances;
mod keys;
mod logs;
mod max_awake;
mod monitoring;
mod redirect;
pub(crate) mod rest_after;
mod rest_and_others;
mod rest_deaths;
pub(crate) mod rest_on_machines;
mod shipped;
mod start;
mod syslog;
