//! Names that clients ask for (SNI).

use crate::mistakes::problem::{Problem, ReadResult};
use crate::mistakes::words::shortened;
use crate::option::context::ReadContext;
use crate::option::option_type::{Kind, Listed, OptionType, wrong_type};
use crate::option::value::RawValue;
use crate::values::host_name::{self, is_in_certificates};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// A name that clients ask for, in lower case: a host name, whose first label may be `*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerName(String);

impl ServerName {
    /// Returns its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether this is the name, in lower case, or a wildcard for it.
    pub(crate) fn covers(&self, name: &str) -> bool {
        let parent = name.split_once('.').map(|(_, parent)| parent);
        self.0 == name
            || self
                .0
                .strip_prefix("*.")
                .is_some_and(|own| Some(own) == parent)
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl OptionType for ServerName {
    const KIND: Kind = Kind::new("a server name", "\"example.com\"", "NAME");

    fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
        let text = raw.as_text().ok_or_else(|| wrong_type::<Self>(raw))?;
        if text.parse::<IpAddr>().is_ok() {
            let problem = Problem::new(format!(
                "`{text}` is an IP address, but clients ask for host names only"
            ));
            let help = "to separate routes by address, give each its own `listen`";
            return Err(problem.help(help).into());
        }
        if !is_in_certificates(text) {
            let problem = Problem::new(format!("`{}` is not a host name", shortened(text)));
            let help = "write it like this: \"example.com\", or \"*.example.com\" for every name with one more label";
            return Err(problem.help(host_name::help(text, help)).into());
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

impl Listed for ServerName {
    const KIND_OF_LIST: Kind = Kind::new(
        "a list of server names",
        "[\"example.com\", \"*.example.com\"]",
        "NAME",
    );
}
