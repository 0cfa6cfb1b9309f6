//! Sizes and durations as people write them, parsed strictly.

use std::time::Duration;

/// Bytes per unit. The short forms are binary too, as in most configuration files.
const SIZE_UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kb", 1 << 10),
    ("kib", 1 << 10),
    ("m", 1 << 20),
    ("mb", 1 << 20),
    ("mib", 1 << 20),
    ("g", 1 << 30),
    ("gb", 1 << 30),
    ("gib", 1 << 30),
    ("t", 1 << 40),
    ("tb", 1 << 40),
    ("tib", 1 << 40),
];

/// Milliseconds per unit.
const DURATION_UNITS: &[(&str, u64)] = &[
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("min", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// Why a text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuantityError {
    /// The text is empty or does not begin with digits.
    NoNumber,
    /// The unit is missing.
    NoUnit,
    /// The unit is unknown.
    UnknownUnit,
    /// A fraction, such as `1.5`: the next smaller unit is more exact.
    Fraction,
    /// The number is negative.
    Negative,
    /// The number is too large.
    TooLarge,
}

/// Reads `64 KiB`, `16M`, `1024`.
pub(crate) fn size(text: &str) -> Result<u64, QuantityError> {
    quantity(text, SIZE_UNITS)
}

/// Reads `10s`, `250ms`, `5 m`.
pub(crate) fn duration(text: &str) -> Result<Duration, QuantityError> {
    quantity(text, DURATION_UNITS).map(Duration::from_millis)
}

/// Parses a number, an optional space and a unit.
fn quantity(text: &str, units: &[(&str, u64)]) -> Result<u64, QuantityError> {
    let text = text.trim();
    let digits_end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '_'))
        .unwrap_or(text.len());
    let (number, rest) = text.split_at(digits_end);
    let unit = rest.trim_start().to_ascii_lowercase();
    if number.is_empty() {
        return Err(if text.starts_with('-') {
            QuantityError::Negative
        } else {
            QuantityError::NoNumber
        });
    }
    if unit.starts_with(['.', ',']) {
        return Err(QuantityError::Fraction);
    }
    let factor = match units.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => *factor,
        None if unit.is_empty() => return Err(QuantityError::NoUnit),
        None => return Err(QuantityError::UnknownUnit),
    };
    let digits: String = number.chars().filter(|c| *c != '_').collect();
    match digits.parse::<u64>() {
        Ok(number) => number.checked_mul(factor).ok_or(QuantityError::TooLarge),
        Err(_) if digits.is_empty() => Err(QuantityError::NoNumber),
        Err(_) => Err(QuantityError::TooLarge),
    }
}

/// Writes a size in the largest unit that is exact.
pub(crate) fn show_size(bytes: u64) -> String {
    const NAMES: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (name, shift) in NAMES {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{} {name}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Writes a duration in the largest unit that is exact.
pub fn show_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    const NAMES: [(&str, u128); 4] = [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
    ];
    for (name, factor) in NAMES {
        if ms != 0 && ms.is_multiple_of(factor) {
            return format!("{}{name}", ms / factor);
        }
    }
    format!("{ms}ms")
}

/// Writes a number with commas between its thousands.
pub fn show_number(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
/// Returns whole seconds, as the kernel and the protocol count; at most what they can hold.
pub fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

/// Returns milliseconds.
pub fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
