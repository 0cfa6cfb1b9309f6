//! The number of system calls for a message on an idle connection, and for a whole connection, counted by
//! strace. It hardly depends on the machine's load.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::time::Duration;

use dormouse_interop::peer::Peer;
use dormouse_interop::scene::Scene;
use dormouse_interop::strace::Strace;
use dormouse_interop::terminator::Can;

/// Number of measured exchanges.
const WORDS: u64 = 200;

/// A message to the backend and its answer need six calls: wait, receive and send for each. Periodic checks
/// may add two.
const CALLS_MAX: f64 = 8.0;

/// Number of measured connections.
const CONNECTIONS: u64 = 50;

/// Accept, handshake, connect to the backend, a message in each direction, and both ends: some 38 calls. A
/// turn of the loop that finds less work at once needs a few more.
const CALLS_OF_CONNECTION_MAX: f64 = 48.0;

/// System calls of a process during `work`, by name.
fn calls(pid: u32, work: impl FnOnce()) -> BTreeMap<String, u64> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("calls");
    let output = file.display().to_string();
    let strace = Strace::of(pid, &["-c", "-o", &output]).expect("strace");
    work();
    // strace counts a call when it returns, so the last call is counted with the next wait.
    std::thread::sleep(Duration::from_millis(50));
    drop(strace);
    let table = std::fs::read_to_string(&file).expect("its table");
    let rows = table.lines().map(|line| line.split_whitespace().collect());
    // % time, seconds, usecs/call, calls, (errors,) name.
    rows.filter_map(|row: Vec<&str>| Some((row.last()?.to_string(), row.get(3)?.parse().ok()?)))
        .filter(|(name, _)| name != "total")
        .collect()
}

/// System calls of the scene's worker for each of `count` operations, and all calls by name.
fn calls_for_each(scene: &Scene, count: u64, work: impl FnOnce()) -> (f64, BTreeMap<String, u64>) {
    let workers = scene.terminator.workers();
    let by_name = calls(*workers.first().expect("a worker"), work);
    (by_name.values().sum::<u64>() as f64 / count as f64, by_name)
}

#[test]
fn a_message_costs_few_system_calls() {
    let _alone = crate::alone();
    requires!(Can::BeDormouse, "strace");
    let scene = Scene::new();
    let mut peer = Peer::echoing(scene.address);
    let (each, by_name) = calls_for_each(&scene, WORDS, || {
        for _ in 0..WORDS {
            let mut back = [0; 6];
            peer.stream().write_all(b"hello\n").expect("sent");
            peer.stream().read_exact(&mut back).expect("an echo");
        }
    });
    assert!(each >= 4.0, "nothing was counted: {by_name:?}");
    assert!(
        each <= CALLS_MAX,
        "{each} system calls for each word and its answer: {by_name:?}"
    );
}

/// A number of connections, each with one exchange.
fn exchanges(scene: &Scene) {
    for _ in 0..CONNECTIONS {
        let mut peer = Peer::echoing(scene.address);
        peer.end_sending().expect("close_notify");
        peer.receive_all().expect("the other end");
    }
}

#[test]
fn a_connection_costs_few_system_calls() {
    let _alone = crate::alone();
    requires!(Can::BeDormouse, "strace");
    let scene = Scene::new();
    let (each, by_name) = calls_for_each(&scene, CONNECTIONS, || exchanges(&scene));
    assert!(each >= 20.0, "nothing was counted: {by_name:?}");
    assert!(
        each <= CALLS_OF_CONNECTION_MAX,
        "{each} system calls for each connection: {by_name:?}"
    );
}

/// A line needs the backend's address (getpeername), which the connect needs once, too.
#[test]
fn a_connection_without_a_line_costs_nothing_for_the_log() {
    let _alone = crate::alone();
    requires!(Can::BeDormouse, "strace");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("connections.log");
    let scene = Scene::with(|settings| {
        settings.option("connection_log", &log.display().to_string());
        settings.option("connection_log_one_in", "1000000");
    });
    let (each, by_name) = calls_for_each(&scene, CONNECTIONS, || exchanges(&scene));
    assert!(each >= 20.0, "nothing was counted: {by_name:?}");
    let looked_up = by_name.get("getpeername").copied().unwrap_or_default();
    assert!((1..=CONNECTIONS).contains(&looked_up), "{by_name:?}");
}
