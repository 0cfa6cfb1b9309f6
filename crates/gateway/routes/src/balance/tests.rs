use super::*;
use std::net::{IpAddr, Ipv4Addr};

fn key(client: u32) -> u64 {
    dormouse_tables::clients::key(IpAddr::V4(Ipv4Addr::from(client)))
}

struct Scene {
    known: Backends,
    targets: Targets,
}

impl Scene {
    fn new(balance: Balance, weights: &[u32]) -> Scene {
        let known = Backends::create(1).unwrap();
        let all = weights.iter().enumerate().map(|(n, &weight)| {
            let name = format!("10.0.{}.{}:80", n / 256, n % 256);
            Target {
                address: Addr::Tcp(name.parse().unwrap()),
                host: None,
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
            credits: RefCell::default(),
        };
        Scene { known, targets }
    }

    fn first(&self, client: u32) -> usize {
        match self.targets.first(Some(key(client)), &self.known, 5000) {
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
fn round_robin_follows_the_weights() {
    let scene = Scene::new(Balance::RoundRobin, &[1, 1, 1]);
    let order: Vec<usize> = (0..6).map(|n| scene.first(n)).collect();
    assert_eq!(order, [0, 1, 2, 0, 1, 2]);
    let scene = Scene::new(Balance::RoundRobin, &[5, 1, 1]);
    assert_eq!(scene.counts(70), [50, 10, 10]);
}

#[test]
fn least_connections_follows_the_weights() {
    let scene = Scene::new(Balance::LeastConnections, &[1, 2]);
    for client in 0..30 {
        let n = scene.first(client);
        scene.known.enter(scene.targets.all[n].place);
    }
    let loads = [0, 1].map(|n| scene.known.load(scene.targets.all[n].place));
    assert!((9..=11).contains(&loads[0]), "{loads:?}");
}

#[test]
fn client_hash_moves_only_the_clients_of_a_lost_backend() {
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
fn skips_failed_backends_unless_all_have_failed_and_tries_each_once() {
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
        "all are down, so the marks are ignored"
    );
    assert_eq!(next(1, 1), (Choice::Use(2), 2));
    assert_eq!(next(2, 2), (Choice::NoneLeft, 2));
    scene.first(1);
}

#[test]
fn uses_backups_when_the_others_are_full() {
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

/// A backend marked down is no better than waiting: it may answer every connection with an error.
#[test]
fn waits_for_a_full_backend_rather_than_use_one_that_is_down() {
    let mut scene = Scene::new(Balance::RoundRobin, &[1, 1, 1]);
    scene.targets.all[0].connections_max = Some(1);
    scene.targets.all[2].backup = true;
    scene.take_down(1);
    scene.take_down(2);
    assert_eq!(scene.first(1), 0);
    scene.known.enter(scene.targets.all[0].place);
    assert_eq!(scene.targets.first(None, &scene.known, 5000), Choice::Full);
    scene.take_down(0);
    assert_eq!(scene.first(1), 1, "all are down, so the marks are ignored");
}

/// The order in which the backends are tried if all of them fail.
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
fn tries_backups_when_no_other_backend_is_left() {
    let mut scene = Scene::new(Balance::RoundRobin, &[1; 5]);
    for backup in [1, 3] {
        scene.targets.all[backup].backup = true;
    }
    assert_eq!(order(&scene, 0), [0, 2, 4, 1, 3]);
    assert_eq!(order(&scene, 4), [4, 0, 2, 1, 3]);
    // A backup was chosen because the others are down: they are tried last.
    for down in [0, 2, 4] {
        scene.take_down(down);
    }
    assert_eq!(order(&scene, 3), [3, 1, 0, 2, 4]);
    assert_eq!(
        order(&scene, 2),
        [2, 1, 3],
        "backends marked down only if they follow in list order"
    );
}

#[test]
fn tries_all_of_a_list_and_one_of_each_group_of_a_longer_one() {
    let scene = Scene::new(Balance::RoundRobin, &[1; 64]);
    let all: Vec<usize> = (50..64).chain(0..50).collect();
    assert_eq!(order(&scene, 50), all);
    let scene = Scene::new(Balance::RoundRobin, &[1; 300]);
    let one_of_each: Vec<usize> = (285..300).step_by(5).chain((0..285).step_by(5)).collect();
    assert_eq!(order(&scene, 285), one_of_each);
    let mut from_within = one_of_each;
    from_within[0] = 288;
    assert_eq!(order(&scene, 288), from_within);
}

/// A whole site is down, and the first choice was one of its backends before that was known.
#[test]
fn passes_over_many_backends_that_are_marked_down() {
    let scene = Scene::new(Balance::RoundRobin, &[1; 300]);
    (0..100).for_each(|n| scene.take_down(n));
    let order = order(&scene, 5);
    let up: Vec<usize> = (100..300).step_by(5).collect();
    assert_eq!(order[1..=up.len()], up);
    scene.take_down(100);
    scene.take_down(101);
    let tried = Tried::first(&scene.targets.all[5]);
    let (choice, _) = scene.targets.next(5, tried, &scene.known, 5000);
    assert_eq!(choice, Choice::Use(102));
}

#[test]
fn each_address_of_a_name_is_a_backend_and_addresses_can_change() {
    let known = Backends::create(1).unwrap();
    let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    };
    let mut backend = Backend::Tcp {
        given: "app.example:80".to_owned(),
        addresses: addresses(&["10.0.0.9:80"]),
    };
    assert!(backend.set_addresses(&addresses(&["10.0.0.1:80", "10.0.0.2:80"])));
    let mut targets = Targets {
        all: Vec::new(),
        listed: vec![Upstream::plain(backend)],
        balance: Balance::RoundRobin,
        failures_max: 1,
        pause_ms: 1000,
        slow_start_ms: 0,
        credits: RefCell::default(),
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
    known.fds().close();
}

#[test]
fn a_recovered_backend_starts_slowly() {
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

/// A compromised worker writes any number into the table.
#[test]
fn a_forged_load_overflows_nothing() {
    use std::os::unix::fs::FileExt as _;
    let scene = Scene::new(Balance::LeastConnections, &[1, 100]);
    let marks = format!("/proc/self/fd/{}", scene.known.fds().marks);
    let marks = std::fs::File::options().write(true).open(marks).unwrap();
    let len = marks.metadata().unwrap().len() as usize;
    for byte in [0xff, 0x7f, 0x01] {
        marks.write_all_at(&vec![byte; len], 0).unwrap();
        assert!(scene.first(1) < 2);
    }
}
