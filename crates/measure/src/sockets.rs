//! Sockets of another process: the kernel's table of TCP sockets in its network, and the descriptors that hold them.

use std::fs;

use crate::proc_files;

/// State of a listening socket in the table.
const LISTENING: &str = "0A";

/// A listening socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListeningSocket {
    /// Number by which [`holds_any`] knows it.
    pub inode: String,
    /// Connections that wait to be accepted.
    pub queued: u64,
}

/// Returns the sockets in a process's network that listen on this port.
pub fn listening(pid: i32, port: u16) -> Vec<ListeningSocket> {
    rows(pid)
        .filter_map(|row| parse_listening(&row, port))
        .collect()
}

/// The rows of the table, with a heading for each address family. They are read as they are asked for, so a search may
/// end before the second family.
pub fn rows(pid: i32) -> impl Iterator<Item = String> {
    let tables = ["net/tcp", "net/tcp6"].into_iter();
    let tables = tables.filter_map(move |name| proc_files::read_beginning(pid, name).ok());
    tables.flat_map(|table| {
        let text = String::from_utf8_lossy(&table);
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    })
}

/// Parses a row of a socket that listens on this port. The kernel shows the length of its queue as the bytes to read.
fn parse_listening(row: &str, port: u16) -> Option<ListeningSocket> {
    let fields: Vec<_> = row.split_ascii_whitespace().collect();
    let (_, at) = fields.get(1)?.split_once(':')?;
    if *fields.get(3)? != LISTENING || u16::from_str_radix(at, 16) != Ok(port) {
        return None;
    }
    let (_, to_read) = fields.get(4)?.split_once(':')?;
    Some(ListeningSocket {
        inode: (*fields.get(9)?).to_owned(),
        queued: u64::from_str_radix(to_read, 16).ok()?,
    })
}

/// Whether this process may see the descriptors of another one.
pub fn are_readable(pid: i32) -> bool {
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
    fn a_row_of_a_listening_socket_has_its_queue_and_inode() {
        let row = "   3: 0100007F:1F90 00000000:0000 0A 00000000:0000001B 00:00000000 00000000     0        0 42 1 0 100 0 0 10 0";
        let expected = ListeningSocket {
            inode: "42".into(),
            queued: 27,
        };
        assert_eq!(parse_listening(row, 8080), Some(expected));
        assert_eq!(parse_listening(row, 8081), None);
        let established = row.replace(" 0A ", " 01 ");
        assert_eq!(parse_listening(&established, 8080), None);
        let heading = "  sl  local_address rem_address   st tx_queue rx_queue";
        assert_eq!(parse_listening(heading, 8080), None);
        assert_eq!(parse_listening("", 8080), None);
    }
}
