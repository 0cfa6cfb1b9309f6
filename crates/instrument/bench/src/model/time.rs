//! Calendar time.

use ::time::OffsetDateTime;

/// `2026-03-01 14:05:09 UTC`.
pub(super) fn utc(seconds: u64) -> String {
    let moment = i64::try_from(seconds).map(OffsetDateTime::from_unix_timestamp);
    let Ok(Ok(moment)) = moment else {
        return "after the year 9999".to_owned();
    };
    let (hour, minute, second) = moment.time().as_hms();
    let date = moment.date();
    format!("{date} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_767_225_599), "2025-12-31 23:59:59 UTC");
        assert_eq!(utc(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }
}
