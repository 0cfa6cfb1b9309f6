//! The first connections: how fast the server is, how many it serves at a time, and how its heap can be read.

use std::time::{Duration, Instant};

use super::heap_reader::Collection;
use super::parallel;
use super::running::{Partly, RunningPart, failed_to_open, half_ms};
use crate::model::ParallelHandshakes;
use crate::server::spec::Sizes;
use dormouse_bench::load::{Cycle, Order};
use dormouse_census::{self as census, Detail};
use dormouse_measure::Error;

/// Connections that measure the server's speed and let it complete its one-time setup.
const FIRST: u64 = 100;
/// Connections that are open at a time at first.
const AT_A_TIME: u64 = 16;

/// What the first connections show.
#[derive(Default)]
pub(super) struct Speed {
    /// CPU and network time of one connection.
    pub(super) each: Duration,
    /// Maximum number of concurrent connections that the server serves, if it is below the number tried.
    pub(super) served_at_once: Option<u64>,
    /// Duration of one census.
    pub(super) census_took: Duration,
    /// Speed of one client and of several, or why it is missing.
    pub(super) parallel: Option<Result<ParallelHandshakes, String>>,
}

impl Speed {
    /// Returns sizes for a server that serves few connections at a time.
    pub(super) fn fitted(&self, sizes: Sizes) -> Sizes {
        let Some(most) = self.served_at_once else {
            return sizes;
        };
        let lanes = sizes.lanes.min(u32::try_from(most).unwrap_or(u32::MAX));
        Sizes {
            n: sizes.n.min((most / 2).max(1)),
            lanes: lanes.max(1),
            ..sizes
        }
    }
}

impl RunningPart<'_, '_> {
    /// Opens the first connections.
    pub(super) fn first_connections(&mut self) -> Partly<Speed> {
        let mut speed = Speed::default();
        let end = self.try_out(&mut speed);
        (speed, end)
    }

    fn try_out(&mut self, speed: &mut Speed) -> Result<(), Error> {
        let few = u64::from(self.sizes.lanes).min(AT_A_TIME);
        let order = Order::Open {
            alive: few,
            per_s: 0.0,
            in_flight_max: self.in_flight_max,
        };
        let report = self
            .session
            .order("trying", Some(few), &order, |tally| tally.alive)?;
        let alive = report.of.tally.alive;
        if alive == 0 {
            report.ensure_complete()?;
            return Err(failed_to_open(0, few, &report.of.failures));
        }
        self.session
            .order("trying", None, &Order::Close, |tally| tally.closed)?;
        speed.served_at_once = Some(alive).filter(|alive| *alive < few);
        let lanes = u32::try_from(alive).unwrap_or(1);
        let left = self.slot.until.left(Instant::now());
        let order = Order::Cycle(Cycle {
            for_ms: left.map_or(0, half_ms),
            ..Cycle::once(FIRST, lanes)
        });
        let began = Instant::now();
        let report = self
            .session
            .order("warming up", Some(FIRST), &order, |tally| tally.closed)?;
        speed.each = began
            .elapsed()
            .div_f64(report.of.tally.closed.max(1) as f64);
        report.ensure_complete()?;
        speed.parallel = Some(if self.is_late() {
            Err("the time was too short; --time raises the limit".into())
        } else {
            let pids = self.pids();
            parallel::measure(self.session, lanes, &pids)?
        });
        if self.heap.collects {
            let began = Instant::now();
            let answers = self.objects(Detail::Bytes).bytes().is_some();
            self.heap.collection = match answers {
                true => Collection::Takes(began.elapsed()),
                false => Collection::Never,
            };
        }
        let began = Instant::now();
        let patience = self.limit(census::PATIENCE);
        self.heap.no_census = census::take_within(patience, &self.pids(), 0).err();
        speed.census_took = began.elapsed();
        self.go_on()
    }
}
