//! Deaths of processes, and the end of all of them.

use std::io::Write;
use std::net::TcpListener;
use std::path::Path;

use super::{assert_echoes, probes};
use dormouse_interop::admin::Admin;
use dormouse_interop::cgroup::Cgroup;
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::{signal, title};
use dormouse_interop::scene::{Scene, applies};
use dormouse_interop::terminator::{Can, Target, Terminator};
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;
use rustls::HandshakeKind;

/// A worker is killed repeatedly: its keeper starts another one, which serves.
#[test]
fn killed_workers_are_replaced() {
    requires!(Can::ReplaceWorkers);
    for workers in [1, 2] {
        let mut scene = Scene::with(|settings| settings.workers = workers);
        let mut dead = Vec::new();
        for round in 0..4 {
            let alive = working(&scene, workers, &dead);
            let victim = alive[round % alive.len()];
            signal(victim, Signal::KILL);
            let mut peer = Peer::saying(scene.address, "echo");
            peer.echo().unwrap_or_else(|error| {
                panic!("expected an echo after a worker was killed, round {round}: {error}")
            });
            dead.push(victim);
        }
        working(&scene, workers, &dead);
        assert!(scene.terminator.runs(), "the main process has ended");
    }
}

/// The workers, once all have started. A keeper without a worker does not count, and neither does a dead worker
/// that was not reaped yet.
fn working(scene: &Scene, workers: u32, dead: &[u32]) -> Vec<u32> {
    let main = scene.terminator.pid();
    let has_keepers = Terminator::chosen() == Terminator::Dormouse;
    let is_worker = |&pid: &u32| {
        let parent = scene.terminator.parent_of(pid);
        pid != main && !dead.contains(&pid) && !(has_keepers && parent == Some(main))
    };
    wait::until("all workers to be there", PATIENCE, || {
        let leaves = scene.terminator.leaves();
        let all = leaves.len() == workers as usize && leaves.iter().all(is_worker);
        all.then_some(leaves)
    })
}

/// An upgrade with room for one more process, which the check of the new binary takes: old processes leave room for new ones
/// only when main has reaped them.
#[test]
fn an_upgrade_needs_one_more_process() {
    requires!(Can::BeDormouse);
    let Some(group) = Cgroup::create("pids") else {
        return;
    };
    let scene = Scene::with(|settings| {
        settings.workers = 4;
        settings.target = Target::Echo;
        Admin::in_folder(settings);
        settings.wrapper = group.wrapper();
    });
    let admin = Admin::of(&scene);
    let mut probes = probes(&scene, 12);
    let most = 1 + wait::until_still("the number of processes", || group.read("pids.current"));
    assert!(group.write("pids.max", most), "a limit");
    scene.terminator.upgrade();
    assert_echoes(&mut probes);
    wait::until_true("control to answer again", || {
        let (code, _) = admin.ask("GET", "/readyz");
        code == 200
    });
    assert_echoes(&mut probes);
}

/// Titles in process lists: short, correct and without arguments, also after a crash and an upgrade.
#[test]
fn process_titles_are_correct() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.workers = 2;
        Admin::in_folder(settings);
    });
    let expected = [
        "dormouse: control",
        "dormouse: keeper 0",
        "dormouse: keeper 1",
        "dormouse: worker 0",
        "dormouse: worker 1",
    ];
    for what in ["start", "crash", "upgrade"] {
        match what {
            "crash" => {
                let is_worker = |&pid: &u32| title(pid).starts_with("dormouse: worker");
                let tree = scene.terminator.tree();
                for worker in tree.into_iter().filter(is_worker) {
                    signal(worker, Signal::KILL);
                }
            }
            "upgrade" => {
                scene.terminator.upgrade();
            }
            _ => {}
        }
        wait::until_true(&format!("{expected:?} after {what}"), || {
            let mut titles: Vec<String> = scene.terminator.tree()[1..]
                .iter()
                .copied()
                .map(title)
                .collect();
            titles.sort();
            titles == expected
        });
    }
    let main = title(scene.terminator.pid());
    assert!(main.contains("dormouse serve -c "), "{main}");
}

/// Connections that wait in the listen queue without a worker are served by the next one.
#[test]
fn new_clients_wait_for_the_next_worker() {
    requires!(Can::ReplaceWorkers);
    let scene = Scene::new();
    for pid in working(&scene, 1, &[]) {
        signal(pid, Signal::KILL);
    }
    for _ in 0..20 {
        Peer::echoing(scene.address);
    }
}

/// Every worker accepts the sessions of every other worker, also of one that has died.
#[test]
fn sessions_resume_at_any_worker() {
    requires!(Can::ReplaceWorkers);
    let scene = Scene::with(|settings| settings.workers = 3);
    for config in peer::configs_by_version() {
        // Connections stay open, so that another worker gets the next one at times.
        let mut open: Vec<Peer> = Vec::new();
        for number in 0..20 {
            let tcp = peer::connect_tcp(scene.address).expect("a connection");
            let mut peer = Peer::over(tcp, peer::client(config.clone())).expect("a handshake");
            peer.stream().write_all(b"echo\n").expect("a line");
            peer.echo().expect("an echo, and tickets before it");
            let expected = match number {
                0 => HandshakeKind::Full,
                _ => HandshakeKind::Resumed,
            };
            assert_eq!(
                peer.tls.handshake_kind(),
                Some(expected),
                "connection {number}"
            );
            open.push(peer);
            if number == 10 && applies(Can::BeDormouse) {
                for pid in working(&scene, 3, &[]) {
                    signal(pid, Signal::KILL);
                }
            }
        }
    }
}

#[test]
fn sigterm_ends_all() {
    ends_with(Signal::TERM);
}

#[test]
fn sigint_ends_all() {
    ends_with(Signal::INT);
}

/// The end is clean: for the clients, in the exit status, and without remaining processes or ports.
fn ends_with(how: Signal) {
    requires!(Can::ReplaceWorkers);
    let mut scene = Scene::with(|settings| settings.workers = 2);
    let _peer = Peer::echoing(scene.address);
    let tree = scene.terminator.tree();
    if applies(Can::BeDormouse) {
        assert!(
            tree.len() >= 5,
            "expected main, two keepers and two workers: {tree:?}"
        );
    }
    signal(scene.terminator.pid(), how);
    let status = scene.terminator.wait_for_end(PATIENCE);
    assert!(
        status.success(),
        "expected exit status 0 after {how:?}, came: {status}"
    );
    wait::until_true("every process to be gone", || {
        let left = tree
            .iter()
            .find(|pid| Path::new(&format!("/proc/{pid}")).exists());
        left.is_none()
    });
    TcpListener::bind(scene.address).expect("the address to be free again");
}
