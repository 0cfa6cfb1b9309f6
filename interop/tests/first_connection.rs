//! The first connection of a fresh `serve` costs its worker what later ones do.

use std::time::Duration;

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

#[test]
fn the_first_connection_costs_what_later_ones_do() {
    if !applies(Can::BeDormouse) {
        return;
    }
    // The best of three starts: what is cold is cold in all of them.
    let mut firsts = Vec::new();
    let mut later = Vec::new();
    for _ in 0..3 {
        let scene = Scene::with(|settings| settings.target = Target::Echo);
        let worker = *scene.terminator.leaves().first().expect("a worker");
        for number in 0..60 {
            let before = cpu_of_all(worker);
            let mut peer = Peer::connect(scene.address).expect("a handshake");
            peer.echo().expect("an echo");
            drop(peer);
            // Its end belongs to it.
            std::thread::sleep(Duration::from_millis(20));
            let spent = cpu_of_all(worker) - before;
            if number == 0 {
                firsts.push(spent);
            } else {
                later.push(spent);
            }
        }
    }
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
