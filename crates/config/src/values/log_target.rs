//! The option `connection_log`: where its lines go.

use crate::input::context::ReadContext;
use crate::input::value::RawValue;
use crate::mistakes::problem::ReadResult;
use crate::option::option_type::{Kind, OptionType, wrong_type};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// Where the lines of the connection log go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogTarget {
    /// Nowhere: there is no connection log.
    Off,
    /// To standard error, among the lines of the program's own log.
    Stderr,
    /// To a file, which is appended to.
    File(PathBuf),
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogTarget::Off => f.pad("off"),
            LogTarget::Stderr => f.pad("stderr"),
            LogTarget::File(path) => f.pad(&path.display().to_string()),
        }
    }
}

impl OptionType for LogTarget {
    const KIND: Kind = Kind::new(
        "a path, \"stderr\" or \"off\"",
        "\"/var/log/dormouse.log\" or \"stderr\"",
        "PATH",
    );

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        match raw.as_text().ok_or_else(|| wrong_type::<Self>(raw))? {
            "off" | "none" => Ok(LogTarget::Off),
            "stderr" => Ok(LogTarget::Stderr),
            _ => PathBuf::read(raw, context).map(LogTarget::File),
        }
    }
}
