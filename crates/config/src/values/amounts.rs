//! Sizes that may be `auto`, and source addresses.

use crate::input::context::ReadContext;
use crate::input::value::{RawData, RawValue};
use crate::mistakes::problem::{Problem, ReadResult};
use crate::mistakes::words::shortened;
use crate::option::option_type::{Kind, Listed, OptionType, wrong_type};
use crate::values::quantities::ByteSize;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// A size, or one that follows from the other limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Amount {
    /// The size that follows from the other limits.
    Auto,
    /// This size.
    Exactly(ByteSize),
}

impl Amount {
    /// Returns the size, unless it is `auto`.
    pub fn given(self) -> Option<ByteSize> {
        match self {
            Self::Auto => None,
            Self::Exactly(size) => Some(size),
        }
    }

    /// Returns the size, or `auto` if the program chooses it.
    pub fn or(self, auto: ByteSize) -> ByteSize {
        self.given().unwrap_or(auto)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Exactly(size) => size.fmt(f),
        }
    }
}

impl OptionType for Amount {
    const KIND: Kind = Kind::new(
        "a size or \"auto\"",
        "\"64 MiB\", \"64k\" or \"auto\"",
        "SIZE|auto",
    );

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        match raw.as_text() {
            Some("auto") => Ok(Self::Auto),
            _ if matches!(
                raw.data,
                RawData::Table(_) | RawData::List(_) | RawData::Boolean(_)
            ) =>
            {
                Err(wrong_type::<Self>(raw))
            }
            _ => ByteSize::read(raw, context).map(Self::Exactly),
        }
    }

    fn measure(&self) -> Option<u64> {
        self.given().map(|size| size.0)
    }
}

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
