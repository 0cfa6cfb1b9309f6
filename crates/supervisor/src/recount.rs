//! Counts of connections after a keeper and its worker are gone for good.
//!
//! Each worker has its own part of most tables, and main clears that of the lost one. In the table of clients all workers
//! count in the same words: the others take their connections out, main clears what is left, and they count again.
//! Meanwhile no client is refused for its number of connections.

use crate::pairs::Pairs;
use crate::serving::Serving;
use dormouse_handover::orders::Order;
use dormouse_reactor::process;
use dormouse_tables::counters::{Count, Kind};

/// The progress of a recount.
#[derive(Default)]
pub(crate) struct Recount {
    /// Workers that have not taken their connections out yet.
    waiting: Vec<usize>,
}

impl Recount {
    /// Forgets the connections of workers that are gone for good. Called once per turn.
    pub(crate) fn forget_lost(&mut self, serving: &mut Serving) {
        // A lost worker does not take its connections out.
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
            memory.clients.freeze(process::boottime_ms());
            self.waiting = pairs.remaining();
            let waiting = self.waiting.iter();
            waiting.for_each(|&worker| pairs.order(worker, &Order::Uncount));
            self.end_if_complete(serving);
        }
    }

    /// Handles a worker that has taken its connections out.
    pub(crate) fn note(&mut self, worker: usize, serving: &Serving) {
        if let Some(place) = self.waiting.iter().position(|&other| other == worker) {
            self.waiting.swap_remove(place);
            self.end_if_complete(serving);
        }
    }

    /// Repeats the order to a new worker, whose predecessor may have had it.
    pub(crate) fn repeat(&self, worker: usize, pairs: &Pairs) {
        if self.waiting.contains(&worker) {
            pairs.order(worker, &Order::Uncount);
        }
    }

    fn end_if_complete(&self, serving: &Serving) {
        if self.waiting.is_empty() {
            serving.memory.clients.clear();
            let remaining = serving.pairs.remaining().into_iter();
            remaining.for_each(|worker| serving.pairs.order(worker, &Order::CountAgain));
        }
    }
}
