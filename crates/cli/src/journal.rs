//! Priorities of log lines for systemd's journal (sd-daemon(3)).
//!
//! The journal records the time of a line itself, and reads its priority from a number in angle
//! brackets before the line.

use std::env;
use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// An error (syslog(3)).
pub(crate) const ERROR: u8 = 3;
/// A warning (syslog(3)).
pub(crate) const WARNING: u8 = 4;
const INFO: u8 = 6;
const DEBUG: u8 = 7;

/// Whether standard error goes to the journal. `JOURNAL_STREAM` alone does not prove it: the
/// process that started this one may have redirected the output.
pub(crate) fn listens() -> bool {
    static LISTENS: OnceLock<bool> = OnceLock::new();
    *LISTENS.get_or_init(|| {
        let told = env::var("JOURNAL_STREAM").ok();
        told.zip(standard_error().ok())
            .is_some_and(|(told, file)| told == format!("{}:{}", file.dev(), file.ino()))
    })
}

fn standard_error() -> io::Result<Metadata> {
    File::from(io::stderr().as_fd().try_clone_to_owned()?).metadata()
}

/// Formatter that puts the priority before each line of `F`.
pub(crate) struct Prioritised<F>(pub(crate) F);

impl<S, N, F> FormatEvent<S, N> for Prioritised<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.0
            .format_event(context, Writer::new(&mut text), event)?;
        writer.write_str(&prioritised(priority(*event.metadata().level()), &text))
    }
}

fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => ERROR,
        Level::WARN => WARNING,
        Level::INFO => INFO,
        _ => DEBUG,
    }
}

/// Returns `text` with this priority before every line: the journal reads each line by itself.
pub(crate) fn prioritised(priority: u8, text: &str) -> String {
    let lines = text.lines().map(|line| format!("<{priority}>{line}\n"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_priority() {
        assert_eq!(
            prioritised(priority(Level::ERROR), "refused:\n  line 7\n"),
            "<3>refused:\n<3>  line 7\n"
        );
        assert_eq!(prioritised(priority(Level::INFO), "ready\n"), "<6>ready\n");
    }
}
