//! The old binary's part in an upgrade: its worker has put everything down and ended; a child
//! executes the new binary, which takes a copy of the table and of the slots. Until main says that
//! all pairs have done so, nothing is lost by going back.

use crate::keeper::arguments::{self, KeeperArgs};
use dormouse_handover::KeeperPart;
use dormouse_handover::orders::{self, WorkerReport};
use dormouse_handover::upgrade::Command;
use dormouse_reactor::Fd;
use dormouse_reactor::memory::FileIdentity;
use dormouse_reactor::process::{
    self, BoardReader, Inherit, Pid, Post, Program, ProgramFile, Wait,
};
use dormouse_reactor::signal::{self, Signal};
use std::io;
use std::path::Path;

/// How often main is looked after: it may die in the middle.
const LOOK_MS: u64 = 50;

/// How long the new keeper may take to say that it has seen the commit.
const NOD_MS: u64 = 1_000;

/// Lets the new binary prepare, and waits for main's word. True: the new keeper goes on, and this
/// one is to end. False: a worker of this binary is to go on with the old memory.
pub(super) fn is_committed(args: KeeperArgs, told: &KeeperPart, board: &BoardReader) -> bool {
    let post = board.post();
    if Command::of(post) != Some(Command::Prepare) {
        return false;
    }
    let child = board
        .text(post)
        .ok_or_else(|| io::Error::other("the name of the new binary cannot be read"))
        .and_then(|binary| start(args, &binary));
    let child = match child {
        Ok(child) => {
            orders::send_report(Fd(told.orders), &WorkerReport::Preparing(child));
            Some(child)
        }
        Err(error) => {
            refuse(told, &format!("it cannot be executed: {error}"));
            None
        }
    };
    match wait_for_word(told, board, post, child) {
        Ok(committed) => committed,
        Err(error) => {
            tracing::error!(%error, "upgrade failed: keeper cannot wait; the old binary continues");
            end(child);
            false
        }
    }
}

/// The child gets a copy of the whole table, and this binary goes on holding it. `binary` is what main
/// says of the file: its device, its inode, and its path.
fn start(args: KeeperArgs, binary: &str) -> io::Result<Pid> {
    let file = open_binary(binary)?;
    let program = Program {
        file: ProgramFile::Open(file),
        arguments: arguments::take_over_command(args.handover, args.board)
            .into_iter()
            .map(Into::into)
            .collect(),
        environment: None,
        inherit: Inherit::Unmarked,
    };
    let started = program.start();
    file.close();
    started
}

/// Opens the binary that main has judged, and no other.
fn open_binary(binary: &str) -> io::Result<Fd> {
    let nonsense = || io::Error::other("what main says of the new binary makes no sense");
    let mut words = binary.splitn(3, ' ');
    let mut word = || words.next().ok_or_else(nonsense);
    let (device, inode, path) = (word()?, word()?, word()?);
    let judged = FileIdentity {
        device: device.parse().map_err(io::Error::other)?,
        inode: inode.parse().map_err(io::Error::other)?,
    };
    let file = process::open_program(Path::new(path))?;
    if FileIdentity::of(file)? != judged {
        file.close();
        return Err(io::Error::other(format!(
            "another file has taken the place of {path} meanwhile"
        )));
    }
    Ok(file)
}

fn wait_for_word(
    told: &KeeperPart,
    board: &BoardReader,
    prepare: Post,
    mut child: Option<Pid>,
) -> io::Result<bool> {
    loop {
        let post = board.post();
        match Command::of(post) {
            Some(Command::Commit) => {
                let goes_on = match child {
                    Some(child) => has_nodded(child)?,
                    None => false,
                };
                if !goes_on {
                    tracing::error!(
                        "upgrade failed: new keeper died after the commit; the old binary continues"
                    );
                    orders::send_report(Fd(told.orders), &WorkerReport::Kept);
                }
                return Ok(goes_on);
            }
            Some(Command::Prepare) if post == prepare => {}
            _ => {
                end(child);
                return Ok(false);
            }
        }
        if process::parent() != board.owner() {
            tracing::error!("upgrade failed: main process died; the old binary continues");
            end(child);
            return Ok(false);
        }
        if let Some(pid) = child
            && let Some((_, ended)) = process::wait(Wait::IfEnded(pid))?
        {
            refuse(
                told,
                &format!("it {ended} while it took over the connections"),
            );
            child = None;
        }
        signal::wait_for(&[Signal::Child, Signal::User2], LOOK_MS)?;
    }
}

/// After the commit: the new keeper says by SIGUSR1 that it has seen it, and from then on answers
/// for the connections. If it died between its report and now, nothing has been changed yet: this
/// binary goes on with them, though main is the new one.
fn has_nodded(child: Pid) -> io::Result<bool> {
    let until_ms = process::monotonic_ms() + NOD_MS;
    loop {
        if process::wait(Wait::IfEnded(child))?.is_some() {
            return Ok(false);
        }
        let left_ms = until_ms.saturating_sub(process::monotonic_ms());
        let signals = [Signal::Child, Signal::User1];
        if left_ms == 0 || signal::wait_for(&signals, left_ms)? == Some(Signal::User1) {
            return Ok(true);
        }
    }
}

fn refuse(told: &KeeperPart, why: &str) {
    let why = format!("worker {}: {why}", told.worker);
    orders::send_report(Fd(told.orders), &WorkerReport::Refused(why));
}

/// Ends a child that is not needed, and waits until it is gone with its copy of the table.
fn end(child: Option<Pid>) {
    if let Some(pid) = child {
        let _ = process::send_signal(pid, Signal::Kill);
        let _ = process::wait(Wait::For(pid));
    }
}
