//! What to change in which software.
//!
//! A figure is quoted only where the change was tried on the real thing: a name in double braces is a row of
//! `quoted.md`, made of the lab's results. Figures of the cases which this project began with stand in the text,
//! which says so. Where a change was not tried, the text says that.

pub(super) mod handshakes;
pub(super) mod memory;
pub(super) mod sessions;
