//! Descriptors that a worker inherits.

use dormouse_reactor::Fd;
use serde::{Deserialize, Serialize};

/// Numbers of inherited descriptors.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Descriptors {
    /// Listening sockets, each with the number of its route.
    pub listeners: Vec<(i32, u16)>,
    /// The numbers of all routes behind each of them, in the order of the configuration.
    #[serde(default)]
    pub doors: Vec<Vec<u16>>,
    /// Descriptor of the slots.
    pub slots: i32,
    /// Descriptor of the pending memory.
    pub pending: i32,
    /// Descriptor of the counters.
    pub counters: i32,
    /// Descriptor of the table of clients.
    pub clients: i32,
    /// Connections that the table of clients was made for.
    pub clients_for: u32,
    /// Descriptor of the table of backends.
    pub backends: i32,
    /// Sessions of originations, if there are any.
    pub sessions: Option<i32>,
    /// The worker's end of its channel to main.
    pub orders: i32,
    /// What the worker notes for the next one.
    pub notes: i32,
    /// The cache of sessions of routes, if there is one.
    #[serde(default)]
    pub session_cache: Option<i32>,
    /// Entries of the connection log, and their version.
    #[serde(default)]
    pub log_entries: Option<(i32, u32)>,
    /// The socket that takes lines of the connection log.
    #[serde(default)]
    pub log_lines: Option<i32>,
    /// Descriptor of the table of traffic; a former binary had none.
    #[serde(default)]
    pub traffic: Option<i32>,
    /// Listening sockets of plain HTTP. They pass from main to main, and no worker has them.
    #[serde(default)]
    pub redirects: Vec<i32>,
}

impl Descriptors {
    /// The listening sockets, each with the numbers of the routes behind it.
    pub fn doors(&self) -> Vec<(Fd, Vec<u16>)> {
        let listeners = self.listeners.iter().enumerate();
        // A former binary knew of one route for each.
        let door = |n: usize, route: u16| match self.doors.get(n) {
            Some(door) if !door.is_empty() => door.clone(),
            _ => vec![route],
        };
        listeners
            .map(|(n, &(fd, route))| (Fd(fd), door(n, route)))
            .collect()
    }

    /// All of them.
    pub fn all(&self) -> Vec<Fd> {
        let mut all: Vec<Fd> = self.listeners.iter().map(|&(fd, _)| Fd(fd)).collect();
        all.extend(self.sessions.map(Fd));
        all.extend(self.session_cache.map(Fd));
        all.extend(self.log_entries.map(|(fd, _)| Fd(fd)));
        all.extend(self.log_lines.map(Fd));
        all.extend(self.traffic.map(Fd));
        all.extend(
            [
                self.slots,
                self.pending,
                self.counters,
                self.clients,
                self.backends,
                self.orders,
                self.notes,
            ]
            .map(Fd),
        );
        all
    }
}
