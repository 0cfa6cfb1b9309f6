//! Words for the values of figures.

use std::collections::BTreeMap;

use dormouse_bench::model::grouped;
use dormouse_measure::Growth;

/// Formats bytes in the most readable unit.
pub(crate) fn bytes(value: f64) -> String {
    match value.abs() {
        ..10_000.0 => format!("{} bytes", grouped(value, 0)),
        ..10_000_000.0 => {
            let decimals = usize::from(value.abs() < 100_000.0);
            format!("{} kB", grouped(value / 1e3, decimals))
        }
        _ => format!("{} MB", grouped(value / 1e6, 1)),
    }
}

/// Formats `16912` as `16,912`.
pub(crate) fn whole(count: u64) -> String {
    grouped(count as f64, 0)
}

pub(crate) fn us(value: f64) -> String {
    format!("{} µs", grouped(value, 0))
}

/// Describes growth. The rounds of an audit depend on its effort, where `bench` has an option.
pub(crate) fn grows(growth: &Growth) -> String {
    growth.to_string().replace("more --rounds", "--thorough")
}

/// Formats CPU time, which the operating system counts in ticks of 10 ms.
pub(crate) fn cpu_ms(ms: f64) -> String {
    if ms < 1.0 {
        "less than 1 ms".to_owned()
    } else {
        format!("{} ms", grouped(ms, 0))
    }
}

/// Formats a number of objects: `2`, `1.4`.
pub(crate) fn times(count: f64) -> String {
    let exact = (count - count.round()).abs() < 0.05;
    grouped(count, usize::from(!exact))
}

// Words for a field of an object.

pub(super) fn in_bytes<T>(_: &T, value: &f64) -> String {
    bytes(*value)
}

pub(super) fn as_growth<T>(_: &T, growth: &Growth) -> String {
    grows(growth)
}

pub(super) fn plain<T, V: ToString>(_: &T, value: &V) -> String {
    value.to_string()
}

pub(super) fn yes_or_no<T>(_: &T, is_so: &bool) -> String {
    (if *is_so { "yes" } else { "no" }).to_owned()
}

/// A list, unless it is empty.
#[expect(
    clippy::ptr_arg,
    reason = "the words of a field take a reference to its type"
)]
pub(super) fn list<T>(_: &T, names: &Vec<String>) -> Option<String> {
    (!names.is_empty()).then(|| names.join(", "))
}

pub(super) fn list_or_none<T>(of: &T, names: &Vec<String>) -> String {
    list(of, names).unwrap_or_else(|| "none".to_owned())
}

/// `2 × TLS 1.2, 5 × TLS 1.3`.
pub(super) fn counts<T>(_: &T, counts: &BTreeMap<String, u64>) -> String {
    let each: Vec<_> = counts
        .iter()
        .map(|(name, count)| format!("{count} × {name}"))
        .collect();
    each.join(", ")
}
