//! Draining: main starts and stops it, each worker closes its own connections.

use crate::pairs::Pairs;
use crate::serving::Serving;
use dormouse_config::show_duration;
use dormouse_handover::control;
use dormouse_handover::control::DrainOrder;
use dormouse_handover::orders::Order;
use dormouse_reactor::process;
use dormouse_tables::counters::Count;
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum duration of a drain; a longer one is a mistake.
const OVER_MS_MAX: u64 = 30 * 86_400_000;

/// The current drain, if there is one.
#[derive(Default)]
pub(crate) struct Drain {
    current: Option<control::Drain>,
    /// The number of the drain, so that reports of an earlier one are not mistaken for reports of this one.
    number: u64,
    /// Workers that have no connection any more. Main asks each of them: all workers can write the counters.
    empty: BTreeSet<usize>,
}

impl Drain {
    /// Starts to close all connections, evenly over a time. Replaces a drain in progress.
    pub(crate) fn begin(
        &mut self,
        over_ms: u64,
        order: DrainOrder,
        serving: &Serving,
    ) -> Result<String, String> {
        if over_ms > OVER_MS_MAX {
            return Err("a drain may last at most 30 days".to_owned());
        }
        let sum = |count: Count| serving.memory.counters.sum(count as usize);
        let connections = sum(Count::Connections).wrapping_add(sum(Count::Handshaking));
        let drain = control::Drain {
            begun_ms: process::boottime_ms(),
            over_ms,
            order,
            connections,
            closed_before: sum(Count::ClosedDrained),
            is_empty: false,
        };
        let was_draining = self.current.replace(drain).is_some();
        serving.pairs.order_all(&Order::Drain { over_ms, order });
        self.number += 1;
        self.empty.clear();
        serving.pairs.order_all(&Order::ReportEmpty(self.number));
        // After the order, so that no worker polls a paused listener.
        if !was_draining {
            serving.listening.pause();
        }
        let over = show_duration(Duration::from_millis(over_ms));
        let all = match connections {
            1 => "1 connection".to_owned(),
            _ => format!("{connections} connections"),
        };
        Ok(format!(
            "draining: closing {all} evenly over {over}; no new connections are accepted"
        ))
    }

    /// Stops the drain, and accepts connections again.
    pub(crate) fn stop(&mut self, serving: &Serving) -> Result<String, String> {
        if self.current.is_none() {
            return Err("no drain is in progress".to_owned());
        }
        serving.listening.resume(&serving.edition.config)?;
        self.current = None;
        serving.pairs.order_all(&Order::StopDrain);
        Ok("drain stopped; new connections are accepted again".to_owned())
    }

    /// Whether all connections are closed or the time is over. `true` without a drain.
    pub(crate) fn is_done(&self, serving: &Serving) -> bool {
        let is_over = |ends_ms| ends_ms <= process::boottime_ms();
        self.ends_ms().is_none_or(is_over) || self.is_empty(&serving.pairs)
    }

    fn is_empty(&self, pairs: &Pairs) -> bool {
        let mut workers = pairs.remaining().into_iter();
        workers.all(|worker| self.empty.contains(&worker))
    }

    /// Handles a worker's report that it has no connection any more.
    pub(crate) fn note_empty(&mut self, worker: usize, number: u64) {
        if number == self.number {
            self.empty.insert(worker);
        }
    }

    /// When the time is over.
    pub(crate) fn ends_ms(&self) -> Option<u64> {
        let drain = self.current.as_ref()?;
        Some(drain.begun_ms + drain.over_ms)
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.current.is_some()
    }

    /// The drain, for control.
    pub(crate) fn report(&self, pairs: &Pairs) -> Option<control::Drain> {
        let drain = self.current.clone()?;
        let is_empty = self.is_empty(pairs);
        Some(control::Drain { is_empty, ..drain })
    }

    /// Orders the rest of the drain from a worker that has restarted after a crash. Returns `false` without a drain.
    pub(crate) fn order_rest(&mut self, worker: usize, pairs: &Pairs) -> bool {
        let Some(drain) = &self.current else {
            return false;
        };
        let ends_ms = drain.begun_ms + drain.over_ms;
        let rest = Order::Drain {
            over_ms: ends_ms.saturating_sub(process::boottime_ms()),
            order: drain.order,
        };
        self.empty.remove(&worker);
        pairs.order(worker, &rest);
        pairs.order(worker, &Order::ReportEmpty(self.number));
        true
    }
}
