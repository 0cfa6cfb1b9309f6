//! A pair without main: nobody is left who could tell it to end, so it ends by itself.
//!
//! The worker sees that its channel is closed, accepts nothing more, drains, and ends. That it does is
//! for the keeper to see to, which allows a bounded time, also over several workers.

use dormouse_handover::KeeperPart;
use dormouse_reactor::process::{self, BoardReader};

/// Whether main is there, and how long the pair goes on without.
pub(super) struct Orphaned<'a> {
    board: &'a BoardReader,
    bound_ms: u64,
    ends_ms: Option<u64>,
}

impl<'a> Orphaned<'a> {
    /// `ends_ms`: when the pair is to end, if main was gone before.
    pub(super) fn new(board: &'a BoardReader, told: &KeeperPart, ends_ms: Option<u64>) -> Self {
        let bound_ms = told.orphaned_ms_max;
        Orphaned {
            board,
            bound_ms,
            ends_ms,
        }
    }

    /// Looks whether main is there. It signals its death; a look when something else has happened is
    /// for signals that were lost.
    pub(super) fn look(&mut self, now_ms: u64) {
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

    /// When the pair is to end, for the keeper after this one.
    pub(super) fn ends_ms(&self) -> Option<u64> {
        self.ends_ms
    }

    /// Time until the end.
    pub(super) fn until_end_ms(&self, now_ms: u64) -> u64 {
        let until_ms = |ends_ms: u64| ends_ms.saturating_sub(now_ms);
        self.ends_ms.map_or(u64::MAX, until_ms)
    }
}
