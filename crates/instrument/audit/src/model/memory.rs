//! A server's memory, phase by phase and from round to round.

use super::figures::{Premises, Row, figures, row, shown_as};
use super::measured::Measured;
use super::words::{as_growth, bytes, in_bytes};
use dormouse_measure::{Growth, KernelMemory, Memory, Slope};

figures! {
    /// A server's memory.
    MemoryFigures at "server.memory", "per connection; all but `phases`, `free_before_bytes` and `left_bytes` may be missing" {
        phases: Vec<MemoryPhase>;
        /// in use by the structures of the allocators
        used_bytes: Measured<f64> = not_counted(), "in use per idle connection" => in_bytes;
        /// the part of it that is still in use after the connection closed
        kept_bytes: Measured<f64> = not_counted(), "… still in use after it closed" => in_bytes, also process;
        /// the same before anything was said
        used_after_handshake_bytes: Measured<f64> = not_counted();
        /// the part of it that was ever touched
        touched_after_handshake_bytes: Measured<f64> = not_counted();
        /// free heap before the held connections, in total
        free_before_bytes: Option<u64>, "free heap before these connections" => |_, free| bytes(*free as f64), also meaning_of_growth;
        /// growth of resident memory, as in the next ones
        after_handshake_bytes: Measured<f64>, "resident growth, after the handshake" => in_bytes;
        after_exchange_bytes: Measured<f64>, "… after an exchange" => in_bytes;
        /// after 16 kB in each direction
        after_large_records_bytes: Measured<f64>, "… after 16 kB each way" => in_bytes;
        after_quiet_bytes: Measured<f64>, "… after being idle" => in_bytes;
        /// of both ends, which are on this machine
        kernel_bytes: Measured<f64>, "in the kernel, both ends" => in_bytes;
        /// retained in total
        left_bytes: f64, also retained;
        /// bytes in use over rounds of full handshakes
        growth_in_use: Measured<Growth> = not_counted(), "in use over rounds of churn" => as_growth;
        /// of resumed ones, if memory grows
        growth_in_use_resumed: Measured<Growth> = not_counted(), "… of resumed connections" => as_growth;
        /// of resumed connections of TLS 1.2, where those of TLS 1.3 leave nothing behind
        growth_in_use_tls12: Measured<Growth> = not_counted(), "… of resumed connections of TLS 1.2" => as_growth;
        /// of connections that end before their handshake does
        growth_in_use_broken: Measured<Growth> = not_counted(), "… of connections without a handshake" => as_growth;
        /// resident bytes over the same rounds
        growth: Measured<Growth>, "resident over rounds of churn" => as_growth;
        growth_resumed: Measured<Growth>, "… of resumed connections" => as_growth;
        growth_collected: Measured<CollectedRounds> = Measured::not("older versions did not measure it");
    }

    /// The server's memory at one moment.
    MemoryPhase at "server.memory.phases[]" {
        /// `before`, `n`, `2n`, `after_exchange`, …
        name: String;
        title: String;
        at_s: f64;
        connections: u64;
        /// of the server; 0 in audits by older versions
        processes: u64;
        serving: Serving;
        memory: Memory;
        kernel: KernelMemory;
    }

    /// Processes that hold a connection.
    #[derive(Copy)]
    Serving at "server.memory.phases[].serving", "processes that hold a connection, and their memory, if there may be one for each" {
        processes: u64;
        pss_bytes: u64;
    }

    /// Memory of a garbage-collected runtime from round to round.
    CollectedRounds at "server.memory.growth_collected" {
        /// the runtime that collected garbage before each point, null: none could
        by: Option<String>;
        /// one after each round, including the first
        points: Vec<CollectedPoint>;
        connections_per_round: u64;
        /// those of which the most bytes were added from the second round to the last
        classes: Vec<ClassRounds>;
    }

    /// Memory after one of these rounds.
    #[derive(Copy)]
    CollectedPoint at "server.memory.growth_collected.points[]", "null: unknown" {
        /// memory of the process tree
        pss_bytes: u64;
        /// objects that survived the collection
        living_bytes: Option<u64>;
        /// blocks of malloc
        in_use_bytes: Option<u64>;
    }

    /// Objects of one class over rounds.
    ClassRounds at "server.memory.growth_collected.classes[]" {
        /// the runtime's name for it: `[B` is a JVM's byte array
        class: String;
        /// number of the round, objects, and their bytes
        rounds: Vec<(u32, u64, u64)>;
    }
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

/// Why resident growth says less than bytes in use do.
const LOWER_LIMIT: &str = "a lower limit: connections use memory again that earlier ones left free, without growth; the most is seen after a restart";
const GARBAGE: &str = "little: it includes garbage that was not collected, and not the memory that earlier connections left free";
const FELL: &str = "resident memory fell while connections were opened: the server returned other memory meanwhile";

fn not_counted<T>() -> Measured<T> {
    Measured::not("older versions did not count blocks in use")
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

    fn process(&self, _: Premises) -> Option<Row> {
        Some(row(
            "the process of each connection",
            bytes(self.process_bytes()?),
        ))
    }

    fn meaning_of_growth(&self, premises: Premises) -> Option<Row> {
        let meaning = if premises.collects {
            GARBAGE
        } else {
            LOWER_LIMIT
        };
        self.is_growth_only()
            .then(|| row("what resident growth says", meaning))
    }

    fn retained(&self, _: Premises) -> Option<Row> {
        shown_as(
            self,
            &self.retained_bytes(),
            "retained after all have closed",
            in_bytes,
        )
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
mod tests {
    use super::*;

    /// Recorded: PostgreSQL closed all connections but a hundred at the first message, and Postfix keeps its processes.
    #[test]
    fn a_process_for_each_connection_is_seen_at_any_moment() {
        let mut memory = MemoryFigures {
            phases: vec![
                MemoryPhase::of("before", 0, 6),
                MemoryPhase::of("n", 229, 235),
                MemoryPhase::of("2n", 458, 464),
                MemoryPhase::of("after_exchange", 458, 106),
                MemoryPhase::of("after_close", 0, 6),
            ],
            ..MemoryFigures::default()
        };
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
        let mut memory = MemoryFigures {
            used_bytes: Measured::Value(103_405.0),
            used_after_handshake_bytes: Measured::Value(87_128.0),
            touched_after_handshake_bytes: Measured::Value(51_055.0),
            after_handshake_bytes: Measured::Value(27_045.0),
            phases: vec![MemoryPhase::of("4n", 1_000, 1)],
            free_before_bytes: Some(5_377_840),
            ..MemoryFigures::default()
        };
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
