//! Numbers and units in the text of a finding.

/// Formats `16912` as `16,912`.
pub(super) fn whole(value: impl Into<f64>) -> String {
    dormouse_bench::model::grouped(value.into(), 0)
}

/// The same for a count.
pub(super) fn counted(count: u64) -> String {
    whole(count as f64)
}

/// Formats bytes in the most readable unit.
pub(super) fn bytes(value: f64) -> String {
    match value.abs() {
        ..10_000.0 => format!("{} bytes", whole(value)),
        ..10_000_000.0 => format!("{} kB", whole(value / 1e3)),
        _ => format!("{} MB", whole(value / 1e6)),
    }
}

/// Formats a share in percent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}
