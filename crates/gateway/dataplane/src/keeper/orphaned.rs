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
            // A reload may have changed it since this keeper has read its part.
            let bound_ms = self.board.orphaned_ms_max().unwrap_or(self.bound_ms);
            tracing::error!(
                within_s = bound_ms / 1000,
                "main process died; keeper and worker exit within this time"
            );
            self.ends_ms = Some(now_ms + bound_ms);
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

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_reactor::memory::FileIdentity;
    use dormouse_reactor::process::Board;

    /// A reload has raised `shutdown_drain` since the keeper started.
    #[test]
    fn the_bound_of_the_last_reload_counts() {
        // Its owner is this process, and not its parent.
        let board = Board::create("test").expect("a board");
        let fd = board.reader().expect("a reader");
        let identity = FileIdentity::of(fd).expect("open");
        let reader = BoardReader::open(fd, identity).expect("a board");
        let left_ms = || {
            let mut orphaned = Orphaned {
                board: &reader,
                bound_ms: 75_000,
                ends_ms: None,
            };
            orphaned.check(1);
            orphaned.until_end_ms(1)
        };
        assert_eq!(left_ms(), 75_000);
        board.set_orphaned_max(615_000);
        assert_eq!(left_ms(), 615_000);
        [fd, board.fd()]
            .into_iter()
            .for_each(dormouse_reactor::Fd::close);
    }
}
