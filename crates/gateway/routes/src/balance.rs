//! Load balancing: the choice of a backend for a connection.
//!
//! The first choice follows the route's rule (`balance`) among the backends that are up and not full;
//! if there are none, backups are used. When a connect fails, the next usable backend in list order is
//! tried, each at most once, and the client notices nothing. In a long list, one backend of each group of
//! neighbours is tried. If all backends are marked down, the marks are ignored, so that a wrong verdict
//! cannot cause an outage.

use dormouse_config::{Backend, Balance, Upstream};
use dormouse_reactor::socket::Addr;
use dormouse_tables::backends::{BackendPlace, Backends};
use std::cell::RefCell;
use std::net::SocketAddr;

/// Weights are counted in hundredths, so that slow start has steps.
const FULL: u64 = 100;

/// A backend of a route.
pub struct Target {
    /// The address to connect to.
    pub address: Addr,
    /// The address as text, for messages and the table of backends.
    pub name: String,
    /// The host as configured: the server name for TLS, unless the route has one. `None`: a unix socket.
    pub(crate) host: Option<String>,
    pub(crate) weight: u32,
    pub(crate) backup: bool,
    /// Maximum connections of all workers to this backend. `None`: no limit.
    pub connections_max: Option<u32>,
    /// The backend's place in the table of backends.
    pub place: BackendPlace,
    /// Hash of the name, which rules by hash combine with the connection's key.
    pub(crate) key: u64,
}

/// The backends of a route, and the balancing rule.
pub struct Targets {
    /// The backends, one per address, in the order of the configuration.
    pub all: Vec<Target>,
    /// The configured backends; the addresses of their names may change.
    pub(crate) listed: Vec<Upstream>,
    pub(crate) balance: Balance,
    /// Failures in a row after which a backend is skipped.
    pub failures_max: u32,
    /// Milliseconds for which a failed backend is skipped.
    pub pause_ms: u64,
    pub(crate) slow_start_ms: u64,
    /// Credit of each backend, for smooth weighted round robin.
    pub(crate) credits: RefCell<Vec<i64>>,
}

/// Result of a choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The backend with this index.
    Use(usize),
    /// All usable backends have reached their connection limits; the connection has to wait.
    Full,
    /// All backends were tried.
    NoneLeft,
}

/// The backends that a connection has tried, in eight bits of its slot: whether it is trying backups,
/// whether it is done with the other kind, and how many groups of this kind it has passed in list order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tried(pub u8);

impl Tried {
    const BACKUPS: u8 = 0x80;
    const OTHERS: u8 = 0x40;
    const PASSED_MAX: usize = 0x3f;
    /// Maximum number of groups.
    const GROUPS_MAX: usize = Self::PASSED_MAX + 1;

    /// The state after the first choice.
    pub fn first(target: &Target) -> Tried {
        Tried(if target.backup { Self::BACKUPS } else { 0 })
    }

    fn has_backups(self) -> bool {
        self.0 & Self::BACKUPS != 0
    }

    fn has_others(self) -> bool {
        self.0 & Self::OTHERS != 0
    }

    fn passed(self) -> usize {
        usize::from(self.0) & Self::PASSED_MAX
    }

    fn then(self, others: bool, passed: usize) -> Tried {
        let kind = match others {
            true => (self.0 ^ Self::BACKUPS) & Self::BACKUPS | Self::OTHERS,
            false => self.0 & (Self::BACKUPS | Self::OTHERS),
        };
        Tried(kind | (passed & Self::PASSED_MAX) as u8)
    }
}

impl Choice {
    /// The chosen backend.
    pub fn in_list(self, targets: &Targets) -> Option<&Target> {
        match self {
            Choice::Use(n) => targets.all.get(n),
            Choice::Full | Choice::NoneLeft => None,
        }
    }
}

impl Target {
    /// Creates a target for each address of the backends, except those that were taken out.
    pub(crate) fn all_of(listed: &[Upstream], known: &Backends) -> Vec<Target> {
        let listed = listed.iter().filter(|upstream| !upstream.out);
        let targets = listed.flat_map(|upstream| {
            let addresses = upstream.backend.addresses().map(Addr::Tcp);
            let unix = match &upstream.backend {
                Backend::Unix(path) => Some(Addr::Unix(path.clone())),
                Backend::Tcp { .. } | Backend::Echo => None,
            };
            let both = addresses.chain(unix);
            both.map(|address| Target::of(upstream, address, known))
        });
        targets.collect()
    }

    fn of(upstream: &Upstream, address: Addr, known: &Backends) -> Target {
        let name = address.to_string();
        Target {
            address,
            host: upstream.backend.host().map(str::to_owned),
            weight: upstream.weight,
            backup: upstream.backup,
            connections_max: upstream.max_connections,
            place: known.place(&name),
            key: dormouse_tables::hash::of_text(&name),
            name,
        }
    }
}

impl Targets {
    /// Changes the addresses of the backend with this name. Existing connections stay. Returns `false`
    /// if the route has no backend with this name.
    pub(crate) fn set_addresses(
        &mut self,
        name: &str,
        addresses: &[SocketAddr],
        known: &Backends,
    ) -> bool {
        let is_named = |upstream: &&mut Upstream| upstream.backend.name() == Some(name);
        let mut found = false;
        for upstream in self.listed.iter_mut().filter(is_named) {
            upstream.backend.set_addresses(addresses);
            found = true;
        }
        if found {
            self.all = Target::all_of(&self.listed, known);
            self.credits.borrow_mut().clear();
        }
        found
    }

    /// The rule by which a backend is chosen.
    pub fn balance(&self) -> Balance {
        self.balance
    }

    /// The first backend whose name has not resolved yet.
    pub fn unresolved(&self) -> Option<&Upstream> {
        let mut listed = self.listed.iter();
        listed.find(|upstream| !upstream.out && upstream.backend.is_unresolved())
    }

    /// Chooses the first backend to try. If backends are up, but full, the connection waits for one of them.
    /// `key`: connections with the same key get the same backend, if the rule is one by hash.
    pub fn first(&self, key: Option<u64>, known: &Backends, now_ms: u64) -> Choice {
        let is_up = |target: &Target| known.is_up(target.place, now_ms);
        let marks_count = self.all.iter().any(is_up);
        for backup in [false, true] {
            let usable = |target: &Target| {
                target.backup == backup
                    && (!marks_count || is_up(target))
                    && has_room(target, known)
            };
            let candidates: Vec<usize> = (0..self.all.len())
                .filter(|&n| self.all.get(n).is_some_and(usable))
                .collect();
            if let Some(chosen) = self.choose(&candidates, key, known, now_ms) {
                return Choice::Use(chosen);
            }
        }
        Choice::Full
    }

    /// Chooses the backend to try after `last`. `tried` is the state that came with `last`: from
    /// [`Tried::first`], or from this function.
    ///
    /// It goes through the backends of the same kind in list order, from `last` and round, then through
    /// the other kind. So backups come when no other backend is left. Backends marked down come last.
    ///
    /// If there are more than [`Tried::GROUPS_MAX`] of a kind, it goes through groups of neighbours, and
    /// takes the first usable one of each.
    pub fn next(
        &self,
        last: usize,
        tried: Tried,
        known: &Backends,
        now_ms: u64,
    ) -> (Choice, Tried) {
        for (others, marks_count) in [(false, true), (true, true), (false, false), (true, false)] {
            if others && tried.has_others() {
                continue;
            }
            let backups = tried.has_backups() != others;
            let kind: Vec<usize> = (0..self.all.len())
                .filter(|&n| self.all.get(n).is_some_and(|one| one.backup == backups))
                .collect();
            let size = kind.len().div_ceil(Tried::GROUPS_MAX).max(1);
            let groups = kind.len().div_ceil(size);
            let at = kind.iter().position(|&n| n == last).unwrap_or(0) / size;
            let (from, first) = match others {
                true => (0, 0),
                false => (
                    tried.passed() + 1,
                    at + groups - tried.passed() % groups.max(1),
                ),
            };
            for passed in from..groups {
                let usable = |n: &&usize| {
                    self.all.get(**n).is_some_and(|target| {
                        let is_up = || known.is_up(target.place, now_ms);
                        (!marks_count || is_up()) && has_room(target, known)
                    })
                };
                let group = kind.chunks(size).nth((first + passed) % groups);
                if let Some(&n) = group.and_then(|group| group.iter().find(usable)) {
                    return (Choice::Use(n), tried.then(others, passed));
                }
            }
        }
        (Choice::NoneLeft, tried)
    }

    fn choose(
        &self,
        candidates: &[usize],
        key: Option<u64>,
        known: &Backends,
        now_ms: u64,
    ) -> Option<usize> {
        if candidates.len() < 2 {
            return candidates.first().copied();
        }
        let weight = |n: usize| {
            let target = self.all.get(n)?;
            Some(u64::from(target.weight) * self.share(target, known, now_ms))
        };
        match (self.balance, key) {
            (Balance::ClientHash | Balance::SniHash | Balance::MqttClientId, Some(key)) => {
                let score = |n: usize| {
                    let of_target = self.all.get(n).map_or(0, |target| target.key);
                    rendezvous(key, of_target, weight(n).unwrap_or(1))
                };
                let better = |a: &usize, b: &usize| score(*a).total_cmp(&score(*b));
                candidates.iter().copied().max_by(better)
            }
            (Balance::LeastConnections, _) => {
                // Starts with the next backend in turn, so that equally loaded backends alternate.
                let start = self.take_turn(candidates, weight)?;
                let at = candidates.iter().position(|&n| n == start).unwrap_or(0);
                let (before, from) = candidates.split_at(at);
                let load = |n: &usize| {
                    let place = self.all.get(*n).map_or(0, |target| target.place);
                    // Plus one, so that the weight also counts for idle backends. A compromised worker can state any load.
                    let load = known.load(place).saturating_add(1);
                    load.saturating_mul(FULL * FULL) / weight(*n).unwrap_or(1).max(1)
                };
                from.iter().chain(before).copied().min_by_key(load)
            }
            (
                Balance::RoundRobin
                | Balance::ClientHash
                | Balance::SniHash
                | Balance::MqttClientId,
                _,
            ) => self.take_turn(candidates, weight),
        }
    }

    /// Smooth weighted round robin: each backend's credit grows by its weight; the one with the most
    /// credit is chosen and pays the sum of the weights.
    fn take_turn(
        &self,
        candidates: &[usize],
        weight: impl Fn(usize) -> Option<u64>,
    ) -> Option<usize> {
        let mut credits = self.credits.borrow_mut();
        credits.resize(self.all.len(), 0);
        let mut total = 0;
        let mut chosen = None;
        for &n in candidates {
            let weight = weight(n)? as i64;
            let credit = credits.get_mut(n)?;
            *credit += weight;
            total += weight;
            if chosen.is_none_or(|(_, most)| *credit > most) {
                chosen = Some((n, *credit));
            }
        }
        let (n, _) = chosen?;
        *credits.get_mut(n)? -= total;
        Some(n)
    }

    /// The percentage of its weight that a backend gets: less during its slow start.
    fn share(&self, target: &Target, known: &Backends, now_ms: u64) -> u64 {
        let since_ms = known.up_since_ms(target.place);
        // A time in the future is not from a sound worker.
        match now_ms.checked_sub(since_ms) {
            Some(ago_ms) if since_ms > 0 && ago_ms < self.slow_start_ms => {
                (FULL * ago_ms / self.slow_start_ms).max(1)
            }
            _ => FULL,
        }
    }
}

fn has_room(target: &Target, known: &Backends) -> bool {
    target
        .connections_max
        .is_none_or(|max| known.load(target.place) < u64::from(max))
}

/// Score of a backend for a connection's key, by highest random weight (rendezvous) hashing: each key has its
/// own order of the backends, and when a backend goes away, only its keys move.
fn rendezvous(key: u64, of_target: u64, weight: u64) -> f64 {
    let mixed = dormouse_tables::hash::mix(key ^ of_target);
    // Between 0 and 1, both excluded.
    let uniform = ((mixed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    weight as f64 / -uniform.ln()
}

#[cfg(test)]
mod tests;
