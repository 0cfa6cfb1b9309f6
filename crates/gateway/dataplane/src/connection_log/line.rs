//! A line of the connection log, as text or JSON.

use dormouse_config::LogFormat;
use dormouse_printable::field_value;
use serde::Serialize;
use std::fmt::{self, Display};
use std::net::SocketAddr;
use time::OffsetDateTime;

/// The line of a connection that has ended, or begun. Unknown fields are left out.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    #[serde(serialize_with = "as_text")]
    pub(super) time: Timestamp,
    /// A connection whose handshake failed has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) route: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) backend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sni: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) alpn: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) suite: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resumed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_in: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_out: Option<u64>,
    pub(super) duration_ms: u64,
    /// How the connection has begun, if the line is about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) begin: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<&'a str>,
    /// Why a handshake failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<&'a str>,
}

impl Line<'_> {
    /// A line of which only the time is known.
    pub(super) fn at(time: Timestamp) -> Self {
        Line {
            time,
            id: None,
            route: None,
            client: None,
            backend: None,
            sni: None,
            alpn: None,
            version: None,
            suite: None,
            resumed: None,
            bytes_in: None,
            bytes_out: None,
            duration_ms: 0,
            begin: None,
            end: None,
            by: None,
            error: None,
        }
    }

    /// Appends the line and a line feed.
    pub(super) fn write(&self, format: LogFormat, to: &mut Vec<u8>) {
        match format {
            LogFormat::Json => {
                // Strings and numbers always serialize.
                let text = serde_json::to_string(self).unwrap_or_default();
                to.extend_from_slice(dormouse_printable::json(&text).as_bytes());
            }
            LogFormat::Text => to.extend_from_slice(self.to_string().as_bytes()),
        }
        to.push(b'\n');
    }
}

impl Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.time)?;
        field(f, "id", self.id.as_deref())?;
        field(f, "route", self.route)?;
        field(
            f,
            "client",
            self.client.map(|client| client.to_string()).as_deref(),
        )?;
        field(f, "backend", self.backend.as_deref())?;
        field(f, "sni", self.sni.as_deref())?;
        field(f, "alpn", self.alpn.as_deref())?;
        field(f, "version", self.version)?;
        field(f, "suite", self.suite)?;
        if let Some(resumed) = self.resumed {
            write!(f, " resumed={resumed}")?;
        }
        for (name, bytes) in [("bytes_in", self.bytes_in), ("bytes_out", self.bytes_out)] {
            if let Some(bytes) = bytes {
                write!(f, " {name}={bytes}")?;
            }
        }
        write!(f, " duration_ms={}", self.duration_ms)?;
        field(f, "begin", self.begin)?;
        field(f, "end", self.end)?;
        field(f, "by", self.by)?;
        field(f, "error", self.error)
    }
}

/// Writes a field, if its value is known.
fn field(f: &mut fmt::Formatter<'_>, name: &str, value: Option<&str>) -> fmt::Result {
    match value {
        Some(value) => write!(f, " {name}={}", field_value(value)),
        None => Ok(()),
    }
}

fn as_text<S: serde::Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

/// A time in UTC, in RFC 3339 format.
#[derive(Clone, Copy)]
pub(super) struct Timestamp {
    pub(super) unix_ms: u64,
}

impl Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, ms) = (self.unix_ms / 1000, self.unix_ms % 1000);
        // The clock can't show a year outside the calendar's range.
        let at = i64::try_from(seconds)
            .ok()
            .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
            .unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
        let (hour, minute, second) = at.to_hms();
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line<'static> {
        Line {
            time: Timestamp {
                unix_ms: 1_795_336_496_007,
            },
            id: Some("7f".to_owned()),
            route: Some("shop"),
            client: "192.0.2.7:40000".parse().ok(),
            backend: Some("10.0.0.1:80".to_owned()),
            sni: Some("a.example".to_owned()),
            alpn: Some("h2".to_owned()),
            version: Some("TLSv1.3"),
            suite: Some("TLS_AES_128_GCM_SHA256"),
            resumed: Some(true),
            bytes_in: Some(1),
            bytes_out: Some(2),
            duration_ms: 3,
            begin: None,
            end: Some("closed"),
            by: Some("client"),
            error: None,
        }
    }

    fn text(line: &Line<'_>, format: LogFormat) -> String {
        let mut bytes = Vec::new();
        line.write(format, &mut bytes);
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn timestamps_follow_the_calendar() {
        for (unix_ms, written) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800_000, "2024-02-29T00:00:00.000Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp { unix_ms }.to_string(), written);
        }
    }

    #[test]
    fn hostile_values_stay_on_one_line() {
        assert_eq!(
            text(&line(), LogFormat::Text),
            "2026-11-22T08:34:56.007Z id=7f route=shop client=192.0.2.7:40000 \
             backend=10.0.0.1:80 sni=a.example alpn=h2 version=TLSv1.3 \
             suite=TLS_AES_128_GCM_SHA256 resumed=true bytes_in=1 bytes_out=2 duration_ms=3 \
             end=closed by=client\n"
        );
        let hostile = Line {
            route: Some("my shop"),
            sni: Some("a\nid=8 \"x\"\\ \u{1b}[31m\u{202e}".to_owned()),
            alpn: Some(String::new()),
            client: None,
            ..line()
        };
        let written = text(&hostile, LogFormat::Text);
        assert!(
            written.contains(
                r#" route="my shop" backend=10.0.0.1:80 sni="a\nid=8 \"x\"\\ \u{1b}[31m\u{202e}" alpn="" "#
            ),
            "{written}"
        );
        assert_eq!(written.matches('\n').count(), 1, "{written}");
        let written = text(&hostile, LogFormat::Json);
        assert_eq!(written.matches('\n').count(), 1, "{written}");
        let read: serde_json::Value = serde_json::from_str(&written).expect("JSON");
        assert_eq!(read["sni"].as_str(), hostile.sni.as_deref());
        assert_eq!(read["client"], serde_json::Value::Null);
        assert_eq!(
            (&read["bytes_in"], &read["end"]),
            (&1.into(), &"closed".into())
        );
        assert_eq!(read["time"], "2026-11-22T08:34:56.007Z");
    }
}
