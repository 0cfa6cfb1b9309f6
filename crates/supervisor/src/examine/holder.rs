//! The process that listens on an address, as far as the kernel shows it.

use dormouse_reactor::process;
use dormouse_reactor::socket::Addr;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

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

/// State of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Finds the process that listens on the address.
pub(super) fn of(address: &Addr) -> Holder {
    let Addr::Tcp(address) = address else {
        return Holder::Unknown;
    };
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let rows = tables.iter().flatten().flat_map(|table| table.lines());
    let mut sockets = rows.filter_map(Socket::read);
    let Some(socket) = sockets.find(|socket| overlap(socket.address, *address)) else {
        return Holder::Unknown;
    };
    match owner_of(socket.inode) {
        Some((pid, name)) => Holder::Process { pid, name },
        None if socket.uid != process::user_id() => Holder::OtherUser,
        None => Holder::Unknown,
    }
}

/// A listening socket in `/proc/net/tcp`.
struct Socket {
    address: SocketAddr,
    uid: u32,
    inode: u64,
}

impl Socket {
    fn read(row: &str) -> Option<Socket> {
        let mut fields = row.split_whitespace().skip(1);
        let address = fields.next()?;
        let state = fields.nth(1)?;
        if state != LISTENING {
            return None;
        }
        let uid = fields.nth(3)?.parse().ok()?;
        let inode = fields.nth(1)?.parse().ok()?;
        Some(Socket {
            address: address_of(address)?,
            uid,
            inode,
        })
    }
}

/// Parses an address: `0100007F:1F90` is 127.0.0.1:8080, as words in the machine's byte order.
fn address_of(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words = (0..ip.len()).step_by(8).map(|at| {
        let word = u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    });
    let bytes: Vec<u8> = words.collect::<Option<Vec<_>>>()?.concat();
    let ip = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(bytes) => IpAddr::V4(Ipv4Addr::from(bytes)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
    };
    Some(SocketAddr::new(ip, port))
}

/// Whether a socket on `there` prevents listening on `here`.
fn overlap(there: SocketAddr, here: SocketAddr) -> bool {
    let same_family = there.is_ipv4() == here.is_ipv4();
    let covers = there.ip().is_unspecified() && (same_family || there.is_ipv6());
    let is_covered = here.ip().is_unspecified() && same_family;
    there.port() == here.port() && (there.ip() == here.ip() || covers || is_covered)
}

/// The process with the lowest id that has this socket open.
fn owner_of(inode: u64) -> Option<(i32, String)> {
    let link = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut pids: Vec<i32> = pids.collect();
    pids.sort_unstable();
    let has_it = |pid: &i32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
        let mut links = descriptors.into_iter().flatten().flatten();
        links.any(|entry| {
            fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == link.as_str())
        })
    };
    let pid = pids.into_iter().find(has_it)?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some((pid, name.trim().to_owned()))
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
