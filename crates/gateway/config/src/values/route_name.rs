//! Names of routes, as metrics, logs and `status` show them.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::mistakes::words::shortened;
use crate::option::context::ReadContext;
use crate::option::option_type::{Absent, Kind, OptionType, wrong_type};
use crate::option::value::RawValue;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest name, in characters: names are labels of metrics and fields of log lines.
const NAME_LEN_MAX: usize = 63;

/// The name of a route: a letter, then letters, digits, `-`, `_` and `.`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteName(String);

impl RouteName {
    /// Returns its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RouteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl OptionType for RouteName {
    const KIND: Kind = Kind::new("a name", "\"shop\"", "NAME");

    fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
        let text = raw.as_text().ok_or_else(|| wrong_type::<Self>(raw))?;
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        // Routes without a name are shown by their number, so a name must not be a number.
        let is_name = text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.chars().all(is_of_name)
            && text.len() <= NAME_LEN_MAX;
        if is_name {
            return Ok(Self(text.to_owned()));
        }
        let problem = Problem::new(format!(
            "`{}` is not a valid name of a route",
            shortened(text)
        ));
        Err(problem
            .help(format!(
                "a name is a letter, followed by letters, digits, `-`, `_` or `.`; at most {NAME_LEN_MAX} characters"
            ))
            .into())
    }
}

impl Absent for RouteName {
    const WORD: &'static str = "none";
    const KIND_OR_ABSENT: Kind = Self::KIND;
}
