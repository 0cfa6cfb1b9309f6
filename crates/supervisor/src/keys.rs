//! Ticket keys: main has them and gives them to all workers. Where they come from is in
//! `ticket_keys`.

use super::pairs::Pair;
use super::{Supervisor, TOKEN_TICKET_KEYS};
use crate::ticket_keys::Keyring;
use dormouse_handover::orders::Order;
use dormouse_handover::unix_time;
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::process::{Ended, Pid};
use std::io;

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
        if let Err(error) = wait_for_keys(&self.poller, &mut self.ticket_keys) {
            tracing::error!(%error, "nobody listens to the store of the ticket keys");
        }
    }

    /// Was it the process that talks to the store of the keys?
    pub(super) fn is_ticket_store(&mut self, pid: Pid, ended: Ended) -> bool {
        self.ticket_keys.ended(pid, ended, &self.counters)
    }

    /// Gives the current keys to a worker.
    pub(super) fn give_ticket_keys(&self, pair: &Pair) {
        let keys = self.ticket_keys.keys().export();
        pair.order(&Order::TicketKeys(keys));
    }
}

/// A store tells of new keys.
pub(super) fn wait_for_keys(poller: &Poller, ticket_keys: &mut Keyring) -> io::Result<()> {
    match ticket_keys.new_bell() {
        Some(bell) => poller.add(bell, TOKEN_TICKET_KEYS, Interest::READ),
        None => Ok(()),
    }
}
