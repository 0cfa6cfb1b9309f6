//! The new binary's part in an upgrade: it converts the slots into memory of its own, says so, and
//! waits for main's word. Until then it changes nothing that the old binary would go on with.

use crate::keeper::arguments::{self, KeeperArgs, KnownFile};
use crate::keeper::tend::keep;
use dormouse_config::Log;
use dormouse_handover::layout;
use dormouse_handover::orders::{self, WorkerReport};
use dormouse_handover::trial;
use dormouse_handover::upgrade::Command;
use dormouse_handover::{Handover, KeeperPart};
use dormouse_reactor::Fd;
use dormouse_reactor::process::{self, BoardReader};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::slab::Foreign;
use dormouse_tables::counters::{Count, Counters};
use std::io;
use std::process::ExitCode;
use std::time::Duration;

/// How often main's word and the old keeper are looked after.
const LOOK_MS: u64 = 50;

/// How long the old keeper may take to end.
const LAST_BREATH_MS: u64 = 2_000;

/// What the new keeper has made, beside what the old one has.
struct Prepared {
    /// The old memory.
    from: Foreign,
    told: KeeperPart,
    /// What the old handover said of the order of counters.
    former_counts: Vec<String>,
    handover: KnownFile,
}

/// Its life, until it is a keeper.
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
    Some(match take_over(args, former, &board) {
        Ok(Some((told, args))) => keep(args, &board, &told, start_logs),
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "upgrade failed: new keeper cannot take over");
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
    let orders = Fd(former.orders);
    let worker = former.worker;
    trial::crash_at("prepare", worker);
    let prepared = match prepare(args.handover.fd(), former) {
        Ok(prepared) => prepared,
        Err(error) => {
            let why = format!("worker {worker}: {error}");
            orders::send_report(orders, &WorkerReport::Refused(why));
            return Ok(None);
        }
    };
    trial::crash_at("report", worker);
    orders::send_report(orders, &WorkerReport::Prepared);
    trial::crash_at("wait", worker);
    while board.post() == post && process::parent() == parent {
        board.wait(post, LOOK_MS)?;
    }
    // The old keeper may have ended because of a word that came after the last look.
    if Command::of(board.post()) != Some(Command::Commit) {
        // The old keeper goes on, or has died with its worker before anything was decided.
        return Ok(None);
    }
    // Old keepers of former builds end without waiting for it.
    let _ = process::send_signal(parent, Signal::User1);
    wait_for_end(parent);
    let (told, handover) = prepared.commit(args.handover.fd());
    Ok(Some((told, KeeperArgs { handover, ..args })))
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
    // In this table, which is a copy: the old keeper finds its own under the same number.
    slots.fd().move_to(place)?;
    let next = public.write_with_secrets_of(handover)?;
    Ok(Prepared {
        from,
        told: KeeperPart::read(next)?,
        former_counts: former.counts,
        handover: KnownFile::of(next)?,
    })
}

impl Prepared {
    /// There is no way back any more: the old memory is wiped.
    fn commit(self, former_handover: Fd) -> (KeeperPart, KnownFile) {
        let told = self.told;
        if let Ok(count) = Counters::of_worker(Fd(told.counters), told.workers, told.worker) {
            count.reorder(&self.former_counts);
            count.add(Count::Upgrades, 1);
        }
        self.from.wipe();
        former_handover.close();
        (told, self.handover)
    }
}

/// As long as the old keeper lives, its copy of the table holds back the end of every connection
/// that is closed.
fn wait_for_end(parent: process::Pid) {
    let mut waited_us = 0;
    while process::parent() == parent && waited_us < LAST_BREATH_MS * 1000 {
        std::thread::sleep(Duration::from_micros(200));
        waited_us += 200;
    }
}
