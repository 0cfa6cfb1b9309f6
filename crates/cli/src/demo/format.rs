//! Numbers as people read them.

use std::time::Duration;

pub(super) use dormouse_config::show_number as number;

/// `13.1 MB`.
pub(super) fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// `3.1 ms`, `1.2 s`.
pub(super) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 0.0095 {
        format!("{:.1} ms", seconds * 1e3)
    } else if seconds < 0.9995 {
        format!("{:.0} ms", seconds * 1e3)
    } else {
        format!("{seconds:.1} s")
    }
}

/// `one connection`, `12 connections`.
pub(super) fn count(value: u64, one: &str, many: &str) -> String {
    match value {
        1 => format!("one {one}"),
        _ => format!("{} {many}", number(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped() {
        let shown = [0, 999, 1_000, 1_234_567].map(number);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn times_have_a_fitting_unit() {
        let shown =
            [312, 9_499, 9_600, 999_400, 999_600].map(|us| duration(Duration::from_micros(us)));
        assert_eq!(shown, ["0.3 ms", "9.5 ms", "10 ms", "999 ms", "1.0 s"]);
    }
}
