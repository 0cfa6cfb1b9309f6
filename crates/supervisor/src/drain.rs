//! Draining: main starts and stops it, each worker closes its own connections.

use crate::serving::Serving;
use dormouse_config::show_duration;
use dormouse_handover::control;
use dormouse_handover::control::DrainOrder;
use dormouse_handover::orders::Order;
use dormouse_reactor::process;
use dormouse_tables::counters::Count;
use std::time::Duration;

/// Maximum duration of a drain; a longer one is a mistake.
const OVER_MS_MAX: u64 = 30 * 86_400_000;

/// Interval at which to check for the end of a drain that ends the program.
const CHECK_MS: u64 = 100;

/// The current drain, if there is one.
#[derive(Default)]
pub(crate) struct Drain {
    current: Option<control::Drain>,
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
        let connections = sum(Count::Connections) + sum(Count::Handshaking);
        let drain = control::Drain {
            begun_ms: process::boottime_ms(),
            over_ms,
            order,
            connections,
            closed_before: sum(Count::ClosedDrained),
        };
        let was_draining = self.current.replace(drain).is_some();
        serving.pairs.order_all(&Order::Drain { over_ms, order });
        // After the order, so that no worker polls a paused listener.
        if !was_draining {
            serving.listening.pause();
        }
        let over = show_duration(Duration::from_millis(over_ms));
        Ok(format!(
            "draining: closing {connections} connections evenly over {over}; no new connections are accepted"
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
        let Some(drain) = &self.current else {
            return true;
        };
        let counters = &serving.memory.counters;
        let left =
            counters.sum(Count::Connections as usize) + counters.sum(Count::Handshaking as usize);
        left == 0 || drain.begun_ms + drain.over_ms <= process::boottime_ms()
    }

    /// Time of the next check for the end of the drain.
    pub(crate) fn next_check_ms(&self) -> Option<u64> {
        let drain = self.current.as_ref()?;
        let soon_ms = process::boottime_ms() + CHECK_MS;
        Some(soon_ms.min(drain.begun_ms + drain.over_ms))
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.current.is_some()
    }

    /// The drain, for control.
    pub(crate) fn report(&self) -> Option<control::Drain> {
        self.current.clone()
    }

    /// The rest of the drain, for a worker that restarts after a crash.
    pub(crate) fn rest(&self) -> Option<Order> {
        let drain = self.current.as_ref()?;
        let end_ms = drain.begun_ms + drain.over_ms;
        Some(Order::Drain {
            over_ms: end_ms.saturating_sub(process::boottime_ms()),
            order: drain.order,
        })
    }
}
