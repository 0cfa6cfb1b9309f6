//! Which backend a connection goes to.
//!
//! The first choice is made by the route's rule among those which are up and not full; backups
//! are asked when there are none. When a connect fails, the next usable one in the order of the
//! list is tried, each at most once, and the client notices nothing. If all are marked as down,
//! the marks are not believed: a mark that is wrong must not make an outage.

use dormouse_config::{Backend, Balance, Upstream};
use dormouse_reactor::socket::Addr;
use dormouse_tables::backends::{BackendPlace, Backends};
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};

/// Weights are counted in hundredths, so that slow start has steps.
const FULL: u64 = 100;

/// A backend of a route.
pub struct Target {
    /// The address that connections are made to.
    pub address: Addr,
    /// The address in words, as messages and the table of backends have it.
    pub name: String,
    pub(crate) weight: u32,
    pub(crate) backup: bool,
    /// Most connections with it, of all workers; `None`: no limit.
    pub connections_max: Option<u32>,
    /// Its place in the table of backends.
    pub place: BackendPlace,
    /// What is hashed together with a client's address.
    pub(crate) key: u64,
}

/// The backends of a route, and the rule.
pub struct Targets {
    /// The backends, one per address, in the order of the configuration.
    pub all: Vec<Target>,
    /// What they were made of: names among them get other addresses now and then.
    pub(crate) listed: Vec<Upstream>,
    pub(crate) balance: Balance,
    /// Failures in a row after which one is passed over, and for how long.
    pub failures_max: u32,
    /// Milliseconds for which a backend that failed is passed over.
    pub pause_ms: u64,
    pub(crate) slow_start_ms: u64,
    /// Of smooth weighted round robin: how much each is owed.
    pub(crate) owed: RefCell<Vec<i64>>,
}

/// What there is for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// This one.
    Use(usize),
    /// Those which are up have as many connections as they may: wait.
    Full,
    /// All have been tried.
    NoneLeft,
}

/// How far a connection is with trying backends, in the eight bits that its slot has for it: of
/// which kind they are, whether those of the other kind are done, and how many of this one were
/// passed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tried(pub u8);

impl Tried {
    const BACKUPS: u8 = 0x80;
    const OTHERS: u8 = 0x40;
    const PASSED_MAX: usize = 0x3f;

    /// Nothing but this one, yet.
    pub fn first(target: &Target) -> Tried {
        Tried(if target.backup { Self::BACKUPS } else { 0 })
    }

    fn are_backups(self) -> bool {
        self.0 & Self::BACKUPS != 0
    }

    fn are_others(self) -> bool {
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
    /// The backend that it is.
    pub fn in_list(self, targets: &Targets) -> Option<&Target> {
        match self {
            Choice::Use(n) => targets.all.get(n),
            Choice::Full | Choice::NoneLeft => None,
        }
    }
}

impl Target {
    /// Each address of these backends is one, but for those that were taken out.
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
    /// The backend of this name has other addresses from now on. False: there is none of this
    /// name. Connections stay where they are.
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
            self.owed.borrow_mut().clear();
        }
        found
    }

    /// The first one to try.
    pub fn first(&self, client: Option<IpAddr>, known: &Backends, now_ms: u64) -> Choice {
        for (backup, marks_count) in [(false, true), (true, true), (false, false), (true, false)] {
            let usable = |target: &Target| {
                target.backup == backup
                    && (!marks_count || known.is_up(target.place, now_ms))
                    && has_room(target, known)
            };
            let candidates: Vec<usize> = (0..self.all.len())
                .filter(|&n| self.all.get(n).is_some_and(usable))
                .collect();
            if let Some(chosen) = self.choose(&candidates, client, known, now_ms) {
                return Choice::Use(chosen);
            }
        }
        Choice::Full
    }

    /// The one to try after `last`, which `tried` led to: [`Tried::first`], or what this said then.
    ///
    /// First those of its own kind, in the order of the list and round, then the others: so backups
    /// come when no other is left. Those which are marked as down come last.
    pub fn next(
        &self,
        last: usize,
        tried: Tried,
        known: &Backends,
        now_ms: u64,
    ) -> (Choice, Tried) {
        for (others, marks_count) in [(false, true), (true, true), (false, false), (true, false)] {
            if others && tried.are_others() {
                continue;
            }
            let backups = tried.are_backups() != others;
            let kind: Vec<usize> = (0..self.all.len())
                .filter(|&n| self.all.get(n).is_some_and(|one| one.backup == backups))
                .collect();
            let at = kind.iter().position(|&n| n == last).unwrap_or(0);
            let (from, first) = match others {
                true => (0, 0),
                false => (
                    tried.passed() + 1,
                    at + kind.len() - tried.passed() % kind.len().max(1),
                ),
            };
            for passed in from..kind.len().min(Tried::PASSED_MAX + 1) {
                let usable = |n: &&usize| {
                    self.all.get(**n).is_some_and(|target| {
                        let is_up = || known.is_up(target.place, now_ms);
                        (!marks_count || is_up()) && has_room(target, known)
                    })
                };
                if let Some(&n) = kind.get((first + passed) % kind.len()).filter(usable) {
                    return (Choice::Use(n), tried.then(others, passed));
                }
            }
        }
        (Choice::NoneLeft, tried)
    }

    fn choose(
        &self,
        candidates: &[usize],
        client: Option<IpAddr>,
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
        match (self.balance, client) {
            (Balance::ClientHash, Some(client)) => {
                let score = |n: usize| {
                    let key = self.all.get(n).map_or(0, |target| target.key);
                    rendezvous(client, key, weight(n).unwrap_or(1))
                };
                let better = |a: &usize, b: &usize| score(*a).total_cmp(&score(*b));
                candidates.iter().copied().max_by(better)
            }
            (Balance::LeastConnections, _) => {
                // Beginning with the one whose turn it is, so that equals take turns.
                let start = self.take_turn(candidates, weight)?;
                let at = candidates.iter().position(|&n| n == start).unwrap_or(0);
                let (before, from) = candidates.split_at(at);
                let load = |n: &usize| {
                    let place = self.all.get(*n).map_or(0, |target| target.place);
                    // One more than it has, so that an idle one of small weight counts too.
                    (known.load(place) + 1) * FULL * FULL / weight(*n).unwrap_or(1).max(1)
                };
                from.iter().chain(before).copied().min_by_key(load)
            }
            (Balance::RoundRobin | Balance::ClientHash, _) => self.take_turn(candidates, weight),
        }
    }

    /// Smooth weighted round robin: each is owed its weight, the one that is owed most gets it.
    fn take_turn(
        &self,
        candidates: &[usize],
        weight: impl Fn(usize) -> Option<u64>,
    ) -> Option<usize> {
        let mut owed = self.owed.borrow_mut();
        owed.resize(self.all.len(), 0);
        let mut total = 0;
        let mut chosen = None;
        for &n in candidates {
            let weight = weight(n)? as i64;
            let debt = owed.get_mut(n)?;
            *debt += weight;
            total += weight;
            if chosen.is_none_or(|(_, most)| *debt > most) {
                chosen = Some((n, *debt));
            }
        }
        let (n, _) = chosen?;
        *owed.get_mut(n)? -= total;
        Some(n)
    }

    /// How much of its weight a backend gets, of a hundred: little at first when it has come back.
    fn share(&self, target: &Target, known: &Backends, now_ms: u64) -> u64 {
        let since_ms = known.up_since_ms(target.place);
        let ago_ms = now_ms.saturating_sub(since_ms);
        if since_ms == 0 || ago_ms >= self.slow_start_ms {
            return FULL;
        }
        (FULL * ago_ms / self.slow_start_ms).max(1)
    }
}

fn has_room(target: &Target, known: &Backends) -> bool {
    target
        .connections_max
        .is_none_or(|max| known.load(target.place) < u64::from(max))
}

/// Highest random weight: each client has its own order of the backends, and when one goes away
/// only its clients move.
fn rendezvous(client: IpAddr, key: u64, weight: u64) -> f64 {
    let mixed = dormouse_tables::hash::mix(dormouse_tables::clients::key(client) ^ key);
    // Between 0 and 1, neither included.
    let uniform = ((mixed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    weight as f64 / -uniform.ln()
}

#[cfg(test)]
mod tests;
