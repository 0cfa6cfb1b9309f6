//! Health checks of backends.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::mistakes::words::shortened;
use crate::option::context::ReadContext;
use crate::option::option_type::{Kind, OptionType, wrong_type};
use crate::option::value::{RawData, RawValue};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;

/// The health check of a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Probe {
    /// None: only connections show whether the backend is up.
    Off,
    /// The backend must accept a connection.
    Connect,
    /// The backend must complete a TLS handshake.
    Tls,
    /// The backend must answer a GET of this path, over HTTP/1.1.
    Get(String),
}

/// Longest path of a GET.
const PATH_MAX: usize = 1024;

impl OptionType for Probe {
    const KIND: Kind = Kind::new(
        "`off`, `connect`, `tls` or `GET /PATH`",
        "\"connect\", \"tls\" or \"GET /healthz\"",
        "off|connect|tls|GET /PATH",
    );

    fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
        let text = raw.as_text().ok_or_else(|| wrong_type::<Self>(raw))?;
        match text {
            "off" => return Ok(Self::Off),
            "connect" => return Ok(Self::Connect),
            "tls" => return Ok(Self::Tls),
            _ => {}
        }
        let is_path = |path: &str| {
            path.starts_with('/')
                && path.len() <= PATH_MAX
                && path.bytes().all(|byte| byte.is_ascii_graphic())
        };
        match text.strip_prefix("GET ") {
            Some(path) if is_path(path) => Ok(Self::Get(path.to_owned())),
            _ => Err(
                Problem::new(format!("`{}` is not a health check", shortened(text)))
                    .help(format!("write {}", Self::KIND.example))
                    .into(),
            ),
        }
    }
}

/// The status codes of a healthy backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCodes {
    /// The lowest.
    pub least: u16,
    /// The highest.
    pub greatest: u16,
}

impl StatusCodes {
    const ALL: RangeInclusive<u16> = 100..=599;

    /// Returns whether this code is one of them.
    pub fn contain(self, code: u16) -> bool {
        (self.least..=self.greatest).contains(&code)
    }
}

impl OptionType for StatusCodes {
    const KIND: Kind = Kind {
        bare: true,
        ..Kind::new("HTTP status codes", "\"200-399\" or 204", "CODE-CODE")
    };

    fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
        let text = match &raw.data {
            RawData::Integer(Ok(code)) => code.to_string(),
            _ => raw
                .as_text()
                .ok_or_else(|| wrong_type::<Self>(raw))?
                .to_owned(),
        };
        let (least, greatest) = text.split_once('-').unwrap_or((&text, &text));
        let code = |text: &str| text.parse().ok().filter(|code| Self::ALL.contains(code));
        match (code(least), code(greatest)) {
            (Some(least), Some(greatest)) if least <= greatest => Ok(Self { least, greatest }),
            _ => Err(
                Problem::new(format!("`{}` is not a range of status codes", shortened(&text)))
                    .help("write one code, such as 204, or two with a hyphen, such as \"200-399\"; codes are from 100 to 599")
                    .into(),
            ),
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.pad("off"),
            Self::Connect => f.pad("connect"),
            Self::Tls => f.pad("tls"),
            Self::Get(path) => f.pad(&format!("GET {path}")),
        }
    }
}
