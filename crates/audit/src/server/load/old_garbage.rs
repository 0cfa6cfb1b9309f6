//! Old garbage in CPython, over rounds.
//!
//! CPython collects its oldest objects only when many more have grown old. Connections that were open during two earlier
//! collections, and closed later, stay until then. Meanwhile they look like a leak, and afterwards they hide one.

use super::log::{LoadLog, counted};
use super::steps::LoadSteps;
use dormouse_bench::Session;
use dormouse_census::{Collector, Generations};
use dormouse_measure::{Error, Growth, Verdict};

/// Maximum number of additional rounds until CPython collects its oldest objects. With small rounds it takes about 25.
const ROUNDS_MAX: u32 = 40;

/// Old garbage of an earlier load. Readings before its collection cannot be compared with later ones, so the rounds begin
/// again: unless every round collects it, as in a program with few objects. Then all readings have as little of it.
pub(super) struct OldGarbage {
    collections: Option<u64>,
    /// Whether it was collected before the last call.
    was_collected: bool,
}

impl OldGarbage {
    pub(super) fn of(session: &Session<'_>) -> Self {
        Self {
            collections: collections(session),
            was_collected: false,
        }
    }

    /// Whether it was collected since the last call.
    pub(super) fn was_collected(&mut self, session: &Session<'_>) -> bool {
        self.advance(collections(session));
        self.was_collected
    }

    /// Whether the readings of rounds begin again with the round since the last call.
    pub(super) fn begins_again(&mut self, session: &Session<'_>) -> bool {
        self.advance(collections(session))
    }

    /// Returns whether it was collected now, and not before.
    fn advance(&mut self, collections: Option<u64>) -> bool {
        let before = std::mem::replace(&mut self.collections, collections);
        let had = std::mem::replace(&mut self.was_collected, collections > before);
        self.was_collected && !had
    }
}

/// Collections of the oldest generation so far.
fn collections(session: &Session<'_>) -> Option<u64> {
    Some(generations(session)?.full_collections)
}

/// Progress of CPython's collector; `None` in other runtimes.
pub(super) fn generations(session: &Session<'_>) -> Option<Generations> {
    match session.collector() {
        Some(Collector::Python(generations)) => Some(generations),
        _ => None,
    }
}

impl LoadSteps {
    /// Adds a reading to the growth of a server in CPython, after more rounds and a collection of its oldest objects. If it
    /// does not collect these in time, the growth is unclear. `began`: before the first round.
    pub(super) fn without_garbage(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
        (kind, per_round): (&str, u64),
        began: Option<Generations>,
        growth: Growth,
    ) -> Result<Growth, Error> {
        let closed = growth.connections() as u64;
        let both = began.zip(generations(session));
        if both.is_none_or(|(began, now)| !now.may_have_garbage_of(closed, &began)) {
            return Ok(growth);
        }
        let mut garbage = OldGarbage::of(session);
        for round in 1..=ROUNDS_MAX {
            if self.is_late() {
                break;
            }
            let stage = format!("{kind}, round {round} until a collection");
            self.cycle(session, &stage, per_round)?;
            if garbage.was_collected(session) {
                self.await_collection(session, log);
                let Ok(snapshot) = session.census(0) else {
                    break;
                };
                let Some(bytes) = counted(Some(&snapshot)) else {
                    break;
                };
                log.add_last_round(kind, snapshot);
                return Ok(growth.with(session.begun, bytes));
            }
        }
        log.notes.push(format!(
            "the bytes in use grew over rounds of {kind} connections, and may be garbage: CPython did not collect its oldest objects meanwhile; --time gives it more time"
        ));
        Ok(Growth {
            verdict: Verdict::Unclear,
            ..growth
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded: Tornado has so few objects that CPython collects its oldest ones in each round. The rounds began again nine
    /// times, until the time was over.
    #[test]
    fn rounds_that_all_collect_do_not_begin_again() {
        let mut garbage = OldGarbage {
            collections: Some(5),
            was_collected: false,
        };
        let again = [6, 7, 8, 8, 9, 9].map(|count| garbage.advance(Some(count)));
        assert_eq!(again, [true, false, false, false, true, false]);
        assert!(!garbage.advance(None));
    }
}
