//! The workspace: the state that all steps of the worker share.
//!
//! It holds buffers, pending memory, counters, shared tables and the operating system. A step borrows
//! the workspace together with one slot. After a step, everything that is left of it is in the slot,
//! in pending chunks and in the list of effects.

pub(crate) mod connect_times;
pub(crate) mod kept_keys;
pub(crate) mod proxied_clients;
pub(crate) mod scratch;
pub(crate) mod tickets;

use crate::bursts::Bursts;
use crate::close_reason::CloseReason;
use crate::connection_log::{ConnectionLog, FailedHandshake};
use crate::effects::Effect;
use crate::io::Io;
use crate::memory::kernel::KernelMemory;
use crate::memory::starved::{LATE_MS, SOON_MS};
use crate::settings::Settings;
use crate::step_bytes::StepBytes;
use crate::token;
use connect_times::ConnectTimes;
use dormouse_handover::slot::{Flag, Slot};
use dormouse_reactor::Fd;
use dormouse_reactor::pending::Pending;
use dormouse_record::{CONTENT_MAX, RECORD_MAX};
use dormouse_routes::session_cache::SessionCache;
use dormouse_tables::backends::Backends;
use dormouse_tables::clients::Clients;
use dormouse_tables::counters::{Count, Counters};
use dormouse_tables::pace::Pace;
use dormouse_tables::traffic::Traffic;
use kept_keys::KeptKeys;
use proxied_clients::ProxiedClients;
use scratch::{RECEIVE_MAX, RECORDS_PER_STEP, Scratch};
use tickets::Tickets;

/// Maximum bytes moved per event, before the next connection has its turn.
const TURN_BYTES_MAX: usize = 4 * RECEIVE_MAX;

/// Maximum pending memory reserved for steps that should not need any.
const RESERVE_BYTES_MAX: usize = 1 << 20;

/// A socket with at most this much in its send queue takes another record: the smallest buffer that
/// can be configured is four times as large.
const LEAN_UNSENT_MAX: usize = 4096;

/// Minimum bytes to receive at a time when memory is short.
const LEAN_MIN: usize = 2048;

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
    /// Start times of connects in progress.
    pub(crate) connect_times: ConnectTimes,
    /// Clients of connects in progress that a proxy named.
    pub(crate) proxied_clients: ProxiedClients,
    /// Connections that still wait for tickets.
    pub(crate) tickets: Tickets,
    /// Send queues of peers that are slow to read.
    pub(crate) kernel: KernelMemory,
    /// The connection log.
    pub(crate) connection_log: ConnectionLog,
    /// Sessions of clients that resume by id, shared by all workers.
    pub(crate) sessions: Option<SessionCache>,
    /// Why the connection of the current step closes, if it does.
    pub(crate) closing: Option<CloseReason>,
    /// Requests of steps that the loop has not carried out yet.
    pub(crate) effects: Vec<Effect>,
    /// Whether a connection or handshake has ended, so that there may be room for a new connection.
    pub(crate) has_room_again: bool,
    /// Random part of the connection ids that our logs and the backends' logs share.
    pub(crate) id_seed: u64,
    /// Bytes that the current step has moved.
    pub(crate) bytes: StepBytes,
    /// Time until the first check of the connection that starves next.
    pub(crate) starved_wait_ms: u64,
    generation: u32,
    step: StepLimits,
}

/// How much a step receives, derived from the limits.
#[derive(Default)]
struct StepLimits {
    /// Maximum size of a socket's send queue. While more than that is free, no queue needs to be
    /// measured.
    send_buffer: usize,
    /// Size of the smallest receive queue: it may never hold a record that is longer.
    receive_buffer: usize,
    /// Maximum bytes per receive, which bounds a connection's pending bytes.
    receive_max: usize,
    /// Maximum bytes per step, before the next connection has its turn.
    turn_max: usize,
    /// Pending memory reserved for steps that should not need any.
    reserve: usize,
}

/// How much a step may receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Allowance {
    /// All available bytes: pending memory could hold them.
    Full,
    /// Memory is short, because other peers do not read. The step receives one record at a time, of
    /// about this many bytes: the destination's socket certainly takes that, so a peer that reads is
    /// still served.
    Lean(usize),
    /// Memory is short, and the destination is not reading.
    Nothing,
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
}

impl<I: Io> Workspace<I> {
    /// Creates the workspace of a new worker.
    pub(crate) fn new(io: I, parts: Parts, settings: &Settings) -> Workspace<I> {
        let step = StepLimits {
            reserve: (parts.pending.bytes_max() / 8).min(RESERVE_BYTES_MAX),
            receive_buffer: usize::MAX,
            ..StepLimits::default()
        };
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
            connect_times: ConnectTimes::new(),
            proxied_clients: ProxiedClients::default(),
            tickets: Tickets::default(),
            kernel,
            connection_log: parts.connection_log,
            sessions: parts.sessions,
            closing: None,
            effects: Vec::new(),
            has_room_again: false,
            bytes: StepBytes::default(),
            starved_wait_ms: SOON_MS,
            generation: 0,
            step,
        };
        work.limit_steps(settings);
        work.connection_log.follow(settings);
        work
    }

    /// CLOCK_BOOTTIME in seconds, the clock of the times in a slot.
    pub(crate) fn now_s(&self) -> u32 {
        (self.now_ms / 1000) as u32
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

    /// Applies these settings to the following steps. With a byte rate limit, a step moves at most a
    /// small part of the bytes of one second.
    pub(crate) fn limit_steps(&mut self, settings: &Settings) {
        // Existing connections keep their buffers.
        for route in &settings.routes {
            let own = route.sockets.connect_options(None, false);
            let receive_buffer = own.receive_buffer_bytes.unwrap_or(usize::MAX);
            self.step.receive_buffer = self.step.receive_buffer.min(receive_buffer);
            let send_buffer = route.sockets.send_buffer_bytes();
            self.step.send_buffer = self.step.send_buffer.max(send_buffer);
        }
        let limits = &settings.limits;
        let paces = [limits.per_client.bytes, limits.per_client.bytes_of_all];
        let paces = paces.into_iter().flatten();
        let least = paces.map(Pace::step_bytes).min().unwrap_or(u64::MAX);
        let least = usize::try_from(least).unwrap_or(usize::MAX);
        let records = (least / CONTENT_MAX).clamp(1, RECORDS_PER_STEP);
        let pending_max = receive_max(limits.pending_per_connection);
        self.step.receive_max = pending_max.min(records * CONTENT_MAX);
        self.step.turn_max = TURN_BYTES_MAX.min(least.max(CONTENT_MAX));
    }

    /// Number of received bytes after which a step ends.
    pub(crate) fn turn_max(&self) -> usize {
        self.step.turn_max
    }

    /// Maximum bytes per receive.
    pub(crate) fn receive_max(&self) -> usize {
        self.step.receive_max
    }

    /// Maximum pending bytes of a connection to which an answer to a warning may be added.
    pub(crate) fn answers_max(&self) -> usize {
        self.step.receive_max + ANSWERS_MAX
    }

    // ---- the connection log ----

    /// Adds a finished step to the connection's log entry.
    pub(crate) fn note_step(&mut self, index: u32, slot: &Slot) {
        let reason = self.closing.take();
        if self.connection_log.is_on() {
            // An echo has no backend: its answer is what it received.
            let back = match slot.has(Flag::Echo) {
                true => self.bytes.plain_out,
                false => self.bytes.plain_in,
            };
            let moved = (self.bytes.plain_out, back);
            self.connection_log.note_step(index, slot, moved, reason);
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
        self.connection_log.flush(&self.io, self.now_ms);
    }

    /// Decides how much to receive that will be sent to `destination`.
    pub(crate) fn allowance(&self, destination: Fd) -> Allowance {
        let queue_max = self.kernel.queue_max();
        let has_memory = self.has_memory();
        // The kernel also counts its overhead, which is at most as much again.
        if has_memory && queue_max >= 2 * self.step.send_buffer {
            return Allowance::Full;
        }
        let Ok(unsent) = self.io.unsent(destination) else {
            return Allowance::Nothing;
        };
        let room = queue_max.saturating_sub(unsent);
        if has_memory && room >= self.step.receive_max {
            return Allowance::Full;
        }
        // The kernel takes a record for a socket whose queue is nearly empty.
        if unsent <= LEAN_UNSENT_MAX && (unsent == 0 || room >= LEAN_MIN) {
            return Allowance::Lean(room.clamp(LEAN_MIN, CONTENT_MAX));
        }
        if has_memory && room >= LEAN_MIN {
            return Allowance::Lean(room.min(CONTENT_MAX));
        }
        Allowance::Nothing
    }

    /// Whether pending memory has room for a whole step.
    fn has_memory(&self) -> bool {
        let most = self.step.receive_max + RECORD_MAX;
        let in_use = self.pending.bytes_in_use();
        in_use + most + self.step.reserve <= self.pending.bytes_max() && self.pending.can_hold(most)
    }

    /// Whether to store the `unread` bytes of a record that lacks `missing` bytes, although memory is short: the receive
    /// queue is half full and may not hold the whole record, and half of the reserve stays free.
    pub(crate) fn may_store_part(&self, missing: usize, unread: usize) -> bool {
        let in_use = self.pending.bytes_in_use() + 2 * RECORD_MAX + self.step.reserve / 2;
        missing > self.step.receive_buffer
            && unread >= self.step.receive_buffer / 2
            && in_use <= self.pending.bytes_max()
            && self.pending.can_hold(RECORD_MAX)
    }

    /// Stops a flow ([`Flag::Starved`] or [`Flag::SealingStarved`]) until there is memory, or until
    /// the destination has taken its queued bytes.
    pub(crate) fn starve(&mut self, slot: &mut Slot, flow: Flag) {
        slot.set(flow);
        self.starved_wait_ms = SOON_MS;
        let exhausted = if self.has_memory() {
            Count::KernelExhausted
        } else {
            Count::PendingExhausted
        };
        self.count.add(exhausted, 1);
    }

    /// Stops the opening flow like [`Workspace::starve`], with a later first check: the rest of a
    /// record, or room for a long record, may take a while.
    pub(crate) fn starve_for_record(&mut self, slot: &mut Slot) {
        self.starve(slot, Flag::Starved);
        self.starved_wait_ms = LATE_MS;
    }
}

/// Returns the maximum per receive that keeps a connection's pending bytes within its limit.
fn receive_max(pending_per_connection: usize) -> usize {
    let records = pending_per_connection.saturating_sub(RECORD_MAX + 64) / CONTENT_MAX;
    records.clamp(1, RECORDS_PER_STEP) * CONTENT_MAX
}
