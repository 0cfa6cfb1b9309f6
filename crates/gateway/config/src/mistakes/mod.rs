//! What is wrong, collected and shown.

pub(crate) mod collector;
pub(crate) mod location;
pub(crate) mod mistake;
pub(crate) mod nearest;
pub(crate) mod problem;
pub(crate) mod render;
pub(crate) mod texts;
pub(crate) mod words;
