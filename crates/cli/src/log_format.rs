//! Formatters of log lines that foreign text cannot forge.
//!
//! Messages escape foreign text where they quote it. These formatters are the second line of defence:
//! they escape every character on which a terminal would act. Line feeds remain in messages only, for
//! configuration errors; the continuation lines are indented, so that none looks like an entry.

use std::fmt::{self, Debug};

use dormouse_printable::{field_value, json, lines};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Prefix of each continuation line of a message.
const INDENT: &str = "\n    ";

/// Formatter of an event's fields as text.
pub(crate) struct PrintableFields;

impl<'w> FormatFields<'w> for PrintableFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut values = Values {
            writer,
            separator: "",
            result: Ok(()),
        };
        fields.record(&mut values);
        values.result
    }
}

/// Writer of an event's fields, one after the other.
struct Values<'w> {
    writer: Writer<'w>,
    separator: &'static str,
    result: fmt::Result,
}

impl Values<'_> {
    fn write(&mut self, name: &str, value: &str) -> fmt::Result {
        self.writer.write_str(self.separator)?;
        self.separator = " ";
        if name == "message" {
            let message = lines(value.trim_end()).to_string();
            return self.writer.write_str(&message.replace('\n', INDENT));
        }
        // A field whose name is a Rust keyword has the prefix `r#`.
        let name = name.strip_prefix("r#").unwrap_or(name);
        if self.writer.has_ansi_escapes() {
            write!(self.writer, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m")?;
        } else {
            write!(self.writer, "{name}=")?;
        }
        self.writer.write_str(&field_value(value))
    }

    fn record(&mut self, field: &Field, value: &str) {
        if self.result.is_ok() {
            self.result = self.write(field.name(), value);
        }
    }
}

impl Visit for Values<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record(field, &format!("{value:?}"));
    }
}

/// Escapes unprintable characters in a formatter's JSON lines; their meaning does not change.
pub(crate) fn printable_json<F>(format: F) -> Rewritten<F, impl Fn(Level, &str) -> String> {
    Rewritten {
        format,
        rewrite: |_, text: &str| json(text),
    }
}

/// Formatter that rewrites the lines of another formatter.
pub(crate) struct Rewritten<F, R> {
    pub(crate) format: F,
    /// Receives an event's level and text, and returns the new text.
    pub(crate) rewrite: R,
}

impl<S, N, F, R> FormatEvent<S, N> for Rewritten<F, R>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
    R: Fn(Level, &str) -> String,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.format
            .format_event(context, Writer::new(&mut text), event)?;
        writer.write_str(&(self.rewrite)(*event.metadata().level(), &text))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// A name that tries to forge a log entry.
    const HOSTILE: &str = "x\n<0>2026-01-01T00:00:00Z ERROR forged\r\x1b[2J\u{9b}31m\u{202e}";
    const SHOWN: &str = r"x\n<0>2026-01-01T00:00:00Z ERROR forged\r\u{1b}[2J\u{9b}31m\u{202e}";

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Kept {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn log() {
        tracing::info!(name = HOSTILE, shown = %HOSTILE, r#type = 7, "message: {HOSTILE}");
    }

    #[test]
    fn values_in_text_are_printable() {
        let kept = Kept::default();
        let writer = kept.clone();
        let layer = fmt::layer()
            .without_time()
            .fmt_fields(PrintableFields)
            .with_ansi(false)
            .with_target(false)
            .with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        let indented = SHOWN.replacen(r"\n", INDENT, 1);
        assert_eq!(
            kept.text(),
            format!(" INFO message: {indented} name=\"{SHOWN}\" shown=\"{SHOWN}\" type=7\n")
        );
    }

    #[test]
    fn json_is_printable_and_means_the_same() {
        let kept = Kept::default();
        let writer = kept.clone();
        let layer = fmt::layer()
            .json()
            .flatten_event(true)
            .map_event_format(printable_json)
            .with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        let text = kept.text();
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        assert!(
            text.ends_with('\n') && !text.contains(['\x1b', '\u{9b}', '\u{202e}']),
            "{text:?}"
        );
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["shown"], HOSTILE);
        assert_eq!(line["message"], format!("message: {HOSTILE}"));
    }
}
