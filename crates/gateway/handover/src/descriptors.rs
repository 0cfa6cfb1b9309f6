//! Descriptors that a worker inherits.

use dormouse_reactor::Fd;
use dormouse_tables::backends::BackendFds;
use serde::{Deserialize, Serialize};

/// Numbers of inherited descriptors.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Descriptors {
    /// Listening sockets, each with the number of its first route.
    pub listeners: Vec<(i32, u16)>,
    /// The numbers of all routes of each listener, in the order of the configuration.
    pub doors: Vec<Vec<u16>>,
    /// Descriptor of the slots.
    pub slots: i32,
    /// Descriptor of the pending memory.
    pub pending: i32,
    /// Descriptor of the counters.
    pub counters: i32,
    /// Descriptor of the table of clients.
    pub clients: i32,
    /// Number of connections for which the table of clients was created.
    pub clients_for: u32,
    /// Descriptor of the marks in the table of backends.
    pub backends: i32,
    /// Read-only descriptor of the roster of backends.
    pub roster: i32,
    /// Main's descriptor of the roster. It passes from main to main; workers do not have it.
    pub roster_of_main: i32,
    /// Descriptor of the sessions of originations, if there are any.
    pub sessions: Option<i32>,
    /// The worker's end of its channel to main.
    pub orders: i32,
    /// Descriptor of the worker's notes for the next worker.
    pub notes: i32,
    /// Descriptor of the session cache of routes, if there is one.
    pub session_cache: Option<i32>,
    /// Descriptor and version of the entries of the connection log.
    pub log_entries: (i32, u32),
    /// The socket for lines of the connection log.
    pub log_lines: i32,
    /// Descriptor of the table of traffic.
    pub traffic: i32,
    /// Listening sockets for plain HTTP. They pass from main to main; workers do not have them.
    pub redirects: Vec<i32>,
    /// What the worker needs for connections in deep rest, if a route had them at the start.
    #[serde(default)]
    pub rest: Option<RestDescriptors>,
}

/// A worker's part of deep rest.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct RestDescriptors {
    /// The worker's end of the channel to the repair process.
    pub channel: i32,
    /// Descriptor of the records of all workers, which cannot write.
    pub records: i32,
    /// Number of the records of all workers.
    pub records_count: u32,
    /// The worker's first record.
    pub first: u32,
    /// The number of the worker's records.
    pub count: u32,
}

impl Descriptors {
    /// The listening sockets, each with the numbers of its routes.
    pub fn doors(&self) -> Vec<(Fd, Vec<u16>)> {
        let listeners = self.listeners.iter().zip(&self.doors);
        listeners
            .map(|(&(fd, _), door)| (Fd(fd), door.clone()))
            .collect()
    }

    /// The tables of backends, for a worker.
    pub fn backends(&self) -> BackendFds {
        BackendFds {
            roster: Fd(self.roster),
            marks: Fd(self.backends),
        }
    }

    /// All descriptors of the worker.
    pub fn all(&self) -> Vec<Fd> {
        let mut all: Vec<Fd> = self.listeners.iter().map(|&(fd, _)| Fd(fd)).collect();
        all.extend(self.sessions.map(Fd));
        all.extend(self.session_cache.map(Fd));
        all.extend(
            [
                self.slots,
                self.pending,
                self.counters,
                self.clients,
                self.backends,
                self.roster,
                self.orders,
                self.notes,
                self.log_entries.0,
                self.log_lines,
                self.traffic,
            ]
            .map(Fd),
        );
        let rest = self.rest.map(|rest| [rest.channel, rest.records]);
        all.extend(rest.into_iter().flatten().map(Fd));
        all
    }
}
