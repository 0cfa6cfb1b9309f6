//! The tcp-repair process: takes quiet connections out of the kernel and brings them back ([`dormouse_rest::Repair`]).
//!
//! It alone may use TCP_REPAIR, so it keeps two capabilities and nothing else: CAP_NET_ADMIN, and CAP_NET_BIND_SERVICE
//! for ports below 1024, which repair mode does not spare. It parses TCP headers from the network, in 250 lines. It has
//! a file table of its own, opens no path, and makes no socket but TCP's.

mod trial;

pub use trial::{Cycle, CycleError, try_cycles};

use std::io;
use std::process::ExitCode;

use dormouse_config::Log;
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::sandbox::Role;
use dormouse_reactor::steering::Access;
use dormouse_reactor::{Fd, OnExec};
use dormouse_rest::{Parts, Records, Repair};
use serde::{Deserialize, Serialize};

use crate::helper::{self, Privileges};

/// Name of the process.
pub const NAME: &str = "tcp-repair";

/// What main tells it: descriptors, and the key of the table.
#[derive(Serialize, Deserialize)]
struct RepairArguments {
    table: i32,
    ring: i32,
    mute: i32,
    buckets: u32,
    key: [u64; 2],
    records: i32,
    records_max: u32,
    raw: [i32; 2],
    worker: i32,
}

/// Entry point of the process; `args` is what follows the subcommand. `None`: main did not start it.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> Option<ExitCode> {
    helper::run(NAME, args, start_logs, run)
}

fn run(privileges: &Privileges, arguments: &RepairArguments) -> io::Result<()> {
    let worker = Fd(arguments.worker);
    let poller = Poller::create(OnExec::Close)?;
    privileges.confine(Role::TcpRepair)?;
    let records = Records::adopt(Fd(arguments.records), arguments.records_max);
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
        worker,
    })?;
    for fd in repair.readable() {
        poller.add(fd, 0, Interest::READ)?;
    }
    let mut events = Events::with_capacity(2);
    while repair.turn()? {
        let interest = Interest::READ.with(Interest::WRITE, repair.has_unsent());
        poller.modify(worker, 0, interest)?;
        poller.wait(&mut events, None)?;
    }
    Ok(())
}
