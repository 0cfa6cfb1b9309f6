//! The first connection of a fresh `serve` costs its worker no more CPU time than later ones, and the same
//! holds for a fresh `connect`.

use std::time::Duration;

use dormouse_interop::originator::{self, Originator};
use dormouse_interop::peer::Peer;
use dormouse_interop::process::cpu_time;
use dormouse_interop::scene::Scene;
use dormouse_interop::terminator::{Can, Target};

/// How many times the median the first connection may cost: cold caches multiply its cost by two or three.
const MOST: u32 = 6;

/// CPU time that each of sixty consecutive connections costs the worker.
fn costs(worker: u32, mut connect: impl FnMut()) -> Vec<Duration> {
    let cost = |_| {
        let before = cpu_time(worker);
        connect();
        // The end of the connection is part of its cost.
        std::thread::sleep(Duration::from_millis(5));
        cpu_time(worker) - before
    };
    (0..60).map(cost).collect()
}

/// Compares the best of three starts, because a cold cache shows in all of them.
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
        best <= (median * MOST).max(slowest),
        "first {firsts:?}, later {median:?}"
    );
}

#[test]
fn the_first_connection_costs_no_more_than_later_ones() {
    let _alone = crate::alone();
    requires!(Can::BeDormouse);
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

/// The same for `connect`, where every handshake is a full one.
#[test]
fn the_first_connection_of_connect_costs_no_more_than_later_ones() {
    let _alone = crate::alone();
    requires!(Can::BeDormouse);
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
