//! Growth of a runtime that collects garbage.
//!
//! Its memory grows until it collects, which is no leak. So where memory grows, the audit adds rounds, and asks the
//! runtime to collect before each reading. A runtime that cannot be asked is given enough rounds to collect by itself.

use crate::model::{CollectedPoint, CollectedRounds};
use dormouse_census::{self as census, ManagedHeap};

/// Rounds, when the runtime can be asked to collect.
const ROUNDS_ASKED: u32 = 5;
/// Rounds at most, when it can't.
const ROUNDS_MAX: u32 = 15;

/// Source of rounds.
pub(super) trait ChurnRounds {
    /// Why there can't be another one.
    type Error;
    /// Makes one; its name is for people.
    fn round(&mut self, title: &str) -> Result<(), Self::Error>;
    /// The server's processes.
    fn pids(&self) -> Vec<i32>;
    /// Their memory (PSS), when it has settled.
    fn pss_bytes(&mut self) -> Option<u64>;
}

/// Measures more rounds of connections. `began_bytes` is the memory at which the growth began; `None` if it is not
/// clear whether memory grows: then only a runtime that can be asked to collect is measured.
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
        rounds.round(&format!("round {round} beside collections"))?;
        let pids = rounds.pids();
        let told = ManagedHeap::after_collection(&pids);
        let Some(pss_bytes) = rounds.pss_bytes() else {
            break;
        };
        collected.points.push(CollectedPoint {
            pss_bytes,
            living_bytes: told.bytes().map(|(_, bytes)| bytes),
            in_use_bytes: census::take(&pids, 0).ok().map(|taken| taken.in_use_bytes),
        });
        match told.bytes() {
            Some((by, _)) => {
                collected.by = Some(by.to_owned());
                // The first collection may still find what the handshakes before it have set up.
                if round == 2 {
                    second = Some(told);
                } else if round >= ROUNDS_ASKED {
                    collected.grown = grown(second.as_ref(), &told);
                    break;
                }
            }
            None => match began_bytes {
                None => return Ok(None),
                // It has collected by itself.
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
