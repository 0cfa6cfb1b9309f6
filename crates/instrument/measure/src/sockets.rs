//! Sockets of processes: the kernel's table of TCP sockets in its network, and the descriptors that hold them.

use std::fs;
use std::net::{IpAddr, SocketAddr};

use crate::proc_files;

/// State of a listening socket in the table.
const LISTENING: &str = "0A";

/// A TCP socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpSocket {
    /// Its own address. A socket for both families has an IPv6 one.
    pub local: SocketAddr,
    /// Its peer's address.
    pub remote: SocketAddr,
    /// Whether it listens.
    pub listens: bool,
    /// If it listens, the connections that wait to be accepted.
    pub queued: u64,
    /// The user that created it.
    pub uid: u32,
    /// Number by which [`holds_any`] knows it.
    pub inode: String,
}

/// Returns the sockets in a process's network that listen on this port.
pub fn listening(pid: i32, port: u16) -> Vec<TcpSocket> {
    let on_port = |socket: &TcpSocket| socket.listens && socket.local.port() == port;
    all(pid).filter(on_port).collect()
}

/// The sockets in a process's network. The tables of both address families are read as they are asked for, so a search
/// may end before the second one.
pub fn all(pid: i32) -> impl Iterator<Item = TcpSocket> {
    let tables = ["net/tcp", "net/tcp6"].into_iter();
    let tables = tables.filter_map(move |name| proc_files::read_beginning(pid, name).ok());
    tables.flat_map(|table| {
        let text = String::from_utf8_lossy(&table);
        text.lines().filter_map(parse).collect::<Vec<_>>()
    })
}

/// Parses a row of the table. The kernel shows the length of a listening socket's queue as the bytes to read.
pub(crate) fn parse(row: &str) -> Option<TcpSocket> {
    let fields: Vec<_> = row.split_ascii_whitespace().collect();
    let [_, local, remote, state, queues, _, _, uid, _, inode, ..] = fields.as_slice() else {
        return None;
    };
    let (_, to_read) = queues.split_once(':')?;
    Some(TcpSocket {
        local: parse_address(local)?,
        remote: parse_address(remote)?,
        listens: *state == LISTENING,
        queued: u64::from_str_radix(to_read, 16).ok()?,
        uid: uid.parse().ok()?,
        inode: (*inode).to_owned(),
    })
}

/// Parses an address: `0100007F:1F90` is 127.0.0.1:8080, as words in the machine's byte order.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let words = (0..ip.len()).step_by(8).map(|at| {
        let word = u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    });
    let bytes: Vec<u8> = words.collect::<Option<Vec<_>>>()?.concat();
    let ip = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(bytes) => IpAddr::from(bytes),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// Whether this process may see the descriptors of another one.
pub(crate) fn are_readable(pid: i32) -> bool {
    fs::read_dir(format!("/proc/{pid}/fd")).is_ok()
}

/// Whether a process has a descriptor of a socket with one of these inodes.
pub fn holds_any(pid: i32, inodes: &[String]) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"));
    entries.into_iter().flatten().flatten().any(|entry| {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let target = target.to_str().unwrap_or_default();
        let inode = target
            .strip_prefix("socket:[")
            .and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| inodes.iter().any(|wanted| wanted == inode))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_addresses_a_queue_and_an_inode() {
        let row = "   3: 0100007F:1F90 00000000:0000 0A 00000000:0000001B 00:00000000 00000000  1000        0 42 1 0 100 0 0 10 0";
        let expected = TcpSocket {
            local: "127.0.0.1:8080".parse().unwrap(),
            remote: "0.0.0.0:0".parse().unwrap(),
            listens: true,
            queued: 27,
            uid: 1000,
            inode: "42".into(),
        };
        assert_eq!(parse(row), Some(expected));
        let established = parse(&row.replace(" 0A ", " 01 ")).unwrap();
        assert!(!established.listens);
        let both = row.replace("0100007F", "0000000000000000FFFF00000100007F");
        let mapped = parse(&both).unwrap().local;
        assert_eq!(mapped, "[::ffff:127.0.0.1]:8080".parse().unwrap());
        for other in [
            "  sl  local_address rem_address   st tx_queue rx_queue tr",
            "",
        ] {
            assert_eq!(parse(other), None);
        }
    }
}
