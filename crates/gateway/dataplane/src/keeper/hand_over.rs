//! The old keeper's part in an upgrade. Its worker has ended. A child of the keeper executes the new
//! binary, which gets a copy of the file table and copies the slots. Until main commits, which it does
//! when all pairs are ready, the keeper can return to the old binary without loss.

use crate::keeper::arguments::{self, KeeperArgs};
use dormouse_handover::KeeperPart;
use dormouse_handover::orders::{self, WorkerReport};
use dormouse_handover::upgrade::Command;
use dormouse_reactor::Fd;
use dormouse_reactor::memory::FileIdentity;
use dormouse_reactor::process::{
    self, BoardReader, Inherit, Pid, Post, Program, ProgramFile, Wait,
};
use dormouse_reactor::signal::{self, ReceivedSignal, Signal};
use std::io;
use std::path::Path;

/// Interval at which the keeper checks whether main has died.
const CHECK_MS: u64 = 50;

/// Time for the new keeper to confirm that it has seen the commit.
const CONFIRM_MS: u64 = 1_000;

/// Starts the new binary and waits for main's decision. Returns `true` if the new keeper continues and
/// this one must end, and `false` if a worker of this binary must continue with the old memory.
pub(super) fn hand_over(args: KeeperArgs, part: &KeeperPart, board: &BoardReader) -> bool {
    let post = board.post();
    if Command::of(post) != Some(Command::Prepare) {
        return false;
    }
    let child = board
        .text(post)
        .ok_or_else(|| io::Error::other("the path of the new binary is missing from the board"))
        .and_then(|binary| start(args, &binary));
    let child = match child {
        Ok(child) => {
            orders::send_report(Fd(part.orders), &WorkerReport::Preparing(child));
            Some(child)
        }
        Err(error) => {
            refuse(part, &format!("cannot execute the new binary: {error}"));
            None
        }
    };
    match wait_for_decision(part, board, post, child) {
        Ok(committed) => committed,
        Err(error) => {
            tracing::error!(%error, "keeper cannot wait during an upgrade; the old binary continues");
            end(child);
            false
        }
    }
}

/// Starts the new binary in a child, with a copy of the file table. `binary` is main's description of
/// the file: device, inode and path.
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

/// Opens the binary, and checks that it is the file that main has tried.
fn open_binary(binary: &str) -> io::Result<Fd> {
    let malformed = || io::Error::other("the board's description of the new binary is malformed");
    let mut words = binary.splitn(3, ' ');
    let mut word = || words.next().ok_or_else(malformed);
    let (device, inode, path) = (word()?, word()?, word()?);
    let expected = FileIdentity {
        device: device.parse().map_err(io::Error::other)?,
        inode: inode.parse().map_err(io::Error::other)?,
    };
    let file = process::open_program(Path::new(path))?;
    if FileIdentity::of(file)? != expected {
        file.close();
        return Err(io::Error::other(format!(
            "{path} was replaced after the main process checked it; upgrade again"
        )));
    }
    Ok(file)
}

fn wait_for_decision(
    part: &KeeperPart,
    board: &BoardReader,
    prepare: Post,
    mut child: Option<Pid>,
) -> io::Result<bool> {
    loop {
        let post = board.post();
        match Command::of(post) {
            Some(Command::Commit) => {
                let continues = match child {
                    Some(child) => confirms(child)?,
                    None => false,
                };
                if !continues {
                    tracing::error!("new keeper died after the commit; the old binary continues");
                    orders::send_report(Fd(part.orders), &WorkerReport::Kept);
                }
                return Ok(continues);
            }
            Some(Command::Prepare) if post == prepare => {}
            _ => {
                end(child);
                return Ok(false);
            }
        }
        if process::parent() != board.owner() {
            tracing::error!("main process died during an upgrade; the old binary continues");
            end(child);
            return Ok(false);
        }
        if let Some(pid) = child
            && let Some((_, ended)) = process::wait(Wait::IfEnded(pid))?
        {
            refuse(
                part,
                &format!("new keeper ended during the takeover: {ended}"),
            );
            child = None;
        }
        signal::wait_for(&[Signal::Child, Signal::User2], CHECK_MS)?;
    }
}

/// Waits after the commit until the new keeper confirms with SIGUSR1 that it has seen the commit; from
/// then on it is responsible for the connections. The kernel names the sender, so no other process of
/// this user can confirm in its place. Returns `false` if the new keeper died before: nothing has changed
/// yet, so this binary continues with the connections, although main is the new one.
///
/// A confirmation counts even if the new keeper has died since, which is possible if this process was
/// stopped for seconds. The new keeper's worker may live on, with the pending memory that a worker of
/// this binary would clear.
fn confirms(child: Pid) -> io::Result<bool> {
    let until_ms = process::monotonic_ms() + CONFIRM_MS;
    let mut has_ended = false;
    loop {
        // Checked before the signals: a dead process has sent all of its own. Asked once: then it no longer exists.
        has_ended = has_ended || process::wait(Wait::IfEnded(child))?.is_some();
        let left_ms = match has_ended {
            true => 0,
            false => until_ms.saturating_sub(process::monotonic_ms()),
        };
        let signals = [Signal::Child, Signal::User1];
        match signal::receive_within(&signals, left_ms)? {
            Some(received) if is_confirmation(received, child) => return Ok(true),
            None if has_ended => return Ok(false),
            None if left_ms == 0 => return Ok(true),
            _ => {}
        }
    }
}

fn is_confirmation(received: ReceivedSignal, child: Pid) -> bool {
    received.signal == Signal::User1 && i64::from(received.from_pid) == i64::from(child.0)
}

fn refuse(part: &KeeperPart, reason: &str) {
    let reason = format!("worker {}: {reason}", part.worker);
    orders::send_report(Fd(part.orders), &WorkerReport::Refused(reason));
}

/// Kills a child that is not needed, and waits until its copy of the table is released.
fn end(child: Option<Pid>) {
    if let Some(pid) = child {
        let _ = process::send_signal(pid, Signal::Kill);
        let _ = process::wait(Wait::For(pid));
    }
}
