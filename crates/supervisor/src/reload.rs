//! Another configuration, or other certificates, for what comes next.
//!
//! Everything that can be wrong is found before anything changes: the configuration is loaded as
//! at the start, certificates are read and held against their keys, new listeners are opened, the
//! TLS contexts are built once here. Only then is each worker given a new handover.

use super::Supervisor;
use super::listeners;
use super::pairs::Pair;
use super::scout::Names;
use super::state::certificates_told;
use crate::material;
use dormouse_config::{self as config, Config, Machine, Plan, Purpose};
use dormouse_handover::orders::Order;
use dormouse_handover::talk;
use dormouse_handover::unix_time;
use dormouse_handover::{ClientTrust, Descriptors, Handover, Pem};
use dormouse_reactor::socket::DESCRIPTORS_MAX;
use dormouse_reactor::{Fd, process};
use dormouse_routes::contexts;
use dormouse_routes::identities::Identities;
use dormouse_routes::origin::{self, WorkerNumber};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// How long workers have to say that they go by the new configuration.
const PATIENCE_MS: u64 = 10_000;

/// What stands for the address of a name which is still to be looked up. It goes nowhere: the
/// configuration is read again then.
const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// How far a reload has come.
enum Step {
    /// The configuration is in force. What is to be said.
    Done(String),
    /// These names have to be looked up first.
    LookUp(BTreeSet<String>),
}

/// A reload that not all workers have answered.
pub(super) struct Reloading {
    /// Who waits for the answer.
    asked: Vec<u64>,
    /// What is said when all have.
    words: String,
    by_ms: u64,
}

/// Leaves options as they are in the running configuration, and notes the names of those which
/// would have changed.
macro_rules! hold {
    ($next:ident, $now:ident, $waits:ident; $($name:literal => $($field:ident).+;)*) => {$(
        if $next.$($field).+ != $now.$($field).+ {
            $next.$($field).+.clone_from(&$now.$($field).+);
            $waits.push($name.to_owned());
        }
    )*};
}

impl Supervisor {
    /// Reads the configuration again. `ask`: who is to be told what became of it. If there are
    /// names in it, a scout looks them up first.
    pub(super) fn reload(&mut self, ask: Option<u64>) {
        self.notify.reloading();
        let Err(ask) = self.join_lookup(ask) else {
            return;
        };
        self.reload_with(ask.into_iter().collect(), &Names::new());
    }

    /// As [`Supervisor::reload`], with what is known of names.
    pub(super) fn reload_with(&mut self, asked: Vec<u64>, names: &Names) {
        match self.try_reload(names) {
            Ok(Step::Done(words)) => {
                tracing::info!("{words}");
                self.wait_for_workers(asked, words);
            }
            Ok(Step::LookUp(names)) => {
                if let Err(why) = self.look_up_for_reload(names, asked.clone()) {
                    self.refuse_reload(asked, &why);
                }
            }
            Err(why) => self.refuse_reload(asked, &why),
        }
        // What was parsed for it is not kept.
        process::return_heap();
    }

    fn refuse_reload(&mut self, asked: Vec<u64>, why: &str) {
        tracing::error!("the configuration is refused, the old one stays:\n{why}");
        self.report_reload(asked, Err(why.to_owned()));
    }

    fn try_reload(&mut self, names: &Names) -> Result<Step, String> {
        self.not_while_upgrading()?;
        let source = &self.source;
        let missing = RefCell::new(BTreeSet::new());
        let resolve = |host: &str, port: u16| {
            let name = format!("{host}:{port}");
            match names.get(&name) {
                Some(Ok(found)) => Ok(found.clone()),
                // Better than nothing is what it stood for until now.
                Some(Err(why)) => self
                    .known_addresses(&name)
                    .ok_or_else(|| io::Error::other(why.clone())),
                None => {
                    missing.borrow_mut().insert(name);
                    Ok(vec![SocketAddr::new(UNKNOWN, port)])
                }
            }
        };
        let loaded = config::load_with(
            source.file.as_deref(),
            source.section,
            &source.flags,
            &Machine::read(),
            Purpose::Serve,
            &resolve,
        );
        let missing = missing.into_inner();
        if !missing.is_empty() {
            return Ok(Step::LookUp(missing));
        }
        let loaded = loaded
            .map_err(|mistakes| mistakes.render(false).trim_end().to_owned())?
            .settled();
        let (config, plan, waits) = self.without_what_waits(loaded.config, loaded.plan);
        let certificates =
            material::load(&config, &self.certificates).map_err(|mistakes| errors(&mistakes))?;
        let trust = material::load_clients(&config).map_err(|mistakes| errors(&mistakes))?;
        let origins = material::load_origins(&config).map_err(|mistakes| errors(&mistakes))?;
        let backend_tls =
            material::load_backend_tls(&config).map_err(|mistakes| errors(&mistakes))?;
        let alone = WorkerNumber {
            worker: 0,
            workers: 1,
        };
        origin::origins(&config, &origins, None, alone)?;
        if let Some(sessions) = &mut self.sessions {
            let followed = sessions.follow(&config, &origins);
            followed.map_err(|mistakes| errors(&mistakes))?;
        }
        self.ticket_keys
            .follow(&config, unix_time())
            .map_err(|mistakes| errors(&mistakes))?;
        let former_tls = std::mem::replace(&mut self.backend_tls, backend_tls);
        let former = std::mem::replace(&mut self.origins, origins);
        if let Err(why) = self.apply(config, plan, certificates, trust) {
            (self.origins, self.backend_tls) = (former, former_tls);
            return Err(why);
        }
        self.errands.names.try_at_once();
        self.waits_for_restart = waits;
        let mut words = format!("configuration reloaded, edition {}", self.edition);
        if !self.waits_for_restart.is_empty() {
            words.push_str("; these were changed, and wait for a restart: ");
            words.push_str(&self.waits_for_restart.join(", "));
        }
        Ok(Step::Done(words))
    }

    /// The configuration with all that a running program can't change as it is, and the names of
    /// what would change.
    fn without_what_waits(&self, mut next: Config, mut plan: Plan) -> (Config, Plan, Vec<String>) {
        let now = &self.config;
        let mut waits = Vec::new();
        let has_more_room = u64::from(plan.connections_max) > self.connections_max
            && next.limits.max_connections != now.limits.max_connections;
        hold!(next, now, waits;
            "workers" => process.workers;
            "admin" => process.admin;
            "sandbox" => process.sandbox;
            // Keepers have become who they are, and know how long a worker may be silent.
            "user" => process.user;
            "group" => process.group;
            "hang_timeout" => timeouts.hang_timeout;
        );
        if next.limits.memory != now.limits.memory {
            // What follows from it is settled as a whole, and a part of it lies in mappings.
            hold!(next, now, waits;
                "memory" => limits.memory;
                "max_connections" => limits.max_connections;
                "max_handshakes" => limits.max_handshakes;
                "kernel_memory" => limits.kernel_memory;
                "receive_buffer" => sockets.receive_buffer;
                "backlog" => sockets.backlog;
            );
            plan = self.plan.clone();
        } else if has_more_room {
            waits.push("max_connections".to_owned());
        }
        hold!(next, now, waits;
            "pending_memory" => limits.pending_memory;
            "log_format" => log.log_format;
            // Whether there are tickets at all is part of each route; where keys and sessions lie
            // is not.
            "session_cache" => tickets.session_cache;
            "ticket_keys" => tickets.ticket_keys;
            "ticket_secret_file" => tickets.ticket_secret_file;
            "ticket_store_ca" => tickets.ticket_store_ca;
        );
        if self.sessions.is_none() {
            // The memory for their sessions is made at the start.
            hold!(next, now, waits; "originate" => originate;);
        }
        // After an upgrade from a binary which knew nothing of it.
        if !self.clients.has_paces() && next.limits.bytes_per_client.take().is_some() {
            waits.push("bytes_per_client".to_owned());
        }
        (next, plan, waits)
    }

    /// Goes by this from now on, or says why not; then nothing has changed.
    pub(super) fn apply(
        &mut self,
        config: Config,
        plan: Plan,
        certificates: Vec<Vec<Pem>>,
        trust: Vec<Option<ClientTrust>>,
    ) -> Result<(), String> {
        let numbers = self.numbers.of(&config);
        // Workers build the same from the same: what fails, fails here.
        let keys = self.ticket_keys.keys().export();
        let mut routes = contexts::routes(
            &config,
            &certificates,
            &trust,
            &keys,
            &self.backends,
            None,
            // Main keeps nothing that is parsed: it has no loop which must not stand still.
            &mut Identities::default(),
        )?;
        contexts::make_backend_contexts(&config, &self.backend_tls, &mut routes)?;
        drop(routes);
        let listeners = listeners::open(&config, &numbers.list(), &self.listeners)
            .map_err(|error| error.to_string())?;
        let is_draining = self.drain.is_some();
        if is_draining {
            let is_new = |l: &&listeners::Listener| !self.listeners.iter().any(|o| o.fd == l.fd);
            let new: Vec<_> = listeners.iter().filter(is_new).cloned().collect();
            listeners::pause(&new);
        }
        listeners::close_all_but(&listeners, &self.listeners);
        self.listeners = listeners;
        if config.sockets.backlog != self.config.sockets.backlog && !is_draining {
            // Those that stay have the former length of the queue.
            if let Err(error) = listeners::resume(&self.listeners, &config) {
                tracing::warn!("{error}");
            }
        }
        self.numbers = numbers;
        (self.set_logs)(&config.log);
        self.config = config;
        self.plan = plan;
        self.certificates_told = certificates_told(&certificates);
        self.certificates = certificates;
        self.client_trust = trust;
        self.edition += 1;
        self.loaded_ms = process::boottime_ms();
        self.tell_scouts();
        for worker in 0..self.pairs.len() {
            self.give_configuration(worker);
        }
        Ok(())
    }

    /// An upgrade passes on what runs: nothing of it may change meanwhile.
    pub(super) fn not_while_upgrading(&self) -> Result<(), String> {
        match self.upgrade {
            Some(_) => Err("an upgrade goes on: try again when it is over".to_owned()),
            None => Ok(()),
        }
    }

    /// What a worker is to know.
    pub(super) fn handover(&self, worker: u32) -> Handover {
        let share = match self.pairs.get(worker as usize) {
            Some(pair) => pair.share.renewed(worker, &self.plan),
            None => dormouse_handover::share::Share::of(worker, &self.plan),
        };
        let listeners = self.listeners.iter();
        Handover {
            worker,
            config: self.config.clone(),
            share,
            numbers: self.numbers.list(),
            certificates: self.certificates.clone(),
            clients: self.client_trust.clone(),
            origins: self.origins.clone(),
            backend_tls: self.backend_tls.clone(),
            ticket_keys: self.ticket_keys.keys().export().to_vec(),
            descriptors: Descriptors {
                listeners: listeners.clone().map(|l| (l.fd.0, l.route)).collect(),
                doors: listeners.map(|l| l.door.clone()).collect(),
                slots: -1,
                pending: -1,
                counters: self.counters.fd().0,
                clients: self.clients.fd().0,
                clients_for: self.clients.made_for(),
                backends: self.backends.fd().0,
                sessions: self.sessions.as_ref().map(|files| files.fd().0),
                orders: -1,
                session_cache: self.session_cache.map(|fd| fd.0),
            },
        }
    }

    /// Gives a worker the configuration that runs. One which does not take it now is given it
    /// again when it is ready the next time.
    pub(super) fn give_configuration(&self, worker: usize) {
        let Some(pair) = self.pairs.get(worker) else {
            return;
        };
        match self.handover(worker as u32).write() {
            Ok(handover) => {
                let listeners: Vec<Fd> = self.listeners.iter().map(|l| l.fd).collect();
                for some in listeners.chunks(DESCRIPTORS_MAX) {
                    pair.order(&Order::Listeners(some.to_vec()));
                }
                let edition = self.edition;
                pair.order(&Order::Reload { handover, edition });
                handover.close();
            }
            Err(error) => tracing::error!(%error, worker, "a worker can't be told of the reload"),
        }
    }

    // ---- what became of it ----

    fn wait_for_workers(&mut self, mut asked: Vec<u64>, words: String) {
        // One that came in between is over when this one is.
        asked.extend(self.reloading.take().into_iter().flat_map(|r| r.asked));
        self.reloading = Some(Reloading {
            asked,
            words,
            by_ms: process::boottime_ms() + PATIENCE_MS,
        });
        self.end_reload_if_all_have_it();
    }

    /// A worker has answered.
    pub(super) fn on_reloaded(&mut self, worker: usize, edition: u64, result: Result<(), String>) {
        match result {
            Ok(()) => {
                if let Some(pair) = self.pairs.get_mut(worker) {
                    pair.edition = edition;
                }
                self.end_reload_if_all_have_it();
            }
            Err(why) if edition == self.edition => {
                if let Some(reloading) = self.reloading.take() {
                    let why = format!("worker {worker} stays with the old configuration: {why}");
                    self.report_reload(reloading.asked, Err(why));
                }
            }
            Err(_) => {}
        }
    }

    fn end_reload_if_all_have_it(&mut self) {
        let has_it = |pair: &Pair| pair.edition == self.edition || pair.is_over;
        if self.pairs.iter().all(has_it)
            && let Some(reloading) = self.reloading.take()
        {
            self.report_reload(reloading.asked, Ok(reloading.words));
        }
    }

    /// When a reload has taken too long.
    pub(super) fn reload_deadline_ms(&self) -> Option<u64> {
        self.reloading.as_ref().map(|reloading| reloading.by_ms)
    }

    /// Says so, if it has. Called once a turn.
    pub(super) fn end_late_reload(&mut self) {
        let now_ms = process::boottime_ms();
        let Some(reloading) = self.reloading.take_if(|r| r.by_ms <= now_ms) else {
            return;
        };
        let late: Vec<String> = (self.pairs.iter().enumerate())
            .filter(|(_, pair)| pair.edition != self.edition)
            .map(|(worker, _)| worker.to_string())
            .collect();
        let words = format!(
            "{}; but worker {} has not said yet that it goes by it",
            reloading.words,
            late.join(", ")
        );
        self.report_reload(reloading.asked, Ok(words));
    }

    fn report_reload(&mut self, asked: Vec<u64>, result: Result<String, String>) {
        self.reload_is_over(None, result.clone());
        for ask in asked {
            self.answer(ask, result.clone());
        }
    }

    fn reload_is_over(&mut self, ask: Option<u64>, result: Result<String, String>) {
        let words = match &result {
            Ok(words) | Err(words) => words.chars().take(WORDS_MAX).collect(),
        };
        self.last_reload = Some(talk::Reload {
            done: result.is_ok(),
            words,
            at_ms: process::boottime_ms(),
        });
        if self.reloading.is_none() {
            let result = result.as_ref();
            self.notify
                .reloaded(result.map(String::as_str).map_err(String::as_str));
        }
        if let Some(ask) = ask {
            self.answer(ask, result);
        }
    }
}

/// What is kept of what became of a reload, in characters.
const WORDS_MAX: usize = 4096;

/// Mistakes as `dormouse check` shows them.
fn errors(mistakes: &[String]) -> String {
    let lines: Vec<String> = mistakes.iter().map(|m| format!("error: {m}")).collect();
    lines.join("\n\n")
}
