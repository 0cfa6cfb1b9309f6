//! Messages between main and the log writer.

use dormouse_config::{SyslogAddress, SyslogFacility};
use dormouse_handover::message;
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Attempt;
use serde::{Deserialize, Serialize};

/// Arguments of the process.
#[derive(Serialize, Deserialize)]
pub struct LogArguments {
    /// Sockets from which lines are received, one per worker.
    pub sources: Vec<i32>,
    /// The log file. `None`: standard error.
    pub file: Option<i32>,
    /// The file is a socket to this syslog, and each line a message of this facility.
    pub syslog: Option<(SyslogAddress, SyslogFacility)>,
    /// The process's end of the channel to main. After [`LastLines`], the process writes the remaining lines and exits. If main
    /// closes its end without that, it has died, and the process continues until all workers are gone.
    pub channel: i32,
}

/// Main's message that ends the process.
#[derive(Debug, Serialize, Deserialize)]
pub struct LastLines {
    /// Another process with another file follows. It receives what is in the sockets.
    pub another_follows: bool,
}

/// Lines dropped since the last report.
#[derive(Debug, Serialize, Deserialize)]
pub struct DroppedLines {
    /// Number of lines.
    pub lines: u64,
    /// The reason.
    pub error: String,
}

/// Reports dropped lines to main. Returns `false` if the channel is full; the caller tries again later.
pub(super) fn report(channel: Fd, dropped: &DroppedLines) -> bool {
    matches!(message::send(channel, dropped), Ok(Attempt::Done(())))
}
