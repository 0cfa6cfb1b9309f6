//! What the parts of an upgrade agree on: main's commands to keepers, and what main leaves for
//! itself when it executes another binary.

use crate::config::Plan;
use crate::handover::{Handover, part, parts, write_parts};
use crate::layout::Formats;
use crate::session_files::Left;
use crate::share::Share;
use dormouse_reactor::Fd;
use dormouse_reactor::process::Post;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// What main writes on a keeper's board. The numbers are a format: an old binary writes them, a
/// new one reads them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Command {
    /// When the worker has handed over: let the binary of this name take over a copy.
    Prepare = 1,
    /// All pairs are prepared: the new keepers go on.
    Commit = 2,
    /// Not all are: the old keepers go on.
    Abort = 3,
}

impl Command {
    pub(crate) fn of(post: Post) -> Option<Command> {
        let all = [Command::Prepare, Command::Commit, Command::Abort];
        all.into_iter()
            .find(|&command| command as u32 == post.command)
    }
}

/// What main leaves for itself. JSON may gain fields without a new version.
#[derive(Serialize, Deserialize)]
pub(crate) struct MainState {
    /// What a worker would be told: configuration, certificates, keys, listeners.
    pub(crate) told: Handover,
    pub(crate) plan: Plan,
    pub(crate) edition: u64,
    pub(crate) loaded_ms: u64,
    pub(crate) born_ms: u64,
    pub(crate) connections_max: u64,
    /// The number that the next new route gets.
    pub(crate) next_number: u16,
    pub(crate) waits_for_restart: Vec<String>,
    pub(crate) pairs: Vec<PairState>,
    /// The listening socket of the admin address, and its file.
    pub(crate) admin: Option<(i32, Option<PathBuf>)>,
    /// Sessions of originations.
    pub(crate) sessions: Option<Left>,
    /// Processes of the old binary, which are about to end.
    pub(crate) former: Vec<i32>,
}

/// A keeper and its worker, as main knows them.
#[derive(Serialize, Deserialize)]
pub(crate) struct PairState {
    pub(crate) keeper: i32,
    pub(crate) born_ms: u64,
    pub(crate) orders: i32,
    pub(crate) board: i32,
    pub(crate) edition: u64,
    pub(crate) share: Share,
}

impl MainState {
    /// Writes it into a memory file.
    pub(crate) fn write(&self) -> io::Result<Fd> {
        let formats = serde_json::to_vec(&Formats::ours())?;
        write_parts(&formats, &serde_json::to_vec(self)?, &self.told.secrets())
    }

    /// Reads it, if this build goes on with what the writer's formats left.
    pub(crate) fn read(fd: Fd) -> io::Result<MainState> {
        let [formats, state, secrets] = parts(fd)?;
        let formats: Formats = serde_json::from_slice(&part(fd, formats)?)?;
        formats.check().map_err(io::Error::other)?;
        let mut state: MainState = serde_json::from_slice(&part(fd, state)?)?;
        state.told.set_secrets(&part(fd, secrets)?)?;
        Ok(state)
    }
}

/// Lets a binary die or hang where a test says: `DORMOUSE_TRIAL=crash:PHASE[:WORKER]`, in debug
/// builds only.
pub(crate) mod trial {
    /// Here is `phase`, of worker `worker`.
    #[cfg(debug_assertions)]
    pub(crate) fn crash_at(phase: &str, worker: u32) {
        let Ok(trial) = std::env::var("DORMOUSE_TRIAL") else {
            return;
        };
        let mut words = trial.split(':');
        let (how, at, whose) = (words.next(), words.next(), words.next());
        if at != Some(phase) || whose.is_some_and(|whose| whose != worker.to_string()) {
            return;
        }
        match how {
            Some("crash") => std::process::abort(),
            Some("hang") => std::thread::sleep(std::time::Duration::from_secs(600)),
            _ => {}
        }
    }

    /// Received bytes which begin with a record of N bytes kill the worker:
    /// `DORMOUSE_TRIAL=crash:record:N`.
    #[cfg(debug_assertions)]
    pub(crate) fn crash_on(received: &[u8]) {
        static LEN: std::sync::OnceLock<Option<u16>> = std::sync::OnceLock::new();
        let len = LEN.get_or_init(|| {
            let trial = std::env::var("DORMOUSE_TRIAL").ok()?;
            trial.strip_prefix("crash:record:")?.parse().ok()
        });
        if let (Some(len), [_, _, _, high, low, ..]) = (len, received)
            && *len == u16::from_be_bytes([*high, *low])
        {
            std::process::abort();
        }
    }

    /// A process that has confined itself tries what it must not be able to do, and says what came
    /// of it: `DORMOUSE_TRIAL=forbidden`.
    #[cfg(debug_assertions)]
    pub(crate) fn try_what_is_forbidden(role: dormouse_reactor::sandbox::Role) {
        if std::env::var("DORMOUSE_TRIAL").is_ok_and(|trial| trial == "forbidden") {
            let attempts = dormouse_reactor::sandbox::attempts();
            let words: Vec<String> = attempts.iter().map(ToString::to_string).collect();
            tracing::info!("trial of {role:?}: {}", words.join(" "));
        }
    }

    #[cfg(not(debug_assertions))]
    pub(crate) fn try_what_is_forbidden(_role: dormouse_reactor::sandbox::Role) {}

    #[cfg(not(debug_assertions))]
    pub(crate) fn crash_at(_phase: &str, _worker: u32) {}

    #[cfg(not(debug_assertions))]
    pub(crate) fn crash_on(_received: &[u8]) {}
}
