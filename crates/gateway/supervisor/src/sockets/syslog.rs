//! Syslog sockets. Main opens them because other processes are not allowed to; they inherit the sockets.
//!
//! For the program's log, the socket replaces standard error, so every process writes to it as before, also after an
//! upgrade. After a restart of syslog, main reconnects the socket; the processes share it, so this reconnects them
//! all.

use dormouse_config::{Log, LogDestination, SyslogAddress};
use dormouse_reactor::Fd;
use dormouse_reactor::process;
use dormouse_reactor::socket::{self, DatagramAddress};
use std::io;

const STANDARD_ERROR: Fd = Fd(2);
/// Interval between reconnects. Until then, messages to a restarted syslog are lost.
const EVERY_MS: u64 = 2_000;

/// A syslog socket.
pub(crate) struct SyslogSocket {
    pub(crate) fd: Fd,
    pub(crate) address: SyslogAddress,
    due_ms: u64,
}

impl SyslogSocket {
    /// Opens the socket. No receiver is needed yet.
    pub(crate) fn open(address: &SyslogAddress) -> io::Result<SyslogSocket> {
        let fd = socket::datagrams(place(address))?;
        let mut socket = SyslogSocket {
            fd,
            address: address.clone(),
            due_ms: 0,
        };
        socket.attend();
        Ok(socket)
    }

    /// Returns standard error as the socket if the log goes to syslog.
    pub(crate) fn of_log(log: &Log) -> Option<SyslogSocket> {
        match &log.log_to {
            LogDestination::Stderr => None,
            LogDestination::Syslog(address) => Some(SyslogSocket {
                fd: STANDARD_ERROR,
                address: address.clone(),
                due_ms: 0,
            }),
        }
    }

    /// Time of the next reconnect.
    pub(crate) fn next_deadline_ms(&self) -> u64 {
        self.due_ms
    }

    /// Reconnects the socket if it is due.
    pub(crate) fn attend(&mut self) {
        let now_ms = process::boottime_ms();
        if self.due_ms > now_ms {
            return;
        }
        self.due_ms = now_ms + EVERY_MS;
        if let Err(error) = socket::connect_datagrams(self.fd, place(&self.address)) {
            tracing::trace!(%error, address = %self.address, "syslog unreachable");
        }
    }
}

/// Checks whether a receiver listens at this address. Over UDP this cannot be known.
pub(crate) fn examine(address: &SyslogAddress) -> io::Result<()> {
    let fd = socket::datagrams(place(address))?;
    let connected = socket::connect_datagrams(fd, place(address));
    fd.close();
    connected
}

fn place(address: &SyslogAddress) -> DatagramAddress<'_> {
    match address {
        SyslogAddress::Unix(path) => DatagramAddress::Unix(path),
        SyslogAddress::Udp(address) => DatagramAddress::Udp(*address),
    }
}

/// The original standard error while the log goes to syslog. Dropping this restores it, so that the terminal shows why
/// the program ended.
pub(crate) struct SavedStandardError(Fd);

impl SavedStandardError {
    /// Replaces standard error with a socket if the log goes to syslog.
    pub(crate) fn redirect(to: &LogDestination) -> io::Result<Option<SavedStandardError>> {
        let LogDestination::Syslog(address) = to else {
            return Ok(None);
        };
        let saved = STANDARD_ERROR.duplicate()?;
        let socket = SyslogSocket::open(address)?;
        socket.fd.move_to(STANDARD_ERROR)?;
        Ok(Some(SavedStandardError(saved)))
    }
}

impl Drop for SavedStandardError {
    fn drop(&mut self) {
        let _ = self.0.move_to(STANDARD_ERROR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn standard_error_is_the_socket_until_it_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log.sock");
        let receiver = UnixDatagram::bind(&path).expect("a socket");
        let now = || std::fs::metadata("/proc/self/fd/2").map(|found| found.ino());
        let before = now().expect("standard error");
        let to = LogDestination::Syslog(SyslogAddress::Unix(path));
        let saved = SavedStandardError::redirect(&to).expect("redirected");
        assert_ne!(now().expect("a socket"), before);
        STANDARD_ERROR.write(b"<30>x").expect("sent");
        let mut message = [0; 16];
        assert_eq!(receiver.recv(&mut message).expect("a message"), 5);
        drop(saved);
        assert_eq!(now().expect("standard error"), before);
    }
}
