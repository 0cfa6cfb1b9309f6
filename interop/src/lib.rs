//! The lab in which `dormouse serve` meets foreign software and faults.
//!
//! A test starts a [`Scene`](scene::Scene): a terminator as a real process, in front of a plain
//! [`Backend`](backend::Backend) that belongs to the test and follows the first line of each connection.
//! Then a foreign client ([`client`]), a TLS client of our own ([`peer`]) or a raw socket connects, and
//! the test compares what both ends saw.
//!
//! The terminator is `dormouse serve`, or with `DORMOUSE_INTEROP=nginx|haproxy` another common one: a test
//! should require only what TLS stacks agree on. Where they differ,
//! [`Terminator`](terminator::Terminator) says what the others cannot do.
//!
//! No wait is endless: each has a limit, and reaching it is a failure that shows the logs. Every started
//! process is stopped by its process id.
#![forbid(unsafe_code)]

pub mod admin;
pub mod backend;
pub mod bomb;
pub mod certificates;
pub mod cgroup;
pub mod checks;
pub mod client;
pub mod content;
pub mod counts;
pub mod crowd;
pub mod intruder;
pub mod machine;
pub mod namespace;
pub mod originator;
pub mod peer;
pub mod probe;
pub mod process;
pub mod requirement;
pub mod scene;
pub mod slots;
pub mod stack;
pub mod strace;
pub mod terminator;
pub mod tools;
pub mod wait;
pub mod web;
