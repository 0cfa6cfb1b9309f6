//! The keeper's main function: starts a worker, watches it, and starts the next one.

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
use std::time::{Duration, Instant};

/// A worker that lived at least this long did not die of its start, so the next one starts without a
/// delay. A longer time would let an attacker who can crash workers delay everyone else.
const SETTLED_MS: u64 = 1_000;

/// Time for a worker that seems to hang to show a heartbeat: it may have been frozen together with its
/// keeper.
const SECOND_CHECK_MS: u64 = 500;

/// Exit status of a keeper after main's death. No program reads it.
const EXIT_ORPHANED: u8 = 4;

/// Time from the start of a worker until its keeper reaps the former one. Reaping can take long (see
/// [`process::peek`]), and connections must not wait for it.
const REAP_MS: u64 = 1_000;

/// Time for the start of a worker for which connections wait. The system may be short of processes or memory for a
/// moment.
const START_WITHIN: Duration = Duration::from_secs(10);

/// Pause between two attempts to start it.
const START_AGAIN: Duration = Duration::from_millis(100);

/// Number of workers in a row that died before the keeper gives up if the last one could not begin. The pauses between
/// them add up to six seconds.
const STREAK_MAX: u32 = 8;

/// Runs the keeper. Returns when the worker has ended regularly.
pub(crate) fn keep(
    mut args: KeeperArgs,
    board: &BoardReader,
    part: &KeeperPart,
    set_logs: fn(&Log),
) -> ExitCode {
    // Mapped before there is a worker, which could replace the file.
    let counters = Counters::of_worker(Fd(part.counters), part.workers, part.worker).ok();
    let header = match prepare(part) {
        Ok(prepared) => prepared,
        Err(error) => return fail("start", &error),
    };
    if let Some(delay) = child::backoff(args.streak) {
        reap_all();
        std::thread::sleep(delay);
    }
    let has_former = header.epoll() != Fd::NONE;
    let start = || start_worker(&args, part, set_logs);
    let started = match has_former {
        false => start(),
        true => start_patiently(start),
    };
    let born_ms = process::monotonic_ms();
    let child = match started {
        Ok(child) => child,
        Err(e) => return fail("start a worker", &e),
    };
    let mut orphaned = Orphaned::new(board, part, args.ends_ms);
    let ended = match watch(
        child,
        &header,
        born_ms,
        part,
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
    let could_not_begin = ended == Ended::Exited(i32::from(EXIT_CANNOT_BEGIN));
    match ended {
        Ended::Exited(code) if code == 0 || could_not_begin && !begins_again(has_former, args) => {
            // The child may have been reaped already.
            let _ = process::wait(Wait::For(child));
            ExitCode::from(code as u8)
        }
        Ended::Exited(code) if code == i32::from(EXIT_HANDED_OVER) => {
            if hand_over::hand_over(args, part, board) {
                return ExitCode::SUCCESS;
            }
            execute_again(KeeperArgs { streak: 0, ..args })
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
            let streak = if lived_ms >= SETTLED_MS && !could_not_begin {
                1
            } else {
                args.streak.saturating_add(1)
            };
            execute_again(KeeperArgs { streak, ..args })
        }
    }
}

/// Whether another worker is started after one that could not begin. Connections wait for it if there was a worker
/// before it (`has_former`), and what it lacked may be there a moment later: memory, for instance. The first worker of a
/// pair reports what is wrong, and nobody waits.
fn begins_again(has_former: bool, args: KeeperArgs) -> bool {
    has_former && args.streak < STREAK_MAX
}

/// Prepares the process after each exec, before it touches anything of the worker.
fn prepare(part: &KeeperPart) -> io::Result<Header> {
    let user = part.user.map(|(uid, gid)| User { uid, gid });
    process::drop_privileges(user, part.bounds.kept())?;
    // An exec makes the process dumpable again; a change of user may do so, too.
    process::forbid_core_dumps()?;
    child::confine(Role::Keeper, part.bounds.sandbox)?;
    signal::block(&[Signal::Child, Signal::User1, Signal::User2])?;
    // This signal only wakes the process. A change of user resets the setting, so it comes afterwards.
    process::signal_with_parent(Signal::User2)?;
    Header::open(Fd(part.slots)).map_err(io::Error::other)
}

fn start_worker(args: &KeeperArgs, part: &KeeperPart, set_logs: fn(&Log)) -> io::Result<Pid> {
    let (handover, board) = (args.handover.fd(), args.board.fd());
    // The child inherits the worker's name; then this process takes its own.
    name_process("worker", part.worker);
    let Bounds { sandbox, unix } = part.bounds;
    let confine = move || child::confine(Role::WorkersFirstThread { unix }, sandbox);
    let work = move |first| begin::work(handover, board, set_logs, first);
    let child = process::share_table("worker", confine, work);
    name_process("keeper", part.worker);
    if child.is_err() {
        // Until it is reaped, the former worker counts as a process.
        reap_all();
    }
    child
}

/// Starts a worker for which connections wait.
fn start_patiently(mut start: impl FnMut() -> io::Result<Pid>) -> io::Result<Pid> {
    let begun = Instant::now();
    let mut has_failed = false;
    loop {
        let error = match start() {
            Err(error) if begun.elapsed() < START_WITHIN => error,
            result => return result,
        };
        if !has_failed {
            has_failed = true;
            tracing::error!(%error, "worker not started; trying again");
        }
        std::thread::sleep(START_AGAIN);
    }
}

/// Waits for the worker's end, and kills the worker if it hangs. The worker is not reaped here, but
/// after the next one serves.
fn watch(
    child: Pid,
    header: &Header,
    born_ms: u64,
    part: &KeeperPart,
    counters: Option<&Counters>,
    orphaned: &mut Orphaned<'_>,
) -> io::Result<Ended> {
    let check_ms = part.hang_timeout_ms.map_or(3_600_000, |bound| bound / 4);
    let mut suspected_ms = None;
    let mut reap_ms = Some(born_ms + REAP_MS);
    let mut now_ms = born_ms;
    loop {
        if let Some(ended) = process::peek(child)? {
            return Ok(ended);
        }
        let pause_ms = suspected_ms.map_or(check_ms, |_| SECOND_CHECK_MS);
        let until_reap_ms = reap_ms.map_or(u64::MAX, |at_ms| at_ms.saturating_sub(now_ms));
        orphaned.check(now_ms);
        let pause_ms = pause_ms
            .min(until_reap_ms)
            .min(orphaned.until_end_ms(now_ms));
        signal::wait_for(&[Signal::Child, Signal::User2], pause_ms)?;
        now_ms = process::monotonic_ms();
        if orphaned.until_end_ms(now_ms) == 0 {
            let _ = process::send_signal(child, Signal::Kill);
            return wait_for_end(child);
        }
        if reap_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            reap_ms = None;
            if let Some(ended) = reap_former(child)? {
                return Ok(ended);
            }
        }
        let beat_ms = header.heartbeat().load(Ordering::Relaxed).max(born_ms);
        let silent_ms = now_ms.saturating_sub(beat_ms);
        suspected_ms = match (part.hang_timeout_ms, suspected_ms) {
            (Some(bound_ms), None) if silent_ms > bound_ms => Some(now_ms),
            (Some(bound_ms), Some(since_ms)) if silent_ms > bound_ms => {
                if now_ms.saturating_sub(since_ms) >= SECOND_CHECK_MS {
                    tracing::error!(pid = child.0, silent_ms, "worker hangs; killing it");
                    if let Some(counters) = counters {
                        counters.add(Count::Hangs, 1);
                    }
                    // The worker may just have ended by itself.
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
        signal::wait_for(&[Signal::Child], SECOND_CHECK_MS)?;
    }
}

/// Reaps all former workers, while there is no current one.
fn reap_all() {
    while let Ok(Some(_)) = process::wait(Wait::AnyEnded) {}
}

/// Reaps all former workers. Returns how the current one ended, if it has just ended, too.
fn reap_former(child: Pid) -> io::Result<Option<Ended>> {
    let mut own = None;
    while let Some((pid, ended)) = process::wait(Wait::AnyEnded)? {
        if pid == child {
            own = Some(ended);
        }
    }
    Ok(own)
}

/// Executes this program again. The descriptors of connections, mappings and epoll survive the exec.
fn execute_again(args: KeeperArgs) -> ExitCode {
    let next = Program::this(args.command());
    match next.with(Inherit::Unmarked).replace_this() {
        Err(error) => fail("execute itself", &error),
        Ok(never) => match never {},
    }
}

/// Sets the process's name and its title in process lists.
fn name_process(role: &str, worker: u32) {
    process::set_title(&format!("dormouse: {role} {worker}"));
    if let Err(error) = process::set_name(&format!("{role}-{worker}")) {
        tracing::debug!(%error, "process name not set");
    }
}

fn fail(what: &str, error: &io::Error) -> ExitCode {
    tracing::error!(%error, action = what, "keeper failed");
    ExitCode::from(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_with_connections_is_started_when_the_system_can() {
        let mut attempts = 0;
        let started = start_patiently(|| {
            attempts += 1;
            match attempts {
                3 => Ok(Pid(7)),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            }
        });
        assert_eq!(started.expect("started"), Pid(7));
    }
}
