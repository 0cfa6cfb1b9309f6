//! Main's commands to keepers during an upgrade.

use dormouse_reactor::process::Post;

/// A command on a keeper's board. The numbers must not change: old binaries write them, and new binaries
/// read them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Command {
    /// After the worker has handed over, let the binary with this path take over a copy.
    Prepare = 1,
    /// All keepers are prepared: the new keepers continue.
    Commit = 2,
    /// The upgrade is aborted: the old keepers continue.
    Abort = 3,
}

impl Command {
    /// Returns the command on the board. `None`: this binary does not know it.
    pub fn of(post: Post) -> Option<Command> {
        let all = [Command::Prepare, Command::Commit, Command::Abort];
        all.into_iter()
            .find(|&command| command as u32 == post.command)
    }
}
