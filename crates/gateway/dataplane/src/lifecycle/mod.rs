//! The life of the worker: recovery, startup, reload, drain, pages of connections, stop and upgrade.

pub(crate) mod drain;
mod next_routes;
pub(crate) mod page;
pub(crate) mod recover;
pub(crate) mod reload;
pub(crate) mod retirement;
pub(crate) mod startup;
pub(crate) mod stop;
pub(crate) mod upgrade;

use dormouse_handover::orders::Order;
use dormouse_reactor::Fd;
use drain::Drain;
use reload::Reloader;
use startup::Startup;
use stop::Stop;
use upgrade::Upgrade;

/// State of the worker's life.
pub(crate) struct Lifecycle {
    /// The channel to main.
    pub(crate) orders: Fd,
    pub(crate) startup: Startup,
    pub(crate) reloader: Reloader,
    /// Orders that wait for the end of the reload under way.
    pub(crate) deferred: Vec<Order>,
    pub(crate) drain: Option<Drain>,
    /// The number of main's order to report when no connection is left.
    pub(crate) reports_empty: Option<u64>,
    pub(crate) stop: Option<Stop>,
    /// When the worker stops because main has died.
    pub(crate) orphaned_until_ms: Option<u64>,
    pub(crate) upgrade: Upgrade,
}

impl Lifecycle {
    /// The earliest deadline.
    pub(crate) fn next_deadline_ms(&self, now_ms: u64) -> Option<u64> {
        let deadlines = [
            self.drain.as_ref().map(Drain::next_deadline_ms),
            self.stop.as_ref().map(|stop| stop.next_deadline_ms(now_ms)),
            self.orphaned_until_ms,
            self.upgrade.next_deadline_ms(),
        ];
        deadlines.into_iter().flatten().min()
    }
}
