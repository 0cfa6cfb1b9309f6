//! The privileges that processes give up, and what other users cannot see of them.

mod backends;
mod hijacked;
mod memory;
mod privileges;
mod resting;
mod sandbox;
mod sessions;
mod shared;
