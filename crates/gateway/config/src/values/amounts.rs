//! Sizes that may be `auto`.

use crate::mistakes::problem::ReadResult;
use crate::option::context::ReadContext;
use crate::option::option_type::{Kind, OptionType, wrong_type};
use crate::option::value::{RawData, RawValue};
use crate::values::quantities::ByteSize;
use serde::{Deserialize, Serialize};
use std::fmt;

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
