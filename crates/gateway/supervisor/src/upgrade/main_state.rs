//! State that main leaves to the next binary in its process.

use crate::control::FormerControl;
use crate::deep_rest::DeepRestState;
use crate::material::workload::Workload;
use crate::pairs::PairState;
use crate::reload::ctl_changes::CtlChanges;
use crate::session_files::SessionFilesState;
use crate::sockets::control_addresses::ControlAddressesState;
use crate::sockets::socket_file::SocketFile;
use dormouse_config::Plan;
use dormouse_handover::layout::Formats;
use dormouse_handover::{Handover, parts};
use dormouse_reactor::Fd;
use serde::{Deserialize, Serialize};
use std::io;

/// Main's state. New JSON fields need no new version.
#[derive(Serialize, Deserialize)]
pub(crate) struct MainState {
    /// The handover of a worker: configuration, certificates, keys, listeners.
    pub(crate) handover: Handover,
    pub(crate) plan: Plan,
    pub(crate) edition: u64,
    pub(crate) loaded_ms: u64,
    pub(crate) born_ms: u64,
    pub(crate) connections_max: u64,
    /// The number of the next new route.
    pub(crate) next_number: u16,
    pub(crate) waits_for_restart: Vec<String>,
    #[serde(default)]
    pub(crate) ctl_changes: CtlChanges,
    pub(crate) pairs: Vec<PairState>,
    /// The listeners of control.
    pub(crate) control: Option<ControlAddressesState>,
    /// The old binary's control process.
    pub(crate) former_control: Option<FormerControl>,
    /// Listeners from systemd that no route uses.
    pub(crate) spare_listeners: Vec<i32>,
    /// The files of unix listeners and of the admin socket.
    pub(crate) socket_files: Vec<SocketFile>,
    /// Sessions of originations.
    pub(crate) sessions: Option<SessionFilesState>,
    /// Processes of the old binary that are about to exit.
    pub(crate) former: Vec<i32>,
    /// The old binary's process that writes the last lines of the connection log.
    pub(crate) log_writer: Option<i32>,
    /// What connections in deep rest need.
    #[serde(default)]
    pub(crate) rest: Option<DeepRestState>,
    /// What the SPIFFE agent has given, without the keys, which `handover` has.
    #[serde(default)]
    pub(crate) workload: Workload,
    /// Main's working directory, for the trial of the new binary.
    #[serde(default)]
    pub(crate) directory: Option<i32>,
}

impl MainState {
    /// Writes the state to a memory file.
    pub(crate) fn write(&self) -> io::Result<Fd> {
        let formats = serde_json::to_vec(&Formats::ours())?;
        self.handover
            .write_with(&formats, &serde_json::to_vec(self)?)
    }

    /// Reads the state, if this build supports the writer's formats.
    pub(crate) fn read(fd: Fd) -> io::Result<MainState> {
        let [formats, state, ..] = parts::locate(fd)?;
        let formats: Formats = serde_json::from_slice(&parts::read(fd, formats)?)?;
        let formats = formats.check();
        formats.map_err(|why| io::Error::other(format!("{why}; restart with the new one")))?;
        let mut state: MainState = serde_json::from_slice(&parts::read(fd, state)?)?;
        let stored = state.handover.read_secrets(fd)?;
        state.handover.set_routes(&stored)?;
        check_workers(state.pairs.len(), state.handover.share.workers)?;
        Ok(state)
    }
}

/// Checks that there is a pair for each part of the shared tables.
fn check_workers(pairs: usize, parts: u32) -> io::Result<()> {
    if u32::try_from(pairs) == Ok(parts) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "the running binary has {pairs} workers, and tables for {parts}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_tables_for_another_number_of_workers() {
        assert!(check_workers(2, 2).is_ok());
        for (pairs, parts) in [(1, 2), (2, 1), (0, 1), (usize::MAX, 2)] {
            let refused = check_workers(pairs, parts).expect_err("another number");
            assert!(refused.to_string().contains("tables for"), "{refused}");
        }
    }
}
