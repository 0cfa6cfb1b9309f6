//! A configuration with all that it names: where it comes from, how it is read and examined, and what changes in its files.

pub(crate) mod certificate_watch;
pub(crate) mod edition;
pub(crate) mod examine;
pub(crate) mod expiry_notice;
pub(crate) mod load;
pub(crate) mod occasion;
pub(crate) mod source;
