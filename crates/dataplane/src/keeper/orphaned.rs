//! A keeper after main's death: no order to stop can come, so keeper and worker end by themselves.
//!
//! The worker notices that its channel is closed, stops accepting, drains, and ends. The keeper bounds
//! the time for that, also across several workers.

use dormouse_handover::KeeperPart;
use dormouse_reactor::process::{self, BoardReader};

/// Whether main is alive, and when keeper and worker end if it is not.
pub(super) struct Orphaned<'a> {
    board: &'a BoardReader,
    bound_ms: u64,
    ends_ms: Option<u64>,
}

impl<'a> Orphaned<'a> {
    /// `ends_ms`: the end that an earlier keeper has set, if main died before.
    pub(super) fn new(board: &'a BoardReader, part: &KeeperPart, ends_ms: Option<u64>) -> Self {
        let bound_ms = part.orphaned_ms_max;
        Orphaned {
            board,
            bound_ms,
            ends_ms,
        }
    }

    /// Checks whether main is alive. The kernel signals main's death; further checks cover lost signals.
    pub(super) fn check(&mut self, now_ms: u64) {
        if process::parent() == self.board.owner() {
            self.ends_ms = None;
        } else if self.ends_ms.is_none() {
            tracing::error!(
                within_s = self.bound_ms / 1000,
                "main process died; keeper and worker exit within this time"
            );
            self.ends_ms = Some(now_ms + self.bound_ms);
        }
    }

    /// When keeper and worker must end, for the next keeper's arguments.
    pub(super) fn ends_ms(&self) -> Option<u64> {
        self.ends_ms
    }

    /// Time left until the end.
    pub(super) fn until_end_ms(&self, now_ms: u64) -> u64 {
        let until_ms = |ends_ms: u64| ends_ms.saturating_sub(now_ms);
        self.ends_ms.map_or(u64::MAX, until_ms)
    }
}
