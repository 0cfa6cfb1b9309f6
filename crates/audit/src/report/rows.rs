//! A row of figures, and the formatting of numbers.

use crate::model::Measured;
use dormouse_bench::model::grouped;
use dormouse_measure::Growth;

/// A row: a name, and a figure or the reason why it is missing.
pub(super) struct Row {
    pub(super) title: String,
    pub(super) value: String,
    /// The value is a reason, not a figure.
    pub(super) missing: bool,
}

pub(super) fn row(title: impl Into<String>, value: impl Into<String>) -> Row {
    Row {
        title: title.into(),
        value: value.into(),
        missing: false,
    }
}

pub(super) fn missing(title: impl Into<String>, why: &str) -> Row {
    Row {
        title: title.into(),
        value: format!("not measured, because {why}"),
        missing: true,
    }
}

pub(super) fn of<T>(title: &str, measured: &Measured<T>, words: impl Fn(&T) -> String) -> Row {
    match measured {
        Measured::Value(value) => row(title, words(value)),
        Measured::NotMeasured(why) => missing(title, why),
    }
}

/// Formats bytes in the most readable unit.
pub(super) fn bytes(value: f64) -> String {
    match value.abs() {
        ..10_000.0 => format!("{} bytes", grouped(value, 0)),
        ..10_000_000.0 => format!(
            "{} kB",
            grouped(value / 1e3, usize::from(value.abs() < 100_000.0))
        ),
        _ => format!("{} MB", grouped(value / 1e6, 1)),
    }
}

/// Describes growth. The rounds of an audit depend on its effort, where `bench` has an option.
pub(super) fn grows(growth: &Growth) -> String {
    growth.to_string().replace("more --rounds", "--thorough")
}

/// Formats CPU time, which the operating system counts in ticks of 10 ms.
pub(super) fn cpu_ms(ms: f64) -> String {
    if ms < 1.0 {
        "less than 1 ms".to_owned()
    } else {
        format!("{} ms", grouped(ms, 0))
    }
}

/// Formats a number of objects: `2`, `1.4`.
pub(super) fn times(count: f64) -> String {
    let exact = (count - count.round()).abs() < 0.05;
    grouped(count, usize::from(!exact))
}
