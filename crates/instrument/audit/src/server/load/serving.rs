//! Processes that hold a connection: some servers have one for each, which may have waited since earlier connections.

use crate::model::{OF_EACH, Serving};
use dormouse_measure::{Memory, sockets};
use dormouse_reactor::socket::Addr;

/// Those of a server's processes that hold a connection to its port, if there may be one for each of these connections.
pub(super) fn among(pids: &[i32], target: &str, connections: u64) -> Serving {
    let (Ok(Addr::Tcp(target)), Some(&root)) = (target.parse(), pids.first()) else {
        return Serving::default();
    };
    if connections == 0 || (pids.len() as f64) < OF_EACH * connections as f64 {
        return Serving::default();
    }
    let port = target.port();
    let accepted = sockets::all(root);
    let accepted = accepted.filter(|socket| socket.local.port() == port && !socket.listens);
    let inodes: Vec<_> = accepted.map(|socket| socket.inode).collect();
    let holders = pids.iter().filter(|pid| sockets::holds_any(**pid, &inodes));
    let memory = holders.filter_map(|pid| Memory::of(*pid).ok().flatten());
    memory.fold(Serving::default(), |sum, memory| Serving {
        processes: sum.processes + 1,
        pss_bytes: sum.pss_bytes + memory.pss,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_process_serves_while_it_holds_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let of_port = || among(&[own, i32::MAX], &address.to_string(), 1);
        assert_eq!(of_port(), Serving::default());
        let client = TcpStream::connect(address).unwrap();
        let accepted = listener.accept().unwrap();
        let found = of_port();
        assert_eq!(found.processes, 1);
        assert!(found.pss_bytes > 100_000, "{found:?}");
        drop((client, accepted));
    }
}
