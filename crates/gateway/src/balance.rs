//! Which backend a connection goes to.
//!
//! The first choice is made by the route's rule among those which are up and not full; backups
//! are asked when there are none. When a connect fails, the next usable one in the order of the
//! list is tried, each at most once, and the client notices nothing. If all are marked as down,
//! the marks are not believed: a mark that is wrong must not make an outage.

use crate::backends::{Backends, Place};
use crate::config::{Backend, Balance, Upstream};
use dormouse_reactor::socket::Addr;
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};

/// Weights are counted in hundredths, so that slow start has steps.
const FULL: u64 = 100;

/// A backend of a route.
pub(crate) struct Target {
    pub(crate) address: Addr,
    pub(crate) name: String,
    pub(crate) weight: u32,
    pub(crate) backup: bool,
    pub(crate) connections_max: Option<u32>,
    pub(crate) place: Place,
    /// What is hashed together with a client's address.
    pub(crate) key: u64,
}

/// The backends of a route, and the rule.
pub(crate) struct Targets {
    pub(crate) all: Vec<Target>,
    /// What they were made of: names among them get other addresses now and then.
    pub(crate) listed: Vec<Upstream>,
    pub(crate) balance: Balance,
    /// Failures in a row after which one is passed over, and for how long.
    pub(crate) failures_max: u32,
    pub(crate) pause_ms: u64,
    pub(crate) slow_start_ms: u64,
    /// Of smooth weighted round robin: how much each is owed.
    pub(crate) owed: RefCell<Vec<i64>>,
}

/// What there is for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// This one.
    Use(usize),
    /// Those which are up have as many connections as they may: wait.
    Full,
    /// All have been tried.
    NoneLeft,
}

impl Choice {
    /// The backend that it is.
    pub(crate) fn in_list(self, targets: &Targets) -> Option<&Target> {
        match self {
            Choice::Use(n) => targets.all.get(n),
            Choice::Full | Choice::NoneLeft => None,
        }
    }
}

impl Target {
    /// Each address of these backends is one.
    pub(crate) fn all_of(listed: &[Upstream], known: &Backends) -> Vec<Target> {
        let targets = listed.iter().flat_map(|upstream| {
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
            key: crate::backends::hash(&name),
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
    pub(crate) fn first(&self, client: Option<IpAddr>, known: &Backends, now_ms: u64) -> Choice {
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

    /// The one to try after `last`, when `passed` were passed over before it. The second value is
    /// how many are passed over then.
    pub(crate) fn next(
        &self,
        last: usize,
        passed: u8,
        known: &Backends,
        now_ms: u64,
    ) -> (Choice, u8) {
        let count = self.all.len().min(usize::from(u8::MAX));
        for marks_count in [true, false] {
            for passed_then in usize::from(passed) + 1..count {
                let n = (last + passed_then - usize::from(passed)) % count;
                let usable = self.all.get(n).is_some_and(|target| {
                    (!marks_count || known.is_up(target.place, now_ms)) && has_room(target, known)
                });
                if usable {
                    return (Choice::Use(n), passed_then as u8);
                }
            }
        }
        (Choice::NoneLeft, passed)
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
    let mixed = crate::clients::mix(crate::clients::key(client) ^ key);
    // Between 0 and 1, neither included.
    let uniform = ((mixed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    weight as f64 / -uniform.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    struct Scene {
        known: Backends,
        targets: Targets,
    }

    impl Scene {
        fn new(balance: Balance, weights: &[u32]) -> Scene {
            let known = Backends::create(1).unwrap();
            let all = weights.iter().enumerate().map(|(n, &weight)| {
                let name = format!("10.0.0.{n}:80");
                Target {
                    address: Addr::Tcp(name.parse().unwrap()),
                    weight,
                    backup: false,
                    connections_max: None,
                    place: known.place(&name),
                    key: crate::backends::hash(&name),
                    name,
                }
            });
            let targets = Targets {
                all: all.collect(),
                listed: Vec::new(),
                balance,
                failures_max: 1,
                pause_ms: 1000,
                slow_start_ms: 0,
                owed: RefCell::default(),
            };
            Scene { known, targets }
        }

        fn first(&self, client: u32) -> usize {
            match self
                .targets
                .first(Some(IpAddr::V4(Ipv4Addr::from(client))), &self.known, 5000)
            {
                Choice::Use(n) => n,
                other => panic!("{other:?}"),
            }
        }

        fn counts(&self, clients: u32) -> Vec<u32> {
            let mut counts = vec![0; self.targets.all.len()];
            (0..clients).for_each(|client| counts[self.first(client)] += 1);
            counts
        }

        fn take_down(&self, n: usize) {
            self.known
                .failed(self.targets.all[n].place, 1, 60_000, 5000);
        }
    }

    #[test]
    fn round_robin_goes_by_weight() {
        let scene = Scene::new(Balance::RoundRobin, &[1, 1, 1]);
        let order: Vec<usize> = (0..6).map(|n| scene.first(n)).collect();
        assert_eq!(order, [0, 1, 2, 0, 1, 2]);
        let scene = Scene::new(Balance::RoundRobin, &[5, 1, 1]);
        assert_eq!(scene.counts(70), [50, 10, 10]);
    }

    #[test]
    fn the_least_loaded_is_chosen_by_weight() {
        let scene = Scene::new(Balance::LeastConnections, &[1, 2]);
        for client in 0..30 {
            let n = scene.first(client);
            scene.known.enter(scene.targets.all[n].place);
        }
        let loads = [0, 1].map(|n| scene.known.load(scene.targets.all[n].place));
        assert!((9..=11).contains(&loads[0]), "{loads:?}");
    }

    #[test]
    fn a_client_stays_with_its_backend_and_only_those_of_a_lost_one_move() {
        let scene = Scene::new(Balance::ClientHash, &[1, 1, 1, 1]);
        let before: Vec<usize> = (0..4000).map(|client| scene.first(client)).collect();
        let counts = scene.counts(4000);
        assert!(
            counts.iter().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
        scene.take_down(2);
        let after: Vec<usize> = (0..4000).map(|client| scene.first(client)).collect();
        for (client, (before, after)) in before.iter().zip(&after).enumerate() {
            assert!(before == after || *before == 2, "client {client} moved");
        }
        let moved = |to| {
            before
                .iter()
                .zip(&after)
                .filter(|&(b, a)| *b == 2 && *a == to)
                .count()
        };
        assert_eq!(moved(2), 0);
        assert!(
            [0, 1, 3].map(moved).iter().all(|&count| count > 200),
            "to all the others"
        );
    }

    #[test]
    fn failed_ones_are_passed_over_each_is_tried_once_and_marks_are_not_believed_for_ever() {
        let scene = Scene::new(Balance::RoundRobin, &[1, 1, 1]);
        scene.take_down(1);
        assert!(!(0..9).any(|client| scene.first(client) == 1));
        let next = |last, passed| scene.targets.next(last, passed, &scene.known, 5000);
        assert_eq!(next(0, 0), (Choice::Use(2), 2), "1 is down");
        assert_eq!(next(2, 2), (Choice::NoneLeft, 2));
        scene.take_down(0);
        scene.take_down(2);
        assert_eq!(
            next(0, 0),
            (Choice::Use(1), 1),
            "all are: try them all the same"
        );
        assert_eq!(next(1, 1), (Choice::Use(2), 2));
        assert_eq!(next(2, 2), (Choice::NoneLeft, 2));
        scene.first(1);
    }

    #[test]
    fn full_ones_wait_and_backups_come_last() {
        let mut scene = Scene::new(Balance::RoundRobin, &[1, 1]);
        scene.targets.all[1].backup = true;
        scene.targets.all[0].connections_max = Some(1);
        scene.targets.all[1].connections_max = Some(1);
        assert_eq!(scene.first(1), 0);
        scene.known.enter(scene.targets.all[0].place);
        assert_eq!(scene.first(1), 1, "the backup");
        scene.known.enter(scene.targets.all[1].place);
        assert_eq!(scene.targets.first(None, &scene.known, 5000), Choice::Full);
    }

    #[test]
    fn every_address_of_a_name_is_a_backend_and_they_change() {
        let known = Backends::create(1).unwrap();
        let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let mut backend = Backend::Tcp {
            address: "10.0.0.9:80".parse().unwrap(),
            given: "app.example:80".to_owned(),
            more: Vec::new(),
        };
        assert!(backend.set_addresses(&addresses(&["10.0.0.1:80", "10.0.0.2:80"])));
        let mut targets = Targets {
            all: Vec::new(),
            listed: vec![Upstream::plain(backend)],
            balance: Balance::RoundRobin,
            failures_max: 1,
            pause_ms: 1000,
            slow_start_ms: 0,
            owed: RefCell::default(),
        };
        let names = |targets: &Targets| -> Vec<String> {
            targets
                .all
                .iter()
                .map(|target| target.name.clone())
                .collect()
        };
        let then = addresses(&["10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80"]);
        assert!(!targets.set_addresses("other.example:80", &then, &known));
        assert!(targets.set_addresses("app.example:80", &then, &known));
        assert_eq!(
            names(&targets),
            ["10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80"]
        );
        let order: Vec<Choice> = (0..4).map(|_| targets.first(None, &known, 0)).collect();
        assert_eq!(order, [0, 1, 2, 0].map(Choice::Use));
        known.fd().close();
    }

    #[test]
    fn who_comes_back_begins_with_little() {
        let mut scene = Scene::new(Balance::RoundRobin, &[1, 1]);
        scene.targets.slow_start_ms = 10_000;
        scene.take_down(1);
        scene.known.succeeded(scene.targets.all[1].place, 4000);
        let counts = scene.counts(110);
        assert!(
            (9..=11).contains(&counts[1]),
            "a tenth of its weight: {counts:?}"
        );
    }
}
