//! How a keeper tends its worker: it starts one, watches it, and starts the next.

use crate::keeper::arguments::{EXIT_CANNOT_BEGIN, EXIT_HANDED_OVER, KeeperArgs};
use crate::keeper::orphaned::Orphaned;
use crate::keeper::{begin, hand_over};
use dormouse_config::Log;
use dormouse_handover::KeeperPart;
use dormouse_handover::child::{self, Bounds};
use dormouse_reactor::Fd;
use dormouse_reactor::process::{self, BoardReader, Ended, Inherit, Pid, Program, User, Wait};
use dormouse_reactor::sandbox::Role;
use dormouse_reactor::signal::{self, Signal};
use dormouse_reactor::slab::Header;
use dormouse_tables::counters::{Count, Counters};
use std::io;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// A worker that lived so long did not die of how it was started. Not longer: somebody who can
/// crash a worker would make all others wait with each crash.
const SETTLED_MS: u64 = 1_000;

/// How long a worker that seems to hang is given to prove the contrary: it may have been frozen
/// together with its keeper.
const SECOND_LOOK_MS: u64 = 500;

/// A keeper whose main is gone ends with this status, after its time. Nobody reads it but people.
const EXIT_ORPHANED: u8 = 4;

/// When a keeper takes note of the end of former workers, counted from the start of the next one:
/// it can take long (see [`process::peek`]), and nobody is to wait for it.
const BURIAL_MS: u64 = 1_000;

/// Runs as keeper. Returns when the worker ended as it should.
pub(crate) fn keep(
    mut args: KeeperArgs,
    board: &BoardReader,
    told: &KeeperPart,
    set_logs: fn(&Log),
) -> ExitCode {
    // Mapped before there is a worker that could put something else in its place.
    let counters = Counters::of_worker(Fd(told.counters), told.workers, told.worker).ok();
    let header = match prepare(told) {
        Ok(prepared) => prepared,
        Err(error) => return fail("start", &error),
    };
    if let Some(delay) = child::backoff(args.streak) {
        while let Ok(Some(_)) = process::wait(Wait::AnyEnded) {}
        std::thread::sleep(delay);
    }
    let (handover, board_fd) = (args.handover.fd(), args.board.fd());
    let born_ms = process::monotonic_ms();
    // The child is named for what it is from its beginning; then this process is.
    name_process("worker", told.worker);
    let Bounds { sandbox, unix } = told.bounds;
    let confine = move || child::confine(Role::WorkersFirstThread { unix }, sandbox);
    let work = move |first| begin::work(handover, board_fd, set_logs, first);
    let child = match process::share_table_confined("worker", confine, work) {
        Ok(child) => child,
        Err(e) => return fail("start a worker", &e),
    };
    name_process("keeper", told.worker);
    let mut orphaned = Orphaned::new(board, told, args.ends_ms);
    let ended = match watch(
        child,
        &header,
        born_ms,
        told,
        counters.as_ref(),
        &mut orphaned,
    ) {
        Ok(ended) => ended,
        Err(e) => return fail("wait for its worker", &e),
    };
    args.ends_ms = orphaned.ends_ms();
    if orphaned.until_end_ms(process::monotonic_ms()) == 0 {
        tracing::error!("main process died; keeper exits, its connections end");
        return ExitCode::from(EXIT_ORPHANED);
    }
    match ended {
        Ended::Exited(code) if code == 0 || code == i32::from(EXIT_CANNOT_BEGIN) => {
            // It may have been taken note of already.
            let _ = process::wait(Wait::For(child));
            ExitCode::from(code as u8)
        }
        Ended::Exited(code) if code == i32::from(EXIT_HANDED_OVER) => {
            if hand_over::is_committed(args, told, board) {
                return ExitCode::SUCCESS;
            }
            again(KeeperArgs { streak: 0, ..args })
        }
        ended => {
            if let Some(counters) = &counters {
                counters.note_death(ended);
            }
            let lived_ms = process::monotonic_ms().saturating_sub(born_ms);
            tracing::error!(
                pid = child.0,
                cause = %ended,
                lived_ms,
                "worker died; starting the next one"
            );
            let streak = if lived_ms >= SETTLED_MS {
                1
            } else {
                args.streak.saturating_add(1)
            };
            again(KeeperArgs { streak, ..args })
        }
    }
}

/// What is done after each exec, before anything of the worker's is touched.
fn prepare(told: &KeeperPart) -> io::Result<Header> {
    let user = told.user.map(|(uid, gid)| User { uid, gid });
    process::drop_privileges(user, told.bounds.kept())?;
    // An exec makes the process dumpable again, and so may a change of user.
    process::forbid_core_dumps()?;
    child::confine(Role::Keeper, told.bounds.sandbox)?;
    signal::block(&[Signal::Child, Signal::User1, Signal::User2])?;
    // Wakes this process from its sleep, no more. A change of user forgets it, so it comes after that.
    process::signal_with_parent(Signal::User2)?;
    Header::open(Fd(told.slots)).map_err(io::Error::other)
}

/// Waits for the worker's end; ends it when it gives no sign of life. Nobody takes note of its end
/// here: that is put off until the next one serves.
fn watch(
    child: Pid,
    header: &Header,
    born_ms: u64,
    told: &KeeperPart,
    counters: Option<&Counters>,
    orphaned: &mut Orphaned<'_>,
) -> io::Result<Ended> {
    let look_ms = told.hang_timeout_ms.map_or(3_600_000, |bound| bound / 4);
    let mut suspected_ms = None;
    let mut burial_ms = Some(born_ms + BURIAL_MS);
    let mut now_ms = born_ms;
    loop {
        if let Some(ended) = process::peek(child)? {
            return Ok(ended);
        }
        let pause_ms = suspected_ms.map_or(look_ms, |_| SECOND_LOOK_MS);
        let until_burial_ms = burial_ms.map_or(u64::MAX, |at_ms| at_ms.saturating_sub(now_ms));
        orphaned.look(now_ms);
        let pause_ms = pause_ms
            .min(until_burial_ms)
            .min(orphaned.until_end_ms(now_ms));
        signal::wait_for(&[Signal::Child, Signal::User2], pause_ms)?;
        now_ms = process::monotonic_ms();
        if orphaned.until_end_ms(now_ms) == 0 {
            let _ = process::send_signal(child, Signal::Kill);
            return wait_for_end(child);
        }
        if burial_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            burial_ms = None;
            if let Some(ended) = bury_former(child)? {
                return Ok(ended);
            }
        }
        let beat_ms = header.heartbeat().load(Ordering::Relaxed).max(born_ms);
        let silent_ms = now_ms.saturating_sub(beat_ms);
        suspected_ms = match (told.hang_timeout_ms, suspected_ms) {
            (Some(bound_ms), None) if silent_ms > bound_ms => Some(now_ms),
            (Some(bound_ms), Some(since_ms)) if silent_ms > bound_ms => {
                if now_ms.saturating_sub(since_ms) >= SECOND_LOOK_MS {
                    tracing::error!(pid = child.0, silent_ms, "worker hangs; killing it");
                    if let Some(counters) = counters {
                        counters.add(Count::Hangs, 1);
                    }
                    // It may have ended by itself in this moment.
                    let _ = process::send_signal(child, Signal::Kill);
                    return wait_for_end(child);
                }
                Some(since_ms)
            }
            _ => None,
        };
    }
}

fn wait_for_end(child: Pid) -> io::Result<Ended> {
    loop {
        if let Some(ended) = process::peek(child)? {
            return Ok(ended);
        }
        signal::wait_for(&[Signal::Child], SECOND_LOOK_MS)?;
    }
}

/// Takes note of the end of all workers before this one; and of its own, if it came just now.
fn bury_former(child: Pid) -> io::Result<Option<Ended>> {
    let mut own = None;
    while let Some((pid, ended)) = process::wait(Wait::AnyEnded)? {
        if pid == child {
            own = Some(ended);
        }
    }
    Ok(own)
}

/// Executes itself anew. All descriptors of connections, mappings and epoll go through the exec.
fn again(args: KeeperArgs) -> ExitCode {
    let next = Program::this(args.command());
    match next.with(Inherit::Unmarked).replace_this() {
        Err(error) => fail("execute itself", &error),
        Ok(never) => match never {},
    }
}

/// The name and the title in lists of processes.
fn name_process(role: &str, worker: u32) {
    process::set_title(&format!("dormouse: {role} {worker}"));
    if let Err(error) = process::set_name(&format!("{role}-{worker}")) {
        tracing::debug!(%error, "a process goes without its name");
    }
}

fn fail(what: &str, error: &io::Error) -> ExitCode {
    tracing::error!(%error, action = what, "keeper failed");
    ExitCode::from(3)
}
