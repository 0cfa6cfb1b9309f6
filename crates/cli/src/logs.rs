//! Log lines on standard error, as text or JSON.

use dormouse_gateway::config::{Log, LogFormat, LogLevel};
use tracing::level_filters::LevelFilter;

use crate::terminal;

/// Starts logging. A second call has no effect.
pub(crate) fn start(log: &Log) {
    let level = match log.log_level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false);
    // Somebody who started logging before keeps what they have.
    let _ = match log.log_format {
        LogFormat::Text => {
            tracing::subscriber::set_global_default(lines.with_ansi(terminal::colours()).finish())
        }
        LogFormat::Json => {
            tracing::subscriber::set_global_default(lines.json().flatten_event(true).finish())
        }
    };
}
