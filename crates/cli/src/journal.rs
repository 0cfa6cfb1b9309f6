//! Priorities of log lines for systemd's journal (sd-daemon(3)).
//!
//! The journal records the time of a line itself, and reads its priority from a number in angle
//! brackets before the line.

use std::env;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;

use tracing::Level;

use crate::log_format::Rewritten;

/// An error (syslog(3)).
pub(crate) const ERROR: u8 = 3;
/// A warning (syslog(3)).
pub(crate) const WARNING: u8 = 4;
const INFO: u8 = 6;
const DEBUG: u8 = 7;

/// Returns whether standard error goes to the journal. `JOURNAL_STREAM` alone does not prove it:
/// the process that started this one may have redirected the output.
pub(crate) fn listens() -> bool {
    static LISTENS: OnceLock<bool> = OnceLock::new();
    *LISTENS.get_or_init(|| {
        let stream = env::var("JOURNAL_STREAM").ok();
        stream
            .zip(standard_error().ok())
            .is_some_and(|(stream, file)| stream == format!("{}:{}", file.dev(), file.ino()))
    })
}

fn standard_error() -> io::Result<Metadata> {
    File::from(io::stderr().as_fd().try_clone_to_owned()?).metadata()
}

/// Puts the priority before each line of a formatter.
pub(crate) fn with_priorities<F>(format: F) -> Rewritten<F, impl Fn(Level, &str) -> String> {
    Rewritten {
        format,
        rewrite: |level, text: &str| prioritised(priority(level), text),
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
