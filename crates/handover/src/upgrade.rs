//! What the parts of an upgrade agree on: main's commands to keepers.

use dormouse_reactor::process::Post;

/// What main writes on a keeper's board. The numbers are a format: an old binary writes them, a
/// new one reads them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Command {
    /// When the worker has handed over: let the binary of this name take over a copy.
    Prepare = 1,
    /// All pairs are prepared: the new keepers go on.
    Commit = 2,
    /// Not all are: the old keepers go on.
    Abort = 3,
}

impl Command {
    /// Returns the command of what stands on the board; `None`: it is none that this binary knows.
    pub fn of(post: Post) -> Option<Command> {
        let all = [Command::Prepare, Command::Commit, Command::Abort];
        all.into_iter()
            .find(|&command| command as u32 == post.command)
    }
}
