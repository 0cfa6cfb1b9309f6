//! Operation: the start and its errors, control, metrics, pages and logs.

mod agreement;
mod connection_log;
mod connections;
mod control;
mod deep_rest;
mod fleets;
mod foreign_text;
mod instances;
mod keys;
mod logs;
mod monitoring;
mod redirect;
mod rest_after;
mod shipped;
mod start;
mod syslog;
