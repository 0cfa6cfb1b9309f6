//! Rounds of connections that open and close: what they leave behind, and what a handshake costs.

use std::time::{Duration, Instant};

use super::budget::CONNECTIONS_MIN;
use super::cpu_profile::CpuProfile;
use super::log::{FULL, LoadLog, RoundsGrowth, counted};
use super::old_garbage::{OldGarbage, generations};
use super::steps::{LoadSteps, pids};
use super::survivors::Survivors;
use crate::model::{BLOCKS_OF_CONNECTION, CollectedPoint, CollectedRounds, Trials};
use dormouse_bench::Session;
use dormouse_census::{Detail, ManagedHeap, Snapshot, grown};
use dormouse_measure::{CpuTime, Error, Growth, Verdict};

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

/// Readings of rounds of full handshakes.
#[derive(Default)]
struct ChurnReadings {
    /// Number of all connections so far, and resident memory.
    resident: Vec<(u64, u64)>,
    /// The same with the bytes in use, after the rounds in which they were counted.
    in_use: Vec<(u64, u64)>,
    survivors: Survivors,
    spent: CpuTime,
    established: u64,
    round_took: Duration,
}

impl ChurnReadings {
    /// Number of the next round since the first one whose reading counts.
    fn next_round(&self) -> u32 {
        u32::try_from(self.resident.len()).unwrap_or(u32::MAX) + 1
    }

    fn growth(&self, per_round: u64) -> RoundsGrowth {
        if self.resident.is_empty() {
            return RoundsGrowth::default();
        }
        let in_use = (self.in_use.len() == self.resident.len()).then_some(&*self.in_use);
        RoundsGrowth::judge(&self.resident, in_use, per_round)
    }
}

impl LoadSteps {
    /// Runs rounds of full handshakes. What was read stays if a later round fails.
    pub(super) fn churn(&self, session: &mut Session<'_>, log: &mut LoadLog) -> Result<(), Error> {
        let per_round = self.sizes.per_round;
        let (mut churn, mut profile) = (ChurnReadings::default(), CpuProfile::start());
        let began = generations(session);
        let done = self.churn_rounds(session, log, &mut churn, &mut profile);
        log.profile = Some(profile.hot_spots(&pids(session), churn.spent));
        log.growth = churn.growth(per_round);
        log.collected = churn.survivors.over_rounds(per_round);
        done?;
        let grew = log.growth.grew();
        if let Some(in_use) = log.growth.in_use.take_if(|_| grew) {
            let kind = (FULL, per_round);
            log.growth.in_use = Some(self.without_garbage(session, log, kind, began, in_use)?);
        }
        // A heap whose size fluctuates hides a leak.
        let growth = log.growth.resident.as_ref();
        let is_flat = growth.is_some_and(|growth| growth.verdict == Verdict::NoGrowth);
        let is_known = log.counts_growth() || log.collected.is_some() || is_flat;
        if self.collects && !is_known && log.growth.grew() {
            let began_bytes = churn.resident.get(1).map_or(0, |(_, bytes)| *bytes);
            log.collected = Some(self.churn_on(session, began_bytes)?);
        }
        Ok(())
    }

    fn churn_rounds(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
        churn: &mut ChurnReadings,
        profile: &mut CpuProfile,
    ) -> Result<(), Error> {
        let mut garbage = OldGarbage::of(session);
        for number in 1..=RESTARTED * self.sizes.rounds {
            let round = churn.next_round();
            if round > self.sizes.rounds {
                break;
            }
            let began = Instant::now();
            let is_enough = churn.resident.len() >= ROUNDS_MIN;
            if is_enough && !self.slot.has_room(began, churn.round_took) {
                break;
            }
            profile.skip();
            let before = session.server_cpu();
            let stage = format!("round {round} of {}", self.sizes.rounds);
            let tally = self.cycle(session, &stage, self.sizes.per_round)?;
            churn.spent += session.server_cpu() - before;
            profile.add(&pids(session));
            churn.established += tally.established;
            log.full = Some((churn.spent, churn.established));
            let name = format!("round_{number}");
            self.phase(session, log, (&name, &format!("after round {number}")), 0);
            if garbage.begins_again(session) {
                churn.resident.clear();
                churn.in_use.clear();
            }
            let round = churn.next_round();
            let phase = log.phases.last();
            let resident = phase.map(|phase| (session.begun, phase.memory.pss));
            churn.resident.extend(resident);
            self.count_round(session, log, churn, round);
            churn.round_took = began.elapsed();
        }
        if churn.survivors.lacks_classes() {
            let heap = self.managed(session, log, Detail::Classes);
            churn.survivors.add_classes(heap);
        }
        Ok(())
    }

    /// Counts what a round left behind, after a collection.
    fn count_round(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
        churn: &mut ChurnReadings,
        round: u32,
    ) {
        let heap = self.surviving(session, log, round);
        // A census of Go's heap before a collection shows the figures of an earlier round.
        let is_collected = heap.is_some() || self.await_collection(session, log);
        log.snapshots.retain(|(name, _)| *name != "round_last");
        let name = if round <= FIRST_FITTED {
            "round_first"
        } else {
            "round_last"
        };
        log.snapshots.retain(|(known, _)| *known != name);
        if log.counts_rounds && is_collected {
            self.census(session, log, name, 0);
            let bytes = counted(log.snapshot(name));
            churn
                .in_use
                .extend(bytes.map(|bytes| (session.begun, bytes)));
        }
        if let Some((heap, sample)) = heap.zip(session.now(0)) {
            let point = CollectedPoint {
                pss_bytes: sample.memory.pss,
                living_bytes: heap.bytes().map(|(_, bytes)| bytes),
                in_use_bytes: log.snapshot(name).map(|snapshot| snapshot.in_use_bytes),
            };
            churn.survivors.add(point, heap);
        }
    }

    /// Objects that survive a collection; `None` if the server's runtimes make none for the audit.
    fn surviving(
        &self,
        session: &Session<'_>,
        log: &mut LoadLog,
        round: u32,
    ) -> Option<ManagedHeap> {
        log.collection_took?;
        let detail = if round == FIRST_FITTED {
            Detail::Classes
        } else {
            Detail::Bytes
        };
        let began = Instant::now();
        let heap = self.managed(session, log, detail);
        log.classes_took = log.classes_took.max(began.elapsed());
        if heap.bytes().is_none() {
            log.collection_took = None;
            return None;
        }
        Some(heap)
    }

    /// Runs more rounds, in which a runtime that cannot be asked may collect by itself: until it has, so that its memory is
    /// not larger than when the growth began.
    fn churn_on(
        &self,
        session: &mut Session<'_>,
        began_bytes: u64,
    ) -> Result<CollectedRounds, Error> {
        let mut collected = CollectedRounds {
            by: None,
            points: Vec::new(),
            connections_per_round: self.sizes.per_round,
            classes: Vec::new(),
        };
        for round in 1..=UNASKED_MAX {
            if self.is_late() {
                break;
            }
            let stage = format!("round {round} until a collection");
            self.cycle(session, &stage, self.sizes.per_round)?;
            let Some(sample) = session.settled(0) else {
                break;
            };
            collected.points.push(CollectedPoint {
                pss_bytes: sample.memory.pss,
                living_bytes: None,
                in_use_bytes: None,
            });
            if sample.memory.pss <= began_bytes {
                break;
            }
        }
        Ok(collected)
    }

    /// Measures resumed handshakes; if full handshakes left memory behind, also measures whether resumed ones do.
    pub(super) fn resume(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
    ) -> Result<(f64, Trials), Error> {
        let lanes = u64::from(self.sizes.lanes);
        self.cycle(session, "first handshakes", lanes)?;
        let before = session.server_cpu();
        let time = self.slot.end.left(Instant::now());
        let tally = self.cycle_for(session, "resuming", self.sizes.resumed, time)?;
        if tally.established == 0 {
            return Err(Error::target("no connection ended within this part's time"));
        }
        let spent = session.server_cpu() - before;
        let trials = Trials {
            offered: tally.established,
            resumed: tally.resumed,
            outcomes: Vec::new(),
            refusal: None,
        };
        // What survives a collection says more than whether resumed handshakes leave it behind, too.
        let by = log
            .collected
            .as_ref()
            .and_then(|collected| collected.by.as_ref());
        let is_first = log.growth_resumed.resident.is_none() && by.is_none();
        if log.growth.grew() && is_first && trials.share() > 0.9 {
            log.growth_resumed = self.rounds(session, log, ("resumed", self.sizes.per_round))?;
        }
        let us = spent.total_ns as f64 / 1e3 / tally.established as f64;
        Ok((us, trials))
    }

    /// The rounds of churn have the newest version. Resumed connections of an older one show what that leaves behind.
    pub(super) fn churn_older(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
    ) -> Result<(), Error> {
        if log.counts_growth() && !log.growth.grew() {
            let per_round = self.sizes.per_round.min(self.sizes.resumed);
            log.growth_older = self.rounds(session, log, ("resumed", per_round))?.in_use;
        }
        Ok(())
    }

    /// Connections that end before their handshake does. The session has no TLS, and each connection sends a few bytes.
    pub(super) fn churn_broken(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
    ) -> Result<(), Error> {
        // Their clients are faster than a slow server, which must catch up after each round.
        let left = self.slot.until.left(Instant::now());
        let most = left.map_or(u64::MAX, |left| {
            let of_round = left.mul_f64(BROKEN_SHARE) / self.sizes.rounds.max(1);
            (of_round.as_secs_f64() / log.each.as_secs_f64().max(1e-6)) as u64
        });
        let per_round = self.sizes.per_round.min(most);
        if per_round >= CONNECTIONS_MIN {
            log.growth_broken = self.rounds(session, log, ("broken", per_round))?.in_use;
        }
        Ok(())
    }

    /// Runs rounds of connections of another kind than those of churn and judges the growth over them, if the part has time
    /// for enough rounds.
    fn rounds(
        &self,
        session: &mut Session<'_>,
        log: &mut LoadLog,
        (kind, per_round): (&str, u64),
    ) -> Result<RoundsGrowth, Error> {
        let (mut resident, mut in_use, mut counted_blocks) = (Vec::new(), Vec::new(), Vec::new());
        let began = generations(session);
        let mut garbage = OldGarbage::of(session);
        let mut took = Duration::ZERO;
        for _ in 1..=RESTARTED * self.sizes.rounds {
            let round = resident.len() + 1;
            if round > self.sizes.rounds as usize {
                break;
            }
            let began = Instant::now();
            let missing = ROUNDS_MIN.saturating_sub(resident.len()).max(1);
            if !self.slot.has_room(began, took * missing as u32) {
                break;
            }
            let stage = format!("{kind} round {round} of {}", self.sizes.rounds);
            self.cycle(session, &stage, per_round)?;
            let sample = session.settled(0);
            let sample = sample.map(|sample| (session.begun, sample.memory.pss));
            let is_collected = self.await_collection(session, log);
            if garbage.begins_again(session) {
                resident.clear();
                in_use.clear();
                counted_blocks.clear();
            }
            resident.extend(sample);
            if log.counts_rounds && is_collected {
                let snapshot = session.census(0).ok();
                let bytes = counted(snapshot.as_ref());
                in_use.extend(bytes.map(|bytes| (session.begun, bytes)));
                counted_blocks.extend(snapshot.map(|snapshot| (session.begun, snapshot)));
            }
            took = began.elapsed();
        }
        if resident.len() < ROUNDS_MIN {
            return Ok(RoundsGrowth::default());
        }
        let in_use = (in_use.len() == resident.len()).then_some(&*in_use);
        let mut growth = RoundsGrowth::judge(&resident, in_use, per_round);
        let grew = growth.grew();
        if let Some(in_use) = growth.in_use.take_if(|_| grew) {
            let kind = (kind, per_round);
            let in_use = self.without_garbage(session, log, kind, began, in_use)?;
            growth.in_use = Some(if of_few_blocks(&counted_blocks) {
                Growth {
                    verdict: Verdict::Unclear,
                    ..in_use
                }
            } else {
                in_use
            });
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
