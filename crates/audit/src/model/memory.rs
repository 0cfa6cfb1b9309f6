//! A server's memory, phase by phase and from round to round.

use serde::{Deserialize, Serialize};

use super::measured::Measured;
use dormouse_measure::{Growth, KernelMemory, Memory};

/// The server's memory at one moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MemoryPhase {
    /// Stable name: `before`, `n`, `2n`, `after_exchange`, …
    pub name: String,
    /// For people.
    pub title: String,
    /// Seconds since the start of the load.
    pub at_s: f64,
    /// Connections open.
    pub connections: u64,
    /// The process tree's memory.
    pub memory: Memory,
    /// The kernel's, for the whole machine.
    pub kernel: KernelMemory,
}

/// A server's memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MemoryFigures {
    /// All moments, in order.
    pub phases: Vec<MemoryPhase>,
    /// Bytes that an idle connection uses: blocks in use and stacks, counted by the structures of the allocators.
    #[serde(default = "not_counted")]
    pub used_bytes: Measured<f64>,
    /// The same right after the handshake, before anything was said.
    #[serde(default = "not_counted")]
    pub used_after_handshake_bytes: Measured<f64>,
    /// Free bytes of the heap before the first of these connections: they were used again, and did not become resident.
    #[serde(default)]
    pub free_before_bytes: Option<u64>,
    /// Growth of resident memory (PSS) per idle connection right after the handshake: the slope from none to 2N.
    pub after_handshake_bytes: Measured<f64>,
    /// The same after an exchange.
    pub after_exchange_bytes: Measured<f64>,
    /// The same after a record of 16 kB in each direction.
    pub after_large_records_bytes: Measured<f64>,
    /// The same after being quiet for a while.
    pub after_quiet_bytes: Measured<f64>,
    /// Bytes in the kernel per connection, both ends on this machine.
    pub kernel_bytes: Measured<f64>,
    /// Bytes that remain when all connections have closed, over those before.
    pub left_bytes: f64,
    /// Growth of resident memory over rounds of full handshakes.
    pub growth: Measured<Growth>,
    /// The same over rounds of resumed handshakes; only looked at when the former grows.
    pub growth_resumed: Measured<Growth>,
    /// Growth of the bytes in use over rounds of full handshakes.
    #[serde(default = "not_counted")]
    pub growth_in_use: Measured<Growth>,
    /// The same over rounds of resumed handshakes; only looked at when the former grows.
    #[serde(default = "not_counted")]
    pub growth_in_use_resumed: Measured<Growth>,
    /// What a runtime which collects garbage still holds after more rounds; only looked at when its
    /// memory grows. Missing in audits of older versions.
    #[serde(default = "not_looked_at")]
    pub growth_collected: Measured<CollectedRounds>,
}

/// Bytes per closed connection: growth below this is not looked into.
pub(crate) const GROWTH_BYTES: f64 = 100.0;

fn not_counted<T>() -> Measured<T> {
    Measured::not("older versions did not count blocks in use")
}

fn not_looked_at() -> Measured<CollectedRounds> {
    Measured::not("older versions did not look at it")
}

/// Memory of a runtime with a garbage collector from round to round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CollectedRounds {
    /// Runtime that was asked to collect before each point (`the JVM`, `V8`); `None`: it collects when it decides to.
    pub by: Option<String>,
    /// After each round, the first one included.
    pub points: Vec<CollectedPoint>,
    /// Connections that came and went per round.
    pub connections_per_round: u64,
    /// Classes of which there are more at the last point than at the second: class, instances then
    /// and now, bytes more.
    pub grown: Vec<(String, u64, u64, u64)>,
}

/// One moment of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CollectedPoint {
    /// Memory (PSS) of the process tree.
    pub pss_bytes: u64,
    /// Bytes of objects that outlived the collection.
    pub living_bytes: Option<u64>,
    /// Bytes in blocks of malloc, where they can be read.
    pub in_use_bytes: Option<u64>,
}

impl MemoryFigures {
    /// Bytes of an idle connection: what it uses, or where that is not known, the growth of resident memory as late in
    /// its life as it was measured.
    pub fn per_connection(&self) -> Measured<f64> {
        match &self.used_bytes {
            Measured::Value(bytes) => Measured::Value(*bytes),
            Measured::NotMeasured(_) => self.resident_per_connection(),
        }
    }

    /// Growth of resident memory per idle connection, as late in its life as it was measured.
    pub fn resident_per_connection(&self) -> Measured<f64> {
        let moments = [
            &self.after_quiet_bytes,
            &self.after_exchange_bytes,
            &self.after_handshake_bytes,
        ];
        let known = moments.into_iter().find(|moment| moment.value().is_some());
        known.unwrap_or(&self.after_handshake_bytes).clone()
    }

    /// Bytes of a connection right after its handshake, as the lab measures the runtimes; where that is not known,
    /// [`MemoryFigures::per_connection_bytes`].
    pub fn comparable_bytes(&self) -> f64 {
        let known = [
            &self.used_after_handshake_bytes,
            &self.after_handshake_bytes,
        ];
        let plain = match self.used_bytes.value() {
            Some(_) => known.first().and_then(|used| used.value()),
            None => known.iter().find_map(|moment| moment.value()),
        };
        plain
            .copied()
            .unwrap_or_else(|| self.per_connection_bytes())
    }

    /// [`MemoryFigures::per_connection`]; 0 where it was not measured.
    pub fn per_connection_bytes(&self) -> f64 {
        self.per_connection().value().copied().unwrap_or(0.0)
    }

    /// Growth over rounds of full handshakes and of resumed ones: of bytes in use, or where these are not known, of
    /// resident memory.
    pub fn judged_growth(&self) -> (Option<&Growth>, Option<&Growth>) {
        match self.growth_in_use.value() {
            Some(growth) => (Some(growth), self.growth_in_use_resumed.value()),
            None => (self.growth.value(), self.growth_resumed.value()),
        }
    }
}

#[cfg(test)]
impl MemoryFigures {
    /// Of which nothing is known yet.
    pub(crate) fn not_measured() -> Self {
        let not = || Measured::not("not asked");
        Self {
            phases: Vec::new(),
            used_bytes: not(),
            used_after_handshake_bytes: not(),
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
            growth_collected: not_looked_at(),
        }
    }
}
