//! What processes of a pair are told on their command lines, and say by their exit status.

use dormouse_reactor::Fd;

/// A worker which can't begin (its configuration makes no sense to it) ends with this status; it
/// is not started again.
pub const EXIT_CANNOT_BEGIN: u8 = 78;

/// A worker which has put everything down for another binary ends with this status.
pub const EXIT_HANDED_OVER: u8 = 76;

/// What follows the hidden subcommand, if a new binary is to take over.
pub(crate) const TAKE_OVER: &str = "take-over";

/// What a keeper is told on its command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeeperArgs {
    /// Descriptor of the handover.
    pub(crate) handover: i32,
    /// Workers that died one soon after the other.
    pub(crate) streak: u32,
    pub(crate) board: BoardArgs,
}

/// Where the board is, and how it is known again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BoardArgs {
    /// Descriptor of the board's page, for reading.
    pub fd: i32,
    /// The page's inode: the descriptor still is the board.
    pub inode: u64,
}

impl KeeperArgs {
    /// The command line that says this.
    pub(crate) fn command(self) -> Vec<String> {
        command(&[
            self.handover.to_string(),
            self.streak.to_string(),
            self.board.fd.to_string(),
            self.board.inode.to_string(),
        ])
    }

    /// Understands what follows the subcommand.
    pub(crate) fn parse(args: &[String]) -> Option<KeeperArgs> {
        let [handover, streak, fd, inode] = args else {
            return None;
        };
        Some(KeeperArgs {
            handover: handover.parse().ok()?,
            streak: streak.parse().ok()?,
            board: BoardArgs {
                fd: fd.parse().ok()?,
                inode: inode.parse().ok()?,
            },
        })
    }
}

/// The command line of the hidden subcommand. Until the process has its own title, lists of processes show
/// this one.
fn command(args: &[String]) -> Vec<String> {
    let mut command = vec!["dormouse: keeper".to_owned(), "keeper".to_owned()];
    command.extend_from_slice(args);
    command
}

/// The command line of a keeper whose worker is the first.
pub fn first_command(handover: Fd, board: BoardArgs) -> Vec<String> {
    KeeperArgs {
        handover: handover.0,
        streak: 0,
        board,
    }
    .command()
}

/// The command line of a new binary that takes over. Its form is fixed: an old binary writes it, a new one reads it.
pub(crate) fn take_over_command(handover: i32, board: BoardArgs) -> Vec<String> {
    command(&[
        TAKE_OVER.to_owned(),
        handover.to_string(),
        board.fd.to_string(),
        board.inode.to_string(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_understands_what_it_is_told() {
        let args = KeeperArgs {
            handover: 17,
            streak: 3,
            board: BoardArgs { fd: 9, inode: 77 },
        };
        let command = args.command();
        assert_eq!(KeeperArgs::parse(&command[2..]), Some(args));
        assert_eq!(KeeperArgs::parse(&["x".to_owned(), "3".to_owned()]), None);
        assert_eq!(KeeperArgs::parse(&[]), None);
    }
}
