//! What systemd's journal is told besides a line: how important it is (sd-daemon(3)).
//!
//! The journal keeps the time of a line by itself, and takes its priority from a number in angle
//! brackets before it.

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
/// Something that should be seen to.
pub(crate) const WARNING: u8 = 4;
const INFO: u8 = 6;
const DEBUG: u8 = 7;

/// Whether standard error goes to the journal. It need not, though the service manager said so to
/// whoever started this program: its output may have been sent elsewhere since.
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

/// Lines as `F` writes them, each with its priority.
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

/// Every line of `text` with this priority: the journal takes each for itself.
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
