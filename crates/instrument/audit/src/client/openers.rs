//! The processes that open a client's connections: their number and their software.
//!
//! A command may be a shell or a script that starts other programs. What matters is the process with the socket. It is
//! looked up when its connection arrives, before the handshake: until then it waits for the server, so it exists.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::model::Measured;
use crate::software::{self, Software, SoftwareKind};
use dormouse_measure::sockets;
use dormouse_measure::{CpuTime, ProcessInfo, ProcessTree};

/// Maximum number of connections whose process is looked up.
const CONNECTIONS_MAX: u64 = 200;
/// Maximum wait for a look-up. The client waits as long for its handshake, and on a machine with a million sockets or
/// without free CPU a look-up may take longer than the client's patience.
const LOOK_UP_WAIT: Duration = Duration::from_secs(2);

/// The processes of a client that opened connections.
#[derive(Default)]
pub(super) struct Openers {
    tree: OnceLock<ProcessTree>,
    seen: Mutex<Seen>,
    /// The last look-up that did not end in time. Until it ends, no other one begins.
    late: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Seen {
    connections: u64,
    processes: BTreeSet<i32>,
    software: Option<Software>,
}

impl Openers {
    /// Looks among these processes from now on.
    pub(super) fn watch(&self, tree: ProcessTree) {
        let _ = self.tree.set(tree);
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up the process that opened the connection from this address to that one. Returns the CPU milliseconds that
    /// it has used, or `None` if that cannot be known within [`LOOK_UP_WAIT`].
    pub(super) fn look_up_in_time(
        self: &Arc<Self>,
        from: SocketAddr,
        to: SocketAddr,
    ) -> Option<f64> {
        if self.tree.get().is_none() || self.is_late() {
            return None;
        }
        let (found, result) = mpsc::sync_channel(1);
        let openers = Arc::clone(self);
        let looking = thread::Builder::new().spawn(move || {
            let _ = found.send(openers.look_up(from, to));
        });
        let looking = looking.ok()?;
        result.recv_timeout(LOOK_UP_WAIT).unwrap_or_else(|_| {
            *self.late.lock().unwrap_or_else(PoisonError::into_inner) = Some(looking);
            None
        })
    }

    fn is_late(&self) -> bool {
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.as_ref().is_some_and(|looking| !looking.is_finished())
    }

    fn look_up(&self, from: SocketAddr, to: SocketAddr) -> Option<f64> {
        let tree = self.tree.get()?;
        if self.seen().connections >= CONNECTIONS_MAX {
            return None;
        }
        let pid = opener(tree, from, to)?;
        let cpu = CpuTime::of(pid).ok().flatten();
        let is_new = {
            let mut seen = self.seen();
            seen.connections += 1;
            seen.processes.insert(pid) && !is_known(seen.software.as_ref())
        };
        if is_new {
            let command = String::new();
            let found = software::recognise(&[ProcessInfo { pid, command }], None).ok();
            let mut seen = self.seen();
            if is_known(found.as_ref()) || seen.software.is_none() {
                seen.software = found;
            }
        }
        cpu.map(|cpu| cpu.total_ns as f64 / 1e6)
    }

    /// The software of the first process that was recognised.
    pub(super) fn software(&self) -> Option<Software> {
        self.seen()
            .software
            .clone()
            .filter(|found| is_known(Some(found)))
    }

    /// Number of processes among the connections that were looked up, and the number of these connections.
    pub(super) fn processes(&self) -> Measured<(u64, u64)> {
        let seen = self.seen();
        match seen.connections {
            0 => Measured::not("no process of the client was seen with a connection"),
            connections => Measured::Value((seen.processes.len() as u64, connections)),
        }
    }
}

fn is_known(software: Option<&Software>) -> bool {
    software.is_some_and(|found| found.kind != SoftwareKind::Unknown)
}

/// Returns the process of the tree that holds the socket with these addresses. The client's own address is not enough: on a
/// busy machine its port is in use, or was a minute ago, for connections to other servers.
fn opener(tree: &ProcessTree, local: SocketAddr, remote: SocketAddr) -> Option<i32> {
    // A socket for both families has an IPv6 form of an IPv4 address.
    let is = |one: SocketAddr, other: SocketAddr| {
        one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
    };
    let mut sockets = sockets::all(tree.root());
    let socket = sockets.find(|found| is(found.local, local) && is(found.remote, remote))?;
    // A parent may hold the sockets of its children; the youngest process uses them.
    let mut youngest_first = tree.pids().ok()?.into_iter().rev();
    youngest_first.find(|pid| sockets::holds_any(*pid, std::slice::from_ref(&socket.inode)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn the_process_with_the_socket_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let tree = ProcessTree::of_pid(own).unwrap();
        let (from, to) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        // A process that another test starts has a copy of the socket until it executes its program.
        let mut looks = 0..1_000;
        while opener(&tree, from, to) != Some(own) {
            assert!(looks.next().is_some(), "the process was not found");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(opener(&tree, "127.0.0.9:1".parse().unwrap(), to), None);
        let openers = Openers::default();
        openers.look_up(from, to);
        assert!(
            openers.processes().value().is_none(),
            "no tree is known yet"
        );
        openers.watch(tree);
        openers.look_up(from, to);
        assert_eq!(openers.processes().value(), Some(&(1, 1)));
    }

    /// A client does not wait for its handshake until a look-up has ended.
    #[test]
    fn a_look_up_that_takes_too_long_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (from, to) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let openers = Arc::new(Openers::default());
        let own = i32::try_from(std::process::id()).unwrap();
        openers.watch(ProcessTree::of_pid(own).unwrap());
        let held = openers.seen();
        assert_eq!(openers.look_up_in_time(from, to), None);
        assert_eq!(openers.look_up_in_time(from, to), None);
        assert!(openers.is_late());
        drop(held);
        while openers.look_up_in_time(from, to).is_none() {
            thread::sleep(Duration::from_millis(10));
        }
    }
}
