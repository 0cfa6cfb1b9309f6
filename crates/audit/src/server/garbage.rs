//! Memory growth of garbage-collected runtimes.
//!
//! The memory of such a runtime grows until it collects, which is not a leak. Where memory grows, the audit therefore
//! adds rounds and asks the runtime to collect before each reading. If the runtime cannot be asked, the audit makes
//! enough rounds for it to collect by itself.

use crate::model::{CollectedPoint, CollectedRounds};
use dormouse_census::ManagedHeap;

/// Number of rounds when the runtime can be asked to collect.
const ROUNDS_ASKED: u32 = 5;
/// Maximum number of rounds when it cannot be asked.
const ROUNDS_MAX: u32 = 15;

/// Makes rounds of connections and reads the server's memory.
pub(super) trait ChurnRounds {
    /// The reason why no further round can be made.
    type Error;
    /// Makes one round; `title` appears in the progress output.
    fn round(&mut self, title: &str) -> Result<(), Self::Error>;
    /// Makes the server's runtimes collect, and counts the objects that survive.
    fn managed(&self) -> ManagedHeap;
    /// Bytes in malloc blocks, where they can be read.
    fn in_use_bytes(&self) -> Option<u64>;
    /// Whether the next parts need the remaining time.
    fn is_late(&self) -> bool;
    /// Memory of these processes (PSS), after it has settled.
    fn pss_bytes(&mut self) -> Option<u64>;
}

/// Measures additional rounds of connections. `began_bytes` is the memory when the growth began. It is `None` if the
/// growth is uncertain: then only a runtime that can be asked to collect is measured.
pub(super) fn watch<R: ChurnRounds>(
    rounds: &mut R,
    connections_per_round: u64,
    began_bytes: Option<u64>,
) -> Result<Option<CollectedRounds>, R::Error> {
    let mut collected = CollectedRounds {
        by: None,
        points: Vec::new(),
        connections_per_round,
        grown: Vec::new(),
    };
    let mut second = None;
    for round in 1..=ROUNDS_MAX {
        if rounds.is_late() {
            break;
        }
        rounds.round(&format!("round {round} beside collections"))?;
        let told = rounds.managed();
        let Some(pss_bytes) = rounds.pss_bytes() else {
            break;
        };
        collected.points.push(CollectedPoint {
            pss_bytes,
            living_bytes: told.bytes().map(|(_, bytes)| bytes),
            in_use_bytes: rounds.in_use_bytes(),
        });
        match told.bytes() {
            Some((by, _)) => {
                collected.by = Some(by.to_owned());
                // The first collection may still find setup objects of the earlier handshakes.
                if round == 2 {
                    second = Some(told);
                } else if round >= ROUNDS_ASKED {
                    collected.grown = grown(second.as_ref(), &told);
                    break;
                }
            }
            None => match began_bytes {
                None => return Ok(None),
                // The runtime has collected by itself.
                Some(began) if pss_bytes <= began => break,
                Some(_) => {}
            },
        }
    }
    Ok(Some(collected))
}

fn grown(second: Option<&ManagedHeap>, last: &ManagedHeap) -> Vec<(String, u64, u64, u64)> {
    second.map_or_else(Vec::new, |second| last.more_than(second))
}
