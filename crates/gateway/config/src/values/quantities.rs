//! Numbers, sizes and durations, as values of options.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::mistakes::words::shortened;
use crate::option::context::ReadContext;
use crate::option::option_type::{Absent, Kind, OptionType, wrong_type};
use crate::option::value::{RawData, RawValue};
use crate::values::units::{self, QuantityError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

impl OptionType for u32 {
    const KIND: Kind = Kind {
        bare: true,
        ..Kind::new("a whole number", "4096", "N")
    };

    fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
        let number = match &raw.data {
            RawData::Integer(number) => number.clone().map_err(|text| text.starts_with('-')),
            // TOML allows `100_000`, so a flag and a variable do, too.
            RawData::Word(text) => {
                let digits = text.replace('_', "");
                digits.parse::<u64>().map_err(|_| text.starts_with('-'))
            }
            _ => return Err(wrong_type::<Self>(raw)),
        };
        let too_large = || Problem::new(format!("`{}` is too large", raw.text()));
        match number {
            Ok(number) => number.try_into().map_err(|_| too_large().into()),
            Err(true) => Err(Problem::new(format!("`{}` is negative", raw.text()))
                .help("write a whole number, 0 or more")
                .into()),
            // TOML has no other integer that can't be read.
            Err(false) if matches!(raw.data, RawData::Integer(_)) => Err(too_large().into()),
            Err(false)
                if raw.text().bytes().all(|b| b.is_ascii_digit()) && !raw.text().is_empty() =>
            {
                Err(too_large().into())
            }
            Err(false) => Err(
                Problem::new(format!("`{}` is not a whole number", raw.text()))
                    .help(format!("write it like this: {}", Self::KIND.example))
                    .into(),
            ),
        }
    }

    fn measure(&self) -> Option<u64> {
        Some(u64::from(*self))
    }
}

/// A number, or one that fits the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Count {
    /// The number that fits the machine.
    Auto,
    /// This number.
    Exactly(u32),
}

impl OptionType for Count {
    const KIND: Kind = Kind {
        bare: true,
        ..Kind::new("a whole number or \"auto\"", "4 or \"auto\"", "N|auto")
    };

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        match raw.as_text() {
            Some("auto") => Ok(Self::Auto),
            Some(text) if matches!(raw.data, RawData::String(_)) => Err(Problem::new(format!(
                "expected {}, found \"{}\"",
                Self::KIND.name,
                shortened(text)
            ))
            .help("write a number without quotes, or \"auto\"")
            .into()),
            Some(text) if !text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                Err(Problem::new(format!(
                    "`{}` is neither a whole number nor `auto`",
                    raw.text()
                ))
                .into())
            }
            Some(_) => u32::read(raw, context).map(Self::Exactly),
            None if matches!(raw.data, RawData::Integer(_)) => {
                u32::read(raw, context).map(Self::Exactly)
            }
            None => Err(wrong_type::<Self>(raw)),
        }
    }

    fn measure(&self) -> Option<u64> {
        match self {
            Self::Auto => None,
            Self::Exactly(number) => Some(u64::from(*number)),
        }
    }
}

impl Count {
    /// Returns the number, or `auto` if the program chooses it.
    pub fn or(self, auto: u32) -> u32 {
        match self {
            Self::Auto => auto,
            Self::Exactly(number) => number,
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Exactly(number) => number.fmt(f),
        }
    }
}

/// Returns this share of a limit, in percent; at least 1.
pub fn share_of(limit: u64, percent: u32) -> u64 {
    let share = u128::from(limit) * u128::from(percent) / 100;
    u64::try_from(share).unwrap_or(u64::MAX).max(1)
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Returns the number as a length in memory.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&units::show_size(self.0))
    }
}

impl OptionType for ByteSize {
    const KIND: Kind = Kind::new("a size", "\"64 MiB\", \"64k\" or a number of bytes", "SIZE");

    fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
        let error = match (&raw.data, raw.as_text()) {
            (RawData::Integer(Ok(bytes)), _) => return Ok(Self(*bytes)),
            (RawData::Integer(Err(text)), _) if text.starts_with('-') => QuantityError::Negative,
            (RawData::Integer(Err(_)), _) => QuantityError::TooLarge,
            (RawData::Float(_), _) => QuantityError::Fraction,
            (_, Some(text)) => match units::size(text) {
                Ok(bytes) => return Ok(Self(bytes)),
                Err(error) => error,
            },
            _ => return Err(wrong_type::<Self>(raw)),
        };
        Err(quantity_problem(
            raw,
            error,
            "size",
            "\"512 KiB\", \"64 MiB\" or a number of bytes",
            "units are B, KiB, MiB, GiB and TiB, or k, M, G and T for short; all count by 1024",
        ))
    }

    fn measure(&self) -> Option<u64> {
        Some(self.0)
    }
}

impl OptionType for Duration {
    const KIND: Kind = Kind::new("a duration", "\"10s\", \"250ms\" or \"5m\"", "TIME");

    fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
        let error = match (&raw.data, raw.as_text()) {
            (RawData::Integer(_), _) => QuantityError::NoUnit,
            (RawData::Float(_), _) => QuantityError::Fraction,
            (_, Some(text)) => match units::duration(text) {
                Ok(duration) => return Ok(duration),
                Err(error) => error,
            },
            _ => return Err(wrong_type::<Self>(raw)),
        };
        Err(quantity_problem(
            raw,
            error,
            "duration",
            "\"10s\", \"250ms\" or \"5m\"",
            "units are ms, s, m, h and d",
        ))
    }

    fn measure(&self) -> Option<u64> {
        u64::try_from(self.as_millis()).ok()
    }
}

/// Returns the problem of a size or a duration.
fn quantity_problem(
    raw: &RawValue,
    error: QuantityError,
    what: &str,
    like: &str,
    units: &str,
) -> Vec<Problem> {
    let text = raw.text();
    let (message, help) = match error {
        QuantityError::NoNumber => (
            format!("`{text}` is not a {what}"),
            format!("write it like this: {like}"),
        ),
        QuantityError::NoUnit => (
            format!("`{text}` has no unit"),
            format!("add a unit, such as \"{text}s\"; {units}"),
        ),
        QuantityError::UnknownUnit => (format!("`{text}` has an unknown unit"), units.to_owned()),
        QuantityError::Fraction => (
            format!("`{text}` is a fraction"),
            format!("write a whole number of a smaller unit, such as {like}"),
        ),
        QuantityError::Negative => (
            format!("`{text}` is negative"),
            format!("write it like this: {like}"),
        ),
        QuantityError::TooLarge => (format!("`{text}` is too large"), units.to_owned()),
    };
    Problem::new(message).help(help).into()
}

impl Absent for Duration {
    const WORD: &'static str = "off";
    const KIND_OR_ABSENT: Kind = Kind::new(
        "a duration or \"off\"",
        "\"10s\", \"5m\" or \"off\"",
        "TIME|off",
    );
}

impl Absent for u32 {
    const WORD: &'static str = "off";
    const KIND_OR_ABSENT: Kind = Kind {
        bare: true,
        ..Kind::new("a whole number or \"off\"", "100 or \"off\"", "N|off")
    };
}

impl Absent for ByteSize {
    const WORD: &'static str = "off";
    const KIND_OR_ABSENT: Kind =
        Kind::new("a size or \"off\"", "\"512 MiB\" or \"off\"", "SIZE|off");
}
