//! The lab in which `dormouse serve` meets foreign software and bad days.
//!
//! A test starts a [`Scene`](scene::Scene): a terminator as a real process, before a
//! plain [`Backend`](backend::Backend) which belongs to the test and does what the
//! first line of a connection tells it. Then a foreign client ([`client`]), a TLS
//! client of our own ([`peer`]) or a raw socket comes from the other side, and the
//! test compares what both ends saw.
//!
//! The terminator is `dormouse serve`, or with `DORMOUSE_INTEROP=nginx|haproxy` one
//! of the usual ones: what a test asks for must be something that the world's TLS
//! stacks agree on, and where they do not, [`Terminator`](terminator::Terminator)
//! says what the others cannot.
//!
//! Nothing waits for ever: each wait has a limit, and reaching it is a failure which
//! shows the logs. Everything that was started is stopped by its process id.
#![forbid(unsafe_code)]

pub mod admin;
pub mod backend;
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
pub mod scene;
pub mod slots;
pub mod stack;
pub mod terminator;
pub mod tools;
pub mod wait;
pub mod web;
