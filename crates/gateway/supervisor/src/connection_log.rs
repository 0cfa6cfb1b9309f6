//! Main's side of the process that writes the connection log: main opens the file, starts the
//! process, and restarts it after an exit.
//!
//! A reload opens the file again, so that logs can be rotated. The next process starts after the
//! previous one has written its last lines, so no line is split between two files.

use crate::error::{ServeError, system};
use crate::helper_process::{Helper, HelperProcess};
use crate::sockets::syslog::SyslogSocket;
use crate::tokens;
use dormouse_config::{Config, LogDestination, LogTarget};
use dormouse_handover::message;
use dormouse_helpers::connection_log::{DroppedLines, LastLines, LogArguments};
use dormouse_helpers::helper::Privileges;
use dormouse_reactor::Fd;
use dormouse_reactor::file::{behind_links, open_to_append};
use dormouse_reactor::poller::Poller;
use dormouse_reactor::process::{self, Ended, Pid};
use dormouse_reactor::shared::Shared;
use dormouse_reactor::signal::Signal;
use dormouse_tables::counters::Common;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

/// Time for a process to write its last lines; then main kills it.
const LAST_LINES_MS: u64 = 2_000;
/// Minimum time between log lines about lost lines.
const QUIET_MS: u64 = 10_000;
/// Mode of a new file: readable by the group, as is usual for logs.
const FILE_MODE: u32 = 0o640;

/// Target of the connection log.
pub(crate) enum LogFile {
    StandardError,
    File(Fd),
    Syslog(SyslogSocket),
}

impl LogFile {
    /// Opens the file of the configuration. `None`: there is no connection log.
    pub(crate) fn open(config: &Config) -> Result<Option<LogFile>, ServeError> {
        let path = match (&config.log.connection_log, &config.log.log_to) {
            (LogTarget::Off, _) => return Ok(None),
            (LogTarget::Stderr, LogDestination::Stderr) => return Ok(Some(LogFile::StandardError)),
            // With the program's log in syslog, standard error is a socket to it, for messages and not for lines.
            (LogTarget::Syslog(address), _)
            | (LogTarget::Stderr, LogDestination::Syslog(address)) => {
                let socket = SyslogSocket::open(address).map_err(system("open syslog"))?;
                return Ok(Some(LogFile::Syslog(socket)));
            }
            (LogTarget::File(path), _) => path,
        };
        match open_to_append(path, FILE_MODE) {
            Ok(fd) => Ok(Some(LogFile::File(fd))),
            Err(error) => Err(ServeError::System {
                what: format!("open the connection log {}", path.display()),
                hint: hint(path, &error),
                error,
            }),
        }
    }

    /// What main has opened for it.
    fn fd(&self) -> Option<Fd> {
        match self {
            LogFile::StandardError => None,
            LogFile::File(fd) => Some(*fd),
            LogFile::Syslog(socket) => Some(socket.fd),
        }
    }

    fn syslog(&self) -> Option<&SyslogSocket> {
        match self {
            LogFile::Syslog(socket) => Some(socket),
            LogFile::StandardError | LogFile::File(_) => None,
        }
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        if let Some(fd) = self.fd() {
            fd.close();
        }
    }
}

fn hint(path: &Path, error: &io::Error) -> &'static str {
    match error.kind() {
        _ if is_named_pipe(path) => "a pipe needs a process that reads from it: start that first",
        io::ErrorKind::NotFound => "create its directory first",
        io::ErrorKind::PermissionDenied => "the user who starts dormouse needs write access",
        _ => "",
    }
}

/// Pipes without a name, such as `/dev/stdout` may be, have no file at the end of the links.
pub(crate) fn is_named_pipe(path: &Path) -> bool {
    let file = behind_links(path).and_then(|file| file.symlink_metadata());
    file.is_ok_and(|found| found.file_type().is_fifo())
}

/// The process, and the file that it writes.
pub(crate) struct LogWriter {
    helper: Helper,
    file: Option<LogFile>,
    /// A process that writes its last lines, and when to kill it.
    former: Option<(Pid, u64)>,
    dropped: u64,
    logged_ms: Option<u64>,
}

impl LogWriter {
    /// `former` is the process that the previous binary has started.
    pub(crate) fn new(file: Option<LogFile>, former: Option<Pid>) -> LogWriter {
        let until_ms = process::boottime_ms() + LAST_LINES_MS;
        let mut helper = Helper::new("log-writer");
        helper.set_due();
        LogWriter {
            helper,
            file,
            former: former.map(|pid| (pid, until_ms)),
            dropped: 0,
            logged_ms: None,
        }
    }

    /// Switches to another file.
    pub(crate) fn replace_file(&mut self, file: Option<LogFile>, poller: &Poller) {
        self.end_with(true, poller);
        self.file = file;
    }

    /// Time of the next action.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let own = match self.former {
            Some((_, until_ms)) => Some(until_ms),
            None => self.helper.next_deadline_ms(),
        };
        let syslog = self.file.as_ref().and_then(LogFile::syslog);
        let syslog = syslog.map(SyslogSocket::next_deadline_ms);
        own.into_iter().chain(syslog).min()
    }

    /// Starts the process if a start is due; `sources` are the sockets of the workers. Called once per
    /// turn.
    pub(crate) fn attend(&mut self, sources: Vec<Fd>, config: &Config, poller: &Poller) {
        if let Some(LogFile::Syslog(socket)) = &mut self.file {
            socket.attend();
        }
        if let Some((pid, until_ms)) = &mut self.former {
            if *until_ms <= process::boottime_ms() {
                let _ = process::send_signal(*pid, Signal::Kill);
                // SIGCHLD reports the exit.
                *until_ms = u64::MAX;
            }
            return;
        }
        if self.helper.take_due()
            && !sources.is_empty()
            && let Some(file) = &self.file
        {
            let start = || start(file, sources, config, poller);
            self.helper.start(start);
        }
    }

    /// Processes a report of lost lines.
    pub(crate) fn receive(&mut self, counters: &Shared, poller: &Poller) {
        let Some(dropped) = self.helper.receive::<DroppedLines>(poller) else {
            return;
        };
        Common::LogLinesLost.add(counters, dropped.lines);
        self.dropped = self.dropped.saturating_add(dropped.lines);
        let now_ms = process::boottime_ms();
        if self
            .logged_ms
            .is_none_or(|at_ms| now_ms >= at_ms + QUIET_MS)
        {
            self.logged_ms = Some(now_ms);
            let lines = std::mem::take(&mut self.dropped);
            let error = dropped.error;
            tracing::warn!(lines, error, "connection log lines lost");
        }
    }

    /// Handles the exit of a process. Returns `false` if it was not a log writer.
    pub(crate) fn note_end(&mut self, pid: Pid, ended: Ended, poller: &Poller) -> bool {
        if self.former.take_if(|(former, _)| *former == pid).is_some() {
            return true;
        }
        self.helper.note_death(pid, ended, poller)
    }

    /// Lets the process write its last lines and exit.
    pub(crate) fn end(&mut self, poller: &Poller) {
        self.end_with(false, poller);
    }

    fn end_with(&mut self, another_follows: bool, poller: &Poller) {
        if let Some(process) = self.helper.release() {
            // If that fails, the process has gone. One that has not is killed when its time is up.
            let _ = message::send(process.channel, &LastLines { another_follows });
            let pid = process.close(poller);
            self.former = Some((pid, process::boottime_ms() + LAST_LINES_MS));
        }
    }

    /// The process that writes its last lines.
    pub(crate) fn former(&self) -> Option<Pid> {
        self.former.map(|(pid, _)| pid)
    }
}

fn start(
    file: &LogFile,
    sources: Vec<Fd>,
    config: &Config,
    poller: &Poller,
) -> io::Result<HelperProcess> {
    let inherited = sources.iter().copied().chain(file.fd()).collect();
    let privileges = Privileges::nobody(config);
    let place = (poller, tokens::LOG_WRITER);
    HelperProcess::start("log-writer", &privileges, inherited, place, |_, channel| {
        LogArguments {
            sources: sources.iter().map(|fd| fd.0).collect(),
            file: file.fd().map(|fd| fd.0),
            syslog: file
                .syslog()
                .map(|socket| (socket.address.clone(), config.log.syslog_facility)),
            channel: channel.0,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_config::{Flag, Machine, Section, load};

    /// Standard error is then a socket to syslog, which expects messages.
    #[test]
    fn lines_among_those_of_a_log_in_syslog_are_messages() {
        let opened = |log_to: &str| {
            let flags = [
                ("listen", "127.0.0.1:8443"),
                ("to", "echo:"),
                ("self-signed", "x"),
                ("log-to", log_to),
                ("connection-log", "stderr"),
            ];
            let flags = flags.map(|(name, value)| Flag::new(name, value));
            let loaded = load(None, Section::Route, &flags, &Machine::read());
            let config = loaded
                .unwrap_or_else(|mistakes| panic!("{mistakes}"))
                .config;
            let opened = LogFile::open(&config).unwrap_or_else(|error| panic!("{error}"));
            opened.expect("a connection log")
        };
        assert!(matches!(opened("stderr"), LogFile::StandardError));
        let syslog = opened("syslog:/run/no/such.sock");
        assert!(matches!(syslog, LogFile::Syslog(_)));
    }
}
