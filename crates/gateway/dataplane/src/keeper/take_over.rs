//! The new keeper's part in an upgrade: it converts the slots into new memory, reports to main, and
//! waits for main's decision. Until then it changes nothing that the old binary needs.

use crate::keeper::arguments::{self, KeeperArgs, KnownFile};
use crate::keeper::tend::keep;
use dormouse_config::Log;
use dormouse_handover::layout;
use dormouse_handover::orders::{self, WorkerReport};
use dormouse_handover::trial;
use dormouse_handover::upgrade::Command;
use dormouse_handover::{Handover, KeeperPart};
use dormouse_reactor::Fd;
use dormouse_reactor::process::{self, BoardReader, Life};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::slab::Foreign;
use dormouse_tables::counters::{Count, Counters};
use std::io;
use std::process::ExitCode;
use std::time::Duration;

/// Interval at which the board and the old keeper are checked.
const CHECK_MS: u64 = 50;

/// Time for the old keeper to exit.
const OLD_KEEPER_EXIT_MS: u64 = 2_000;

/// State of a prepared takeover.
struct Prepared {
    /// The old memory.
    from: Foreign,
    part: KeeperPart,
    /// Order of the counters in the old binary.
    former_counts: Vec<String>,
    handover: KnownFile,
}

/// Entry point of a new binary, until it is the keeper.
pub(super) fn process_entry(args: &[String], start_logs: fn(&Log)) -> Option<ExitCode> {
    let args = arguments::parse_take_over(args)?;
    let (board, former) = match args.open() {
        Ok(opened) => opened,
        Err(error) => {
            eprintln!("dormouse: the new binary cannot read its handover: {error}");
            return Some(ExitCode::from(3));
        }
    };
    start_logs(&former.log);
    trial::crash_at("take-over", former.worker);
    Some(match take_over(args, former, &board) {
        Ok(Some((part, args))) => keep(args, &board, &part, start_logs),
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "new keeper cannot take over");
            ExitCode::from(3)
        }
    })
}

fn take_over(
    args: KeeperArgs,
    former: KeeperPart,
    board: &BoardReader,
) -> io::Result<Option<(KeeperPart, KeeperArgs)>> {
    process::forbid_core_dumps()?;
    let parent = process::parent();
    let post = board.post();
    // The old keeper may have died, or main given up or died, before this process began. Main is the parent of processes
    // that have lost theirs; after its death the next one may be any process, and no decision comes.
    let main = Life::of(board.owner());
    let is_orphan = parent == board.owner() || main.is_over();
    if is_orphan || Command::of(post) != Some(Command::Prepare) {
        return Ok(None);
    }
    let orders = Fd(former.orders);
    let worker = former.worker;
    trial::crash_at("prepare", worker);
    let prepared = match prepare(args.handover.fd(), former) {
        Ok(prepared) => prepared,
        Err(error) => {
            let reason = format!("worker {worker}: {error}");
            orders::send_report(orders, &WorkerReport::Refused(reason));
            return Ok(None);
        }
    };
    trial::crash_at("report", worker);
    orders::send_report(orders, &WorkerReport::Prepared);
    trial::crash_at("wait", worker);
    while board.post() == post && process::parent() == parent && !main.is_over() {
        board.wait(post, CHECK_MS)?;
    }
    // The loop may have ended because the old keeper or main has ended, so the board is read again.
    if Command::of(board.post()) != Some(Command::Commit) {
        // The old keeper continues, or has died before main decided.
        return Ok(None);
    }
    confirm_until_end(parent);
    let (part, handover) = prepared.commit(args.handover.fd());
    Ok(Some((part, KeeperArgs { handover, ..args })))
}

fn prepare(handover: Fd, former: KeeperPart) -> io::Result<Prepared> {
    let public = Handover::read_without_secrets(handover)?;
    let place = Fd(public.descriptors.slots);
    let from = Foreign::open(place).map_err(io::Error::other)?;
    let slots = layout::convert(&from)?;
    tracing::debug!(
        from = from.header().layout(),
        to = slots.header().layout(),
        connections = slots.live(),
        "slots converted"
    );
    // This table is a copy: the old keeper keeps its own file under the same number.
    slots.fd().move_to(place)?;
    let next = public.write_with_routes_of(handover)?;
    Ok(Prepared {
        from,
        part: KeeperPart::read(next)?,
        former_counts: former.counts,
        handover: KnownFile::of(next)?,
    })
}

impl Prepared {
    /// Completes the takeover: wipes the old memory, so there is no way back.
    fn commit(self, former_handover: Fd) -> (KeeperPart, KnownFile) {
        let part = self.part;
        if let Ok(count) = Counters::of_worker(Fd(part.counters), part.workers, part.worker) {
            count.reorder(&self.former_counts);
            count.add(Count::Upgrades, 1);
        }
        self.from.wipe();
        former_handover.close();
        (part, self.handover)
    }
}

/// Confirms to the old keeper that this process has seen the commit, and waits until the old keeper has
/// exited. While it lives, its copy of the table holds back the FIN of every connection that is closed.
///
/// The signal is repeated, because the kernel drops it while another process's SIGUSR1 is pending.
fn confirm_until_end(parent: process::Pid) {
    let mut waited_us = 0;
    while process::parent() == parent && waited_us < OLD_KEEPER_EXIT_MS * 1000 {
        let _ = process::send_signal(parent, Signal::User1);
        std::thread::sleep(Duration::from_micros(200));
        waited_us += 200;
    }
}
