//! The tcp-repair process: takes quiet connections out of the kernel and brings them back ([`dormouse_rest::Repair`]).
//!
//! It alone may use TCP_REPAIR, so it keeps two capabilities and nothing else: CAP_NET_ADMIN, and CAP_NET_BIND_SERVICE
//! for ports below 1024, which repair mode does not spare. It parses TCP headers from the network, in 250 lines. It has
//! a file table of its own, opens no path, and makes no socket but TCP's.

mod trial;

pub use trial::{Cycle, CycleError, TrialPorts, try_cycles};

use std::io;
use std::process::ExitCode;

use dormouse_config::Log;
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::sandbox::Role;
use dormouse_reactor::socket::Keepalive;
use dormouse_reactor::steering::Access;
use dormouse_reactor::{Fd, OnExec};
use dormouse_rest::{Channel, Parts, Records, Repair};
use serde::{Deserialize, Serialize};

use crate::helper::{self, Privileges};

/// Name of the process.
pub const NAME: &str = "tcp-repair";

/// Time until silent peers are looked at again.
const PROBE_MS: u64 = 1000;

/// What main tells it: descriptors, and the key of the table.
#[derive(Serialize, Deserialize)]
pub struct RepairArguments {
    table: i32,
    ring: i32,
    mute: i32,
    buckets: u32,
    key: [u64; 2],
    records: i32,
    raw: [i32; 2],
    workers: Vec<i32>,
    records_per_worker: u32,
    /// [`Keepalive`].
    idle_s: u32,
    interval_s: u32,
    count: u32,
}

impl RepairArguments {
    /// What the process works with.
    pub fn of(parts: &RepairParts<'_>) -> RepairArguments {
        let access = parts.access;
        RepairArguments {
            table: access.table.0,
            ring: access.ring.0,
            mute: access.mute.0,
            buckets: access.buckets,
            key: access.key,
            records: parts.records.0,
            raw: parts.raw.map(|fd| fd.0),
            workers: parts.workers.iter().map(|fd| fd.0).collect(),
            records_per_worker: parts.records_per_worker,
            idle_s: parts.keepalive.idle_s,
            interval_s: parts.keepalive.interval_s,
            count: parts.keepalive.count,
        }
    }
}

/// What the process works with. It inherits all descriptors ([`RepairParts::inherited`]).
#[derive(Debug)]
pub struct RepairParts<'a> {
    /// The steering.
    pub access: Access,
    /// What it only keeps open, so that packets come to it after main's death, too ([`Steering::lifelines`]).
    ///
    /// [`Steering::lifelines`]: dormouse_reactor::steering::Steering::lifelines
    pub lifelines: &'a [Fd],
    /// The records.
    pub records: Fd,
    /// Raw sockets for IPv4 and IPv6.
    pub raw: [Fd; 2],
    /// Its ends of the channels to the workers.
    pub workers: &'a [Fd],
    /// The number of records of each worker.
    pub records_per_worker: u32,
    /// When a silent peer is asked whether it lives.
    pub keepalive: Keepalive,
}

impl RepairParts<'_> {
    /// The descriptors that the process inherits.
    pub fn inherited(&self) -> Vec<Fd> {
        let Access {
            table, ring, mute, ..
        } = self.access;
        let own = [table, ring, mute, self.records];
        let all = own.into_iter().chain(self.raw);
        let rest = self.lifelines.iter().chain(self.workers);
        all.chain(rest.copied()).collect()
    }
}

/// Entry point of the process; `args` is what follows the subcommand. `None`: main did not start it.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> Option<ExitCode> {
    helper::run(NAME, args, start_logs, run)
}

/// The least time between two warnings of one kind.
const WARNINGS_MS: u64 = 60_000;

fn run(privileges: &Privileges, arguments: &RepairArguments) -> io::Result<()> {
    let poller = Poller::create(OnExec::Close)?;
    privileges.confine(Role::TcpRepair)?;
    let workers: Vec<Fd> = arguments.workers.iter().copied().map(Fd).collect();
    let records = arguments.records_per_worker * workers.len() as u32;
    let records = Records::adopt(Fd(arguments.records), records);
    let mut repair = Repair::begin(Parts {
        access: Access {
            table: Fd(arguments.table),
            ring: Fd(arguments.ring),
            mute: Fd(arguments.mute),
            buckets: arguments.buckets,
            key: arguments.key,
        },
        records: records.map_err(io::Error::other)?,
        raw: arguments.raw.map(Fd),
        workers,
        records_per_worker: arguments.records_per_worker,
        keepalive: Keepalive {
            idle_s: arguments.idle_s,
            interval_s: arguments.interval_s,
            count: arguments.count,
        },
    })?;
    poller.add(repair.packets(), 0, Interest::READ)?;
    let mut watched: Vec<Channel> = repair.channels().collect();
    for channel in &mut watched {
        poller.add(channel.fd, 0, Interest::READ)?;
        channel.waits = false;
    }
    let mut events = Events::with_capacity(64);
    let mut warned_ms = None;
    while repair.turn()? {
        let crowded_ms = repair.crowded_ms();
        if crowded_ms > warned_ms.map(|at_ms| at_ms + WARNINGS_MS) {
            warned_ms = crowded_ms;
            tracing::warn!(
                "more packets come for resting connections than this process can read; some may be lost, and their senders repeat them"
            );
        }
        for (watched, now) in watched.iter_mut().zip(repair.channels()) {
            if *watched == now {
                continue;
            }
            match now.is_closed {
                true => poller.remove(now.fd)?,
                false => {
                    let interest = Interest::READ.with(Interest::WRITE, now.waits);
                    poller.modify(now.fd, 0, interest)?;
                }
            }
            *watched = now;
        }
        poller.wait(&mut events, Some(PROBE_MS))?;
    }
    Ok(())
}
