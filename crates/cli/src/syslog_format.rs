//! Log lines as syslog messages.

use dormouse_helpers::syslog::{Kind, Severity, Syslog};
use tracing::Level;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

use crate::log_format::Rewritten;

/// Turns the output of another formatter into syslog messages.
pub(crate) fn syslog_messages<F>(
    format: F,
    syslog: Syslog,
) -> Rewritten<F, impl Fn(Level, &str) -> String> {
    Rewritten {
        format,
        rewrite: move |level, text: &str| {
            let time = now();
            let message = syslog.message(Kind::Log, severity(level), time.as_deref(), text);
            String::from_utf8_lossy(&message).into_owned()
        },
    }
}

/// Current time as RFC 3339 text, or `None` for the receiver to use its own.
fn now() -> Option<String> {
    let mut time = String::new();
    let written = SystemTime.format_time(&mut Writer::new(&mut time));
    written.is_ok().then_some(time)
}

fn severity(level: Level) -> Severity {
    match level {
        Level::ERROR => Severity::Err,
        Level::WARN => Severity::Warning,
        Level::INFO => Severity::Info,
        _ => Severity::Debug,
    }
}
