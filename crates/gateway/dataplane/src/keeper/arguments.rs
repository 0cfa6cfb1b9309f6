//! Command lines and exit statuses of keepers and workers.

use dormouse_handover::KeeperPart;
use dormouse_reactor::Fd;
use dormouse_reactor::memory::FileIdentity;
use dormouse_reactor::process::BoardReader;
use std::io;

/// Exit status of a worker that can't start. If it is the first one of its pair, it is not started again.
pub const EXIT_CANNOT_BEGIN: u8 = 78;

/// Exit status of a worker that has handed over to another binary.
pub const EXIT_HANDED_OVER: u8 = 76;

/// Argument in place of a time that is not set.
const NEVER: &str = "never";

/// Argument after the hidden subcommand, if a new binary takes over.
pub(crate) const TAKE_OVER: &str = "take-over";

/// Arguments of a keeper. They are on its command line, because the worker can't change them there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeeperArgs {
    pub(crate) handover: KnownFile,
    /// Number of workers in a row that died soon after their start.
    pub(crate) streak: u32,
    /// When keeper and worker must end because main has died, in milliseconds since boot.
    pub(crate) ends_ms: Option<u64>,
    /// The board's page, read-only.
    pub(crate) board: KnownFile,
}

/// A file of the shared table and its identity, since a worker can replace the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownFile {
    fd: Fd,
    identity: FileIdentity,
}

impl KnownFile {
    /// Reads the identity of the file behind this descriptor.
    ///
    /// # Errors
    /// The system call failed.
    pub fn of(fd: Fd) -> io::Result<KnownFile> {
        let identity = FileIdentity::of(fd)?;
        Ok(KnownFile { fd, identity })
    }

    pub(crate) fn fd(self) -> Fd {
        self.fd
    }

    fn words(self) -> [String; 3] {
        let FileIdentity { device, inode } = self.identity;
        [self.fd.to_string(), device.to_string(), inode.to_string()]
    }

    fn parse(fd: &str, device: &str, inode: &str) -> Option<KnownFile> {
        Some(KnownFile {
            fd: Fd(fd.parse().ok()?),
            identity: FileIdentity {
                device: device.parse().ok()?,
                inode: inode.parse().ok()?,
            },
        })
    }
}

impl KeeperArgs {
    /// Formats the command line.
    pub(crate) fn command(self) -> Vec<String> {
        let words = [&self.handover.words()[..], &self.board.words()].concat();
        let ends_ms = self.ends_ms.map_or(NEVER.to_owned(), |ms| ms.to_string());
        command([&[self.streak.to_string(), ends_ms], &words[..]].concat())
    }

    /// Parses the arguments after the subcommand.
    pub(crate) fn parse(args: &[String]) -> Option<KeeperArgs> {
        let ([streak, ends_ms], rest) = args.split_first_chunk()?;
        let (handover, board) = parse_files(rest)?;
        let ends_ms = match ends_ms.as_str() {
            NEVER => None,
            ms => Some(ms.parse().ok()?),
        };
        Some(KeeperArgs {
            handover,
            streak: streak.parse().ok()?,
            ends_ms,
            board,
        })
    }

    /// Opens the board, and reads the keeper's part of the handover.
    ///
    /// # Errors
    /// One of the two is not a file that main made: the worker has replaced it.
    pub(crate) fn open(self) -> io::Result<(BoardReader, KeeperPart)> {
        let board = BoardReader::open(self.board.fd, self.board.identity);
        let board = board.map_err(io::Error::other)?;
        let found = FileIdentity::of(self.handover.fd)?;
        if found != self.handover.identity && !board.vouches_for(found) {
            return Err(io::Error::other(
                "the handover file is not from the main process: a worker has replaced it",
            ));
        }
        Ok((board, KeeperPart::read(self.handover.fd)?))
    }
}

/// Formats the command line of the hidden subcommand. Process lists show it until the process sets its
/// own title.
fn command(args: Vec<String>) -> Vec<String> {
    let program = ["dormouse: keeper", "keeper"].map(str::to_owned);
    program.into_iter().chain(args).collect()
}

/// Formats the command line of a keeper that starts its first worker.
pub fn first_command(handover: KnownFile, board: KnownFile) -> Vec<String> {
    KeeperArgs {
        handover,
        streak: 0,
        ends_ms: None,
        board,
    }
    .command()
}

/// Formats the command line of a new binary that takes over. The format must not change: old binaries
/// write it, and new binaries read it.
pub(crate) fn take_over_command(handover: KnownFile, board: KnownFile) -> Vec<String> {
    let files = [handover.words(), board.words()].concat();
    command([&[TAKE_OVER.to_owned()], &files[..]].concat())
}

/// Parses the arguments after the subcommand and [`TAKE_OVER`].
pub(crate) fn parse_take_over(args: &[String]) -> Option<KeeperArgs> {
    let (handover, board) = parse_files(args)?;
    Some(KeeperArgs {
        handover,
        streak: 0,
        ends_ms: None,
        board,
    })
}

/// Parses the handover and the board.
fn parse_files(args: &[String]) -> Option<(KnownFile, KnownFile)> {
    let [fd, device, inode, board, board_device, board_inode] = args else {
        return None;
    };
    let handover = KnownFile::parse(fd, device, inode)?;
    Some((
        handover,
        KnownFile::parse(board, board_device, board_inode)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_reactor::process::Board;

    fn known(fd: i32, device: u64, inode: u64) -> KnownFile {
        KnownFile {
            fd: Fd(fd),
            identity: FileIdentity { device, inode },
        }
    }

    #[test]
    fn arguments_round_trip() {
        let args = KeeperArgs {
            handover: known(17, 1, 40),
            streak: 3,
            ends_ms: Some(7_000),
            board: known(9, 1, u64::MAX),
        };
        let command = args.command();
        assert_eq!(KeeperArgs::parse(&command[2..]), Some(args));
        let command = take_over_command(args.handover, args.board);
        let parsed = parse_take_over(&command[3..]);
        let expected = KeeperArgs {
            streak: 0,
            ends_ms: None,
            ..args
        };
        assert_eq!(parsed, Some(expected));
        assert_eq!(KeeperArgs::parse(&["x".to_owned(), "3".to_owned()]), None);
        assert_eq!(KeeperArgs::parse(&[]), None);
    }

    #[test]
    fn a_keeper_accepts_only_handovers_from_main() {
        let write = || {
            let text = r#"{"worker":0,"workers":1,"log":LOG,"user":null,
                "bounds":{"sandbox":"Required","unix":"No"},"hang_timeout_ms":null,
                "orphaned_ms_max":1000,"slots":1,"counters":2,"orders":3,"counts":[]}"#;
            let log = serde_json::to_string(&dormouse_config::Log::default()).expect("JSON");
            let keeper = text.replace("LOG", &log);
            dormouse_handover::parts::write(keeper.as_bytes(), &[], &[]).expect("a memory file")
        };
        let board = Board::create("test").expect("a board");
        let (handover, reader) = (write(), board.reader().expect("a reader"));
        let args = KeeperArgs {
            handover: KnownFile::of(handover).expect("open"),
            streak: 0,
            ends_ms: None,
            board: KnownFile::of(reader).expect("open"),
        };
        assert!(args.open().is_ok(), "the handover of the start");
        let other = write();
        let vouched = board.vouch_for(other).expect("open");
        other.move_to(handover).expect("replaced");
        assert_eq!(FileIdentity::of(handover).expect("open"), vouched);
        assert!(args.open().is_ok(), "a handover on the board");
        write().move_to(handover).expect("replaced");
        let refused = args.open().err().map(|error| error.to_string());
        assert!(refused.is_some_and(|reason| reason.contains("a worker has replaced it")));
        handover.move_to(reader).expect("replaced");
        assert!(args.open().is_err(), "a replaced board");
        [reader, board.fd()].into_iter().for_each(Fd::close);
    }
}
