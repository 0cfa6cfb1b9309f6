//! The life of the worker: what it finds, what main asks of it, and how it ends.

pub(crate) mod drain;
pub(crate) mod recover;
pub(crate) mod reload;
pub(crate) mod startup;
pub(crate) mod stop;
pub(crate) mod upgrade;

use dormouse_reactor::Fd;
use drain::Drain;
use reload::Reloader;
use startup::Startup;
use stop::Stop;
use upgrade::Upgrade;

/// Where the worker is in its life.
pub(crate) struct Lifecycle {
    /// The channel to main.
    pub(crate) orders: Fd,
    pub(crate) startup: Startup,
    pub(crate) reloader: Reloader,
    pub(crate) drain: Option<Drain>,
    pub(crate) stop: Option<Stop>,
    /// Main has died: when the worker stops.
    pub(crate) orphaned_until_ms: Option<u64>,
    pub(crate) upgrade: Upgrade,
}

impl Lifecycle {
    /// When the next part of it is due.
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
