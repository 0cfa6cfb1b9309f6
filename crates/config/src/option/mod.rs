//! What an option is: its definition, its type, its line of the reference.

pub(crate) mod group;
pub(crate) mod option_type;
pub(crate) mod reference;
pub(crate) mod schema;
pub(crate) mod spec;
