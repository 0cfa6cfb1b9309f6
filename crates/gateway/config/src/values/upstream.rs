//! A backend of a route: its address and its share of the connections.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::option::context::ReadContext;
use crate::option::option_type::{Kind, Listed, OptionType, unknown_key};
use crate::option::value::{RawData, RawValue};
use crate::values::endpoints::Backend;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Maximum number of backends of all routes together: each has a place in a table of fixed size.
pub(crate) const UPSTREAMS_MAX: usize = dormouse_tables::backends::BACKENDS_MAX;

/// A backend of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upstream {
    /// Its address.
    pub backend: Backend,
    /// Its share of the connections, in relation to the other backends.
    pub weight: u32,
    /// Whether it gets connections only while no other backend can.
    pub backup: bool,
    /// Maximum connections to it, from all workers together.
    pub max_connections: Option<u32>,
    /// Whether an administrator has taken it out, so that it gets no new connections. A file can't
    /// say so, and a reload puts the backend back in.
    #[serde(default)]
    pub out: bool,
}

impl Upstream {
    /// Returns a backend with this address and defaults for the rest.
    pub fn plain(backend: Backend) -> Self {
        Self {
            backend,
            weight: 1,
            backup: false,
            max_connections: None,
            out: false,
        }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.backend.fmt(f)
    }
}

/// The keys of the table.
const KEYS: &[(&str, &Kind)] = &[
    ("address", &Backend::KIND),
    ("weight", &u32::KIND),
    ("backup", &bool::KIND),
    ("max_connections", &u32::KIND),
];
/// The greatest weight.
pub const WEIGHT_MAX: u32 = 1000;

impl OptionType for Upstream {
    const KIND: Kind = Kind {
        keys: KEYS,
        ..Kind::new(
            "a backend",
            "{ address = \"127.0.0.1:8080\", weight = 2 }",
            "ADDR",
        )
    };

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        let RawData::Table(entries) = &raw.data else {
            return Backend::read(raw, context).map(Self::plain);
        };
        let mut problems = Vec::new();
        let mut address = None;
        let mut upstream = Self::plain(Backend::Echo);
        for (name, value) in entries {
            let read = match name.name.as_str() {
                "address" => Backend::read(value, context).map(|read| address = Some(read)),
                "weight" => u32::read(value, context).and_then(|weight| {
                    upstream.weight = within(weight, WEIGHT_MAX, "weight")?;
                    Ok(())
                }),
                "max_connections" => u32::read(value, context).and_then(|most| {
                    upstream.max_connections = Some(within(most, u32::MAX, "max_connections")?);
                    Ok(())
                }),
                "backup" => bool::read(value, context).map(|backup| upstream.backup = backup),
                _ => {
                    problems.push(unknown_key(name, &Self::KIND));
                    continue;
                }
            };
            if let Err(found) = read {
                problems.extend(found.into_iter().map(|problem| problem.at(&value.location)));
            }
        }
        match address {
            Some(backend) if problems.is_empty() => Ok(Self {
                backend,
                ..upstream
            }),
            None if problems.is_empty() => Err(Problem::new("a backend needs `address`")
                .help(format!("write it like this: {}", Self::KIND.example))
                .into()),
            _ => Err(problems),
        }
    }
}

fn within(number: u32, most: u32, name: &str) -> Result<u32, Problem> {
    if (1..=most).contains(&number) {
        return Ok(number);
    }
    Err(Problem::new(format!("`{number}` is not a valid {name}"))
        .help(format!("the range is 1 to {most}")))
}

impl Listed for Upstream {
    const KIND_OF_LIST: Kind = Kind {
        keys: KEYS,
        ..Kind::new(
            "a list of backends",
            "[\"127.0.0.1:8080\", { address = \"unix:/run/app.sock\", backup = true }]",
            "ADDR",
        )
    };
}
