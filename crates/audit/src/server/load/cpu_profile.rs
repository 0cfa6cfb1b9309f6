//! CPU profile of the server's processes during handshakes, where this user may sample them.

use std::io;

use dormouse_census::{self as census, HotSpot};
use dormouse_reactor::process::{CpuSample, CpuSampler};

/// Minimum number of samples for meaningful shares.
const SAMPLES_MIN: usize = 50;

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

    pub(super) fn hot_spots(&self, pids: &[i32]) -> Result<Vec<HotSpot>, String> {
        match &self.sampler {
            Err(error) => Err(format!(
                "this user cannot sample CPU time ({error}): run as root, or set kernel.perf_event_paranoid to 0"
            )),
            Ok(_) if self.samples.len() < SAMPLES_MIN => Err(format!(
                "only {} samples were taken, too few for shares",
                self.samples.len()
            )),
            Ok(_) => Ok(census::hot_spots(&self.samples, pids)),
        }
    }
}
