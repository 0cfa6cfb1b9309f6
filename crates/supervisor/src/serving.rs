//! Everything that serves: the current edition, and what workers need to follow it.

use crate::contexts;
use crate::edition::{Edition, addresses};
use crate::listening::{self, Listening};
use crate::material::Material;
use crate::pairs::Pairs;
use crate::reload::FixedAtStart;
use crate::shared_memory::SharedMemory;
use crate::ticket_keys::Keyring;
use crate::tokens;
use dormouse_config::{Config, Plan};
use dormouse_handover::orders::Order;
use dormouse_handover::share::Share;
use dormouse_handover::unix_time;
use dormouse_handover::{Descriptors, Handover};
use dormouse_reactor::Fd;
use dormouse_reactor::poller::{Interest, Poller};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;

/// The running configuration, and what serves it.
pub(crate) struct Serving {
    pub(crate) edition: Edition,
    /// Slots of all workers; fixed at the start.
    pub(crate) connections_max: u64,
    /// User and group of keepers and workers. `None`: those of main.
    pub(crate) user: Option<(u32, u32)>,
    pub(crate) memory: SharedMemory,
    pub(crate) ticket_keys: Keyring,
    pub(crate) listening: Listening,
    pub(crate) pairs: Pairs,
}

impl Serving {
    /// Starts all keepers, which start their workers.
    pub(crate) fn start_pairs(&mut self, poller: &Poller) -> io::Result<()> {
        // Workers only look places up.
        for upstream in self.edition.upstreams() {
            for address in addresses(&upstream.backend) {
                self.memory.backends.place(&address);
            }
        }
        for worker in 0..self.edition.plan.workers {
            let handover = self.handover(worker);
            self.pairs.start(handover, poller)?;
        }
        Ok(())
    }

    /// The handover of a worker, for its start and for each edition.
    pub(crate) fn handover(&self, worker: u32) -> Handover {
        let Edition {
            number,
            config,
            plan,
            material,
            ..
        } = &self.edition;
        let share = match self.pairs.share(worker) {
            Some(share) => share.renewed(worker, plan),
            None => Share::of(worker, plan),
        };
        let mut descriptors = Descriptors {
            slots: -1,
            pending: -1,
            orders: -1,
            notes: -1,
            ..Descriptors::default()
        };
        self.listening.describe(&mut descriptors);
        self.memory.describe(&mut descriptors);
        Handover {
            worker,
            edition: *number,
            config: config.clone(),
            user: self.user,
            share,
            numbers: self.listening.numbers().list(),
            certificates: material.certificates.clone(),
            clients: material.client_trust.clone(),
            origins: material.origins.clone(),
            backend_tls: material.backend_tls.clone(),
            ticket_keys: self.ticket_keys.keys().export().to_vec(),
            descriptors,
        }
    }

    /// The descriptors that the next binary in this process needs.
    pub(crate) fn fds(&self) -> Vec<Fd> {
        [
            self.memory.fds(),
            self.listening.fds(),
            self.listening.redirects(),
            self.listening.spare(),
            self.pairs.fds(),
        ]
        .concat()
    }

    // ---- editions ----

    /// The properties that a reload cannot change.
    pub(crate) fn fixed(&self) -> FixedAtStart {
        FixedAtStart {
            connections_max: self.connections_max,
            has_sessions: self.memory.sessions.is_some(),
            has_paces: self.memory.clients.has_paces(),
            has_log_sources: !self.pairs.log_sources().is_empty(),
        }
    }

    /// Applies a reloaded configuration to sessions and ticket keys.
    pub(crate) fn follow(&mut self, config: &Config, material: &Material) -> Result<(), String> {
        contexts::of_origins(config, material)?;
        if let Some(sessions) = &mut self.memory.sessions {
            let followed = sessions.follow(config, &material.origins);
            followed.map_err(|mistakes| in_words(&mistakes))?;
        }
        let followed = self.ticket_keys.follow(config, unix_time());
        followed.map_err(|mistakes| in_words(&mistakes))
    }

    /// Switches to another edition. On an error nothing has changed.
    pub(crate) fn apply(
        &mut self,
        config: Config,
        plan: Plan,
        material: Material,
        is_draining: bool,
    ) -> Result<(), String> {
        let (keys, backends) = (self.ticket_keys.keys(), &self.memory.backends);
        let routes = contexts::of_routes(&config, &material, keys, backends)?;
        contexts::of_backends(&config, &material, routes)?;
        let listening = self.listening.prepare(&config);
        let listening = listening.map_err(|error| error.to_string())?;
        let has_other_backlog = config.sockets.backlog != self.edition.config.sockets.backlog;
        let backlog = has_other_backlog.then(|| listening::backlog(&config));
        self.listening.replace_by(listening, is_draining, backlog);
        self.edition = self.edition.followed_by(config, plan, material);
        for worker in 0..self.pairs.len() {
            self.give_edition(worker);
        }
        Ok(())
    }

    /// As [`Serving::apply`], with the same configuration and other certificates.
    pub(crate) fn apply_material(
        &mut self,
        material: Material,
        is_draining: bool,
    ) -> Result<(), String> {
        let (config, plan) = (self.edition.config.clone(), self.edition.plan.clone());
        self.apply(config, plan, material, is_draining)
    }

    /// Sends the current edition to a worker. A worker that does not receive it now gets it again when it
    /// becomes ready, or has answered earlier editions.
    pub(crate) fn give_edition(&mut self, worker: usize) {
        let handover = self.handover(worker as u32);
        let given = self
            .pairs
            .give_edition(worker, handover, &self.listening.fds());
        if let Err(error) = given {
            tracing::error!(%error, worker, "configuration could not be sent to a worker");
        }
    }

    // ---- workers ----

    /// Sends a worker that has become ready what its handover lacks, because its keeper may have kept the
    /// handover since the start.
    pub(crate) fn bring_up_to_date(&mut self, worker: usize) {
        self.pairs.order(worker, &self.ticket_keys_order());
        self.give_addresses(worker);
        if !self.pairs.has_edition(worker, self.edition.number) {
            self.give_edition(worker);
        }
    }

    fn give_addresses(&self, worker: usize) {
        let mut given = BTreeSet::new();
        for upstream in self.edition.upstreams() {
            let Some(name) = upstream.backend.name() else {
                continue;
            };
            if given.insert(name) {
                let addresses = upstream.backend.addresses().collect();
                self.pairs.order(worker, &addresses_order(name, addresses));
            }
        }
    }

    /// Replaces the addresses of a name. Returns `false` if they are unchanged.
    pub(crate) fn set_addresses(&mut self, name: &str, found: &[SocketAddr]) -> bool {
        if !self.edition.set_addresses(name, found) {
            return false;
        }
        let shown: Vec<String> = found.iter().map(SocketAddr::to_string).collect();
        tracing::info!(
            name,
            addresses = shown.join(", "),
            "backend addresses changed"
        );
        for address in &shown {
            self.memory.backends.place(address);
        }
        self.pairs.order_all(&addresses_order(name, found.to_vec()));
        true
    }

    /// Rotates ticket keys if a rotation is due, and polls the ticket store's process.
    pub(crate) fn rotate_ticket_keys(&mut self, poller: &Poller) {
        if self.ticket_keys.update(unix_time(), &self.memory.counters) {
            self.pairs.order_all(&self.ticket_keys_order());
        }
        if let Err(error) = self.wait_for_ticket_keys(poller) {
            tracing::error!(%error, "ticket store process could not be polled");
        }
    }

    /// Rotates ticket keys now.
    pub(crate) fn rotate_ticket_keys_now(&mut self) -> Result<(), String> {
        let saved = self
            .ticket_keys
            .rotate_now(unix_time(), &self.memory.counters)?;
        self.pairs.order_all(&self.ticket_keys_order());
        saved.map_err(|why| {
            format!("new ticket keys are in use, but a restart returns to the previous ones: {why}")
        })
    }

    /// Starts to poll the ticket store's process, if there is a new one.
    pub(crate) fn wait_for_ticket_keys(&mut self, poller: &Poller) -> io::Result<()> {
        match self.ticket_keys.new_channel() {
            Some(channel) => poller.add(channel, tokens::TICKET_KEYS, Interest::READ),
            None => Ok(()),
        }
    }

    fn ticket_keys_order(&self) -> Order {
        Order::TicketKeys(self.ticket_keys.keys().export())
    }
}

fn addresses_order(name: &str, addresses: Vec<SocketAddr>) -> Order {
    Order::Addresses {
        name: name.to_owned(),
        addresses,
    }
}

/// Mistakes in the format of `dormouse check`.
fn in_words(mistakes: &[String]) -> String {
    let lines: Vec<String> = mistakes.iter().map(|m| format!("error: {m}")).collect();
    lines.join("\n\n")
}
