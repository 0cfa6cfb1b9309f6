//! What an operator meets: the start and its refusals, control, metrics, pages and logs.

mod control;
mod fleets;
mod logs;
mod monitoring;
mod redirect;
mod start;
