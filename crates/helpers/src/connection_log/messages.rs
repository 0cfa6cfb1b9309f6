//! What main and the process tell each other.

use dormouse_config::{SyslogAddress, SyslogFacility};
use dormouse_handover::message;
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Attempt;
use serde::{Deserialize, Serialize};

/// Command line of the process.
#[derive(Serialize, Deserialize)]
pub struct LogArguments {
    /// Sockets that lines come from, one for each worker.
    pub sources: Vec<i32>,
    /// The file. `None`: standard error.
    pub file: Option<i32>,
    /// The file is a socket to this syslog, and each line a message of this facility.
    pub syslog: Option<(SyslogAddress, SyslogFacility)>,
    /// Its end of the channel to main. It writes what there is, and ends, when main closes the other
    /// one.
    pub channel: i32,
}

/// Lines that were dropped since the last report.
#[derive(Debug, Serialize, Deserialize)]
pub struct DroppedLines {
    /// How many.
    pub lines: u64,
    /// Why.
    pub error: String,
}

/// Tells main of lines that were dropped. `false`: main is busy, and is told later.
pub(super) fn report(channel: Fd, dropped: &DroppedLines) -> bool {
    matches!(message::send(channel, dropped), Ok(Attempt::Done(())))
}
