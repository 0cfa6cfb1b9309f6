//! Local addresses of connections to backends.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::mistakes::words::shortened;
use crate::option::context::ReadContext;
use crate::option::option_type::{Kind, Listed, OptionType, wrong_type};
use crate::option::value::RawValue;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The local address of connections to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SourceAddress {
    /// The system chooses; for backends on this machine, as many addresses of 127.0.0.0/8 as the
    /// connections need.
    Auto,
    /// This address.
    Address(IpAddr),
}

impl OptionType for SourceAddress {
    const KIND: Kind = Kind::new("an IP address or \"auto\"", "\"10.0.0.5\"", "IP|auto");

    fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
        let text = raw.as_text().ok_or_else(|| wrong_type::<Self>(raw))?;
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let problem = |what: String| Problem::new(what).help("write it like this: \"10.0.0.5\"");
        match text.parse::<IpAddr>() {
            Ok(ip) if ip.is_unspecified() => Err(problem(format!(
                "`{ip}` stands for all addresses; write \"auto\" to let the system choose"
            ))
            .into()),
            Ok(ip) => Ok(Self::Address(ip)),
            Err(_) => Err(problem(format!(
                "`{}` is not an IP address (without a port)",
                shortened(text)
            ))
            .into()),
        }
    }
}

impl Listed for SourceAddress {
    const KIND_OF_LIST: Kind = Kind::new(
        "a list of IP addresses, or \"auto\"",
        "[\"10.0.0.5\", \"10.0.0.6\"]",
        "IP|auto",
    );
}
