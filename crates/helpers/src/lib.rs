//! Processes beside main and the workers. What takes its time, or reads what strangers have sent, is
//! done by one of these, without privileges and confined.
//!
//! | process | does |
//! |---|---|
//! | [`control`] | answers the admin address |
//! | [`scout`] | looks up names of backends, checks backends |
//! | [`errand`] | asks the authorities of certificates (OCSP, ACME), and ends |
//! | [`fleet`] | shares ticket keys through a store |
//!
//! [`beside`] is what they have in common; `transport` connects to stores and authorities.
#![forbid(unsafe_code)]

pub mod beside;
pub mod control;
pub mod errand;
pub mod fleet;
pub mod scout;
mod transport;
