//! Advice by software.
//!
//! Figures are quoted only where the change was tried on the real software: a name in double braces is a row of
//! `quoted.md`, made of the lab's results. Figures of the cases that started this project stand in the text, which
//! says so. The text also says where a change was not tried.

pub(super) mod handshakes;
pub(super) mod memory;
pub(super) mod sessions;
