//! CPU profile of the server's processes during handshakes, where this user may sample them.

use std::io;

use dormouse_census::{self as census, HotSpot};
use dormouse_measure::CpuTime;
use dormouse_reactor::process::{CpuSample, CpuSampler};

/// Minimum number of samples for meaningful shares.
const SAMPLES_MIN: usize = 50;
/// Share of the CPU time that the samples must explain. Samples of a process that has ended cannot be attributed.
const SAMPLED_SHARE: f64 = 0.5;

/// CPU profile of the server's processes during handshakes.
pub(super) struct CpuProfile {
    sampler: io::Result<CpuSampler>,
    samples: Vec<CpuSample>,
}

impl CpuProfile {
    pub(super) fn start() -> Self {
        Self {
            sampler: CpuSampler::start(),
            samples: Vec::new(),
        }
    }

    /// Drops the samples since the last call.
    pub(super) fn skip(&mut self) {
        if let Ok(sampler) = &mut self.sampler {
            drop(sampler.take());
        }
    }

    /// Adds the samples of these processes since the last call.
    pub(super) fn add(&mut self, pids: &[i32]) {
        let taken = self
            .sampler
            .as_mut()
            .map_or_else(|_| Vec::new(), CpuSampler::take);
        let own = taken
            .into_iter()
            .filter(|sample| pids.contains(&sample.pid));
        self.samples.extend(own);
    }

    /// What the processes did in the CPU time that they spent, by their samples.
    pub(super) fn hot_spots(&self, pids: &[i32], spent: CpuTime) -> Result<Vec<HotSpot>, String> {
        match &self.sampler {
            Err(error) => Err(format!(
                "this user cannot sample CPU time ({error}): run as root, or set kernel.perf_event_paranoid to 0"
            )),
            Ok(_) if self.samples.len() < SAMPLES_MIN => Err(format!(
                "only {} samples were taken, too few for shares",
                self.samples.len()
            )),
            Ok(_) if !explains(self.samples.len(), spent) => Err(
                "most of the CPU time was spent in processes that ended with their connections, and whose programs are no longer known"
                    .into(),
            ),
            Ok(_) => census::hot_spots(&self.samples, pids),
        }
    }
}

/// Whether this many samples are most of the CPU time.
fn explains(samples: usize, spent: CpuTime) -> bool {
    let sampled = CpuSampler::PERIOD.as_nanos() as f64 * samples as f64;
    sampled >= SAMPLED_SHARE * spent.total_ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded: PostgreSQL's first process spent a tenth of the time, all of it in the kernel.
    #[test]
    fn samples_of_the_rest_do_not_speak_for_processes_that_ended() {
        let spent = CpuTime {
            total_ns: 1_000_000_000,
            ..CpuTime::default()
        };
        assert!(!explains(50, spent));
        assert!(explains(450, spent));
    }
}
