//! Ticket keys: made and rotated by main, the same in all workers.

use super::Supervisor;
use super::pairs::Pair;
use crate::config::Config;
use crate::orders::Order;
use dormouse_engine::UnixTime;
use std::time::SystemTime;

impl Supervisor {
    /// How long until the keys are to be rotated; `None`: they are not.
    pub(super) fn until_rotation_ms(&self) -> Option<u64> {
        let rotates_at_s = self.ticket_keys.rotates_at_s()?;
        Some(rotates_at_s.saturating_sub(unix_time().as_secs()) * 1000)
    }

    /// Gives out new keys when it is time.
    pub(super) fn rotate_ticket_keys(&mut self) {
        match self.ticket_keys.rotate_if_due(unix_time()) {
            Ok(false) => {}
            Ok(true) => {
                for pair in &self.pairs {
                    self.give_ticket_keys(pair);
                }
            }
            Err(error) => tracing::error!(%error, "ticket keys could not be rotated"),
        }
    }

    /// Gives the current keys to a worker.
    pub(super) fn give_ticket_keys(&self, pair: &Pair) {
        let keys = self.ticket_keys.export();
        pair.order(&Order::TicketKeys(keys));
    }
}

pub(super) fn unix_time() -> UnixTime {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    UnixTime::since_unix_epoch(since)
}

pub(super) fn rotation_s(config: &Config) -> u32 {
    u32::try_from(config.tickets.ticket_rotation.as_secs()).unwrap_or(u32::MAX)
}
