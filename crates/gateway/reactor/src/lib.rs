//! The operating system interface for the rest of Dormouse.
//!
//! This crate does not know TLS. It is the only crate of the gateway with `unsafe`, in a few places: mapped
//! memory ([`memory`]), descriptors as plain numbers ([`Fd`]), some socket options, the calls that start
//! processes ([`process`]), and the program's allocator ([`wiping`]).
//!
//! What survives a process, and how:
//!
//! - **Descriptors** are numbers in a file table that a worker shares with its keeper. They are [`Fd`], a plain
//!   number that can lie in shared memory, and nothing here closes one on drop.
//! - **Slots** ([`slab`]) and **pending bytes** ([`pending`]) lie in sealed memory files, each with its own
//!   mapping, which the next worker adopts. Derived data (which slots and chunks are free) is in the heap and
//!   rebuilt.
//! - **The cache** ([`cache`]) is a mapping that all workers read and write. It has no locks, so a worker that
//!   is killed while using it blocks no other.
//! - **The epoll instance** ([`poller`]) is a descriptor too: the next worker adopts it with its registrations.
//! - **A quiet TCP connection** can be a value instead of a socket ([`tcp_state`]), whose packets
//!   BPF programs collect ([`steering`]).
//!
//! The parts are separate structs without locks, so that a loop can hold mutable references to a slot, the
//! pending pool, the timer wheel and the poller at the same time.

#[cfg(not(target_os = "linux"))]
compile_error!("dormouse-reactor is written for Linux: memfd, epoll, clone");

pub mod cache;
pub mod descriptors;
mod error;
mod fd;
pub mod file;
pub mod memory;
mod outcome;
#[doc(hidden)]
pub mod own_network;
pub mod pending;
pub mod poller;
pub mod process;
pub mod sandbox;
pub mod shared;
pub mod signal;
pub mod slab;
pub mod socket;
pub mod steering;
pub mod step;
pub mod tcp_state;
pub mod terminal;
pub mod timer;
pub mod wiping;

pub use error::AdoptError;
pub use fd::{Fd, OnExec};
