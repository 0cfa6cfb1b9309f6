//! Names that ACME servers issue certificates for.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::option::context::ReadContext;
use crate::option::option_type::{Kind, Listed, OptionType, wrong_type};
use crate::option::value::RawValue;
use crate::values::host_name::{self, is_in_certificates};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// A public host name that an ACME server issues certificates for, in lower case; its first label may be `*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AcmeName(String);

impl AcmeName {
    /// Returns its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether it is a wildcard for this name, in lower case.
    pub(crate) fn covers(&self, name: &str) -> bool {
        let parent = name.split_once('.').map(|(_, parent)| parent);
        let own = self.0.strip_prefix("*.");
        own.is_some() && own == parent
    }

    /// Returns whether it is a wildcard, which only dns-01 proves (RFC 8555 §7.1.3).
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with('*')
    }
}

impl fmt::Display for AcmeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl OptionType for AcmeName {
    const KIND: Kind = Kind::new("a host name", "\"www.example.com\"", "NAME");

    fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
        let text = raw.as_text().ok_or_else(|| wrong_type::<Self>(raw))?;
        let is_address = text.parse::<IpAddr>().is_ok();
        let own = text.strip_prefix("*.").unwrap_or(text);
        let is_public = own.contains('.') && !own.contains('_');
        if is_address || !is_in_certificates(text) || !is_public {
            let problem = Problem::new(format!("`{}` is not a public host name", raw.text()));
            return Err(problem
                .help(host_name::help(
                    text,
                    "write it like this: \"www.example.com\"",
                ))
                .into());
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

impl Listed for AcmeName {
    const KIND_OF_LIST: Kind = Kind::new(
        "a list of host names",
        "[\"example.com\", \"www.example.com\"]",
        "NAME",
    );
}
