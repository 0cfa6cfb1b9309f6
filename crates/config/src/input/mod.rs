//! Files and flags, read into one tree of values, and from there into options.

pub(crate) mod context;
pub(crate) mod environment;
pub(crate) mod files;
pub(crate) mod flags;
pub(crate) mod location;
pub(crate) mod locations;
pub(crate) mod reader;
pub(crate) mod texts;
pub(crate) mod toml_file;
pub(crate) mod value;
