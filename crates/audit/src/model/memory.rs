//! A server's memory, phase by phase and from round to round.

use serde::{Deserialize, Serialize};

use super::measured::Measured;
use dormouse_measure::{Growth, KernelMemory, Memory, Slope};

/// The server's memory at one moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MemoryPhase {
    /// Stable name: `before`, `n`, `2n`, `after_exchange`, …
    pub name: String,
    /// Title for reports.
    pub title: String,
    /// Seconds since the start of the load.
    pub at_s: f64,
    /// Open connections.
    pub connections: u64,
    /// Processes of the tree; 0 in audits by older versions.
    #[serde(default)]
    pub processes: u64,
    /// Processes that hold a connection, if there may be one for each. Missing in audits by older versions.
    #[serde(default)]
    pub serving: Serving,
    /// Memory of the process tree.
    pub memory: Memory,
    /// Kernel memory of the whole machine.
    pub kernel: KernelMemory,
}

/// Processes that hold a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Serving {
    /// Their number.
    pub processes: u64,
    /// Their memory (PSS).
    pub pss_bytes: u64,
}

/// A server's memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MemoryFigures {
    /// All phases, in order.
    pub phases: Vec<MemoryPhase>,
    /// Bytes that an idle connection uses: blocks in use and stacks, counted from the allocators' structures.
    #[serde(default = "not_counted")]
    pub used_bytes: Measured<f64>,
    /// The part of these bytes that is still in use after the connection has closed: pools and threads that the server keeps
    /// for later connections, and sessions. Missing in audits by older versions.
    #[serde(default = "not_counted")]
    pub kept_bytes: Measured<f64>,
    /// The same right after the handshake, before any application data.
    #[serde(default = "not_counted")]
    pub used_after_handshake_bytes: Measured<f64>,
    /// The part of these bytes that was ever touched, and so is resident.
    #[serde(default = "not_counted")]
    pub touched_after_handshake_bytes: Measured<f64>,
    /// Free heap bytes before the first of these connections: the server reused them, so resident memory did not grow
    /// by them.
    #[serde(default)]
    pub free_before_bytes: Option<u64>,
    /// Growth of resident memory (PSS) per idle connection right after the handshake: the slope from 0 to 2N
    /// connections.
    pub after_handshake_bytes: Measured<f64>,
    /// The same after an exchange.
    pub after_exchange_bytes: Measured<f64>,
    /// The same after a 16 kB record in each direction.
    pub after_large_records_bytes: Measured<f64>,
    /// The same after an idle period.
    pub after_quiet_bytes: Measured<f64>,
    /// Kernel memory per connection in bytes; both ends are on this machine.
    pub kernel_bytes: Measured<f64>,
    /// Memory retained after all connections have closed, in bytes above the memory before.
    pub left_bytes: f64,
    /// Growth of resident memory over rounds of full handshakes.
    pub growth: Measured<Growth>,
    /// The same over rounds of resumed handshakes; measured only when `growth` shows growth.
    pub growth_resumed: Measured<Growth>,
    /// Growth of the bytes in use over rounds of full handshakes.
    #[serde(default = "not_counted")]
    pub growth_in_use: Measured<Growth>,
    /// The same over rounds of resumed handshakes; measured only when `growth_in_use` shows growth.
    #[serde(default = "not_counted")]
    pub growth_in_use_resumed: Measured<Growth>,
    /// Growth of the bytes in use over rounds of resumed connections of TLS 1.2, where `growth_in_use` shows none in
    /// TLS 1.3. Missing in audits by older versions.
    #[serde(default = "not_counted")]
    pub growth_in_use_tls12: Measured<Growth>,
    /// Growth of the bytes in use over rounds of connections that end before their handshake does. Missing in audits by
    /// older versions.
    #[serde(default = "not_counted")]
    pub growth_in_use_broken: Measured<Growth>,
    /// Memory of a garbage-collected runtime after rounds: of the objects that survive a collection after each, or where the
    /// runtime makes none for the audit, after additional rounds if its memory grows. Missing in audits by older versions.
    #[serde(default = "not_looked_at")]
    pub growth_collected: Measured<CollectedRounds>,
}

/// Maximum free memory of a fresh heap before the connections, as a share of what they take.
const FREE_SHARE: f64 = 0.25;

/// Processes with a connection, per connection, from which each connection counts as having its own process; and the minimum
/// number of connections, because a server with many processes spreads a few connections among them.
pub(crate) const OF_EACH: f64 = 0.9;
const OF_EACH_MIN: u64 = 10;

/// Bytes per closed connection below which growth is not investigated.
pub(crate) const GROWTH_BYTES: f64 = 100.0;
/// Blocks of one size per closed connection below which they belong to no single connection.
pub(crate) const BLOCKS_OF_CONNECTION: f64 = 0.02;

const FELL: &str = "resident memory fell while connections were opened: the server returned other memory meanwhile";

fn not_counted<T>() -> Measured<T> {
    Measured::not("older versions did not count blocks in use")
}

fn not_looked_at() -> Measured<CollectedRounds> {
    Measured::not("older versions did not measure it")
}

/// Memory of a garbage-collected runtime from round to round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CollectedRounds {
    /// Runtime that was asked to collect before each point (`the JVM`, `V8`); `None`: it was not asked.
    pub by: Option<String>,
    /// One point after each round, including the first.
    pub points: Vec<CollectedPoint>,
    /// Connections opened and closed per round.
    pub connections_per_round: u64,
    /// Classes of which the most bytes were added from the second round to the last. Missing in audits by older versions.
    #[serde(default)]
    pub classes: Vec<ClassRounds>,
}

/// Objects of one class over rounds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClassRounds {
    /// The runtime's name for the class: `[B` is a JVM's byte array.
    pub class: String,
    /// Number of the round, objects, and their bytes. The rounds in which classes were counted, from the second one.
    pub rounds: Vec<(u32, u64, u64)>,
}

impl ClassRounds {
    /// The first and the last count.
    pub(crate) fn ends(&self) -> Option<[(u32, u64, u64); 2]> {
        Some([*self.rounds.first()?, *self.rounds.last()?])
    }

    /// Additional objects per round, by a line through all counts.
    pub(crate) fn objects(&self) -> Option<Slope> {
        self.slope(|(_, objects, _)| objects)
    }

    /// Additional bytes per round, by a line through all counts.
    pub(crate) fn bytes(&self) -> Option<Slope> {
        self.slope(|(_, _, bytes)| bytes)
    }

    fn slope(&self, of: fn((u32, u64, u64)) -> u64) -> Option<Slope> {
        let point = |round: &(u32, u64, u64)| (f64::from(round.0), of(*round) as f64);
        let points: Vec<_> = self.rounds.iter().map(point).collect();
        Slope::through(&points)
    }
}

/// Memory after one of these rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CollectedPoint {
    /// Memory of the process tree (PSS).
    pub pss_bytes: u64,
    /// Bytes of objects that survived the collection.
    pub living_bytes: Option<u64>,
    /// Bytes in malloc blocks, where they can be read.
    pub in_use_bytes: Option<u64>,
}

impl MemoryFigures {
    /// Bytes per idle connection: the bytes that it uses, or those of its process, or where neither is known, the growth of
    /// resident memory at the latest measured point of its life.
    pub fn per_connection(&self) -> Measured<f64> {
        let process = self.process_bytes();
        match self.used_bytes.value().copied().or(process) {
            Some(bytes) => Measured::Value(bytes),
            None => match self.resident_per_connection() {
                Measured::Value(..0.0) => Measured::not(FELL),
                known => known,
            },
        }
    }

    /// Whether only the growth of resident memory is known: less than connections use if earlier ones left free memory, and
    /// more if it includes garbage.
    pub(crate) fn is_growth_only(&self) -> bool {
        self.used_bytes.value().is_none() && !self.is_process_each()
    }

    /// Memory of the process that each connection has for itself, if there is one.
    pub(crate) fn process_bytes(&self) -> Option<f64> {
        let of_each = self.phases.iter().filter(|phase| phase.has_process_each());
        let most = of_each.max_by_key(|phase| phase.serving.processes)?.serving;
        Some(most.pss_bytes as f64 / most.processes.max(1) as f64)
    }

    /// Growth of resident memory per idle connection, at the latest measured point of its life.
    pub(crate) fn resident_per_connection(&self) -> Measured<f64> {
        let moments = [
            &self.after_quiet_bytes,
            &self.after_exchange_bytes,
            &self.after_handshake_bytes,
        ];
        let known = moments.into_iter().find(|moment| moment.value().is_some());
        known.unwrap_or(&self.after_handshake_bytes).clone()
    }

    /// Bytes per connection right after the handshake that were ever touched; where those are not known,
    /// [`MemoryFigures::per_connection_bytes`].
    pub(crate) fn touched_bytes(&self) -> f64 {
        let known = [
            &self.touched_after_handshake_bytes,
            &self.used_after_handshake_bytes,
            &self.after_handshake_bytes,
        ];
        let plain = match self.used_bytes.value() {
            Some(_) => known.iter().take(2).find_map(|used| used.value()),
            None => known.iter().find_map(|moment| moment.value()),
        };
        plain
            .copied()
            .unwrap_or_else(|| self.per_connection_bytes())
    }

    /// Growth of resident memory right after the handshake, in a heap with little free memory before: so the lab measures.
    pub(crate) fn resident_of_fresh_heap(&self) -> Option<f64> {
        let opened = ["n", "2n", "4n"];
        let opened = self.phases.iter().filter(|at| opened.contains(&&*at.name));
        let connections = opened.map(|at| at.connections).max()?;
        let each = *self.after_handshake_bytes.value()?;
        let is_fresh = (self.free_before_bytes? as f64) < FREE_SHARE * each * connections as f64;
        is_fresh.then_some(each)
    }

    /// Returns [`MemoryFigures::per_connection`], or 0 if it was not measured.
    pub(crate) fn per_connection_bytes(&self) -> f64 {
        self.per_connection().value().copied().unwrap_or(0.0)
    }

    /// Whether the server has a process for each connection: each process holds one, or the number of processes rises with
    /// that of connections.
    pub(crate) fn is_process_each(&self) -> bool {
        if self.phases.iter().any(MemoryPhase::has_process_each) {
            return true;
        }
        let Some(before) = self.processes_at("before").filter(|count| *count > 0) else {
            return false;
        };
        // Servers limit such processes, so later moments may have fewer of them.
        let mut held = self.phases.iter().filter(|phase| phase.connections > 0);
        held.any(|phase| 2 * phase.processes.saturating_sub(before) > phase.connections)
    }

    /// Processes that the server started while connections were held.
    pub(crate) fn started_processes(&self) -> u64 {
        let held = self.phases.iter().filter(|phase| phase.connections > 0);
        let most = held.map(|phase| phase.processes).max().unwrap_or(0);
        let before = self.processes_at("before").unwrap_or(most);
        most.saturating_sub(before)
    }

    /// Whether processes stay for later connections: most of those that held connections were there before, or are still
    /// there after all have closed.
    pub(crate) fn keeps_processes(&self) -> bool {
        let most = self.phases.iter().map(|phase| phase.processes).max();
        let ends = self
            .processes_at("before")
            .zip(self.processes_at("after_close"));
        most.zip(ends).is_some_and(|(most, (before, after))| {
            2 * after.saturating_sub(before) >= most.saturating_sub(before)
        })
    }

    fn processes_at(&self, name: &str) -> Option<u64> {
        self.at(name).map(|phase| phase.processes)
    }

    /// Returns a phase by its name.
    pub(crate) fn at(&self, name: &str) -> Option<&MemoryPhase> {
        self.phases.iter().find(|phase| phase.name == name)
    }

    /// Memory retained after all connections have closed, if the load got so far.
    pub(crate) fn retained_bytes(&self) -> Measured<f64> {
        let left = self.at("after_close").map(|_| self.left_bytes);
        Measured::or_why(left, "the connections were not held and closed")
    }

    /// Growth over rounds of full and of resumed handshakes: of bytes in use, or where those are not known, of
    /// resident memory.
    pub(crate) fn judged_growth(&self) -> (Option<&Growth>, Option<&Growth>) {
        match self.growth_in_use.value() {
            Some(growth) => (Some(growth), self.growth_in_use_resumed.value()),
            None => (self.growth.value(), self.growth_resumed.value()),
        }
    }
}

impl MemoryPhase {
    /// Whether each connection is held by a process of its own.
    fn has_process_each(&self) -> bool {
        self.connections >= OF_EACH_MIN
            && self.serving.processes as f64 >= OF_EACH * self.connections as f64
    }
}

#[cfg(test)]
impl MemoryPhase {
    /// Creates a phase without memory.
    pub(crate) fn of(name: &str, connections: u64, processes: u64) -> Self {
        Self {
            name: name.into(),
            title: String::new(),
            at_s: 0.0,
            connections,
            processes,
            serving: Serving::default(),
            memory: Memory::default(),
            kernel: KernelMemory::default(),
        }
    }
}

#[cfg(test)]
impl MemoryFigures {
    /// Creates figures in which nothing is measured yet.
    pub(crate) fn not_measured() -> Self {
        let not = || Measured::not("not asked");
        Self {
            phases: Vec::new(),
            used_bytes: not(),
            kept_bytes: not(),
            used_after_handshake_bytes: not(),
            touched_after_handshake_bytes: not(),
            free_before_bytes: None,
            after_handshake_bytes: not(),
            after_exchange_bytes: not(),
            after_large_records_bytes: not(),
            after_quiet_bytes: not(),
            kernel_bytes: not(),
            left_bytes: 0.0,
            growth: Measured::not("not asked"),
            growth_resumed: Measured::not("not asked"),
            growth_in_use: not_counted(),
            growth_in_use_resumed: not_counted(),
            growth_in_use_tls12: not_counted(),
            growth_in_use_broken: not_counted(),
            growth_collected: not_looked_at(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded: PostgreSQL closed all connections but a hundred at the first message, and Postfix keeps its processes.
    #[test]
    fn a_process_for_each_connection_is_seen_at_any_moment() {
        let mut memory = MemoryFigures::not_measured();
        memory.phases = vec![
            MemoryPhase::of("before", 0, 6),
            MemoryPhase::of("n", 229, 235),
            MemoryPhase::of("2n", 458, 464),
            MemoryPhase::of("after_exchange", 458, 106),
            MemoryPhase::of("after_close", 0, 6),
        ];
        assert!(memory.is_process_each() && !memory.keeps_processes());
        memory.phases = vec![
            MemoryPhase::of("before", 0, 28),
            MemoryPhase::of("n", 50, 106),
            MemoryPhase::of("after_close", 0, 106),
        ];
        assert!(memory.is_process_each() && memory.keeps_processes());
        memory.phases = vec![
            MemoryPhase::of("before", 0, 4),
            MemoryPhase::of("n", 500, 5),
        ];
        assert!(!memory.is_process_each());
        // Recorded: the second audit of Postfix meets the processes of the first one, and said that a connection uses 62 kB.
        let mut waited = MemoryPhase::of("n", 50, 106);
        waited.serving = Serving {
            processes: 50,
            pss_bytes: 85_000_000,
        };
        memory.phases = vec![
            MemoryPhase::of("before", 0, 106),
            waited.clone(),
            MemoryPhase::of("after_close", 0, 106),
        ];
        assert!(memory.is_process_each() && memory.keeps_processes());
        assert_eq!(memory.per_connection_bytes(), 1_700_000.0);
        // Forty of 64 workers, chosen by chance, or one worker and one connection.
        for (connections, processes) in [(50, 40), (1, 1)] {
            waited.connections = connections;
            waited.serving.processes = processes;
            memory.phases[1] = waited.clone();
            assert!(!memory.is_process_each());
        }
    }

    /// Recorded: Node.js, which allocates 64 kB for each connection and fills a few kB of it.
    #[test]
    fn resident_memory_grows_by_what_a_connection_touches_only_in_a_fresh_heap() {
        let mut memory = MemoryFigures::not_measured();
        memory.used_bytes = Measured::Value(103_405.0);
        memory.used_after_handshake_bytes = Measured::Value(87_128.0);
        memory.touched_after_handshake_bytes = Measured::Value(51_055.0);
        memory.after_handshake_bytes = Measured::Value(27_045.0);
        memory.phases = vec![MemoryPhase::of("4n", 1_000, 1)];
        memory.free_before_bytes = Some(5_377_840);
        assert_eq!(memory.resident_of_fresh_heap(), Some(27_045.0));
        // Free heap that connections reuse does not become resident.
        memory.free_before_bytes = Some(46_205_344);
        assert_eq!(memory.resident_of_fresh_heap(), None);
        assert_eq!(memory.touched_bytes(), 51_055.0);
        // Recorded: ejabberd, whose VM returned 20 MB while 580 connections were opened.
        memory.used_bytes = Measured::not("memory of Erlang's VM cannot be read");
        memory.after_handshake_bytes = Measured::Value(-34_798.0);
        let why = memory.per_connection();
        assert!(why.why_not().is_some_and(|why| why.contains("fell")));
    }
}
