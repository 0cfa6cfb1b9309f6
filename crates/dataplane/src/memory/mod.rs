//! Memory: pending bytes, what the kernel holds, and connections that wait for either.

pub(crate) mod backlog;
pub(crate) mod compaction;
pub(crate) mod kernel;
pub(crate) mod paced;
pub(crate) mod starved;
