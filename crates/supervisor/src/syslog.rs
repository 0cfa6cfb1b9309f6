//! Sockets to syslog. Main opens them, because the other processes may not; these inherit them.
//!
//! For the program's log the socket takes the place of standard error: then every process writes to it as
//! before, also after an upgrade. When syslog restarts, main connects the socket again, and so it does for
//! all processes, which share it.

use dormouse_config::{Log, LogDestination, SyslogAddress};
use dormouse_reactor::process;
use dormouse_reactor::socket::{self, DatagramAddress};
use dormouse_reactor::Fd;
use std::io;

const STANDARD_ERROR: Fd = Fd(2);
/// How often a socket is connected again. Until then messages to a syslog that was restarted are lost.
const EVERY_MS: u64 = 2_000;

/// A socket to syslog.
pub(crate) struct SyslogSocket {
    pub(crate) fd: Fd,
    address: SyslogAddress,
    due_ms: u64,
}

impl SyslogSocket {
    /// Opens it. Nobody has to receive there yet.
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

    /// The socket that is standard error, if the log goes to syslog.
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

    /// When it is connected again.
    pub(crate) fn next_deadline_ms(&self) -> u64 {
        self.due_ms
    }

    /// Connects it again if it is time.
    pub(crate) fn attend(&mut self) {
        let now_ms = process::boottime_ms();
        if self.due_ms > now_ms {
            return;
        }
        self.due_ms = now_ms + EVERY_MS;
        if let Err(error) = socket::connect_datagrams(self.fd, place(&self.address)) {
            tracing::trace!(%error, "syslog can't be reached at {}", self.address);
        }
    }
}

/// Whether anybody receives at this address. Of UDP it can't be told.
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

/// Standard error as it was before the log went to syslog: it is again when this is dropped, so that the
/// terminal shows why the program ended.
pub(crate) struct SavedStandardError(Fd);

impl SavedStandardError {
    /// Puts a socket in the place of standard error, if the log goes to syslog.
    pub(crate) fn redirect(log: &Log) -> io::Result<Option<SavedStandardError>> {
        let LogDestination::Syslog(address) = &log.log_to else {
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
