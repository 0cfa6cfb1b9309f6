//! Findings about contexts and trust stores that each connection parses for itself.

use super::subject::AuditSubject;
use super::units::{bytes, counted, percent, whole};
use crate::catalogue::{FindingId, Severity};
use crate::model::Finding;
use dormouse_census::CensusReport;

/// Minimum number of blocks in a connection's own context or trust store.
const CONTEXT_BLOCKS: f64 = 220.0;
const CONTEXT_BYTES: f64 = 20_000.0;
/// If one size makes up this share of the bytes, the blocks are the program's own and not parsed certificates, unless
/// handshakes were seen to parse certificates for this share of their CPU time: GnuTLS holds those in nodes of one size.
const ONE_SIZE: f64 = 0.8;
const PARSING: f64 = 0.1;
/// Minimum share of the new blocks that the second half of the connections takes, if each takes some.
const OF_SECOND_HALF: f64 = 0.25;

/// Whether a connection's blocks look like parsed certificates: many, and of many sizes. Go, JVMs, V8, Lua and Ruby hold
/// any connection in hundreds of small objects.
pub(super) fn are_kept(subject: &AuditSubject, census: &CensusReport) -> bool {
    let bytes = || {
        let blocks = census.classes.iter().filter(|class| class.heap == "malloc");
        blocks.map(|class| class.bytes_per_connection)
    };
    let (all, most) = (bytes().sum::<f64>(), bytes().fold(0.0, f64::max));
    !subject.software().collects
        && census.blocks_per_connection > CONTEXT_BLOCKS
        && all > CONTEXT_BYTES
        && (most < ONE_SIZE * all || subject.parsing_share > PARSING)
        && grows_with_connections(census)
}

/// Whether the second half of the connections took blocks, too. A server's table of sessions grows by hundreds of blocks
/// when the first connections arrive.
fn grows_with_connections(census: &CensusReport) -> bool {
    let blocks = census.classes.iter().filter(|class| class.heap == "malloc");
    let new = blocks.map(|class| {
        let [none, half, all] = class.blocks.map(|count| count as f64);
        (all - half, all - none)
    });
    let (second, both) = new.fold((0.0, 0.0), |sum, new| (sum.0 + new.0, sum.1 + new.1));
    // Without a second half there is one reading.
    second == 0.0 || second >= OF_SECOND_HALF * both
}

/// Reports a context or trust store for each connection.
pub(super) fn finding(subject: &AuditSubject, census: &CensusReport) -> Finding {
    let mut measured = format!(
        "{} blocks and {} of heap per connection",
        whole(census.blocks_per_connection),
        bytes(census.heap_bytes_per_connection)
    );
    if let Some(largest) = census.classes.first() {
        let share = largest.bytes_per_connection / census.heap_bytes_per_connection.max(1.0);
        let size = counted(largest.size_bytes);
        measured += &format!("; blocks of {size} bytes are {} of it", percent(share));
    }
    subject.finding(FindingId::ContextPerConnection, Severity::High, measured)
}
