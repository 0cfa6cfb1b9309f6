//! The first connection of a fresh `serve` costs its worker what later ones do, and so does that of a
//! fresh `connect`.

use std::time::Duration;

use dormouse_interop::originator::{self, Originator};
use dormouse_interop::peer::Peer;
use dormouse_interop::scene::{Scene, applies};
use dormouse_interop::terminator::{Can, Target};

/// CPU time of a process, by the scheduler's own count.
fn cpu(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).expect("schedstat");
    let first = text.split_whitespace().next().and_then(|n| n.parse().ok());
    Duration::from_nanos(first.expect("nanoseconds"))
}

/// All threads of a process.
fn cpu_of_all(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("tasks");
    tasks
        .flatten()
        .filter_map(|task| task.file_name().to_str()?.parse().ok())
        .map(cpu)
        .sum()
}

/// What each of sixty connections cost the worker, one after the other.
fn costs(worker: u32, mut connect: impl FnMut()) -> Vec<Duration> {
    let cost = |_| {
        let before = cpu_of_all(worker);
        connect();
        // Its end belongs to it.
        std::thread::sleep(Duration::from_millis(20));
        cpu_of_all(worker) - before
    };
    (0..60).map(cost).collect()
}

/// The best of three starts: what is cold is cold in all of them.
fn assert_alike(starts: &[Vec<Duration>]) {
    let mut firsts: Vec<_> = starts.iter().map(|costs| costs[0]).collect();
    let mut later: Vec<_> = starts
        .iter()
        .flat_map(|costs| costs[1..].to_vec())
        .collect();
    firsts.sort();
    later.sort();
    let (best, median) = (firsts[0], later[later.len() / 2]);
    let slowest = later[later.len() - 1];
    eprintln!("first {firsts:?}, later {median:?}, slowest {slowest:?}");
    assert!(
        best <= (median * 3).max(slowest),
        "first {firsts:?}, later {median:?}"
    );
}

#[test]
fn the_first_connection_costs_what_later_ones_do() {
    let _alone = crate::alone();
    if !applies(Can::BeDormouse) {
        return;
    }
    let start = |_| {
        let scene = Scene::with(|settings| settings.target = Target::Echo);
        let worker = *scene.terminator.leaves().first().expect("a worker");
        costs(worker, || {
            let mut peer = Peer::connect(scene.address).expect("a handshake");
            peer.echo().expect("an echo");
        })
    };
    let starts: Vec<_> = (0..3).map(start).collect();
    assert_alike(&starts);
}

/// The same on the client's side, where every handshake is a full one.
#[test]
fn the_first_connection_of_connect_costs_what_later_ones_do() {
    let _alone = crate::alone();
    if !applies(Can::BeDormouse) {
        return;
    }
    let server = Scene::with(|settings| settings.target = Target::Echo);
    let start = |_| {
        let settings = originator::Settings::new(&[server.address]).line("resume_uses = 0");
        let connect = Originator::start(&settings);
        let worker = *connect.process.leaves().first().expect("a worker");
        costs(worker, || connect.client().echo().expect("an echo"))
    };
    let starts: Vec<_> = (0..3).map(start).collect();
    assert_alike(&starts);
}
