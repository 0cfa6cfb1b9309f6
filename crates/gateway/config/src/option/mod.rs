//! What an option is: its definition, its type, its line of the reference.

pub(crate) mod context;
pub(crate) mod group;
pub(crate) mod option_type;
pub(crate) mod spec;
pub(crate) mod value;
