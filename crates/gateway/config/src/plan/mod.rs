//! The plan: a configuration fitted to a machine.

pub(crate) mod budget;
pub(crate) mod kernel;
pub(crate) mod machine;
pub(crate) mod sizing;
pub(crate) mod systemd;
