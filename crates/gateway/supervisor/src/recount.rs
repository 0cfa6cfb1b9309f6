//! Counts of connections after a keeper and its worker are gone for good.
//!
//! Each worker has its own part of most tables, and main clears that of the lost one. In the table of clients all workers
//! count in the same words: the others stop counting, main clears the table, and they count all their connections again.

use crate::serving::Serving;
use dormouse_handover::orders::Order;
use dormouse_reactor::process;
use dormouse_tables::counters::{Count, Kind};

/// Time for the workers to stop counting. Main does not wait longer for one that hangs or dies again and again: meanwhile
/// no client is counted.
const WAIT_MS: u64 = 5_000;

/// Time after the end of a recount in which a worker may die before it has counted again.
const SETTLE_MS: u64 = 5_000;

/// The progress of a recount.
#[derive(Default)]
pub(crate) struct Recount {
    /// The number of the recount, so that answers to an earlier one are not mistaken for answers to this one.
    number: u64,
    /// Workers that still count.
    waiting: Vec<usize>,
    /// When main stops waiting for them. `None`: it does not wait.
    due_ms: Option<u64>,
    settles_ms: u64,
}

impl Recount {
    /// Forgets the connections of workers that are gone for good. Called once per turn.
    pub(crate) fn forget_lost(&mut self, serving: &mut Serving) {
        let Serving { pairs, memory, .. } = serving;
        let mut is_begun = false;
        while let Some(worker) = pairs.next_lost() {
            tracing::error!(
                worker,
                "worker and keeper are gone; their connections are lost"
            );
            memory.traffic.lose_worker(worker as u32);
            memory.backends.lose_worker(worker as u32);
            if let Some(block) = memory.counters.block(worker) {
                let left = block.load(Count::Connections as usize);
                block.add(Count::ClosedByCrash as usize, left);
                let gauges = Count::ALL
                    .iter()
                    .filter(|count| count.kind() == Kind::Gauge);
                gauges.for_each(|&gauge| block.set(gauge as usize, 0));
            }
            is_begun = true;
        }
        if is_begun {
            self.begin(serving);
        } else if self
            .due_ms
            .is_some_and(|at_ms| at_ms <= process::boottime_ms())
        {
            self.end(serving);
        }
    }

    /// When main stops waiting for workers.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// Handles a worker that has stopped counting.
    pub(crate) fn note(&mut self, worker: usize, number: u64, serving: &Serving) {
        if self.due_ms.is_none() || number != self.number {
            return;
        }
        self.waiting.retain(|&other| other != worker);
        if self.waiting.is_empty() {
            self.end(serving);
        }
    }

    /// Begins again if a worker was replaced meanwhile: its predecessor may have obeyed some of the orders.
    pub(crate) fn note_ready(&mut self, serving: &Serving) {
        if self.due_ms.is_some() || process::boottime_ms() < self.settles_ms {
            self.begin(serving);
        }
    }

    fn begin(&mut self, serving: &Serving) {
        let now_ms = process::boottime_ms();
        serving.memory.clients.freeze(now_ms);
        self.due_ms.get_or_insert(now_ms + WAIT_MS);
        self.number += 1;
        self.waiting = serving.pairs.remaining();
        self.order(&Order::Uncount(self.number), serving);
        if self.waiting.is_empty() {
            self.end(serving);
        }
    }

    fn end(&mut self, serving: &Serving) {
        self.due_ms = None;
        self.settles_ms = process::boottime_ms() + SETTLE_MS;
        serving.memory.clients.clear();
        self.order(&Order::CountAgain, serving);
    }

    fn order(&self, order: &Order, serving: &Serving) {
        let remaining = serving.pairs.remaining().into_iter();
        remaining.for_each(|worker| serving.pairs.order(worker, order));
    }
}
