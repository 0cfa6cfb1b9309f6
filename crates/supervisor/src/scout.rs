//! Scouts, as main sees them: when one is sent out, and what becomes of what it finds.
//!
//! One goes along with the configuration: it looks the names of backends up again, and checks
//! backends. Another one is sent out for a reload: it looks up all names of the new configuration,
//! once, and main goes on with its work meanwhile. The first is told when the names it has looked up
//! stand for others; where the configuration is another one, it is ended and another sent out.

use super::Supervisor;
use super::questions::{addresses, task, upstreams};
use dormouse_config::milliseconds;
use dormouse_config::{self as config, Config, Probe, Upstream};
use dormouse_handover::child;
use dormouse_handover::orders::Order;
use dormouse_handover::talk;
use dormouse_helpers::helper::{self, Privileges};
use dormouse_helpers::scout::{self, Check, ScoutArguments, ScoutReport, Task};
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::process::{self, Ended, Pid};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::socket::Attempt;
use dormouse_reactor::{Fd, OnExec, socket};
use dormouse_tables::backends::{CheckedHealth, RetiredPlaces};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::net::SocketAddr;

/// A scout that lived so long did not die of how it was started.
const SETTLED_MS: u64 = 10_000;

/// How long a scout has for the names of a reload. The operating system's resolver gives up by
/// itself after some 20 s.
const LOOKUP_MS: u64 = 30_000;

/// How often places of backends are looked at which nobody names any more.
const SWEEP_MS: u64 = 10_000;

/// Backends that are shown: enough for people, and a bound for the number of metrics.
const SHOWN_MAX: usize = 200;

/// The number of a scout that has ended.
const GONE: Pid = Pid(0);

/// A scout on its way.
struct Sent {
    pid: Pid,
    channel: Fd,
    born_ms: u64,
}

/// All that main has to do with scouts.
#[derive(Default)]
pub(super) struct Scouts {
    /// The one which goes along with the configuration, and what it was told.
    along: Option<Sent>,
    task: Task,
    /// Ends one soon after the other.
    streak: u32,
    start_at_ms: Option<u64>,
    /// The one for a reload.
    ahead: Option<Ahead>,
    /// Those which were ended, until their end is heard of.
    former: Vec<Pid>,
    /// Names that can't be looked up, so that it is said once.
    unknown: BTreeSet<String>,
    places: RetiredPlaces,
    sweep_at_ms: Option<u64>,
}

/// Names that are being looked up for a reload.
struct Ahead {
    sent: Sent,
    wanted: BTreeSet<String>,
    found: Names,
    /// Who waits for the reload.
    asked: Vec<u64>,
    by_ms: u64,
}

/// What names stand for, or why that is not known.
pub(super) type Names = BTreeMap<String, Result<Vec<SocketAddr>, String>>;

impl Sent {
    fn out(task: &Task, config: &Config, poller: &Poller, token: u64) -> io::Result<Sent> {
        let (ours, theirs) = socket::channel(OnExec::Close)?;
        let sent = Sent::start(task, config, theirs);
        theirs.close();
        let pid = sent.inspect_err(|_| ours.close())?;
        poller.add(ours, token, Interest::READ)?;
        Ok(Sent {
            pid,
            channel: ours,
            born_ms: process::boottime_ms(),
        })
    }

    fn start(task: &Task, config: &Config, channel: Fd) -> io::Result<Pid> {
        let file = task.write()?;
        let told = ScoutArguments {
            task: file.0,
            channel: channel.0,
        };
        let started = privileges(config, task)
            .and_then(|privileges| helper::start("scout", &privileges, &told, vec![file, channel]));
        file.close();
        started
    }

    fn end(self, poller: &Poller) -> Pid {
        let _ = poller.remove(self.channel);
        self.channel.close();
        if self.pid != GONE {
            let _ = process::send_signal(self.pid, Signal::Kill);
        }
        self.pid
    }
}

/// Unix sockets are for those whom the workers are; for everything else nobody will do.
fn privileges(config: &Config, task: &Task) -> io::Result<Privileges> {
    let is_unix = |check: &Check| check.backend.starts_with("unix:");
    match &config.process.user {
        Some(user) if process::user_id() == 0 => {
            let found = process::look_up_user(user, config.process.group.as_deref());
            let user = found.map_err(io::Error::other)?;
            Ok(Privileges::of(Some((user.uid, user.gid)), config))
        }
        None if task.checks.iter().any(is_unix) => Ok(Privileges::of(None, config)),
        _ => Ok(Privileges::nobody(config)),
    }
}

impl Scouts {
    /// When something has to be done.
    pub(super) fn next_deadline_ms(&self) -> Option<u64> {
        let late = self.ahead.as_ref().map(|ahead| ahead.by_ms);
        let times = [self.start_at_ms, late, self.sweep_at_ms];
        times.into_iter().flatten().min()
    }

    /// Tells the scout that is at work, if that is enough for it to do another task.
    fn can_go_on_from(&self, former: &Task) -> bool {
        let Some(sent) = &self.along else {
            return false;
        };
        let told = || scout::send_checks(sent.channel, &self.task.checks);
        self.task.differs_only_in_checks(former) && matches!(told(), Ok(Attempt::Done(())))
    }

    fn asks(&self, backend: &str) -> bool {
        let name = |check: &Check| check.backend.as_str().cmp(backend);
        self.task.checks.binary_search_by(name).is_ok()
    }
}

impl Supervisor {
    // ---- the one which goes along ----

    /// Sends out another scout if there is something else to find out. Called once a turn.
    pub(super) fn attend_to_scouts(&mut self) {
        self.end_late_lookup();
        let now_ms = process::boottime_ms();
        if self.scouts.sweep_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.sweep_places(now_ms);
        }
        if self.scouts.start_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.scouts.start_at_ms = None;
            if self.scouts.along.is_none() {
                self.send_along();
            }
        }
    }

    /// The configuration, or what a name in it stands for, is another one.
    pub(super) fn tell_scouts(&mut self) {
        let now_ms = process::boottime_ms();
        self.scouts.sweep_at_ms = Some(now_ms);
        let task = task(&self.config, &self.backend_tls);
        if task == self.scouts.task {
            return;
        }
        let former = std::mem::replace(&mut self.scouts.task, task);
        self.forget_checks();
        if !self.scouts.can_go_on_from(&former) {
            self.end_along();
            self.scouts.start_at_ms = Some(now_ms);
        }
    }

    fn send_along(&mut self) {
        if self.scouts.task.is_empty() || self.stopping {
            return;
        }
        let sent = Sent::out(
            &self.scouts.task,
            &self.config,
            &self.poller,
            super::TOKEN_SCOUT,
        );
        match sent {
            Ok(sent) => self.scouts.along = Some(sent),
            Err(error) => {
                tracing::error!(%error, "the scout can't be started");
                self.start_along_later();
            }
        }
    }

    fn start_along_later(&mut self) {
        self.scouts.streak = self.scouts.streak.saturating_add(1);
        let delay = child::backoff(self.scouts.streak);
        let delay_ms = delay.map_or(0, milliseconds);
        self.scouts.start_at_ms = Some(process::boottime_ms() + delay_ms);
    }

    fn end_along(&mut self) {
        if let Some(sent) = self.scouts.along.take() {
            let pid = sent.end(&self.poller);
            self.scouts.former.push(pid);
        }
    }

    /// What a former scout has said of backends which are asked no more.
    fn forget_checks(&self) {
        let now_ms = process::boottime_ms();
        for upstream in upstreams(&self.config) {
            for address in addresses(&upstream.backend) {
                if !self.scouts.asks(&address) {
                    let place = self.backends.place(&address);
                    self.backends
                        .set_checked(place, CheckedHealth::Unknown, now_ms);
                }
            }
        }
    }

    /// It has found something.
    pub(super) fn on_scout(&mut self) {
        let Some(sent) = &self.scouts.along else {
            return;
        };
        match talk::receive::<ScoutReport>(sent.channel) {
            Ok(None) => {}
            Ok(Some(ScoutReport::Name { name, found })) => self.on_name(&name, found),
            Ok(Some(ScoutReport::Health { backend, well })) => self.on_health(&backend, &well),
            // Its end is heard of by SIGCHLD.
            Err(_) => drop(self.poller.remove(sent.channel)),
        }
    }

    fn on_health(&self, backend: &str, well: &Result<(), String>) {
        // It may have been said before the scout was told to ask others.
        if !self.scouts.asks(backend) {
            return;
        }
        let place = self.backends.place(backend);
        let now_ms = process::boottime_ms();
        match well {
            Ok(()) => {
                if self.backends.checked(place) == CheckedHealth::Down {
                    tracing::info!(backend, "backend is well again: it gets connections");
                }
                self.backends.set_checked(place, CheckedHealth::Up, now_ms);
            }
            Err(why) => {
                tracing::warn!(
                    backend,
                    error = why,
                    "backend is not well; it is passed over"
                );
                self.backends
                    .set_checked(place, CheckedHealth::Down, now_ms);
            }
        }
    }

    fn on_name(&mut self, name: &str, found: Result<Vec<SocketAddr>, String>) {
        let found = match found {
            Ok(found) => config::of_one_family(found),
            Err(why) => {
                if self.scouts.unknown.insert(name.to_owned()) {
                    tracing::warn!(
                        name,
                        "a backend can't be looked up: {why}; its addresses stay"
                    );
                }
                return;
            }
        };
        if self.scouts.unknown.remove(name) {
            tracing::info!(name, "a backend can be looked up again");
        }
        // What an upgrade passes on does not change meanwhile: it is found again soon.
        if self.upgrade.is_some() {
            return;
        }
        let routes = self.config.routes.iter_mut();
        let backends = routes
            .flat_map(|route| &mut route.to)
            .map(|to| &mut to.backend);
        let mut has_changed = false;
        for backend in backends.filter(|backend| backend.name() == Some(name)) {
            has_changed |= backend.set_addresses(&found);
        }
        if !has_changed {
            return;
        }
        let shown: Vec<String> = found.iter().map(SocketAddr::to_string).collect();
        tracing::info!(
            name,
            addresses = shown.join(", "),
            "a backend has other addresses"
        );
        for address in &shown {
            self.backends.place(address);
        }
        for pair in &self.pairs {
            self.give_addresses_of(pair, name, &found);
        }
        self.tell_scouts();
    }

    fn give_addresses_of(&self, pair: &super::Pair, name: &str, addresses: &[SocketAddr]) {
        pair.order(&Order::Addresses {
            name: name.to_owned(),
            addresses: addresses.to_vec(),
        });
    }

    /// A worker that begins knows what its handover says: names may stand for others by now.
    pub(super) fn give_addresses(&self, pair: &super::Pair) {
        let mut given = BTreeSet::new();
        for upstream in upstreams(&self.config) {
            let Some(name) = upstream.backend.name() else {
                continue;
            };
            if given.insert(name) {
                let addresses: Vec<SocketAddr> = upstream.backend.addresses().collect();
                self.give_addresses_of(pair, name, &addresses);
            }
        }
    }

    /// The backends of all routes, for people and for metrics.
    pub(super) fn backends_to_show(&self) -> Vec<talk::Backend> {
        let of_route = |(number, route): (usize, &config::Route)| {
            let checked = route.check != Probe::Off;
            let all = route.to.iter().flat_map(move |upstream| {
                let name = upstream.backend.name().map(str::to_owned);
                let each = move |address: String| (address, name.clone());
                addresses(&upstream.backend).into_iter().map(each)
            });
            let each = move |(address, name): (String, Option<String>)| talk::Backend {
                route: number + 1,
                place: self.backends.place(&address),
                address,
                name,
                checked,
            };
            all.map(each).collect::<Vec<_>>()
        };
        let routes = self.config.routes.iter().enumerate();
        routes.flat_map(of_route).take(SHOWN_MAX).collect()
    }

    // ---- places in the table of backends ----

    fn sweep_places(&mut self, now_ms: u64) {
        let has_it = |pair: &super::Pair| pair.edition == self.edition || pair.is_over;
        let all_have_it = self.pairs.iter().all(has_it) && self.upgrade.is_none();
        if all_have_it {
            let all = upstreams(&self.config).flat_map(|upstream| addresses(&upstream.backend));
            let named: HashSet<u64> = all
                .map(|name| dormouse_tables::hash::of_text(&name))
                .collect();
            self.scouts.places.sweep(&self.backends, &named, now_ms);
        }
        let again = !all_have_it || self.scouts.places.any_retired();
        self.scouts.sweep_at_ms = again.then_some(now_ms + SWEEP_MS);
    }

    // ---- the one for a reload ----

    /// Has these names looked up; the reload goes on when all are. `Err`: they can't be.
    pub(super) fn look_up_for_reload(
        &mut self,
        wanted: BTreeSet<String>,
        asked: Vec<u64>,
    ) -> Result<(), String> {
        let task = Task {
            names: wanted.iter().cloned().collect(),
            ..Task::default()
        };
        let sent = Sent::out(&task, &self.config, &self.poller, super::TOKEN_LOOKUP);
        let sent = sent.map_err(|error| format!("names can't be looked up: {error}"))?;
        self.scouts.ahead = Some(Ahead {
            sent,
            wanted,
            found: Names::new(),
            asked,
            by_ms: process::boottime_ms() + LOOKUP_MS,
        });
        Ok(())
    }

    /// Names are being looked up: whoever asks for a reload now waits for that one. `Err`: none
    /// are.
    pub(super) fn join_lookup(&mut self, ask: Option<u64>) -> Result<(), Option<u64>> {
        match &mut self.scouts.ahead {
            Some(ahead) => {
                ahead.asked.extend(ask);
                Ok(())
            }
            None => Err(ask),
        }
    }

    /// It has found something.
    pub(super) fn on_lookup(&mut self) {
        let Some(ahead) = &mut self.scouts.ahead else {
            return;
        };
        match talk::receive::<ScoutReport>(ahead.sent.channel) {
            Ok(Some(ScoutReport::Name { name, found })) => {
                ahead.found.insert(name, found);
            }
            Ok(_) => {}
            Err(_) => return self.end_lookup("the lookup ended early"),
        }
        if ahead
            .wanted
            .iter()
            .all(|name| ahead.found.contains_key(name))
        {
            self.end_lookup("");
        }
    }

    fn end_late_lookup(&mut self) {
        let now_ms = process::boottime_ms();
        let late = |ahead: &Ahead| ahead.by_ms <= now_ms;
        if self.scouts.ahead.as_ref().is_some_and(late) {
            self.end_lookup("there was no answer in time");
        }
    }

    /// The reload goes on with what was found; `why` is the reason for what was not.
    fn end_lookup(&mut self, why: &str) {
        let Some(ahead) = self.scouts.ahead.take() else {
            return;
        };
        let pid = ahead.sent.end(&self.poller);
        self.scouts.former.push(pid);
        let mut found = ahead.found;
        for name in ahead.wanted {
            found.entry(name).or_insert_with(|| Err(why.to_owned()));
        }
        self.reload_with(ahead.asked, &found);
    }

    /// What a name stands for as far as is known, when nobody can say what it does now.
    pub(super) fn known_addresses(&self, name: &str) -> Option<Vec<SocketAddr>> {
        let is_it = |upstream: &&Upstream| upstream.backend.name() == Some(name);
        let known = upstreams(&self.config).find(is_it)?;
        Some(known.backend.addresses().collect())
    }

    // ---- ends ----

    /// Was this a scout? It has ended.
    pub(super) fn is_scout(&mut self, pid: Pid, ended: Ended) -> bool {
        if let Some(at) = self.scouts.former.iter().position(|former| *former == pid) {
            self.scouts.former.swap_remove(at);
            return true;
        }
        if let Some(ahead) = self.scouts.ahead.as_mut().filter(|a| a.sent.pid == pid) {
            // What it said last may still be unread. Its number is nobody's from now on.
            ahead.sent.pid = GONE;
            let is_it = |ahead: &Ahead| ahead.sent.pid == GONE;
            while self.scouts.ahead.as_ref().is_some_and(is_it) {
                self.on_lookup();
            }
            self.scouts.former.retain(|former| *former != GONE);
            return true;
        }
        match self.scouts.along.take_if(|sent| sent.pid == pid) {
            Some(sent) => {
                let _ = self.poller.remove(sent.channel);
                sent.channel.close();
                if !self.stopping {
                    tracing::error!("the scout is gone ({ended}); it is started again");
                }
                if process::boottime_ms().saturating_sub(sent.born_ms) >= SETTLED_MS {
                    self.scouts.streak = 0;
                }
                self.start_along_later();
                true
            }
            None => false,
        }
    }

    /// The program ends, or another binary goes on: it sends out its own. Returns those which have
    /// not ended yet.
    pub(super) fn end_scouts(&mut self) -> Vec<Pid> {
        self.end_along();
        if let Some(ahead) = self.scouts.ahead.take() {
            let pid = ahead.sent.end(&self.poller);
            self.scouts.former.push(pid);
        }
        self.scouts.former.clone()
    }
}
