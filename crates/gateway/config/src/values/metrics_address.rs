//! The option `metrics`: a TCP address for metrics, health and the status page, without commands.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::mistakes::words::shortened;
use crate::option::context::ReadContext;
use crate::option::option_type::{Absent, Kind, OptionType, wrong_type};
use crate::option::value::RawValue;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The TCP address on which metrics, health and the status page are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricsAddress(pub SocketAddr);

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl OptionType for MetricsAddress {
    const KIND: Kind = Kind::new("an address", "\"127.0.0.1:9901\"", "ADDR");

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        let text = raw.as_text().ok_or_else(|| wrong_type::<Self>(raw))?;
        let help =
            "write an address such as 127.0.0.1:9901, or :9901 for all addresses of the machine";
        match address(text, context.ipv6) {
            Some(address) if address.port() == 0 => {
                Err(Problem::new(format!("`{text}` has no port"))
                    .help(help)
                    .into())
            }
            // An IPv4 address that is written as an IPv6 one has a socket of IPv4, as in `listen`.
            Some(address) => Ok(MetricsAddress(SocketAddr::new(
                address.ip().to_canonical(),
                address.port(),
            ))),
            None => {
                let shown = shortened(text);
                let problem = Problem::new(format!("`{shown}` is not an IP address with a port"));
                Err(problem.help(help).into())
            }
        }
    }
}

impl Absent for MetricsAddress {
    const WORD: &'static str = "off";
    const KIND_OR_ABSENT: Kind = Kind::new(
        "an address or \"off\"",
        "\"127.0.0.1:9901\" or \"off\"",
        "ADDR|off",
    );
}

/// Parses an IP address with a port. `:PORT` stands for all addresses, `localhost` for the loopback
/// address.
fn address(text: &str, has_ipv6: bool) -> Option<SocketAddr> {
    if let Some(port) = text.strip_prefix(':') {
        let all: IpAddr = match has_ipv6 {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        };
        return Some(SocketAddr::new(all, port.parse().ok()?));
    }
    match text.strip_prefix("localhost:") {
        Some(port) => Some(SocketAddr::new(
            Ipv4Addr::LOCALHOST.into(),
            port.parse().ok()?,
        )),
        None => text.parse().ok(),
    }
}
