//! Rounds of connections that open and close: what they leave behind, and what a handshake costs.

use std::time::{Duration, Instant};

use super::budget::CONNECTIONS_MIN;
use super::cpu_profile::CpuProfile;
use super::heap_reader::{Collection, counted};
use super::old_garbage::{OldGarbage, generations};
use super::running::{Partly, RunningPart};
use super::survivors::Survivors;
use crate::model::{
    BLOCKS_OF_CONNECTION, CollectedPoint, CollectedRounds, GROWTH_BYTES, MemoryPhase, Trials,
};
use dormouse_census::{Detail, HotSpot, ManagedHeap, Snapshot, grown};
use dormouse_measure::{CpuTime, Error, Growth, Verdict};

/// Rounds of full handshakes, of resumed ones, and of connections that end before their handshake does.
const FULL: &str = "full";
const RESUMED: &str = "resumed";
const BROKEN: &str = "broken";
/// Minimum number of rounds for a line fit, the first round not counted.
const ROUNDS_MIN: usize = 4;
/// Round from which growth is fitted: the one before includes one-time setup.
const FIRST_FITTED: u32 = 2;
/// Share of its time in which a part has connections that end during the handshake; the rest is for censuses.
const BROKEN_SHARE: f64 = 0.7;
/// Maximum number of rounds, as a multiple of the wanted number, if they begin again.
const RESTARTED: u32 = 2;
/// Maximum number of rounds in which a runtime that cannot be asked may collect by itself.
const UNASKED_MAX: u32 = 15;
/// Share of the connections that must resume for figures about resumed ones.
pub(super) const RESUMES: f64 = 0.9;

/// Growth over rounds, of resident memory and of bytes in use.
#[derive(Clone, Default)]
pub(super) struct RoundsGrowth {
    pub(super) resident: Option<Growth>,
    /// `None` where the blocks in use cannot be counted.
    pub(super) in_use: Option<Growth>,
}

impl RoundsGrowth {
    /// Growth of bytes in use where they are known, otherwise of resident memory.
    pub(super) fn judged(&self) -> Option<&Growth> {
        self.in_use.as_ref().or(self.resident.as_ref())
    }

    /// Whether memory grows by more than [`GROWTH_BYTES`] per connection.
    pub(super) fn grew(&self) -> bool {
        self.judged().is_some_and(|growth| {
            growth.verdict == Verdict::Grows && growth.bytes_per_connection() > Some(GROWTH_BYTES)
        })
    }
}

/// Readings after each round: the number of all connections so far, and the bytes.
#[derive(Default)]
struct Readings {
    resident: Vec<(u64, u64)>,
    /// Bytes in use, after the rounds in which they were counted.
    in_use: Vec<(u64, u64)>,
}

impl Readings {
    fn growth(&self, per_round: u64) -> RoundsGrowth {
        let fit = |readings| Growth::over_connections(readings, per_round);
        let is_counted = self.in_use.len() == self.resident.len();
        RoundsGrowth {
            resident: Some(fit(&self.resident)),
            in_use: is_counted.then(|| fit(&self.in_use)),
        }
    }
}

/// What rounds of full handshakes show.
#[derive(Default)]
pub(super) struct Churn {
    pub(super) growth: RoundsGrowth,
    /// Memory after collections of the server's runtime.
    pub(super) collected: Option<CollectedRounds>,
    /// CPU time of the handshakes, and their number.
    pub(super) full: Option<(CpuTime, u64)>,
    pub(super) profile: Option<Result<Vec<HotSpot>, String>>,
    /// Memory after each round.
    pub(super) phases: Vec<MemoryPhase>,
    /// Censuses after the first and the last round that counts.
    pub(super) first: Option<Snapshot>,
    pub(super) last: Option<Snapshot>,
}

/// What resumed handshakes of one version show.
#[derive(Default)]
pub(super) struct Resumed {
    /// CPU time of one.
    pub(super) us: f64,
    pub(super) trials: Trials,
    /// Growth over rounds of them, if full ones left memory behind.
    pub(super) growth: RoundsGrowth,
}

impl RunningPart<'_, '_> {
    /// Runs rounds of full handshakes. What was read stays if a later round fails.
    pub(super) fn churn(&mut self) -> Partly<Churn> {
        let mut churn = Churn::default();
        let end = self.churn_all(&mut churn);
        (churn, end)
    }

    fn churn_all(&mut self, churn: &mut Churn) -> Result<(), Error> {
        let per_round = self.sizes.per_round;
        let began = generations(self.session);
        let (mut readings, mut survivors) = (Readings::default(), Survivors::default());
        let mut profile = CpuProfile::start();
        let done = self.full_rounds(churn, &mut readings, &mut survivors, &mut profile);
        let spent = churn.full.map_or_else(CpuTime::default, |(spent, _)| spent);
        churn.profile = Some(profile.hot_spots(&self.pids(), spent));
        if !readings.resident.is_empty() {
            churn.growth = readings.growth(per_round);
        }
        churn.collected = survivors.over_rounds(per_round);
        done?;
        let has_grown = churn.growth.grew();
        if let Some(in_use) = churn.growth.in_use.take_if(|_| has_grown) {
            let found = self.without_garbage(FULL, per_round, began, in_use)?;
            churn.growth.in_use = Some(found.growth);
            churn.first = found.first.or(churn.first.take());
            churn.last = found.last.or(churn.last.take());
        }
        // A heap whose size fluctuates hides a leak.
        let growth = churn.growth.resident.as_ref();
        let is_flat = growth.is_some_and(|growth| growth.verdict == Verdict::NoGrowth);
        let is_known = churn.growth.in_use.is_some() || churn.collected.is_some() || is_flat;
        if self.heap.collects && !is_known && churn.growth.grew() {
            let began_bytes = readings.resident.get(1).map_or(0, |(_, bytes)| *bytes);
            churn.collected = Some(self.churn_on(began_bytes)?);
        }
        Ok(())
    }

    fn full_rounds(
        &mut self,
        churn: &mut Churn,
        readings: &mut Readings,
        survivors: &mut Survivors,
        profile: &mut CpuProfile,
    ) -> Result<(), Error> {
        let mut garbage = OldGarbage::of(self.session);
        let mut took = Duration::ZERO;
        for number in 1..=RESTARTED * self.sizes.rounds {
            let round = readings.resident.len() as u32 + 1;
            if round > self.sizes.rounds {
                break;
            }
            let began = Instant::now();
            if readings.resident.len() >= ROUNDS_MIN && !self.has_room(took) {
                break;
            }
            profile.skip();
            let before = self.session.server_cpu();
            let stage = format!("round {round} of {}", self.sizes.rounds);
            let tally = self.cycle(&stage, self.sizes.per_round)?;
            let (spent, established) = churn.full.get_or_insert_default();
            *spent += self.session.server_cpu() - before;
            *established += tally.established;
            profile.add(&self.pids());
            let phase = self.phase(
                &format!("round_{number}"),
                &format!("after round {number}"),
                0,
            );
            if garbage.begins_again(self.session) {
                *readings = Readings::default();
            }
            let round = readings.resident.len() as u32 + 1;
            let resident = phase.as_ref().or(churn.phases.last());
            readings
                .resident
                .extend(resident.map(|phase| (self.session.begun, phase.memory.pss)));
            churn.phases.extend(phase);
            self.count_round(churn, readings, survivors, round);
            took = began.elapsed();
        }
        if survivors.lacks_classes() {
            survivors.add_classes(self.objects(Detail::Classes));
        }
        Ok(())
    }

    /// Counts what a round left behind, after a collection.
    fn count_round(
        &mut self,
        churn: &mut Churn,
        readings: &mut Readings,
        survivors: &mut Survivors,
        round: u32,
    ) {
        let heap = self.surviving(round);
        // A census of Go's heap before a collection shows the figures of an earlier round.
        let is_collected = heap.is_some() || self.await_collection(0);
        let counts = self.heap.counts_rounds && is_collected;
        let snapshot = counts.then(|| self.census(0)).flatten();
        let bytes = counted(snapshot.as_ref());
        readings
            .in_use
            .extend(bytes.map(|bytes| (self.session.begun, bytes)));
        if let Some((heap, sample)) = heap.zip(self.session.now(0)) {
            let point = CollectedPoint {
                pss_bytes: sample.memory.pss,
                living_bytes: heap.bytes().map(|(_, bytes)| bytes),
                in_use_bytes: snapshot.as_ref().map(|snapshot| snapshot.in_use_bytes),
            };
            survivors.add(point, heap);
        }
        (churn.first, churn.last) = match round <= FIRST_FITTED {
            true => (snapshot, None),
            false => (churn.first.take(), snapshot),
        };
    }

    /// Objects that survive a collection; `None` if the server's runtimes make none for the audit.
    fn surviving(&mut self, round: u32) -> Option<ManagedHeap> {
        self.heap.collection.took()?;
        let detail = match round {
            FIRST_FITTED => Detail::Classes,
            _ => Detail::Bytes,
        };
        let began = Instant::now();
        let heap = self.objects(detail);
        self.heap.classes_took = self.heap.classes_took.max(began.elapsed());
        if heap.bytes().is_none() {
            self.heap.collection = Collection::Never;
            return None;
        }
        Some(heap)
    }

    /// Runs more rounds, in which a runtime that cannot be asked may collect by itself: until it has, so that its memory is
    /// not larger than when the growth began.
    fn churn_on(&mut self, began_bytes: u64) -> Result<CollectedRounds, Error> {
        let mut collected = CollectedRounds {
            connections_per_round: self.sizes.per_round,
            ..CollectedRounds::default()
        };
        for round in 1..=UNASKED_MAX {
            if self.is_late() {
                break;
            }
            self.cycle(
                &format!("round {round} until a collection"),
                self.sizes.per_round,
            )?;
            let Some(sample) = self.session.settled(0) else {
                break;
            };
            collected.points.push(CollectedPoint {
                pss_bytes: sample.memory.pss,
                ..CollectedPoint::default()
            });
            if sample.memory.pss <= began_bytes {
                break;
            }
        }
        Ok(collected)
    }

    /// Measures resumed handshakes, and with `churns` whether they leave memory behind. With `churns_older`, returns the
    /// growth of bytes in use over rounds of this version: the rounds of churn have the newest one.
    pub(super) fn resume(
        &mut self,
        churns: bool,
        churns_older: bool,
    ) -> Partly<(Option<Resumed>, Option<Growth>)> {
        let resumed = match self.resumed(churns) {
            Ok(resumed) => resumed,
            Err(error) => return ((None, None), Err(error)),
        };
        if !churns_older {
            return ((Some(resumed), None), Ok(()));
        }
        let per_round = self.sizes.per_round.min(self.sizes.resumed);
        match self.rounds(RESUMED, per_round) {
            Ok(growth) => ((Some(resumed), growth.in_use), Ok(())),
            Err(error) => ((Some(resumed), None), Err(error)),
        }
    }

    fn resumed(&mut self, churns: bool) -> Result<Resumed, Error> {
        self.cycle("first handshakes", u64::from(self.sizes.lanes))?;
        let before = self.session.server_cpu();
        let time = self.slot.end.left(Instant::now());
        let tally = self.cycle_for("resuming", self.sizes.resumed, time)?;
        if tally.established == 0 {
            return Err(Error::target("no connection ended within this part's time"));
        }
        let spent = self.session.server_cpu() - before;
        let trials = Trials {
            offered: tally.established,
            resumed: tally.resumed,
            ..Trials::default()
        };
        let growth = match churns && trials.share() > RESUMES {
            true => self.rounds(RESUMED, self.sizes.per_round)?,
            false => RoundsGrowth::default(),
        };
        Ok(Resumed {
            us: spent.total_ns as f64 / 1e3 / tally.established as f64,
            trials,
            growth,
        })
    }

    /// Connections that end before their handshake does. The session has no TLS, and each connection sends a few bytes.
    /// `each`: CPU and network time of a connection.
    pub(super) fn churn_broken(&mut self, each: Duration) -> Partly<Option<Growth>> {
        // Their clients are faster than a slow server, which must catch up after each round.
        let left = self.slot.until.left(Instant::now());
        let most = left.map_or(u64::MAX, |left| {
            let of_round = left.mul_f64(BROKEN_SHARE) / self.sizes.rounds.max(1);
            (of_round.as_secs_f64() / each.as_secs_f64().max(1e-6)) as u64
        });
        let per_round = self.sizes.per_round.min(most);
        if per_round < CONNECTIONS_MIN {
            return (None, Ok(()));
        }
        match self.rounds(BROKEN, per_round) {
            Ok(growth) => (growth.in_use, Ok(())),
            Err(error) => (None, Err(error)),
        }
    }

    /// Runs rounds of connections of another kind than those of churn and judges the growth over them, if the part has time
    /// for enough rounds.
    fn rounds(&mut self, kind: &str, per_round: u64) -> Result<RoundsGrowth, Error> {
        let (mut readings, mut counted_blocks) = (Readings::default(), Vec::new());
        let began = generations(self.session);
        let mut garbage = OldGarbage::of(self.session);
        let mut took = Duration::ZERO;
        for _ in 1..=RESTARTED * self.sizes.rounds {
            let round = readings.resident.len() + 1;
            if round > self.sizes.rounds as usize {
                break;
            }
            let began = Instant::now();
            let missing = ROUNDS_MIN.saturating_sub(readings.resident.len()).max(1);
            if !self.has_room(took * missing as u32) {
                break;
            }
            let stage = format!("{kind} round {round} of {}", self.sizes.rounds);
            self.cycle(&stage, per_round)?;
            let sample = self.session.settled(0);
            let is_collected = self.await_collection(0);
            if garbage.begins_again(self.session) {
                readings = Readings::default();
                counted_blocks.clear();
            }
            let begun = self.session.begun;
            readings
                .resident
                .extend(sample.map(|sample| (begun, sample.memory.pss)));
            if self.heap.counts_rounds && is_collected {
                let snapshot = self.session.census(0).ok();
                let bytes = counted(snapshot.as_ref());
                readings.in_use.extend(bytes.map(|bytes| (begun, bytes)));
                counted_blocks.extend(snapshot.map(|snapshot| (begun, snapshot)));
            }
            took = began.elapsed();
        }
        if readings.resident.len() < ROUNDS_MIN {
            return Ok(RoundsGrowth::default());
        }
        let mut growth = readings.growth(per_round);
        let has_grown = growth.grew();
        if let Some(in_use) = growth.in_use.take_if(|_| has_grown) {
            let found = self.without_garbage(kind, per_round, began, in_use)?.growth;
            let verdict = match of_few_blocks(&counted_blocks) {
                true => Verdict::Unclear,
                false => found.verdict,
            };
            growth.in_use = Some(Growth { verdict, ..found });
        }
        Ok(growth)
    }
}

/// Whether so few blocks of each size were added over the rounds, the first one not counted, that no connection left one
/// behind alone: a pool or a table grows.
fn of_few_blocks(rounds: &[(u64, Snapshot)]) -> bool {
    let mut fitted = rounds.iter().skip(1);
    let Some(((first, before), (last, after))) = fitted.next().zip(fitted.next_back()) else {
        return false;
    };
    let connections = last.saturating_sub(*first).max(1) as f64;
    let added = grown(before, after).into_iter();
    let most = added.map(|(_, had, has)| has - had).max();
    most.is_some_and(|most| (most as f64) < BLOCKS_OF_CONNECTION * connections)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_census::SizeCount;

    fn after(connections: u64, sizes: &[(u64, u64)]) -> (u64, Snapshot) {
        let mut snapshot = Snapshot::default();
        for &(size, blocks) in sizes {
            let count = SizeCount {
                blocks,
                ..SizeCount::default()
            };
            snapshot.sizes.insert(size, count);
        }
        (connections, snapshot)
    }

    /// Recorded: MariaDB, which adds three blocks of 32 kB in each round of 427 connections of TLS 1.2, was said to leak 230
    /// bytes of each.
    #[test]
    fn a_pool_that_grows_by_a_few_blocks_is_no_leak_of_each_connection() {
        let rounds = |each: [(u64, u64); 4]| [427, 854, 1_281, 1_708].into_iter().zip(each);
        let of = |each| -> Vec<_> {
            let rounds = rounds(each);
            rounds
                .map(|(connections, block)| after(connections, &[block]))
                .collect()
        };
        let pool = of([(32_768, 192), (32_768, 195), (32_768, 198), (32_768, 201)]);
        assert!(of_few_blocks(&pool));
        let leak = of([(336, 427), (336, 854), (336, 1_281), (336, 1_708)]);
        assert!(!of_few_blocks(&leak));
        assert!(!of_few_blocks(&[]));
    }
}
