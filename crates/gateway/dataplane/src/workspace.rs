//! The workspace: the state that all steps of the worker share.
//!
//! It holds buffers, pending memory, counters, shared tables and the operating system. A step borrows
//! the workspace together with one slot. After a step, everything that is left of it is in the slot,
//! in pending chunks and in its [`Outcome`].

pub(crate) mod affinity_keys;
mod allowance;
pub(crate) mod connect_times;
pub(crate) mod kept_keys;
mod route_share;
pub(crate) mod scratch;
pub(crate) mod signatures;
pub(crate) mod tickets;

use crate::bursts::{Bursts, Place, Subject};
use crate::connection_log::{ConnectionLog, FailedHandshake};
use crate::io::Io;
use crate::memory::allowance::StepLimits;
use crate::memory::kernel::KernelMemory;
use crate::outcome::Outcome;
use crate::repair_link::RepairLink;
use crate::settings::Settings;
use crate::token;
use crate::trace::Traces;
use affinity_keys::AffinityKeys;
use connect_times::ConnectTimes;
use dormouse_handover::slot::Slot;
use dormouse_reactor::pending::Pending;
use dormouse_routes::session_cache::SessionCache;
use dormouse_tables::backends::Backends;
use dormouse_tables::clients::Clients;
use dormouse_tables::counters::{Count, Counters};
use dormouse_tables::traffic::Traffic;
use kept_keys::KeptKeys;
use scratch::Scratch;
use signatures::Signatures;
use tickets::Tickets;

/// Room in a connection's pending bytes for headers and tags, and for answers to warnings.
const ANSWERS_MAX: usize = 1024;

/// The state that a step uses besides its slot.
pub(crate) struct Workspace<I> {
    pub(crate) io: I,
    /// The time of this turn.
    pub(crate) now_ms: u64,
    pub(crate) scratch: Scratch,
    pub(crate) pending: Pending,
    /// Expanded keys of the connections that had the latest events.
    pub(crate) keys: KeptKeys,
    pub(crate) count: Counters,
    pub(crate) clients: Clients,
    pub(crate) backends: Backends,
    pub(crate) traffic: Traffic,
    /// The rate limit of log lines.
    pub(crate) bursts: Bursts,
    pub(crate) traces: Traces,
    /// Start times of connects in progress.
    pub(crate) connect_times: ConnectTimes,
    /// Keys by which backends are chosen, of connects in progress.
    pub(crate) affinity_keys: AffinityKeys,
    /// Connections that still wait for tickets.
    pub(crate) tickets: Tickets,
    /// Send queues of peers that are slow to read.
    pub(crate) kernel: KernelMemory,
    /// The connection log.
    pub(crate) connection_log: ConnectionLog,
    /// Sessions of clients that resume by id, shared by all workers.
    pub(crate) sessions: Option<SessionCache>,
    /// Random part of the connection ids that our logs and the backends' logs share.
    pub(crate) id_seed: u64,
    /// The way to the repair process, if connections may rest.
    pub(crate) repair: Option<RepairLink>,
    /// How much a step receives.
    pub(crate) step: StepLimits,
    /// Requests for signatures.
    pub(crate) signatures: Signatures,
    generation: u32,
}

/// The parts from which a workspace is created.
pub(crate) struct Parts {
    /// Pending bytes of the connections.
    pub(crate) pending: Pending,
    /// This worker's counters.
    pub(crate) count: Counters,
    /// Connections and rates by client address, shared by all workers.
    pub(crate) clients: Clients,
    /// Load and health of backends, shared by all workers.
    pub(crate) backends: Backends,
    /// The connection log.
    pub(crate) connection_log: ConnectionLog,
    /// Traffic by route and by backend, shared by all workers.
    pub(crate) traffic: Traffic,
    /// Sessions of clients that resume by id, shared by all workers.
    pub(crate) sessions: Option<SessionCache>,
    /// The way to the repair process, if connections may rest.
    pub(crate) repair: Option<RepairLink>,
}

impl<I: Io> Workspace<I> {
    /// Creates the workspace of a new worker.
    pub(crate) fn new(io: I, parts: Parts, settings: &mut Settings) -> Workspace<I> {
        let step = StepLimits::new(parts.pending.bytes_max());
        let kernel = KernelMemory::new(settings.limits.kernel_bytes_max, io.random());
        let mut work = Workspace {
            now_ms: io.boottime_ms(),
            id_seed: io.random(),
            io,
            scratch: Scratch::new(),
            pending: parts.pending,
            keys: KeptKeys::default(),
            count: parts.count,
            clients: parts.clients,
            backends: parts.backends,
            traffic: parts.traffic,
            bursts: Bursts::default(),
            traces: Traces::default(),
            connect_times: ConnectTimes::new(),
            affinity_keys: AffinityKeys::default(),
            tickets: Tickets::default(),
            kernel,
            connection_log: parts.connection_log,
            sessions: parts.sessions,
            repair: parts.repair,
            step,
            signatures: Signatures::default(),
            generation: 0,
        };
        work.step.follow(settings);
        if let Some(link) = &mut work.repair {
            link.places.follow_shares(settings.shares_of_places());
        }
        let (rules, names) = (settings.limits.connection_log, settings.sums.log.take());
        work.connection_log.follow(rules, names);
        work
    }

    /// CLOCK_BOOTTIME in seconds, the clock of the times in a slot.
    pub(crate) fn now_s(&self) -> u32 {
        (self.now_ms / 1000) as u32
    }

    /// When connections are looked for that rest before their time, if they are.
    pub(crate) fn next_early_rest_ms(&self) -> Option<u64> {
        let link = self.repair.as_ref()?;
        link.places.next_deadline_ms(link.leaving())
    }

    /// Returns a new generation: it distinguishes a connection from earlier ones at the same index.
    pub(crate) fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation & token::GENERATION_MASK
    }

    /// The latest generation.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Notes a generation that a predecessor used; later ones are higher.
    pub(crate) fn note_generation(&mut self, generation: u32) {
        self.generation = self.generation.max(generation);
    }

    /// Maximum pending bytes of a connection to which an answer to a warning may be added.
    pub(crate) fn answers_max(&self) -> usize {
        self.receive_max() + ANSWERS_MAX
    }

    // ---- the connection log ----

    /// Adds a finished step to the connection's log entry.
    pub(crate) fn note_step(&mut self, index: u32, slot: &Slot, outcome: &Outcome) {
        if self.connection_log.is_on() {
            // An echo has no backend: its answer is what it received.
            let back = match slot.is_echo() {
                true => outcome.bytes.plain_out,
                false => outcome.bytes.plain_in,
            };
            let moved = (outcome.bytes.plain_out, back);
            let log = &mut self.connection_log;
            log.note_step(index, slot, moved, outcome.closing);
        }
    }

    /// Writes the line of a connection whose handshake failed.
    pub(crate) fn note_failed_handshake(&mut self, failed: &FailedHandshake<'_>) {
        if self.connection_log.is_on() {
            let unix_ms = self.io.unix_ms();
            self.connection_log.fail(failed, unix_ms, &self.count);
        }
    }

    /// Sends the waiting lines to the log writer.
    pub(crate) fn flush_connection_log(&mut self) {
        let now_ms = self.now_ms;
        let Some((lines, error)) = self.connection_log.flush(&self.io, now_ms) else {
            return;
        };
        self.count.add(Count::ConnectionLogDropped, lines);
        let (subject, place) = (Subject::ConnectionLog, Place::Program);
        self.bursts.note(subject, place, now_ms, |more| {
            tracing::error!(%error, more, "connection log lines dropped");
        });
    }
}
