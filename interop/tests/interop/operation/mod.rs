//! What an operator meets: the start and its refusals, control, metrics, pages and logs.

mod agreement;
mod connection_log;
mod control;
mod fleets;
mod foreign_text;
mod logs;
mod monitoring;
mod redirect;
mod start;
mod syslog;
