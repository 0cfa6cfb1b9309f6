//! The address of a DNS server.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::option::context::ReadContext;
use crate::option::option_type::{Absent, Kind, OptionType, wrong_type};
use crate::option::value::RawValue;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The port of DNS.
const PORT: u16 = 53;

/// The address of a DNS server, with port 53 unless another is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsServer(pub SocketAddr);

impl fmt::Display for DnsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.port() {
            PORT => self.0.ip().fmt(f),
            _ => self.0.fmt(f),
        }
    }
}

impl OptionType for DnsServer {
    const KIND: Kind = Kind::new("the address of a DNS server", "\"192.0.2.53\"", "IP[:PORT]");

    fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
        let text = raw.as_text().ok_or_else(|| wrong_type::<Self>(raw))?;
        let ip = text.trim_start_matches('[').trim_end_matches(']');
        let without_port = ip.parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, PORT));
        let address = text.parse().ok().or(without_port);
        match address.filter(|address| address.port() > 0) {
            Some(address) => Ok(Self(address)),
            None => {
                let problem = Problem::new(format!(
                    "`{}` is not the IP address of a DNS server",
                    raw.text()
                ));
                let help =
                    "write it like this: \"192.0.2.53\", or with a port: \"192.0.2.53:5353\"";
                Err(problem.help(help).into())
            }
        }
    }
}

impl Absent for DnsServer {
    const WORD: &'static str = "none";
    const KIND_OR_ABSENT: Kind = Kind::new(
        "the address of a DNS server or \"none\"",
        "\"192.0.2.53\" or \"none\"",
        "IP[:PORT]|none",
    );
}
