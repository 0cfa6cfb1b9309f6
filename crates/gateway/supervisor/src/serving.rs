//! Everything that serves: the current edition, and what workers need to follow it.

use crate::configuration::edition::{Edition, addresses};
use crate::contexts;
use crate::deep_rest::DeepRest;
use crate::material::Material;
use crate::pairs::Pairs;
use crate::reload::FixedAtStart;
use crate::reported::Reported;
use crate::session_files::SessionFile;
use crate::shared_memory::SharedMemory;
use crate::sockets::listening::{self, Listening};
use crate::ticket_keys::Keyring;
use crate::tokens;
use dormouse_config::{Config, Plan, ResolveNames};
use dormouse_handover::child::Bounds;
use dormouse_handover::orders::Order;
use dormouse_handover::share::Share;
use dormouse_handover::stored::Packed;
use dormouse_handover::unix_time;
use dormouse_handover::{Descriptors, Handover, RoutesToPack};
use dormouse_reactor::Fd;
use dormouse_reactor::poller::{Interest, Poller};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;

/// The running configuration, and what serves it.
pub(crate) struct Serving {
    pub(crate) edition: Edition,
    /// What control is told of the edition, once it was built.
    pub(crate) reported: OnceCell<Rc<Reported>>,
    /// Slots of all workers; fixed at the start.
    pub(crate) connections_max: u64,
    /// User and group of keepers and workers. `None`: those of main.
    pub(crate) user: Option<(u32, u32)>,
    pub(crate) memory: SharedMemory,
    pub(crate) ticket_keys: Keyring,
    pub(crate) listening: Listening,
    pub(crate) pairs: Pairs,
    /// What connections in deep rest need, if a route had them at the start.
    pub(crate) rest: Option<DeepRest>,
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
        let packed = self.packed()?;
        for worker in 0..self.edition.plan.workers {
            let handover = self.handover(worker);
            self.pairs.start(handover, &packed, poller)?;
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
        let mut share = match self.pairs.share(worker) {
            Some(share) => share.renewed(worker, plan),
            None => Share::of(worker, plan),
        };
        share.timeouts_since_ms = self.edition.timeouts_since_ms;
        let mut descriptors = Descriptors {
            slots: -1,
            pending: -1,
            orders: -1,
            notes: -1,
            log_entries: (-1, 0),
            log_lines: -1,
            ..Descriptors::default()
        };
        self.listening.describe(&mut descriptors);
        self.memory.describe(&mut descriptors);
        descriptors.rest = self.rest.as_ref().map(|rest| rest.describe(worker));
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

    /// What control is told of the edition.
    pub(crate) fn reported(&self) -> &Rc<Reported> {
        let (edition, table) = (&self.edition, &self.memory.backends);
        self.reported
            .get_or_init(|| Rc::new(Reported::of(edition, &self.listening, table)))
    }

    /// The descriptors that the next binary in this process needs.
    pub(crate) fn fds(&self) -> Vec<Fd> {
        [
            self.memory.fds(),
            self.listening.fds(),
            self.listening.redirects(),
            self.listening.spare(),
            self.pairs.fds(),
            self.rest.as_ref().map(DeepRest::fds).unwrap_or_default(),
        ]
        .concat()
    }

    // ---- editions ----

    /// The properties that a reload cannot change.
    pub(crate) fn fixed(&self) -> FixedAtStart {
        FixedAtStart {
            connections_max: self.connections_max,
            has_sessions: self.memory.sessions.is_some(),
            rests: self.rest.is_some(),
            is_nobody: self.user.is_some() && self.edition.config.process.user.is_none(),
        }
    }

    /// Switches to a reloaded configuration. On an error nothing has changed. `examined` is the configuration that was
    /// examined with this material: the same contexts need not be built again.
    pub(crate) fn apply_reload(
        &mut self,
        (config, examined): (Config, &Config),
        plan: Plan,
        material: Material,
        is_draining: bool,
    ) -> Result<(), String> {
        let are_built = contexts::are_same(&config, examined);
        if !are_built {
            contexts::of_origins(&config, &material)?;
        }
        let files = self.prepare_session_files(&config, &material)?;
        let keys = self.ticket_keys.read_again();
        let keys = keys.map_err(|mistakes| in_words(&mistakes))?;
        if !are_built {
            self.try_contexts(&config, &material)?;
        }
        let listening = self.prepare_listeners(&config)?;
        self.follow_session_files(files);
        let counters = &self.memory.counters;
        self.ticket_keys
            .follow(&config, keys, unix_time(), counters);
        self.switch_to(config, plan, material, listening, is_draining);
        Ok(())
    }

    /// As [`Serving::apply_reload`], with the same files of sessions and ticket keys.
    pub(crate) fn apply(
        &mut self,
        config: Config,
        material: Material,
        is_draining: bool,
    ) -> Result<(), String> {
        self.try_contexts(&config, &material)?;
        let listening = self.prepare_listeners(&config)?;
        let plan = self.edition.plan.clone();
        self.switch_to(config, plan, material, listening, is_draining);
        Ok(())
    }

    /// Prepares the files of originations' sessions.
    fn prepare_session_files(
        &self,
        config: &Config,
        material: &Material,
    ) -> Result<Option<Vec<SessionFile>>, String> {
        let sessions = self.memory.sessions.as_ref();
        let files = sessions.map(|sessions| sessions.prepare(config, &material.origins));
        files.transpose().map_err(|mistakes| in_words(&mistakes))
    }

    fn follow_session_files(&mut self, files: Option<Vec<SessionFile>>) {
        if let (Some(sessions), Some(files)) = (&mut self.memory.sessions, files) {
            sessions.follow(files);
        }
    }

    /// Builds all contexts of routes once to find errors.
    fn try_contexts(&self, config: &Config, material: &Material) -> Result<(), String> {
        let (keys, backends) = (self.ticket_keys.keys(), &self.memory.backends);
        contexts::of_routes(config, material, keys, backends).map(drop)
    }

    /// Opens new listeners.
    fn prepare_listeners(&self, config: &Config) -> Result<Listening, String> {
        let listening = self.listening.prepare(config);
        listening.map_err(|error| error.to_string())
    }

    fn switch_to(
        &mut self,
        config: Config,
        plan: Plan,
        material: Material,
        listening: Listening,
        is_draining: bool,
    ) {
        let has_other_backlog = config.sockets.backlog != self.edition.config.sockets.backlog;
        let backlog = has_other_backlog.then(|| listening::backlog(&config));
        self.listening.replace_by(listening, is_draining, backlog);
        self.edition = self.edition.followed_by(config, plan, material);
        self.reported.take();
        self.give_to(0..self.pairs.len());
    }

    /// As [`Serving::apply`], with the same configuration and other certificates.
    pub(crate) fn apply_material(
        &mut self,
        material: Material,
        is_draining: bool,
    ) -> Result<(), String> {
        let config = self.edition.config.clone();
        // A session's place depends on our certificate.
        let files = match material.origins == self.edition.material.origins {
            true => None,
            false => {
                contexts::of_origins(&config, &material)?;
                self.prepare_session_files(&config, &material)?
            }
        };
        self.apply(config, material, is_draining)?;
        self.follow_session_files(files);
        Ok(())
    }

    /// Sends the current edition to a worker. A worker that does not receive it now gets it again when it
    /// becomes ready, or has answered earlier editions.
    pub(crate) fn give_edition(&mut self, worker: usize) {
        self.give_to(worker..worker + 1);
    }

    /// As [`Serving::give_edition`], with the routes packed once for all these workers.
    fn give_to(&mut self, workers: Range<usize>) {
        let wanted = Bounds::of(&self.edition.config);
        let packed = self.packed();
        for worker in workers {
            if self.pairs.holds_back(worker, wanted) {
                continue;
            }
            let handover = self.handover(worker as u32);
            let given = match &packed {
                Ok(packed) => {
                    let fds = self.listening.fds();
                    self.pairs.give_edition(worker, handover, packed, &fds)
                }
                Err(error) => Err(io::Error::other(error.to_string())),
            };
            if let Err(error) = given {
                tracing::error!(%error, worker, "configuration could not be sent to a worker");
                self.pairs.keep(worker);
            }
        }
    }

    /// The routes, packed for all workers.
    fn packed(&self) -> io::Result<Packed> {
        let Edition {
            config, material, ..
        } = &self.edition;
        let routes = RoutesToPack {
            config,
            certificates: &material.certificates,
            clients: &material.client_trust,
            backend_tls: &material.backend_tls,
            origins: &material.origins,
        };
        routes.pack()
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
        let config = &self.edition.config;
        let mut given = BTreeSet::new();
        let backends = self.edition.upstreams().map(|to| &to.backend);
        let backends = backends
            .filter_map(|one| Some((one.name()?, one.addresses().collect::<Vec<SocketAddr>>())));
        let servers = config.originate.iter().flat_map(|one| &one.to);
        let servers = servers.map(|one| (one.given.as_str(), one.addresses.clone()));
        let servers = servers.filter(|_| config.process.resolve == ResolveNames::Lazy);
        for (name, addresses) in backends.chain(servers) {
            if !addresses.is_empty() && given.insert(name) {
                self.pairs.order(worker, &addresses_order(name, addresses));
            }
        }
    }

    /// Replaces the addresses of a name. Returns `false` if they are unchanged.
    pub(crate) fn set_addresses(&mut self, name: &str, found: &[SocketAddr]) -> bool {
        if !self.edition.set_addresses(name, found) {
            return false;
        }
        self.reported.take();
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
        let (config, counters) = (&self.edition.config, &self.memory.counters);
        if self.ticket_keys.update(config, unix_time(), counters) {
            self.pairs.order_all(&self.ticket_keys_order());
        }
        if let Err(error) = self.wait_for_ticket_keys(poller) {
            tracing::error!(%error, "ticket store process could not be polled");
        }
    }

    /// Rotates ticket keys now.
    pub(crate) fn rotate_ticket_keys_now(&mut self) -> Result<(), String> {
        let counters = &self.memory.counters;
        self.ticket_keys.rotate_now(unix_time(), counters)?;
        self.pairs.order_all(&self.ticket_keys_order());
        Ok(())
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

#[cfg(test)]
mod tests;
