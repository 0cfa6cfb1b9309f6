//! Workers, keepers and the main process die at the worst moments; connections survive.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use super::{assert_echoes, probes};
use dormouse_interop::admin::Admin;
use dormouse_interop::backend::Backend;
use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::content::random;
use dormouse_interop::peer::Peer;
use dormouse_interop::probe::{Load, Probe};
use dormouse_interop::process::{limit, signal, started, until_ended};
use dormouse_interop::scene::{self, PLAIN_PORT, Scene, TLS_PORT, applies, unused_host};
use dormouse_interop::slots::{self, Slots};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;

/// A small random generator: the same seed gives the same test.
struct Seed(u64);

impl Seed {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % below
    }
}

/// The workers of a scene, once all have started.
fn workers(scene: &Scene, count: usize) -> Vec<u32> {
    wait::until("all workers to be there", PATIENCE, || {
        let mut leaves = scene.terminator.leaves();
        // A keeper between two workers is a leaf with slots, too, but a child of main.
        let parent = |pid: u32| scene.terminator.parent_of(pid);
        let main = Some(scene.terminator.pid());
        leaves.retain(|&pid| Slots::of(pid).is_some() && parent(pid).and_then(parent) == main);
        (leaves.len() == count).then_some(leaves)
    })
}

/// Stops the worker repeatedly until it is (or is not) busy with a connection, then kills it. Returns `false`
/// if that moment did not come.
fn kill_when(worker: u32, slots: &Slots, busy: bool, seed: &mut Seed) -> bool {
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        slots::stop(worker);
        if slots.is_busy() == busy {
            signal(worker, Signal::KILL);
            return true;
        }
        signal(worker, Signal::CONT);
        std::thread::sleep(Duration::from_micros(20 + seed.next(500)));
    }
    signal(worker, Signal::CONT);
    false
}

/// Kills a worker that is not busy.
fn kill_at_rest(worker: u32) {
    let slots = Slots::of(worker).expect("the slots of a worker");
    assert!(
        kill_when(worker, &slots, false, &mut Seed(1)),
        "a worker never rests"
    );
}

/// Minimum time between kills of one worker without a restart delay.
const RESPITE: Duration = Duration::from_millis(1_100);

/// Kills under full load, every second time while a slot is busy. Eight threads request echoes on `connections`
/// of both versions, some with key updates, and check every byte; other connections are half-closed the whole
/// time.
fn kill_under_load(kills: usize, connections: usize, before: BackendKind) {
    const WORKERS: usize = 4;
    let is_proxied = before == BackendKind::Backend;
    let scene = Scene::with(|settings| {
        settings.workers = WORKERS as u32;
        if !is_proxied {
            settings.target = Target::Echo;
        }
    });
    let half_closed = is_proxied.then(|| HalfClosed::open(&scene, connections / 10));
    let first = if is_proxied { "echo\n" } else { "" };
    let load = Load::start(scene.address, 8, connections / 8, first, Duration::ZERO);
    let mut seed = Seed(0x0d02_3005_e000_0001);
    let (mut busy_kills, mut killed) = (0, 0);
    let mut times: Vec<Instant> = Vec::new();
    while killed < kills {
        // The worker whose last kill is longest ago comes first.
        if killed >= WORKERS {
            std::thread::sleep(RESPITE.saturating_sub(times[killed - WORKERS].elapsed()));
        }
        let mut all = workers(&scene, WORKERS);
        all.sort_by_key(|&pid| (started(pid), pid));
        let worker = all[0];
        let slots = Slots::of(worker).expect("the slots of a worker");
        let want_busy = killed % 2 == 0;
        if kill_when(worker, &slots, want_busy, &mut seed) {
            times.push(Instant::now());
            killed += 1;
            busy_kills += usize::from(want_busy);
            let until = load.echoes() + 20;
            wait::until_true("echoes to continue", || load.echoes() >= until);
        }
    }
    let seen = load.finish();
    println!(
        "{killed} kills, {busy_kills} of them busy, {connections} connections: {} reset, {} echoes, \
         longest {:?}",
        seen.lost.len(),
        seen.echoes,
        seen.longest
    );
    assert_eq!(seen.wrong, Vec::<String>::new(), "bytes that were wrong");
    assert!(
        seen.lost.len() <= busy_kills,
        "{} connections were reset by {busy_kills} kills at work: {:?}",
        seen.lost.len(),
        seen.lost
    );
    assert!(busy_kills * 2 >= killed);
    assert!(
        seen.lost.len() as u64 * 20 <= seen.echoes,
        "95 % of the transfers are to be unaffected"
    );
    if let Some(half_closed) = half_closed {
        println!("{} half-closed connections", half_closed.len());
        half_closed.finish();
    }
}

/// Backend of the terminator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BackendKind {
    Echo,
    Backend,
}

#[test]
fn ten_kills_under_load() {
    if applies(Can::BeDormouse) {
        kill_under_load(10, 96, BackendKind::Echo);
    }
}

/// Connections with one closed direction: by the backend, or by the client.
struct HalfClosed {
    by_backend: Vec<Peer>,
    by_client: Vec<Peer>,
}

impl HalfClosed {
    const ANSWER: usize = 300_000;

    /// Opens this number of connections, half of each kind.
    fn open(scene: &Scene, count: usize) -> Self {
        let by_backend = |_| {
            let mut peer = Peer::saying(scene.address, "backendfirst 1000");
            let mut all = vec![0; 1000];
            let received = peer.stream().read_exact(&mut all);
            received.expect("what the backend sent first");
            peer
        };
        // The backend's answer stays pending until the client reads it.
        let by_client = |_| {
            let command = format!("halfclose {}", Self::ANSWER);
            let mut peer = Peer::saying(scene.address, &command);
            peer.end_sending().expect("a half-closed connection");
            peer
        };
        Self {
            by_backend: (0..count / 2).map(by_backend).collect(),
            by_client: (0..count / 2).map(by_client).collect(),
        }
    }

    fn len(&self) -> usize {
        self.by_backend.len() + self.by_client.len()
    }

    /// Uses the other direction to its end.
    fn finish(self) {
        for mut peer in self.by_backend {
            let sent = peer.stream().write_all(&[7; 500]);
            sent.expect("the other direction is open");
            peer.end_sending().expect("its end");
            assert!(peer.receive_all().expect("a clean end").is_empty());
        }
        for mut peer in self.by_client {
            let received = peer.receive_all().expect("a clean end");
            assert_eq!(received.len(), Self::ANSWER);
        }
    }
}

/// Connections in every state at the moment of the kill; all workers die at once.
fn every_kind(count: usize, target: Option<Target>) {
    let is_echo = target.is_some();
    let scene = Scene::with(|settings| {
        settings.workers = 1;
        if let Some(target) = target {
            settings.target = target;
        }
    });
    let mut probes = probes(&scene, count);
    let half_closed = (!is_echo).then(|| HalfClosed::open(&scene, 40));
    // With bytes pending in both directions: sent, but not read.
    for probe in probes.iter_mut().take(200) {
        probe.send(40_000).expect("sent without reading");
    }
    // After this time, bytes for a reader that has stopped are pending.
    std::thread::sleep(Duration::from_millis(300));
    for worker in workers(&scene, 1) {
        kill_at_rest(worker);
    }
    let killed = Instant::now();
    let last = probes.last_mut().expect("a connection");
    last.echo(10).expect("the first echo after the kill");
    println!(
        "first echo {:?} after the kill, {count} connections",
        killed.elapsed()
    );
    for (number, probe) in probes.iter_mut().enumerate() {
        probe.receive().expect("the pending bytes");
        probe
            .echo(300)
            .unwrap_or_else(|fault| panic!("connection {number}: {fault:?}"));
    }
    for probe in probes {
        probe.finish().expect("a clean end");
    }
    if let Some(half_closed) = half_closed {
        half_closed.finish();
    }
}

#[test]
fn every_kind_of_connection_survives_the_worker() {
    if applies(Can::BeDormouse) {
        every_kind(300, None);
        every_kind(300, Some(Target::Echo));
    }
}

/// With thousands of connections, which need most of the descriptors that a process may have: one test at a time.
mod alone {
    use super::*;

    #[test]
    #[ignore = "minutes"]
    fn three_hundred_kills_under_load() {
        if applies(Can::BeDormouse) {
            kill_under_load(300, 15_000, BackendKind::Echo);
        }
    }

    #[test]
    #[ignore = "minutes"]
    fn three_hundred_kills_under_load_with_a_backend() {
        if applies(Can::BeDormouse) {
            kill_under_load(300, 4_000, BackendKind::Backend);
        }
    }

    #[test]
    #[ignore = "15,000 handshakes"]
    fn fifteen_thousand_survive_the_worker() {
        if applies(Can::BeDormouse) {
            every_kind(15_000, Some(Target::Echo));
        }
    }
}

/// A worker that hangs is detected, killed and replaced.
#[test]
fn a_worker_that_hangs_is_replaced() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.option("hang_timeout", "2s");
    });
    let mut probe = scene.probe();
    let worker = workers(&scene, 1)[0];
    wait::until("rest", PATIENCE, || {
        slots::stop(worker);
        if Slots::of(worker).is_some_and(|slots| !slots.is_busy()) {
            return Some(());
        }
        signal(worker, Signal::CONT);
        None
    });
    probe.echo(100).expect("an echo from the next worker");
    assert_eq!(scene.terminator.logged("worker hangs", 1).len(), 1);
    assert_ne!(workers(&scene, 1)[0], worker);
    // A worker that is only idle is left alone.
    std::thread::sleep(Duration::from_millis(4_500));
    assert_eq!(scene.terminator.logged("worker hangs", 1).len(), 1);
    probe.echo(100).expect("an echo");
}

/// Each worker has a new memory layout; a worker that dies at once is restarted with growing delays.
#[test]
fn each_worker_has_a_new_layout_and_restarts_back_off() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| settings.target = Target::Echo);
    let mut probe = scene.probe();
    let mut addresses = Vec::new();
    let began = Instant::now();
    for _ in 0..6 {
        let worker = workers(&scene, 1)[0];
        addresses.push(slots::program_address(worker).expect("the maps of a worker"));
        kill_at_rest(worker);
        wait::until_true("the next worker", || {
            let now = scene.terminator.leaves();
            now.len() == 1 && now[0] != worker && Slots::of(now[0]).is_some()
        });
        probe.echo(100).expect("an echo");
    }
    addresses.sort_unstable();
    addresses.dedup();
    assert!(addresses.len() >= 5, "layouts: {addresses:?}");
    // 100, 200, 400 and 800 ms before the third to the sixth start.
    assert!(began.elapsed() >= Duration::from_millis(1_400));
}

/// Input that crashes a worker costs its own connection only.
#[test]
fn deadly_input_costs_its_own_connection() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.trial("crash:record:3017");
    });
    let mut others: Vec<Probe> = (0..30).map(|_| scene.probe()).collect();
    for round in 0..3 {
        let mut attacker = scene.probe();
        attacker.echo(2999).expect("an echo");
        attacker
            .echo(3000)
            .expect_err("its own connection is reset");
        assert_echoes(&mut others);
        let deaths = scene.terminator.logged("worker died", round + 1);
        assert_eq!(deaths.len(), round + 1);
    }
}

/// A worker closes what its predecessor has left in their table of descriptors, but nothing that its own first thread
/// holds for its sandbox.
#[test]
fn a_starting_worker_closes_nothing_of_its_first_thread() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.workers = 1;
        settings.trial("hold:descriptor");
    });
    let mut probe = scene.probe();
    kill_at_rest(workers(&scene, 1)[0]);
    probe.echo(100).expect("an echo");
    let deaths = scene.terminator.lines_with("worker died");
    let others = deaths.iter().filter(|line| !line.contains("SIGKILL"));
    assert_eq!(others.count(), 0, "{deaths:?}");
}

/// The next worker lacks memory when it begins. The one after it has more.
#[test]
fn a_worker_that_cannot_begin_is_followed_by_another() {
    requires!(Can::BeDormouse, "prlimit", "setpriv");
    let mut scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.workers = 1;
        settings.option("pending_memory", "1GB");
    });
    let mut probe = scene.probe();
    let worker = workers(&scene, 1)[0];
    let keeper = scene.terminator.parent_of(worker).expect("its keeper");
    // Enough for the process, but not for its pending bytes.
    limit(keeper, "--as=400000000:");
    kill_at_rest(worker);
    scene
        .terminator
        .wait_for_line("worker start failed", PATIENCE);
    limit(keeper, "--as=unlimited:");
    probe.echo(100).expect("an echo");
}

/// Without its keeper a worker keeps serving, and main continues: also if no keeper is left.
#[test]
fn workers_keep_serving_without_their_keepers() {
    requires!(Can::BeDormouse);
    let mut scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.workers = 2;
        Admin::in_folder(settings);
    });
    let mut probes: Vec<Probe> = (0..20).map(|_| scene.probe()).collect();
    for (dead, worker) in workers(&scene, 2).into_iter().enumerate() {
        let keeper = scene
            .terminator
            .parent_of(worker)
            .expect("the keeper of a worker");
        signal(keeper, Signal::KILL);
        wait::until_true("the keeper's death to be seen", || {
            scene.terminator.lines_with("keeper died").len() == dead + 1
        });
        assert_echoes(&mut probes);
        let _newcomer = scene.probe();
        let admin = Admin::of(&scene);
        admin.order("/reload").expect("a reload");
    }
    signal(scene.terminator.pid(), Signal::TERM);
    for probe in probes {
        probe.finish().expect("a proper end");
    }
    assert!(scene.terminator.wait_for_end(PATIENCE).success());
}

/// No keeper is left to kill a worker that hangs, so main does it when the program stops.
#[test]
fn a_hung_worker_without_its_keeper_does_not_delay_a_stop_forever() {
    requires!(Can::BeDormouse);
    let mut scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.option("shutdown_grace", "1s");
    });
    let worker = workers(&scene, 1)[0];
    let keeper = scene.terminator.parent_of(worker).expect("its keeper");
    signal(keeper, Signal::KILL);
    scene.terminator.wait_for_line("keeper died", PATIENCE);
    signal(worker, Signal::STOP);
    assert!(scene.terminator.terminate().success());
    let killed = "worker without a keeper did not stop; killing it";
    assert_eq!(scene.terminator.logged(killed, 1).len(), 1);
}

/// Main is killed by SIGKILL. Connections continue, crashes are still repaired, and no new connection is
/// accepted, so that the next start can use the address at once; after a limited time all processes exit.
#[test]
fn without_main_connections_end_in_time_and_the_next_start_succeeds() {
    requires!(Can::BeDormouse);
    let mut settings = Settings::new(SocketAddr::new(unused_host(), TLS_PORT), Target::Echo);
    settings.workers = 2;
    settings.option("shutdown_drain", "6s");
    settings.option("shutdown_grace", "1s");
    Admin::in_folder(&mut settings);
    let backend = Backend::tcp(SocketAddr::new(settings.listen.ip(), PLAIN_PORT));
    let mut scene = Scene::of(Terminator::Dormouse, backend, &settings);
    let mut probes: Vec<Probe> = (0..8).map(|_| scene.probe()).collect();
    let tree = scene.terminator.tree();
    // A worker without connections ends with main.
    let has_some = |&pid: &u32| Slots::of(pid).is_some_and(|slots| slots.hold_anything());
    let worker = workers(&scene, 2).into_iter().find(has_some);
    let worker = worker.expect("a worker with connections");
    signal(scene.terminator.pid(), Signal::KILL);
    scene.terminator.wait_for_end(PATIENCE);
    kill_at_rest(worker);
    let going_on = probes.iter_mut().filter_map(|probe| probe.echo(100).ok());
    assert!(going_on.count() > 0, "connections end evenly, not at once");
    wait::until_true("each worker to log it", || {
        scene.terminator.lines_with("main process died").len() >= 2
    });

    // The same configuration in the same folder: address and admin socket.
    let next = scene::start(Terminator::Dormouse, &settings, scene.folder.path());
    let mut newcomer = scene.probe();
    let status = Admin::of(&scene).status();
    assert_eq!(status["main"]["pid"], next.pid(), "the next start answers");

    until_ended(&tree);
    newcomer.echo(100).expect("an echo of the next start");
}

/// A keeper reads its settings when it starts. A reload has raised `shutdown_drain` since.
#[test]
fn keepers_know_the_last_reloads_time_without_main() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.option("shutdown_drain", "1s");
        settings.option("shutdown_grace", "100ms");
        Admin::in_folder(settings);
    });
    let mut probe = scene.probe();
    let file = scene.folder.path().join("dormouse.toml");
    let text = std::fs::read_to_string(&file).expect("the configuration");
    let next = text.replace("shutdown_drain = \"1s\"", "shutdown_drain = \"50s\"");
    std::fs::write(&file, next).expect("written");
    Admin::of(&scene).order("/reload").expect("a reload");
    signal(scene.terminator.pid(), Signal::KILL);
    let said = wait::until("the keeper to see it", PATIENCE, || {
        scene
            .terminator
            .lines_with("keeper and worker exit within this time")
            .pop()
    });
    // And 5 s for slow machines.
    assert!(said.contains("within_s=55"), "{said}");
    probe.echo(100).expect("an echo without main");
}

/// A hijacked worker that would continue without main is killed by its keeper.
#[test]
fn without_main_a_hijacked_worker_is_killed() {
    requires!(Can::BeDormouse);
    let mut scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.option("shutdown_drain", "1s");
        settings.option("shutdown_grace", "100ms");
        settings.option("hang_timeout", "off");
    });
    let tree = scene.terminator.tree();
    let worker = workers(&scene, 1)[0];
    signal(worker, Signal::STOP);
    signal(scene.terminator.pid(), Signal::KILL);
    scene.terminator.wait_for_end(PATIENCE);
    until_ended(&tree);
}

/// A keeper never has a private key, a ticket key or a client's bytes in its memory, not even after a crash of its worker.
#[test]
fn keepers_have_no_secrets() {
    requires!(Can::BeDormouse);
    let files = authority().certificate(Kind::EcdsaP256);
    let pem = std::fs::read_to_string(&files.key).expect("the key");
    let line = pem
        .lines()
        .nth(1)
        .expect("a line of the key")
        .as_bytes()
        .to_vec();
    let folder = tempfile::tempdir().expect("a temporary folder");
    // The key's name, which each ticket shows, and two keys.
    let ticket_key = random(80);
    let key_file = folder.path().join("ticket.key");
    std::fs::write(&key_file, &ticket_key).expect("a key file");
    let only_owner = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&key_file, only_owner).expect("permissions");
    let scene = Scene::with(|settings| {
        settings.option("ticket_keys", &format!("file:{}", key_file.display()));
    });
    let mut peer = Peer::saying(scene.address, "echo");
    let word = random(64);
    let (first, second) = ticket_key[16..].split_at(32);
    let secrets = [
        ("the private key", &line[..]),
        ("a ticket key", first),
        ("the other ticket key", second),
        ("a client's bytes", &word),
    ];
    for _ in 0..2 {
        let mut back = vec![0; word.len()];
        peer.stream().write_all(&word).expect("a write");
        peer.stream().read_exact(&mut back).expect("an echo");
        assert_eq!(back, word);
        let worker = workers(&scene, 1)[0];
        let keeper = scene.terminator.parent_of(worker).expect("its keeper");
        let found = slots::in_memory(keeper, &secrets);
        assert!(found.is_empty(), "the keeper has {found:?}");
        kill_at_rest(worker);
    }
    // The search works: this process has them.
    let found = slots::in_memory(std::process::id(), &secrets);
    assert_eq!(found.len(), secrets.len(), "{found:?}");
}
