//! How new connections spread over the workers.

use std::time::Duration;

use dormouse_interop::counts::Counts;
use dormouse_interop::peer::Peer;
use dormouse_interop::scene::Scene;
use dormouse_interop::terminator::Can;
use dormouse_interop::wait;
use serde_json::Value;

const WORKERS: u32 = 4;
const CLIENTS: u64 = 200;

/// The number of connections of each worker.
fn shares(counts: &Counts) -> Vec<u64> {
    let all = counts.all();
    let workers = all["workers"].as_array().expect("a list of workers");
    let number = |worker: &Value, name: &str| worker[name].as_u64().expect("a number");
    let of = |worker| number(worker, "at_rest") + number(worker, "pending");
    workers.iter().map(of).collect()
}

/// Clients come one by one and stay, and all workers sleep when the next one comes.
#[test]
fn calm_arrivals_reach_all_workers() {
    requires!(Can::BeDormouse);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut counts = None;
    let scene = Scene::with(|settings| {
        settings.workers = WORKERS;
        counts = Some(Counts::of(settings, folder.path()));
    });
    let counts = counts.expect("an admin socket");
    let _clients: Vec<Peer> = (0..CLIENTS)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(3));
            Peer::saying(scene.address, "echo")
        })
        .collect();
    wait::until_true("all connections in the workers' counts", || {
        shares(&counts).iter().sum::<u64>() == CLIENTS
    });
    let shares = shares(&counts);
    eprintln!("{CLIENTS} connections by worker: {shares:?}");
    assert_eq!(shares.len(), WORKERS as usize);
    assert!(
        shares
            .iter()
            .all(|&share| share > 0 && share <= CLIENTS / 2),
        "expected at most half of {CLIENTS} connections in each worker, they have {shares:?}"
    );
}
