//! What a configuration comes to on a machine.

pub(crate) mod budget;
pub(crate) mod machine;
pub(crate) mod sizing;
pub(crate) mod systemd;
