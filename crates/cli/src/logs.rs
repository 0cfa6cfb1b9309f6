//! Log lines on standard error, as text or JSON; with priorities for systemd's journal. For syslog, main
//! has replaced standard error by a socket, and each line is a message.

use std::sync::OnceLock;

use dormouse_config::{Log, LogDestination, LogFormat, LogLevel};
use dormouse_helpers::syslog::Syslog;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Registry, fmt, reload};

use crate::journal::{self, with_priorities};
use crate::log_format::{PrintableFields, printable_json};
use crate::syslog_format::syslog_messages;
use crate::terminal;

/// Lowest level that is written; a reload can change it.
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Starts logging; a second call changes the level. The format stays.
pub(crate) fn start(log: &Log) {
    let level = match log.log_level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    if let Some(handle) = LEVEL.get() {
        let _ = handle.modify(|now| *now = level);
        return;
    }
    let (filter, handle) = reload::Layer::new(level);
    let _ = LEVEL.set(handle);
    let lines = fmt::layer().with_writer(std::io::stderr).with_target(false);
    let registry = tracing_subscriber::registry().with(filter);
    if let LogDestination::Syslog(address) = &log.log_to {
        let messages = Syslog::new(address, log.syslog_facility);
        // A subscriber that is already installed stays.
        let _ = match log.log_format {
            LogFormat::Text => {
                let lines = lines.fmt_fields(PrintableFields).without_time();
                let lines = lines.with_level(false).with_ansi(false);
                let lines = lines.map_event_format(|lines| syslog_messages(lines, messages));
                tracing::subscriber::set_global_default(registry.with(lines))
            }
            LogFormat::Json => {
                let lines = lines.json().flatten_event(true);
                let lines = lines
                    .map_event_format(|lines| syslog_messages(printable_json(lines), messages));
                tracing::subscriber::set_global_default(registry.with(lines))
            }
        };
        return;
    }
    // A subscriber that is already installed stays.
    let _ = match (log.log_format, journal::listens()) {
        (LogFormat::Text, false) => {
            let lines = lines.fmt_fields(PrintableFields);
            let lines = lines.with_ansi(terminal::colours());
            tracing::subscriber::set_global_default(registry.with(lines))
        }
        (LogFormat::Text, true) => {
            let lines = lines.fmt_fields(PrintableFields).without_time();
            let lines = lines.with_level(false).with_ansi(false);
            let lines = lines.map_event_format(with_priorities);
            tracing::subscriber::set_global_default(registry.with(lines))
        }
        (LogFormat::Json, false) => {
            let lines = lines.json().flatten_event(true);
            let lines = lines.map_event_format(printable_json);
            tracing::subscriber::set_global_default(registry.with(lines))
        }
        (LogFormat::Json, true) => {
            let lines = lines.json().flatten_event(true);
            let lines = lines.map_event_format(|lines| with_priorities(printable_json(lines)));
            tracing::subscriber::set_global_default(registry.with(lines))
        }
    };
}
