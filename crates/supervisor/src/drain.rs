//! Draining: main begins and ends it, each worker closes its own.

use super::Supervisor;
use super::listeners;
use dormouse_config::show_duration;
use dormouse_handover::orders::Order;
use dormouse_handover::talk::{Drain, DrainOrder};
use dormouse_reactor::process;
use dormouse_tables::counters::Count;
use std::time::Duration;

/// Longer drains are mistakes.
const OVER_MS_MAX: u64 = 30 * 86_400_000;

impl Supervisor {
    /// Begins to close all connections, evenly over a time. One that goes on is replaced.
    pub(super) fn begin_drain(
        &mut self,
        over_ms: u64,
        order: DrainOrder,
    ) -> Result<String, String> {
        if self.stopping {
            return Err("the program is about to end".to_owned());
        }
        self.not_while_upgrading()?;
        if over_ms > OVER_MS_MAX {
            return Err("a drain takes 30 days at most".to_owned());
        }
        let sum = |count: Count| self.counters.sum(count as usize);
        let connections = sum(Count::Connections) + sum(Count::Handshaking);
        let drain = Drain {
            begun_ms: process::boottime_ms(),
            over_ms,
            order,
            connections,
            closed_before: sum(Count::ClosedDrained),
        };
        let was_draining = self.drain.replace(drain).is_some();
        for pair in &self.pairs {
            pair.order(&Order::Drain { over_ms, order });
        }
        // After the order, so that no worker polls a listener that does not listen.
        if !was_draining {
            listeners::pause(&self.listeners);
        }
        let over = show_duration(Duration::from_millis(over_ms));
        Ok(format!(
            "draining: {connections} connections are closed evenly over {over}; nothing new is accepted"
        ))
    }

    /// Accepts again.
    pub(super) fn stop_drain(&mut self) -> Result<String, String> {
        if self.drain.is_none() {
            return Err("there is no drain that could be stopped".to_owned());
        }
        listeners::resume(&self.listeners, &self.config)?;
        self.drain = None;
        for pair in &self.pairs {
            pair.order(&Order::StopDrain);
        }
        Ok("the drain is stopped; new connections are accepted again".to_owned())
    }

    /// A worker that came after a crash knows nothing of a drain: it does the rest of it.
    pub(super) fn rest_of_drain(&self) -> Option<Order> {
        let drain = self.drain.as_ref()?;
        let end_ms = drain.begun_ms + drain.over_ms;
        Some(Order::Drain {
            over_ms: end_ms.saturating_sub(process::boottime_ms()),
            order: drain.order,
        })
    }
}
