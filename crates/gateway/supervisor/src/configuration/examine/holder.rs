//! The process that listens on an address, as far as the kernel shows it.

use dormouse_measure::{proc_files, sockets};
use dormouse_reactor::process;
use dormouse_reactor::socket::Addr;
use std::fs;
use std::net::IpAddr;

/// The owner of a listening socket.
pub(super) enum Holder {
    /// This process.
    Process {
        /// Its process id.
        pid: i32,
        /// Its name.
        name: String,
    },
    /// A process of another user.
    OtherUser,
    /// Unknown.
    Unknown,
}

/// Finds the process that listens on the address.
pub(super) fn of(address: &Addr) -> Holder {
    let Addr::Tcp(address) = address else {
        return Holder::Unknown;
    };
    let listening = sockets::listening(process::pid().0, address.port());
    let mut in_the_way = listening.into_iter();
    let Some(socket) = in_the_way.find(|socket| overlap(socket.local.ip(), address.ip())) else {
        return Holder::Unknown;
    };
    match owner_of(socket.inode) {
        Some((pid, name)) => Holder::Process { pid, name },
        None if socket.uid != process::user_id() => Holder::OtherUser,
        None => Holder::Unknown,
    }
}

/// Whether a socket on `there` prevents listening on `here`, with the same port.
fn overlap(there: IpAddr, here: IpAddr) -> bool {
    let same_family = there.is_ipv4() == here.is_ipv4();
    let covers = there.is_unspecified() && (same_family || there.is_ipv6());
    let is_covered = here.is_unspecified() && same_family;
    there == here || covers || is_covered
}

/// The process with the lowest id that has this socket open.
fn owner_of(inode: String) -> Option<(i32, String)> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let inodes = [inode];
    let pid = pids.filter(|pid| sockets::holds_any(*pid, &inodes)).min()?;
    Some((pid, proc_files::command(pid).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn this_process_is_found_by_its_listener() {
        for here in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(here) else {
                continue;
            };
            let address = listener.local_addr().expect("an address");
            match of(&Addr::Tcp(address)) {
                Holder::Process { pid, name } => {
                    assert_eq!(pid, std::process::id() as i32);
                    assert!(!name.is_empty());
                }
                Holder::OtherUser | Holder::Unknown => panic!("{address}: no process was found"),
            }
        }
        let nobody = "127.0.0.1:1".parse().expect("an address");
        assert!(matches!(of(&Addr::Tcp(nobody)), Holder::Unknown));
    }
}
