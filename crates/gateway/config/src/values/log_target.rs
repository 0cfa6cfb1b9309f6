//! The options `log_to` and `connection_log`: where lines go.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::mistakes::words::shortened;
use crate::option::context::ReadContext;
use crate::option::option_type::{Kind, OptionType, wrong_type};
use crate::option::value::RawValue;
use crate::values::syslog::SyslogAddress;
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
    /// To syslog, one message for each line.
    Syslog(SyslogAddress),
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogTarget::Off => f.pad("off"),
            LogTarget::Stderr => f.pad("stderr"),
            LogTarget::File(path) => f.pad(&path.display().to_string()),
            LogTarget::Syslog(address) => f.pad(&address.to_string()),
        }
    }
}

impl OptionType for LogTarget {
    const KIND: Kind = Kind::new(
        "a path, \"stderr\", an address of syslog or \"off\"",
        "\"/var/log/dormouse.log\", \"stderr\" or \"syslog\"",
        "PATH",
    );

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        let text = raw.as_text().ok_or_else(|| wrong_type::<Self>(raw))?;
        match (text, SyslogAddress::read(text)) {
            ("off" | "none", _) => Ok(LogTarget::Off),
            ("stderr", _) => Ok(LogTarget::Stderr),
            ("stdout" | "-", _) => Err(Problem::new(format!(
                "`{text}` would be a file of this name, not standard output"
            ))
            .help("write \"stderr\", or \"/dev/stdout\"")
            .into()),
            (_, Some(address)) => Ok(LogTarget::Syslog(address?)),
            _ => PathBuf::read(raw, context).map(LogTarget::File),
        }
    }
}

/// Where the program's own log goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogDestination {
    /// To standard error.
    Stderr,
    /// To syslog.
    Syslog(SyslogAddress),
}

impl fmt::Display for LogDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogDestination::Stderr => f.pad("stderr"),
            LogDestination::Syslog(address) => f.pad(&address.to_string()),
        }
    }
}

impl OptionType for LogDestination {
    const KIND: Kind = Kind::new(
        "\"stderr\" or an address of syslog",
        "\"stderr\", \"syslog\" or \"syslog://192.0.2.1:514\"",
        "stderr|syslog",
    );

    fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
        let text = raw.as_text().ok_or_else(|| wrong_type::<Self>(raw))?;
        match (text, SyslogAddress::read(text)) {
            ("stderr", _) => Ok(LogDestination::Stderr),
            (_, Some(address)) => Ok(LogDestination::Syslog(address?)),
            _ => {
                let shown = shortened(text);
                let problem = Problem::new(format!("`{shown}` is not a log destination"));
                Err(problem
                    .help("write stderr, syslog for /dev/log, or syslog://IP:PORT")
                    .into())
            }
        }
    }
}
