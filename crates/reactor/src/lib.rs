//! The operating system, as the rest of Dormouse sees it.
//!
//! This crate knows nothing of TLS. It is the only crate of the workspace which contains
//! `unsafe`, and it keeps that in a few places: the mapping of memory ([`memory`]), the use of
//! descriptors which are plain numbers ([`Fd`]), a handful of socket options, and the calls
//! which start processes ([`process`]).
//!
//! What survives a process, and why:
//!
//! - **Descriptors** are numbers in a file table which a worker shares with its keeper. They are
//!   therefore [`Fd`], a plain number that can lie in shared memory, and nothing here closes one
//!   on drop.
//! - **Slots** ([`slab`]) and **pending bytes** ([`pending`]) lie in sealed memory files, each in
//!   a mapping of its own, and are adopted by the next worker. What is derived from them (which
//!   slots are free, which chunks are) is kept in the heap and rebuilt.
//! - **The cache** ([`cache`]) is a mapping in which all workers put, get and take. It has no
//!   locks, so a worker that is killed in it blocks nobody.
//! - **The epoll instance** ([`poller`]) is such a descriptor too: the next worker goes on with
//!   it, registrations included.
//!
//! The parts are separate structs without locks, so that a loop can hold a mutable reference to a
//! slot, to the pending pool, to the timer wheel and to the poller at the same time.

#[cfg(not(target_os = "linux"))]
compile_error!("dormouse-reactor is written for Linux: memfd, epoll, clone");

pub mod cache;
pub mod descriptors;
mod error;
mod fd;
pub mod memory;
mod os_result;
pub mod pending;
pub mod poller;
pub mod process;
pub mod sandbox;
pub mod shared;
pub mod signal;
pub mod slab;
pub mod socket;
pub mod step;
pub mod terminal;
pub mod timer;

pub use error::AdoptError;
pub use fd::{Fd, OnExec};
