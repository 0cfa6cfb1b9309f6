//! The keeper: a tiny process which shares its file table with its worker.
//!
//! Because the table is shared, the worker's sockets stay open when the worker dies; because the
//! slots are shared memory, so does everything that is known of them. The keeper then starts the
//! next worker, which goes on. It never reads a descriptor of the shared table (whoever takes over
//! a worker can replace any of them): it waits for its child and does nothing else.
//!
//! Before it starts another worker it executes itself anew, so that the new worker has a new
//! memory layout: a crash tells an attacker nothing about the next one.

use crate::client_sessions::ClientSessions;
use crate::config::Log;
use crate::counters::Counters;
use crate::handover::Handover;

use crate::origin;
use crate::route::{self, Route};
use crate::slot::{Phase, SLOT_LAYOUT_VERSION, Slot};
use crate::worker::{Inheritance, Worker};
use dormouse_reactor::Fd;
use dormouse_reactor::pending::Pending;
use dormouse_reactor::process::{self, Ended, Inherit, Program, Wait};
use dormouse_reactor::slab::Slab;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

/// A worker which can't begin (its configuration makes no sense to it) ends with this status; it
/// is not started again.
pub(crate) const EXIT_CANNOT_BEGIN: u8 = 78;

/// A worker that lived so long did not die of how it was started.
const SETTLED_MS: u64 = 10_000;

/// What a keeper is told on its command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct KeeperArgs {
    /// Descriptor of the handover.
    handover: i32,
    /// Workers that died one soon after the other.
    streak: u32,
}

impl KeeperArgs {
    fn command(self) -> [String; 4] {
        [
            "dormouse",
            "keeper",
            &self.handover.to_string(),
            &self.streak.to_string(),
        ]
        .map(String::from)
    }

    fn parse(args: &[String]) -> Option<KeeperArgs> {
        let [handover, streak] = args else {
            return None;
        };
        Some(KeeperArgs {
            handover: handover.parse().ok()?,
            streak: streak.parse().ok()?,
        })
    }
}

/// The life of a process which main has started: `args` is what follows the subcommand.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> ExitCode {
    let Some(args) = KeeperArgs::parse(args) else {
        eprintln!("dormouse: `keeper` is for `dormouse serve` to start, not for people");
        return ExitCode::from(2);
    };
    match Handover::read(Fd(args.handover)) {
        Ok(handover) => {
            start_logs(&handover.config.log);
            keep(args, &handover, start_logs)
        }
        Err(error) => {
            eprintln!("dormouse: a keeper cannot read its handover: {error}");
            ExitCode::from(3)
        }
    }
}

/// The command line of a keeper whose worker is the first.
pub(crate) fn first_command(handover: i32) -> [String; 4] {
    KeeperArgs {
        handover,
        streak: 0,
    }
    .command()
}

/// How glibc's malloc is set in keepers and workers. Only handshakes live in their heap: short
/// bursts of garbage, which is to be given back whole. So there is one arena (one thread works),
/// and no cache of freed blocks which would keep pages from being returned.
const MALLOC: &str = "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1";

/// The environment of a keeper, and of the workers after it: main's, and how malloc is set unless
/// the user has set it.
pub(crate) fn environment() -> Vec<(OsString, OsString)> {
    let mut environment: Vec<_> = std::env::vars_os().collect();
    if !environment.iter().any(|(name, _)| name == "GLIBC_TUNABLES") {
        environment.push(("GLIBC_TUNABLES".into(), MALLOC.into()));
    }
    environment
}

/// Runs as keeper. Returns when the worker ended as it should.
fn keep(args: KeeperArgs, told: &Handover, set_logs: fn(&Log)) -> ExitCode {
    // An exec made the process dumpable again.
    if let Err(error) = process::forbid_core_dumps() {
        return fail("cannot forbid core dumps", &error);
    }
    if let Some(delay) = backoff(args.streak) {
        std::thread::sleep(delay);
    }
    // Mapped before there is a worker that could put something else in its place.
    let counters = Counters::of_worker(
        Fd(told.descriptors.counters),
        told.share.workers,
        told.worker,
    );
    let handover = Fd(args.handover);
    let born_ms = process::boottime_ms();
    // The child is named for what it is from its beginning; then this process is.
    name_process("worker", told.worker);
    let child = match process::share_table("worker", move || work(handover, set_logs)) {
        Ok(child) => child,
        Err(e) => return fail("cannot start a worker", &e),
    };
    name_process("keeper", told.worker);
    match process::wait(Wait::For(child)) {
        Ok(Some((_, Ended::Exited(0)))) | Ok(None) => ExitCode::SUCCESS,
        Ok(Some((_, Ended::Exited(code)))) if code == i32::from(EXIT_CANNOT_BEGIN) => {
            ExitCode::from(EXIT_CANNOT_BEGIN)
        }
        Ok(Some((_, ended))) => {
            if let Ok(counters) = &counters {
                counters.note_death(ended);
            }
            let lived_ms = process::boottime_ms().saturating_sub(born_ms);
            tracing::error!(
                pid = child.0,
                lived_ms,
                "worker died: {ended}; the next one goes on"
            );
            let streak = if lived_ms >= SETTLED_MS {
                1
            } else {
                args.streak.saturating_add(1)
            };
            // All descriptors of connections, mappings and epoll go through the exec.
            let next = Program::this(KeeperArgs { streak, ..args }.command());
            match next.with(Inherit::Unmarked).replace_this() {
                Err(error) => fail("cannot execute itself anew", &error),
                Ok(never) => match never {},
            }
        }
        Err(e) => fail("cannot wait for its worker", &e),
    }
}

/// The name in lists of processes.
fn name_process(role: &str, worker: u32) {
    if let Err(error) = process::set_name(&format!("{role}-{worker}")) {
        tracing::debug!(%error, "a process goes without its name");
    }
}

/// The first death costs no time; workers which die again and again are started ever later.
pub(crate) fn backoff(streak: u32) -> Option<Duration> {
    let doublings = streak.checked_sub(3)?;
    Some(Duration::from_millis(100 << doublings.min(6)))
}

fn fail(what: &str, error: &io::Error) -> ExitCode {
    tracing::error!(%error, "keeper {what}");
    ExitCode::from(3)
}

/// The worker's whole life, in a process and a thread of its own.
fn work(handover: Fd, set_logs: fn(&Log)) -> i32 {
    let worker = match begin(handover, set_logs) {
        Ok(worker) => worker,
        Err(error) => {
            tracing::error!(%error, "worker cannot begin");
            return i32::from(EXIT_CANNOT_BEGIN);
        }
    };
    match worker.run() {
        Ok(()) => 0,
        Err(error) => {
            tracing::error!(%error, "worker failed");
            1
        }
    }
}

fn begin(fd: Fd, set_logs: fn(&Log)) -> io::Result<Worker> {
    let handover = Handover::read(fd)?;
    let descriptors = &handover.descriptors;
    let mut routes: Vec<Route> = route::routes(
        &handover.config,
        &handover.certificates,
        &handover.ticket_keys,
    )
    .map_err(io::Error::other)?;
    routes.extend(originations(&handover)?);
    let routes = route::by_number(routes, &handover.numbers, &handover.config.sockets);
    let (slots, adopted) = Slab::adopt(
        Fd(descriptors.slots),
        SLOT_LAYOUT_VERSION,
        |_, slot: &Slot| slot.phase() != Phase::Free,
    )
    .map_err(io::Error::other)?;
    let pending = adopt_pending(&slots, &handover)?;
    let counters = Counters::of_worker(
        Fd(descriptors.counters),
        handover.share.workers,
        handover.worker,
    )?;
    counters.note_birth();
    let mut keep = descriptors.all();
    keep.push(fd);
    Worker::adopt(Inheritance {
        slots,
        pending,
        counters,
        routes,
        listeners: descriptors
            .listeners
            .iter()
            .map(|&(fd, route)| (Fd(fd), route))
            .collect(),
        limits: handover.share.limits(&handover.config),
        orders: Fd(descriptors.orders),
        handover: fd,
        set_logs,
        moved: adopted.moved,
        keep,
    })
}

fn originations(handover: &Handover) -> io::Result<Vec<Route>> {
    let config = &handover.config;
    let share = origin::Share {
        worker: handover.worker,
        workers: handover.share.workers,
    };
    let sessions = match handover.descriptors.sessions {
        Some(fd) => {
            let places = origin::places(config);
            let sessions = ClientSessions::adopt(Fd(fd), places, handover.worker)?;
            sessions.forget_claims();
            Some(sessions)
        }
        None => None,
    };
    let origins = origin::origins(config, &handover.origins, sessions.as_ref(), share);
    Ok(route::originations(
        config,
        origins.map_err(io::Error::other)?,
    ))
}

fn adopt_pending(slots: &Slab<Slot>, handover: &Handover) -> io::Result<Pending> {
    let chunks = slots
        .indices()
        .filter_map(|index| slots.get(index))
        .flat_map(|slot| {
            [slot.opening_pending, slot.sealing_pending]
                .into_iter()
                .filter(|handle| handle.is_some())
                .map(|handle| (handle, slot.generation))
        });
    let fd = Fd(handover.descriptors.pending);
    let (pending, refused) = Pending::adopt(fd, handover.share.pending_bytes_max as usize, chunks)
        .map_err(io::Error::other)?;
    if !refused.is_empty() {
        // At most those of the connection that was being worked on, which is reset anyway.
        tracing::warn!(chunks = refused.len(), "pending bytes in doubt are dropped");
    }
    Ok(pending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_understands_what_it_is_told() {
        let args = KeeperArgs {
            handover: 17,
            streak: 3,
        };
        let command = args.command();
        assert_eq!(KeeperArgs::parse(&command[2..]), Some(args));
        assert_eq!(KeeperArgs::parse(&["x".to_owned(), "3".to_owned()]), None);
        assert_eq!(KeeperArgs::parse(&[]), None);
    }

    #[test]
    fn the_first_deaths_cost_no_time_and_later_ones_ever_more() {
        assert_eq!(backoff(0), None);
        assert_eq!(backoff(1), None);
        assert_eq!(backoff(2), None);
        assert_eq!(backoff(3), Some(Duration::from_millis(100)));
        assert_eq!(backoff(4), Some(Duration::from_millis(200)));
        assert_eq!(
            backoff(9),
            backoff(4_000_000_000),
            "and there is a longest wait"
        );
    }
}
