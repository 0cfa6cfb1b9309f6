//! Addresses of syslog, for the program's log and the connection log.

use crate::mistakes::problem::Problem;
use crate::mistakes::words::shortened;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The socket of the machine's own syslog.
const LOCAL: &str = "/dev/log";
const HELP: &str =
    "write syslog for /dev/log, syslog:/PATH for another unix socket, or syslog://IP:PORT for UDP";

/// Where syslog receives messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyslogAddress {
    /// A unix datagram socket.
    Unix(PathBuf),
    /// UDP.
    Udp(SocketAddr),
}

impl SyslogAddress {
    /// Reads `syslog`, `syslog:/PATH` or `syslog://IP:PORT`. `None`: the text is something else.
    pub(crate) fn read(text: &str) -> Option<Result<SyslogAddress, Problem>> {
        if text == "syslog" {
            return Some(Ok(SyslogAddress::Unix(LOCAL.into())));
        }
        let place = text.strip_prefix("syslog:")?;
        let address = match place.strip_prefix("//") {
            Some(address) => address
                .parse()
                .ok()
                .filter(|udp: &SocketAddr| udp.port() != 0),
            None if place.starts_with('/') => return Some(Ok(SyslogAddress::Unix(place.into()))),
            None => None,
        };
        let shown = shortened(text);
        let problem = || Problem::new(format!("`{shown}` is not a syslog address")).help(HELP);
        Some(address.map(SyslogAddress::Udp).ok_or_else(problem))
    }
}

impl fmt::Display for SyslogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyslogAddress::Unix(path) => write!(f, "syslog:{}", path.display()),
            SyslogAddress::Udp(address) => write!(f, "syslog://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let read = |text| {
            let read = SyslogAddress::read(text)?;
            Some(read.ok().map(|address| address.to_string()))
        };
        for (text, shown) in [
            ("syslog", "syslog:/dev/log"),
            ("syslog:/run/log.sock", "syslog:/run/log.sock"),
            ("syslog://192.0.2.1:514", "syslog://192.0.2.1:514"),
            ("syslog://[::1]:6514", "syslog://[::1]:6514"),
        ] {
            assert_eq!(read(text), Some(Some(shown.to_owned())));
        }
        for text in [
            "syslog:",
            "syslog:log",
            "syslog://",
            "syslog://loghost:514",
            "syslog://192.0.2.1:0",
        ] {
            assert_eq!(read(text), Some(None), "{text}");
        }
        assert_eq!(read("/var/log/syslog"), None);
    }
}
