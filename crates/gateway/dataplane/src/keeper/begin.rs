//! Start of a worker: established connections are served first, certificates are parsed later.

use crate::connection_log::ConnectionLog;
use crate::established::Moved;
use crate::io::{Io, OsIo};
use crate::keeper::arguments::{EXIT_CANNOT_BEGIN, EXIT_HANDED_OVER};
use crate::lifecycle::reload::Remembered;
use crate::repair_link::RepairLink;
use crate::worker::{Exit, Inheritance, Worker};
use crate::workspace::Parts;
use dormouse_config::Log;
use dormouse_engine::{TicketKeyring, TicketKeys};
use dormouse_handover::child::{Bounds, confine};
use dormouse_handover::log_entries::{LOG_ENTRY_VERSION, LogEntries};
use dormouse_handover::notes::Notes;
use dormouse_handover::slot::{Phase, SLOT_LAYOUT_VERSION, Slot};
use dormouse_handover::{Descriptors, Handover, KeeperPart};
use dormouse_reactor::Fd;
use dormouse_reactor::pending::{Handle, Pending};
use dormouse_reactor::process::{self, FirstThread};
use dormouse_reactor::sandbox::{OwnPorts, Role};
use dormouse_reactor::slab::Slab;
use dormouse_routes::contexts;
use dormouse_routes::loader::{Loaded, RouteLoader};
use dormouse_routes::origin;
use dormouse_routes::parsed::Parsed;
use dormouse_routes::route::{self, Route};
use dormouse_routes::session_cache::SessionCache;
use dormouse_routes::table::Routes;
use dormouse_tables::backends::Backends;
use dormouse_tables::clients::Clients;
use dormouse_tables::counters::Counters;
use dormouse_tables::traffic::Traffic;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

/// Entry point of the worker, in its own process and thread.
pub(super) fn work(handover: Fd, board: Fd, set_logs: fn(&Log), first: FirstThread) -> i32 {
    let born_ms = process::boottime_ms();
    // The first thread confines itself before anything else happens: a worker that begins closes all descriptors that
    // it does not know, also those that a sandbox holds for a moment, and its own filter applies to both threads.
    let begun = first
        .confined()
        .and_then(|()| begin(handover, born_ms, &[board], set_logs, OsIo::adopt));
    let begun = begun.and_then(|(worker, bounds)| {
        // After this point the worker handles bytes from the network.
        let role = Role::Worker {
            unix: bounds.unix,
            ports: worker.own_ports(),
        };
        confine(role, bounds.sandbox).map(|()| worker)
    });
    let worker = match begun {
        Ok(worker) => worker,
        Err(error) => {
            tracing::error!(%error, "worker start failed");
            return i32::from(EXIT_CANNOT_BEGIN);
        }
    };
    match worker.run() {
        Ok(Exit::Stopped) => 0,
        Ok(Exit::HandedOver) => i32::from(EXIT_HANDED_OVER),
        Err(error) => {
            tracing::error!(%error, "worker failed");
            1
        }
    }
}

/// Starts a worker from its handover: the first worker, or the successor of one that died. The process
/// started at `born_ms` of CLOCK_BOOTTIME. `own` are descriptors of the process that must stay open.
/// `io` creates the [`Io`] from the predecessor's poller.
pub(crate) fn begin<I: Io>(
    fd: Fd,
    born_ms: u64,
    own: &[Fd],
    set_logs: fn(&Log),
    io: impl FnOnce(Fd) -> io::Result<I>,
) -> io::Result<(Worker<I>, Bounds)> {
    let (mut handover, stored) = Handover::open(fd)?;
    let notes = Notes::read(Fd(handover.descriptors.notes))?;
    notes.apply(&mut handover);
    let bounds = KeeperPart::read(fd)?.bounds;
    let descriptors = handover.descriptors.clone();
    let (mut slots, adopted) = Slab::adopt(
        Fd(descriptors.slots),
        SLOT_LAYOUT_VERSION,
        |_, slot: &Slot| slot.phase() != Phase::Free,
    )
    .map_err(io::Error::other)?;
    let (fd_of_pending, bytes_max) = (Fd(descriptors.pending), handover.share.pending_bytes_max);
    let pending = adopt_pending(&mut slots, fd_of_pending, bytes_max as usize)?;
    let (worker, workers) = (handover.worker, handover.share.workers);
    let counters = Counters::of_worker(Fd(descriptors.counters), workers, worker)?;
    counters.note_birth(born_ms);
    let mut keep = descriptors.all();
    keep.push(fd);
    keep.extend_from_slice(own);
    let limits = handover.share.limits(&handover.config);
    let backends = Backends::adopt(descriptors.backends(), workers, worker);
    let backends = backends.map_err(io::Error::other)?;
    let traffic = Traffic::adopt(Fd(descriptors.traffic), workers, worker);
    let addresses = notes.addresses(handover.edition);
    let sessions = SessionCache::adopt(&handover.descriptors)?;
    let remembered = Remembered::of(&handover, notes);
    let mut parsed = Parsed::default();
    let keys = TicketKeys::import(&handover.ticket_keys).map_err(io::Error::other)?;
    let keyring = TicketKeyring::new(&keys).map_err(io::Error::other)?;
    let opened = (handover, stored);
    let mut late = RouteLoader::new(opened, keyring.clone(), sessions.clone(), &mut parsed);
    let io = io(slots.header().epoll())?;
    let beat = || {
        let heartbeat = slots.header().heartbeat();
        heartbeat.store(io.monotonic_us() / 1000, Ordering::Relaxed);
    };
    // If no connection waits, certificates are parsed now, and errors in them are reported at once.
    let beat = (adopted.live == 0).then_some(beat);
    let routes = first_routes(&mut late, &addresses, &mut parsed, &backends, beat)?;
    let parts = Parts {
        pending,
        count: counters,
        clients: Clients::adopt(Fd(descriptors.clients), descriptors.clients_for)
            .map_err(io::Error::other)?,
        backends,
        connection_log: connection_log(&descriptors, slots.capacity()),
        traffic: traffic.map_err(io::Error::other)?,
        sessions,
        repair: repair_link(&descriptors, (worker, workers), limits.awake_max, born_ms)?,
    };
    let inheritance = Inheritance {
        slots,
        parts,
        routes,
        parsed,
        keyring,
        late: (adopted.live > 0).then_some(late),
        listeners: descriptors.doors(),
        limits,
        orders: Fd(descriptors.orders),
        handover: fd,
        remembered,
        set_logs,
        moved: adopted.moved.map(Moved::from),
        keep,
    };
    let worker = Worker::adopt(inheritance, io)?;
    Ok((worker, bounds))
}

/// Takes up the way to the repair process, if connections may rest.
fn repair_link(
    descriptors: &Descriptors,
    (worker, workers): (u32, u32),
    awake_max: u32,
    born_ms: u64,
) -> io::Result<Option<RepairLink>> {
    let adopt = |rest| {
        let ports = OwnPorts::of_worker(worker, workers);
        RepairLink::adopt(rest, ports, awake_max, born_ms).map_err(io::Error::other)
    };
    descriptors.rest.map(adopt).transpose()
}

/// Creates the routes and originations: with their contexts if there is a `beat`, else without. `addresses`: those of backends,
/// as the predecessor knew them.
fn first_routes(
    late: &mut RouteLoader,
    addresses: &BTreeMap<String, Vec<SocketAddr>>,
    parsed: &mut Parsed,
    backends: &Backends,
    beat: Option<impl Fn()>,
) -> io::Result<Routes> {
    let handover = late.handover();
    let originations = route::originations(&handover.config, origin::of_worker(handover)?);
    let numbers = handover.numbers_of_originations().to_vec();
    let mut routes = Routes::new(Route::removed(&handover.config.route_defaults()));
    match beat {
        Some(beat) => load_all(late, &mut routes, parsed, backends, beat)?,
        None => {
            for (number, route) in late.without_contexts(backends)? {
                routes.place(number, Box::new(route));
            }
        }
    }
    for (number, route) in numbers.into_iter().zip(originations) {
        routes.place(number, Box::new(route));
    }
    for (name, found) in addresses {
        for (_, route) in routes.iter_mut() {
            route.set_addresses(name, found, backends);
        }
    }
    Ok(routes)
}

/// Builds all routes. With thousands of certificates or routes this takes long, and the keeper must not take it for a
/// hang.
fn load_all(
    late: &mut RouteLoader,
    routes: &mut Routes,
    parsed: &mut Parsed,
    backends: &Backends,
    beat: impl Fn(),
) -> io::Result<()> {
    let mut is_left = true;
    while is_left {
        let place = |number, loaded| {
            if let Loaded::New(route) = loaded {
                routes.place(number, route);
            }
        };
        let loaded = late.load_some(parsed, backends, |_| None, place);
        is_left = loaded.map_err(io::Error::other)?;
        beat();
    }
    contexts::warm_up(routes.iter().map(|(_, route)| route), beat)
}

/// Opens the connection log. Log entries of a binary with another layout are not used: then there is no
/// log until the next start.
fn connection_log(descriptors: &Descriptors, slots: u32) -> ConnectionLog {
    let (fd, version) = descriptors.log_entries;
    let ours = (version == LOG_ENTRY_VERSION).then_some(Fd(fd));
    let entries = ours.and_then(|fd| LogEntries::adopt(fd, slots).ok());
    ConnectionLog::new(entries, Fd(descriptors.log_lines))
}

/// Adopts the pending chunks that the slots refer to. Slots that refer to others are marked as unsound.
pub(crate) fn adopt_pending(
    slots: &mut Slab<Slot>,
    fd: Fd,
    bytes_max: usize,
) -> io::Result<Pending> {
    let chunks = slots
        .indices()
        .filter_map(|index| slots.get(index))
        .flat_map(|slot| {
            [slot.opening_pending, slot.sealing_pending]
                .into_iter()
                .filter(|handle| handle.is_some())
                .map(|handle| (handle, slot.generation))
        });
    let (pending, refused) = Pending::adopt(fd, bytes_max, chunks).map_err(io::Error::other)?;
    if !refused.is_empty() {
        // At most the chunks of the busy connection, which is reset anyway, if the worker was not compromised.
        tracing::warn!(
            chunks = refused.len(),
            "inconsistent pending bytes dropped after a crash"
        );
        drop_handles(slots, &refused.into_iter().collect());
    }
    Ok(pending)
}

/// Marks slots that name these chunks as unsound: their own bytes are lost, and a later connection may get a chunk of that
/// name. Recovery drops the slots.
fn drop_handles(slots: &mut Slab<Slot>, refused: &HashSet<(Handle, u32)>) {
    let all: Vec<u32> = slots.indices().collect();
    for index in all {
        let slot = slots.at_mut(index);
        let is_refused = |handle| refused.contains(&(handle, slot.generation));
        let (opening, sealing) = (
            is_refused(slot.opening_pending),
            is_refused(slot.sealing_pending),
        );
        if opening {
            slot.opening_pending = Handle::NONE;
        }
        if sealing {
            slot.sealing_pending = Handle::NONE;
        }
        if opening || sealing {
            slot.set_phase(Phase::Free);
        }
    }
}
