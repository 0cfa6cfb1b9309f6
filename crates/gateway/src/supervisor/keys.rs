//! Ticket keys: main has them and gives them to all workers. Where they come from is in
//! `ticket_keys`.

use super::Supervisor;
use super::pairs::Pair;
use crate::orders::Order;
use dormouse_engine::UnixTime;
use std::time::SystemTime;

impl Supervisor {
    /// How long until the keys are to be looked at; `None`: they don't change by themselves.
    pub(super) fn until_rotation_ms(&self) -> Option<u64> {
        self.ticket_keys.until_due_ms(unix_time())
    }

    /// Gives out new keys when it is time.
    pub(super) fn rotate_ticket_keys(&mut self) {
        if self.ticket_keys.update(unix_time(), &self.counters) {
            for pair in &self.pairs {
                self.give_ticket_keys(pair);
            }
        }
    }

    /// Gives the current keys to a worker.
    pub(super) fn give_ticket_keys(&self, pair: &Pair) {
        let keys = self.ticket_keys.keys().export();
        pair.order(&Order::TicketKeys(keys));
    }
}

pub(super) fn unix_time() -> UnixTime {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    UnixTime::since_unix_epoch(since)
}
