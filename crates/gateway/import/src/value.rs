//! Values that several programs write the same way: times, switches and ranges of ports.

/// Parses a time into milliseconds: `30`, `30s`, `1h30m`, `1h 30m`. A number without a unit counts
/// in units of `unit_ms`.
pub(super) fn time(text: &str, unit_ms: u64) -> Option<u64> {
    let mut total = 0_u64;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, behind) = rest.split_at(digits);
        let letters = behind
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(letters);
        let unit = match unit {
            "" => unit_ms,
            "us" => {
                total = total.checked_add(number.parse::<u64>().ok()?.div_ceil(1000))?;
                rest = behind.trim_start();
                continue;
            }
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            // As nginx counts them.
            "M" => 30 * 86_400_000,
            "y" => 365 * 86_400_000,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
        rest = behind.trim_start();
    }
    Some(total)
}

/// Returns whether a switch is on, in any notation of these programs.
pub(super) fn is_on(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    matches!(text.as_str(), "on" | "yes" | "y" | "true" | "t" | "1")
}

/// Returns whether a switch is off, in any notation of hitch.
pub(super) fn is_off(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    matches!(text.as_str(), "off" | "no" | "n" | "false" | "f" | "0")
}

/// Maximum number of ports in a range.
const PORTS_MAX: u16 = 200;

/// Returns the addresses of a host with a port, or with each of a range: `443`, `10000-10009`. `None`: there are too
/// many.
pub(super) fn with_ports(host: &str, ports: &str) -> Option<Vec<String>> {
    let Some((first, last)) = ports.split_once('-') else {
        return Some(vec![format!("{host}:{ports}")]);
    };
    let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
    let count = last.checked_sub(first)?;
    let all = (first..=last).map(|port| format!("{host}:{port}"));
    (count < PORTS_MAX).then(|| all.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_and_without_units() {
        assert_eq!(time("5000", 1), Some(5000));
        assert_eq!(time("10", 1000), Some(10_000));
        assert_eq!(time("1h 30m", 1000), Some(5_400_000));
        assert_eq!(time("1h30m", 1000), Some(5_400_000));
        assert_eq!(time("1500us", 1), Some(2));
        for wrong in [
            "",
            "s",
            "x",
            "1Y",
            "99999999999999999999d",
            "1h-3m",
            "9999999999999999999d",
        ] {
            assert_eq!(time(wrong, 1), None, "{wrong}");
        }
    }
}
