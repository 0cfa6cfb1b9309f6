//! Connections that a server has not finished with, although their clients are gone.
//!
//! Clients that leave during the handshake do not wait for the server. A server that is slower than they are has these
//! connections in the queue of its listening socket, or open. Meanwhile it seems to keep their memory, and the next
//! clients wait behind them.

use dormouse_bench::Session;
use dormouse_measure::proc_files;
use dormouse_reactor::socket::Addr;

/// State of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Connections that a server has not finished with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Backlog {
    /// Connections that wait to be accepted.
    queued: u64,
    /// Open descriptors.
    open: u64,
}

impl Backlog {
    pub(super) fn of(session: &Session<'_>) -> Self {
        let server = session.server.as_ref();
        let sample = server.and_then(|server| server.sample().ok());
        Self {
            queued: queued(session).unwrap_or(0),
            open: sample.map_or(0, |sample| sample.descriptors),
        }
    }

    /// Whether nothing is left of the connections since `before`.
    pub(super) fn is_done(self, before: Self) -> bool {
        self.queued == 0 && self.open <= before.open
    }

    /// Whether the server has accepted or closed connections since `last`.
    pub(super) fn is_less_than(self, last: Self) -> bool {
        self.queued < last.queued || self.open < last.open
    }
}

/// Connections in the queues of all sockets that listen on the server's port, in the server's network.
fn queued(session: &Session<'_>) -> Option<u64> {
    let Addr::Tcp(target) = session.spec.target.parse().ok()? else {
        return None;
    };
    let pid = session.server.as_ref()?.tree.root();
    let tables = ["net/tcp", "net/tcp6"].map(|name| proc_files::read_beginning(pid, name).ok());
    let counts = tables.iter().flatten().map(|table| {
        let table = String::from_utf8_lossy(table);
        let queues = table.lines().filter_map(|line| queue(line, target.port()));
        queues.sum::<u64>()
    });
    Some(counts.sum())
}

/// Length of the queue in a line of `/proc/net/tcp`, if the socket listens on this port. The kernel shows it as the bytes
/// to read.
fn queue(line: &str, port: u16) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (_, of) = fields.next()?.split_once(':')?;
    let state = fields.nth(1)?;
    let (_, to_read) = fields.next()?.split_once(':')?;
    let is_wanted = state == LISTENING && u16::from_str_radix(of, 16).ok()? == port;
    is_wanted.then(|| u64::from_str_radix(to_read, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_shows_the_length_of_its_queue() {
        let line = "   3: 0100007F:1F90 00000000:0000 0A 00000000:0000001B 00:00000000 00000000     0        0 42 1 0 100 0 0 10 0";
        assert_eq!(queue(line, 8080), Some(27));
        assert_eq!(queue(line, 8081), None);
        let established = line.replace(" 0A ", " 01 ");
        assert_eq!(queue(&established, 8080), None);
        assert_eq!(queue("  sl  local_address rem_address   st", 8080), None);
        assert_eq!(queue("", 8080), None);
    }

    /// A server that parsed a trust store for each connection had 1,250 connections in its queue when their clients were
    /// gone. It seemed to leak, and the next client waited for longer than the timeout.
    #[test]
    fn a_server_is_not_done_while_connections_wait_to_be_accepted() {
        let of = |queued, open| Backlog { queued, open };
        let before = of(0, 9);
        assert!(of(0, 9).is_done(before) && of(0, 8).is_done(before));
        assert!(!of(3, 9).is_done(before) && !of(0, 10).is_done(before));
        // Accepting moves a connection from the queue to the open ones.
        assert!(of(2, 12).is_less_than(of(3, 11)));
        assert!(of(0, 11).is_less_than(of(0, 12)));
        assert!(!of(0, 12).is_less_than(of(0, 12)));
    }
}
