//! Old garbage in CPython, over rounds.
//!
//! CPython collects its oldest objects only when many more have grown old. Connections that were open during two earlier
//! collections, and closed later, stay until then. Meanwhile they look like a leak, and afterwards they hide one.

use super::heap_reader::counted;
use super::running::RunningPart;
use dormouse_bench::Session;
use dormouse_census::{Collector, Generations, Snapshot};
use dormouse_measure::{Error, Growth, Verdict};

/// Maximum number of additional rounds until CPython collects its oldest objects. With small rounds it takes about 25.
const ROUNDS_MAX: u32 = 40;
/// Number of readings after collections, if these are compared with each other.
const READINGS: usize = 3;

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

/// Growth over rounds in CPython, some of which may be old garbage, and readings after collections of it.
struct WithReadings {
    growth: Growth,
    /// Growth over the readings themselves, if the first one showed that garbage went.
    after: Growth,
}

/// Growth over rounds, and censuses that replace those after the first and the last round.
pub(super) struct WithoutGarbage {
    pub(super) growth: Growth,
    pub(super) first: Option<Snapshot>,
    pub(super) last: Option<Snapshot>,
}

impl WithReadings {
    fn of(growth: Growth) -> Self {
        let after = Growth {
            rounds: Vec::new(),
            ..growth.clone()
        };
        Self { growth, after }
    }

    /// Adds a reading: the number of all connections, and the bytes in use after them. Returns the growth if it is known.
    ///
    /// If fewer bytes are in use than after the last round, garbage was collected: of these rounds, or of an earlier load,
    /// whose amount nobody knows. Then only readings after collections can be compared.
    fn add(&mut self, connections: u64, bytes: u64) -> Option<Growth> {
        let last = self.growth.rounds.last().map_or(0.0, |round| round.1);
        if self.after.rounds.is_empty() && bytes as f64 >= last {
            return Some(self.growth.clone().with(connections, bytes));
        }
        self.after = self.after.clone().with(connections, bytes);
        (self.after.rounds.len() == READINGS).then(|| self.after.clone())
    }
}

impl RunningPart<'_, '_> {
    /// Adds a reading to the growth of a server in CPython, after more rounds and a collection of its oldest objects: or
    /// several, if an earlier load's garbage went with them. If it does not collect these in time, the growth is unclear.
    /// `began`: before the first round.
    pub(super) fn without_garbage(
        &mut self,
        kind: &str,
        per_round: u64,
        began: Option<Generations>,
        growth: Growth,
    ) -> Result<WithoutGarbage, Error> {
        let closed = growth.connections() as u64;
        let both = began.zip(generations(self.session));
        let may_have = both.is_some_and(|(began, now)| now.may_have_garbage_of(closed, &began));
        let mut found = WithoutGarbage {
            growth: growth.clone(),
            first: None,
            last: None,
        };
        if !may_have {
            return Ok(found);
        }
        let (mut garbage, mut readings) = (OldGarbage::of(self.session), WithReadings::of(growth));
        while let Some(snapshot) = self.until_collected(kind, per_round, &mut garbage)? {
            let Some(bytes) = counted(Some(&snapshot)) else {
                break;
            };
            let known = readings.add(self.session.begun, bytes);
            let is_first = known.is_none() && readings.after.rounds.len() == 1;
            let place = if is_first {
                &mut found.first
            } else {
                &mut found.last
            };
            *place = Some(snapshot);
            if let Some(growth) = known {
                return Ok(WithoutGarbage { growth, ..found });
            }
        }
        self.session.run.note(format!(
            "the bytes in use grew over rounds of {kind} connections, and may be garbage: CPython did not collect its oldest objects meanwhile; --time gives it more time"
        ));
        found.growth = Growth {
            verdict: Verdict::Unclear,
            ..readings.growth
        };
        Ok(found)
    }

    /// Runs more rounds until CPython collects its oldest objects, and counts; `None` if it does not in time.
    fn until_collected(
        &mut self,
        kind: &str,
        per_round: u64,
        garbage: &mut OldGarbage,
    ) -> Result<Option<Snapshot>, Error> {
        for round in 1..=ROUNDS_MAX {
            if self.is_late() {
                break;
            }
            let stage = format!("{kind}, round {round} until a collection");
            self.cycle(&stage, per_round)?;
            if garbage.was_collected(self.session) {
                self.await_collection(0);
                return Ok(self.session.census(0).ok());
            }
        }
        Ok(None)
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

    /// Recorded: a server in asyncio that keeps a task of each connection. Garbage of the connections before these rounds
    /// was collected with theirs, and the leak was called a session cache: by a reading below all of these rounds, and later
    /// by one among them.
    #[test]
    fn a_leak_shows_through_the_garbage_of_an_earlier_load() {
        let rounds = [43_100, 43_275, 43_904, 44_317, 44_994];
        let growing = Growth::judge(&rounds.map(|kb| kb * 1000), 250);
        let mut readings = WithReadings::of(growing.clone());
        assert_eq!(readings.add(4_218, 24_772_112), None);
        assert_eq!(readings.add(5_468, 26_930_000), None);
        let growth = readings.add(6_718, 29_070_000).unwrap();
        assert_eq!(growth.verdict, Verdict::Grows);
        assert!((growth.bytes_per_connection().unwrap() - 1_719.0).abs() < 1.0);

        let mut readings = WithReadings::of(growing.clone());
        assert_eq!(readings.add(4_214, 43_900_000), None);

        let mut without_a_leak = WithReadings::of(growing.clone());
        let after = [
            (4_218, 24_772_112),
            (5_468, 24_780_000),
            (6_718, 24_770_000),
        ];
        let growth = after.map(|(connections, bytes)| without_a_leak.add(connections, bytes));
        assert_eq!(growth[2].as_ref().unwrap().verdict, Verdict::NoGrowth);

        let mut of_these_rounds = WithReadings::of(growing);
        let growth = of_these_rounds.add(2_500, 46_600_000).unwrap();
        assert_eq!((growth.verdict, growth.rounds.len()), (Verdict::Grows, 5));
    }
}
