//! The processes of a server that hold its listening socket: helpers beside them may be other software.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

use dormouse_measure::{ProcessInfo, proc_files};
use dormouse_reactor::socket::Addr;

/// State of a listening socket in `/proc/PID/net/tcp`.
const LISTENING: &str = "0A";

/// Returns the processes that hold a socket that listens on the target's port; all of them if there is none, as for a
/// server behind a unix socket.
pub(super) fn among(processes: &[ProcessInfo], target: &Addr) -> Vec<ProcessInfo> {
    let Addr::Tcp(address) = target else {
        return processes.to_vec();
    };
    let listening = processes
        .first()
        .map_or_else(BTreeSet::new, |first| sockets(first.pid, *address));
    let holds = |process: &&ProcessInfo| holds_any(process.pid, &listening);
    let found: Vec<_> = processes.iter().filter(holds).cloned().collect();
    if found.is_empty() {
        processes.to_vec()
    } else {
        found
    }
}

/// Inodes of the sockets in a process's network that listen on the port of this address.
fn sockets(pid: i32, address: SocketAddr) -> BTreeSet<String> {
    let tables = ["net/tcp", "net/tcp6"].map(|name| proc_files::read_beginning(pid, name));
    let rows = tables.iter().flatten().flat_map(|table| {
        let text = String::from_utf8_lossy(table).into_owned();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    rows.filter_map(|row| inode(&row, address.port())).collect()
}

/// Returns the inode in a row of the table if it is of a socket that listens on this port.
fn inode(row: &str, port: u16) -> Option<String> {
    let fields: Vec<_> = row.split_whitespace().collect();
    let (address, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    let (_, at) = address.split_once(':')?;
    let is_it = *state == LISTENING && u16::from_str_radix(at, 16) == Ok(port);
    is_it.then(|| (*inode).to_owned())
}

fn holds_any(pid: i32, inodes: &BTreeSet<String>) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"));
    entries.into_iter().flatten().flatten().any(|entry| {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let inode = target.to_str().and_then(|name| {
            name.strip_prefix("socket:[")?
                .strip_suffix(']')
                .map(str::to_owned)
        });
        inode.is_some_and(|inode| inodes.contains(&inode))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Recorded: a server with a helper in Perl was called a program in Perl.
    #[test]
    fn a_helper_is_not_the_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Addr::Tcp(listener.local_addr().unwrap());
        let process = |pid: u32, command: &str| ProcessInfo {
            pid: i32::try_from(pid).unwrap(),
            command: command.into(),
        };
        let mut helper = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let all = [
            process(std::process::id(), "server"),
            process(helper.id(), "helper"),
        ];
        let found = among(&all, &address);
        drop(listener);
        let without = among(&all, &address);
        helper.kill().unwrap();
        helper.wait().unwrap();
        assert_eq!(found, all[..1]);
        assert_eq!(without, all);
    }

    #[test]
    fn only_listening_sockets_of_the_port_count() {
        let row = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1";
        assert_eq!(inode(row, 8080).as_deref(), Some("4711"));
        assert_eq!(inode(row, 8081), None);
        assert_eq!(inode(&row.replace(" 0A ", " 01 "), 8080), None);
        assert_eq!(inode("sl local_address", 8080), None);
    }
}
