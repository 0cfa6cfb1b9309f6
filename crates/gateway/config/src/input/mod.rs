//! Files and flags, read into one tree of values, and from there into options.

pub(crate) mod environment;
pub(crate) mod files;
pub(crate) mod flags;
pub(crate) mod locations;
pub(crate) mod names;
pub(crate) mod reader;
pub(crate) mod toml_file;
