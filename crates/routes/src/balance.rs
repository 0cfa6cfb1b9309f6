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
                    key: dormouse_tables::hash::of_text(&name),
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
        let next = |last, passed| {
            let (choice, tried) = scene.targets.next(last, Tried(passed), &scene.known, 5000);
            (choice, tried.0)
        };
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

    /// All that are tried, until none is left, if all fail.
    fn order(scene: &Scene, first: usize) -> Vec<usize> {
        let mut order = vec![first];
        let mut tried = Tried::first(&scene.targets.all[first]);
        let mut last = first;
        while let (Choice::Use(n), then) = scene.targets.next(last, tried, &scene.known, 5000) {
            order.push(n);
            (last, tried) = (n, then);
        }
        order
    }

    #[test]
    fn backups_are_tried_when_no_other_is_left() {
        let mut scene = Scene::new(Balance::RoundRobin, &[1; 5]);
        for backup in [1, 3] {
            scene.targets.all[backup].backup = true;
        }
        assert_eq!(order(&scene, 0), [0, 2, 4, 1, 3]);
        assert_eq!(order(&scene, 4), [4, 0, 2, 1, 3]);
        // One was chosen because the others are down: they are asked last.
        for down in [0, 2, 4] {
            scene.take_down(down);
        }
        assert_eq!(order(&scene, 3), [3, 1, 0, 2, 4]);
        assert_eq!(
            order(&scene, 2),
            [2, 1, 3],
            "marked ones only if they come behind it"
        );
    }

    #[test]
    fn of_very_many_some_are_tried() {
        let scene = Scene::new(Balance::RoundRobin, &[1; 100]);
        let order = order(&scene, 90);
        assert_eq!(order.len(), 64);
        assert_eq!(order[..12], [90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 0, 1]);
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
