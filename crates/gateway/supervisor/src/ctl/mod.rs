//! Changes of the running configuration by `dormouse ctl`, which its files do not have.

pub(crate) mod change;
pub(crate) mod kept;
