//! Traces: main tells the workers which clients' connections have log lines for a limited time.

use crate::pairs::Pairs;
use dormouse_config::{Network, show_duration};
use dormouse_handover::orders::{Order, TRACES_MAX};
use dormouse_reactor::process;
use std::time::Duration;

/// Maximum duration of a trace.
const FOR_MS_MAX: u64 = 3_600_000;

/// The traces that are not over.
#[derive(Default)]
pub(crate) struct Traces(Vec<(Network, u64)>);

impl Traces {
    /// Begins a trace, in place of a former one of the same clients.
    pub(crate) fn begin(
        &mut self,
        client: Network,
        for_ms: u64,
        pairs: &Pairs,
    ) -> Result<String, String> {
        if !(1..=FOR_MS_MAX).contains(&for_ms) {
            return Err("a trace may last at most an hour".to_owned());
        }
        let now_ms = process::boottime_ms();
        self.0
            .retain(|(other, until_ms)| *other != client && *until_ms > now_ms);
        if self.0.len() == TRACES_MAX {
            return Err(format!(
                "there are {TRACES_MAX} traces already; wait until one of them is over"
            ));
        }
        let until_ms = now_ms + for_ms;
        self.0.push((client, until_ms));
        pairs.order_all(&Order::Trace(until_ms, client));
        let time = show_duration(Duration::from_millis(for_ms));
        Ok(format!(
            "handshakes and ends of connections from {client} have lines in the log for {time}"
        ))
    }

    /// Tells a new worker.
    pub(crate) fn repeat(&self, worker: usize, pairs: &Pairs) {
        let now_ms = process::boottime_ms();
        let open = self.0.iter().filter(|(_, until_ms)| *until_ms > now_ms);
        open.for_each(|&(client, until_ms)| pairs.order(worker, &Order::Trace(until_ms, client)));
    }
}
