//! Advice by software.
//!
//! Advice quotes figures only where the change was tried on the real software: a name in double braces is a row of
//! `quoted.md`, which is generated from the lab's results. Figures from the cases that started this project are in the
//! text, which names their origin. The text also says where a change was not tried.

pub(super) mod handshakes;
pub(super) mod memory;
pub(super) mod sessions;
