//! Steering: what the kernel does with packets of connections that have no socket.
//!
//! ```text
//! packet ─> established socket? ── yes ──> the gateway, as always
//!              │ no
//!              └> `steer`: addresses in the table? ── no ──> listener, or a reset, as always
//!                    │ yes
//!                    └> a sink's filter `sink`: sequence number near the next byte? ──> copied to the ring
//!                          └> dropped, in any case: the peer repeats what was not answered
//! ```
//!
//! Three BPF programs do this (programs.c), in the network namespace of the process that makes a [`Steering`].
//! It exists until the last descriptor of the link is closed, whatever process holds it. Then the kernel answers
//! packets of resting connections with a reset, which is the honest end if no process is left.
//!
//! Needs CAP_NET_ADMIN, CAP_BPF (CAP_SYS_ADMIN before Linux 5.8) and Linux 5.9.

mod instructions;
mod load;
mod ring;
mod table;

use std::fmt;
use std::io;
use std::sync::atomic::Ordering;

use self::load::{MapKind, ProgramKind, Symbol, Value};
pub use self::ring::{Captured, Ring};
pub use self::table::{Digest, Table};
use crate::memory::{PAGE, Words};
use crate::socket::{Addr, ListenOptions, listen};
use crate::tcp_state::Filter;
use crate::{Fd, OnExec};

/// Bytes of the ring: 16,000 short packets.
const RING_LEN: usize = 4 << 20;

/// Entries of the counters: those of [`Counts`], and the cells that limit the events of a connection (programs.c).
const COUNTERS: u32 = 4 + 65_536;

/// The descriptors of everything in the kernel. Dropping this closes nothing.
#[derive(Debug)]
pub struct Steering {
    access: Access,
    counters: Words,
    sinks: Vec<Fd>,
    link: Fd,
}

/// What the one process needs that takes connections out of the kernel and brings them back.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The table, a BPF array.
    pub table: Fd,
    /// The ring.
    pub ring: Fd,
    /// The program for mute sockets.
    pub mute: Fd,
    /// The length of the table.
    pub buckets: u32,
    /// The key of its digests.
    pub key: [u64; 2],
}

impl Access {
    /// Maps the table, for its only writer.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn table(&self) -> io::Result<Table> {
        Table::open(self.table, self.buckets, self.key)
    }

    /// Maps the ring, for its only reader.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn ring(&self) -> io::Result<Ring> {
        Ring::open(self.ring, RING_LEN)
    }

    /// Returns the filter for sockets that are taken or made: their packets come to the ring too.
    pub fn mute(&self) -> Filter {
        Filter::Program(self.mute)
    }
}

/// The descriptors of a [`Steering`], for the next binary in the process that holds it.
#[derive(Clone, Debug)]
pub struct SteeringParts {
    /// What the one process needs that uses the steering.
    pub access: Access,
    /// What the programs counted.
    pub counters: Fd,
    /// The listeners that packets are steered to.
    pub sinks: Vec<Fd>,
    /// The link to the network.
    pub link: Fd,
}

/// What the programs counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Packets that went to a sink.
    pub steered: u64,
    /// Packets that a sink dropped for their sequence numbers.
    pub outside: u64,
    /// Packets that were dropped because the ring was full.
    pub ring_full: u64,
    /// Packets that a sink dropped because their connection has caused too many events.
    pub limited: u64,
}

/// Why steering is not possible here.
#[derive(Debug)]
pub struct SteeringError {
    attempt: &'static str,
    source: io::Error,
}

impl fmt::Display for SteeringError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.attempt, self.source)
    }
}

impl std::error::Error for SteeringError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

fn attempt(what: &'static str) -> impl FnOnce(io::Error) -> SteeringError {
    move |source| SteeringError {
        attempt: what,
        source,
    }
}

impl Steering {
    /// Sets everything up for this many connections, in the network of this process.
    ///
    /// # Errors
    /// A privilege is missing, or the kernel is too old.
    pub fn create(connections: u32) -> Result<Steering, SteeringError> {
        let buckets = table::buckets(connections);
        let map = |what, kind, value_len, entries| {
            load::create_map(kind, value_len as u32, entries).map_err(attempt(what))
        };
        let table = map(
            "create the table of resting connections (BPF)",
            MapKind::Array,
            table::BUCKET_LEN,
            buckets,
        )?;
        let ring = map(
            "create the ring of packets (BPF, Linux 5.8)",
            MapKind::Ring,
            0,
            RING_LEN as u32,
        )?;
        let sink_map = map("create the map of sinks (BPF)", MapKind::SockMap, 8, 2)?;
        let counters = map("create the counters (BPF)", MapKind::Array, 8, COUNTERS)?;
        let mut key = [0; 16];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| attempt("draw a key")(errno.into()))?;
        let key: [u64; 2] = zerocopy::transmute!(key);
        let value = |symbol| match symbol {
            Symbol::Table => Value::Map(table),
            Symbol::Ring => Value::Map(ring),
            Symbol::Sinks => Value::Map(sink_map),
            Symbol::Counters => Value::Map(counters),
            Symbol::Key0 => Value::Number(key[0]),
            Symbol::Key1 => Value::Number(key[1]),
            Symbol::Buckets => Value::Number(buckets.into()),
        };
        let program = |what, kind, code| load::load(kind, code, value).map_err(attempt(what));
        let sink = program(
            "load the BPF program for sinks",
            ProgramKind::SocketFilter,
            &instructions::SINK,
        )?;
        let mute = program(
            "load the BPF program for mute sockets",
            ProgramKind::SocketFilter,
            &instructions::MUTE,
        )?;
        let steer = program(
            "load the BPF program that steers packets (sk_lookup, Linux 5.9)",
            ProgramKind::SkLookup,
            &instructions::STEER,
        )?;
        let sinks = open_sinks(sink_map, sink).map_err(attempt("open the sinks"))?;
        let counters = Words::window(counters, 0, PAGE).map_err(attempt("map the counters"))?;
        let link = load::attach_to_network(steer)
            .map_err(attempt("attach a BPF program to the network"))?;
        // The link and the sinks hold these.
        for fd in [sink_map, sink, steer] {
            fd.close();
        }
        let access = Access {
            table,
            ring,
            mute,
            buckets,
            key,
        };
        Ok(Steering {
            access,
            counters,
            sinks,
            link,
        })
    }

    /// Returns its parts, for [`Steering::adopt`].
    pub fn parts(&self) -> SteeringParts {
        SteeringParts {
            access: self.access,
            counters: self.counters.fd(),
            sinks: self.sinks.clone(),
            link: self.link,
        }
    }

    /// Takes up what another binary in this process has set up.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn adopt(parts: SteeringParts) -> io::Result<Steering> {
        Ok(Steering {
            access: parts.access,
            counters: Words::window(parts.counters, 0, PAGE)?,
            sinks: parts.sinks,
            link: parts.link,
        })
    }

    /// Ends it. Packets of connections that still rest are answered with a reset.
    pub fn close(self) {
        let Access {
            table, ring, mute, ..
        } = self.access;
        let all = [table, ring, mute, self.counters.fd()];
        for fd in [self.link].into_iter().chain(self.sinks).chain(all) {
            fd.close();
        }
    }

    /// Returns what the process needs that uses this.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns the descriptors that a process must hold for packets to be steered when the others are gone.
    pub fn lifelines(&self) -> Vec<Fd> {
        let mut held = self.sinks.clone();
        held.push(self.link);
        held
    }

    /// Returns what the programs counted.
    pub fn counts(&self) -> Counts {
        let word = |index: usize| self.counters.word_at(8 * index).load(Ordering::Relaxed);
        Counts {
            steered: word(0),
            outside: word(1),
            ring_full: word(2),
            limited: word(3),
        }
    }
}

/// Opens a listener for each family that this machine has, and makes it drop everything.
fn open_sinks(map: Fd, filter: Fd) -> io::Result<Vec<Fd>> {
    let options = ListenOptions {
        backlog: 1,
        v6only: true,
        on_exec: OnExec::Close,
    };
    let mut sinks = Vec::new();
    for (index, address) in [(0, "127.0.0.1:0"), (1, "[::1]:0")] {
        let address: Addr = address.parse().map_err(io::Error::other)?;
        let sink = match listen(&address, &options) {
            Ok(sink) => sink,
            // No IPv6 here, so no such packets.
            Err(_) if index == 1 => continue,
            Err(error) => return Err(error),
        };
        Filter::Program(filter).attach(sink)?;
        load::put_socket(map, index, sink)?;
        sinks.push(sink);
    }
    Ok(sinks)
}

#[cfg(test)]
mod tests;
