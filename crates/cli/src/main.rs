//! The binary `dormouse`.
#![forbid(unsafe_code)]
fn main() {}
