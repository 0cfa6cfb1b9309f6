//! The option `admin`: the socket for status and commands.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::mistakes::words::shortened;
use crate::option::context::ReadContext;
use crate::option::option_type::{Kind, OptionType, wrong_type};
use crate::option::value::RawValue;
use crate::values::address::unix_path;
use dormouse_reactor::process;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Default name of the socket, in a directory of its own.
const USUAL: &str = "dormouse/admin.sock";

/// Where the program accepts questions about its status, and commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Admin {
    /// At the default path, if that is free.
    Auto,
    /// Nowhere.
    None,
    /// On a unix socket, for the owner of the process and root.
    Unix(PathBuf),
    /// A loopback address, which is the option `metrics` now. No loaded configuration has it.
    Loopback(SocketAddr),
}

impl Admin {
    /// Returns the default path for this user, which is the same for the server and for commands.
    pub fn usual_path() -> Option<PathBuf> {
        if process::user_id() == 0 {
            return Some(PathBuf::from("/run").join(USUAL));
        }
        let own = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
        own.is_absolute().then(|| own.join(USUAL))
    }
}

impl fmt::Display for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Admin::Auto => f.pad("auto"),
            Admin::None => f.pad("none"),
            Admin::Unix(path) => f.pad(&path.display().to_string()),
            Admin::Loopback(address) => f.pad(&address.to_string()),
        }
    }
}

impl OptionType for Admin {
    const KIND: Kind = Kind::new(
        "a path, \"auto\" or \"none\"",
        "\"/run/dormouse/admin.sock\" or \"none\"",
        "PATH",
    );

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        let text = raw.as_text().ok_or_else(|| wrong_type::<Self>(raw))?;
        match text {
            "auto" => return Ok(Admin::Auto),
            "none" | "off" => return Ok(Admin::None),
            _ => {}
        }
        // Other options need the prefix.
        if let Some(path) = text.strip_prefix("unix:") {
            return unix_path(path, context).map(Admin::Unix);
        }
        match address(text) {
            Some(address) if address.ip().is_loopback() && address.port() != 0 => {
                Ok(Admin::Loopback(address))
            }
            None if !has_port(text) => unix_path(text, context).map(Admin::Unix),
            _ => Err(Problem::new(format!("`{}` is not a path", shortened(text)))
                .label("commands are accepted on a unix socket only")
                .help("write a path; for metrics on a TCP address, use the option `metrics`")
                .into()),
        }
    }
}

/// Returns whether this looks like a TCP address: `:9901`, `edge.example:9901`.
fn has_port(text: &str) -> bool {
    let port = text.rsplit_once(':').map(|(_, port)| port);
    !text.contains('/') && port.is_some_and(|port| port.parse::<u16>().is_ok())
}

/// An IP address with a port; `localhost` stands for one.
fn address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => {
            let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
            Some(SocketAddr::new(ip, port.parse().ok()?))
        }
        None => text.parse().ok(),
    }
}
