//! What main leaves for itself when it executes another binary.

use crate::session_files::Left;
use dormouse_config::Plan;
use dormouse_handover::layout::Formats;
use dormouse_handover::share::Share;
use dormouse_handover::{Handover, parts};
use dormouse_reactor::Fd;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

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
        parts::write(&formats, &serde_json::to_vec(self)?, &self.told.secrets())
    }

    /// Reads it, if this build goes on with what the writer's formats left.
    pub(crate) fn read(fd: Fd) -> io::Result<MainState> {
        let [formats, state, secrets] = parts::locate(fd)?;
        let formats: Formats = serde_json::from_slice(&parts::read(fd, formats)?)?;
        formats.check().map_err(io::Error::other)?;
        let mut state: MainState = serde_json::from_slice(&parts::read(fd, state)?)?;
        state.told.set_secrets(&parts::read(fd, secrets)?)?;
        Ok(state)
    }
}
