//! Log lines as syslog messages.

use std::fmt;

use dormouse_helpers::syslog::{Kind, Severity, Syslog};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Formatter that turns the output of another formatter into syslog messages.
pub(crate) struct SyslogMessages<F> {
    pub(crate) format: F,
    pub(crate) syslog: Syslog,
}

impl<S, N, F> FormatEvent<S, N> for SyslogMessages<F>
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
        let (mut text, mut time) = (String::new(), String::new());
        self.format
            .format_event(context, Writer::new(&mut text), event)?;
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let severity = severity(*event.metadata().level());
        let message = self.syslog.message(Kind::Log, severity, Some(&time), &text);
        writer.write_str(&String::from_utf8_lossy(&message))
    }
}

fn severity(level: Level) -> Severity {
    match level {
        Level::ERROR => Severity::Err,
        Level::WARN => Severity::Warning,
        Level::INFO => Severity::Info,
        _ => Severity::Debug,
    }
}
