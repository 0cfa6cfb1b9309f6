//! A worker after main's death. Its keeper bounds the time that it has left (`keeper/orphaned.rs`).

use super::Worker;
use crate::io::Io;
use dormouse_handover::control::DrainOrder;
use dormouse_handover::orders::Order;

impl<I: Io> Worker<I> {
    /// Closes the listeners, so that a new start can open the same addresses, and drains the
    /// connections evenly.
    pub(super) fn end_without_main(&mut self, error: &std::io::Error) {
        let over_ms = self.cx.settings.limits.shutdown_drain_ms;
        tracing::error!(
            %error,
            over_s = over_ms / 1000,
            "main process died; draining connections over this time"
        );
        if self.lifecycle.stop.is_some() {
            return;
        }
        self.obey(Order::Drain {
            over_ms,
            order: DrainOrder::Longest,
        });
        for listener in self.door.replace(Vec::new(), &self.cx.work) {
            self.cx.work.io.close(listener.fd);
        }
        self.lifecycle.orphaned_until_ms = Some(self.cx.work.now_ms + over_ms);
    }

    /// Stops the worker when a drain without main is over.
    pub(super) fn stop_if_orphaned(&mut self) {
        let is_over =
            |until_ms: u64| until_ms <= self.cx.work.now_ms || self.cx.connections.live() == 0;
        if self
            .lifecycle
            .orphaned_until_ms
            .take_if(|at_ms| is_over(*at_ms))
            .is_some()
        {
            self.obey(Order::Stop);
        }
    }
}
