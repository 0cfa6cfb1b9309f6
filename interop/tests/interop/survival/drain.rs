//! Draining and stopping: many connections end, each of them cleanly.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use dormouse_interop::admin::Admin;
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::{signal, until_ended};
use dormouse_interop::scene::Scene;
use dormouse_interop::terminator::Can;
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;
use serde_json::Value;

fn scene(workers: u32) -> (Scene, Admin) {
    let scene = Scene::with(|settings| {
        settings.workers = workers;
        settings.option("shutdown_grace", "20s");
        Admin::in_folder(settings);
    });
    let admin = Admin::of(&scene);
    (scene, admin)
}

/// Connections that have echoed once, half of them with each TLS version.
fn quiet(scene: &Scene, count: usize) -> Vec<Peer> {
    let configs = peer::configs_by_version();
    (0..count)
        .map(|number| {
            let tcp = peer::connect_tcp(scene.address).expect("a connection");
            let config = configs[number % configs.len()].clone();
            let mut peer = Peer::over(tcp, peer::client(config)).expect("a handshake");
            peer.stream().write_all(b"echo\n").expect("a line");
            peer.echo().expect("an echo");
            peer
        })
        .collect()
}

/// Waits for the end of each connection in its own thread. They report in the order of their ends: the number,
/// and whether the close was clean.
fn ends(peers: Vec<Peer>) -> Receiver<(usize, Result<(), String>)> {
    let (sender, ended) = channel();
    for (number, mut peer) in peers.into_iter().enumerate() {
        let sender = sender.clone();
        thread::spawn(move || {
            peer.tcp
                .set_read_timeout(Some(2 * PATIENCE))
                .expect("a timeout");
            let end = peer.receive_all().map_err(|error| error.to_string());
            let end = end.and_then(|rest| match rest.len() {
                0 => peer.end_sending().map_err(|error| error.to_string()),
                more => Err(format!("{more} bytes came which nobody sent")),
            });
            // The test may have ended.
            let _ = sender.send((number, end));
        });
    }
    ended
}

fn all_end_cleanly(ended: &Receiver<(usize, Result<(), String>)>, count: usize) -> Vec<usize> {
    (0..count)
        .map(|_| {
            let (number, end) = ended
                .recv_timeout(2 * PATIENCE)
                .expect("another closed connection");
            assert_eq!(
                end,
                Ok(()),
                "connection {number} did not end with close_notify"
            );
            number
        })
        .collect()
}

/// At every check the right number of connections is closed; no new client is accepted.
#[test]
fn a_drain_is_even() {
    requires!(Can::BeDormouse);
    const COUNT: usize = 60;
    let (scene, admin) = scene(2);
    let ended = ends(quiet(&scene, COUNT));
    wait::until_true("all to be at rest", || {
        admin.status()["connections"]["at_rest"] == COUNT
    });
    let words = admin.order("/drain?over=4s").expect("a drain");
    assert!(words.contains("60 connections"), "{words}");
    assert_eq!(admin.ask("GET", "/readyz").0, 503);
    let refused = TcpStream::connect(scene.address).expect_err("no new connection is accepted");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);

    let mut seen = Vec::new();
    let last = wait::until("the drain to end", PATIENCE, || {
        let status = admin.status();
        assert_eq!(status["phase"], "draining");
        let drain = status["drain"].clone();
        let closed = drain["closed"].as_u64().expect("a count");
        let passed = drain["passed_s"].as_f64().expect("a time") / 4.0;
        // Ahead of the line by at most one connection per worker.
        assert!(
            closed as f64 <= passed * COUNT as f64 + 3.0,
            "{closed} are closed when {passed} of the time has passed"
        );
        if seen.last() != Some(&closed) {
            seen.push(closed);
        }
        (drain["left"] == 0).then_some(drain)
    });
    assert_eq!(last["closed"], COUNT);
    assert!(
        seen.len() > 10 && seen.windows(2).all(|pair| pair[1] - pair[0] <= 15),
        "they were closed in leaps: {seen:?}"
    );
    all_end_cleanly(&ended, COUNT);
    assert_eq!(admin.status()["counts"]["closed_drained"], COUNT);
}

/// So do clients that have sent nothing yet, for which a PROXY header waits.
#[test]
fn a_drain_of_silent_clients_is_even() {
    requires!(Can::BeDormouse);
    const COUNT: usize = 30;
    let scene = Scene::with(|settings| {
        settings.workers = 1;
        settings.option("backend_connect", "first-data");
        settings.option("proxy_protocol", "v2");
        Admin::in_folder(settings);
    });
    let admin = Admin::of(&scene);
    let connect = |_| Peer::connect(scene.address).expect("a handshake");
    let ended = ends((0..COUNT).map(connect).collect());
    admin.order("/drain?over=4s").expect("a drain");
    let drain = wait::until("a third to be closed", PATIENCE, || {
        let drain = admin.status()["drain"].clone();
        (drain["closed"].as_u64() >= Some(10)).then_some(drain)
    });
    assert!(drain["passed_s"].as_f64() < Some(3.0), "{drain}");
    all_end_cleanly(&ended, COUNT);
}

/// The connections with the longest idle time are closed first, or last.
#[test]
fn connections_close_in_the_requested_order() {
    requires!(Can::BeDormouse);
    const GROUP: usize = 15;
    for (order, first) in [("longest", 0..GROUP), ("shortest", GROUP..2 * GROUP)] {
        let (scene, admin) = scene(1);
        let mut peers = quiet(&scene, GROUP);
        // The gateway counts idle time in seconds.
        thread::sleep(Duration::from_millis(2_100));
        peers.extend(quiet(&scene, GROUP));
        let ended = ends(peers);
        admin
            .order(&format!("/drain?over=3s&order={order}"))
            .expect("a drain");
        let order_of_ends = all_end_cleanly(&ended, 2 * GROUP);
        let (early, _) = order_of_ends.split_at(GROUP);
        let right = early.iter().filter(|number| first.contains(number)).count();
        // Threads that wake at the same time may report in any order.
        assert!(right >= GROUP - 2, "{order}: {order_of_ends:?}");
    }
}

/// `--after`: until the drain begins, new clients are served. Then they are refused.
#[test]
fn a_drain_after_some_time_serves_new_clients_until_then() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene(1);
    let mut old = Peer::echoing(scene.address);
    let began = Instant::now();
    let mut drain = Command::new(tools::dormouse())
        .args([
            "drain",
            "--after",
            "2s",
            "--over",
            "60s",
            "--no-wait",
            "--admin",
        ])
        .arg(admin.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("the program");
    let mut served = 0;
    let refused = wait::until("the drain to begin", PATIENCE, || {
        match Peer::connect(scene.address) {
            Ok(_) => served += 1,
            Err(error) => return Some(error),
        }
        None
    });
    assert!(
        began.elapsed() >= Duration::from_secs(2) && served > 0,
        "refused after {served} clients: {refused}"
    );
    assert!(drain.wait().expect("its end").success());
    assert_eq!(admin.status()["phase"], "draining");
    let refused = TcpStream::connect(scene.address).expect_err("no new connection is accepted");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    old.echo().expect("an echo during the drain");
}

/// The command that shows a drain's progress asks again while the control process is replaced.
#[test]
fn the_command_of_a_drain_survives_the_control_process() {
    requires!(Can::BeDormouse);
    const COUNT: usize = 8;
    let (scene, admin) = scene(1);
    let ended = ends(quiet(&scene, COUNT));
    let mut drain = Command::new(tools::dormouse())
        .args(["drain", "--over", "4s", "--admin"])
        .arg(admin.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("the program");
    wait::until_true("the drain to begin", || {
        admin.status()["phase"] == "draining"
    });
    // After the third death and the later ones, main waits before it starts the next one.
    let mut last = None;
    for _ in 0..4 {
        let control = wait::until("the next control process", PATIENCE, || {
            let control = scene.terminator.named("control");
            control.filter(|_| control != last)
        });
        signal(control, Signal::KILL);
        until_ended(&[control]);
        last = Some(control);
    }
    all_end_cleanly(&ended, COUNT);
    assert!(drain.wait().expect("its end").success());
}

/// Nobody drains when main has died. Its workers end the connections over `shutdown_drain` by themselves, not all at once.
#[test]
fn the_ends_without_main_are_even() {
    requires!(Can::BeDormouse);
    const COUNT: usize = 40;
    let scene = Scene::with(|settings| {
        settings.workers = 2;
        settings.option("shutdown_drain", "8s");
    });
    let ended = ends(quiet(&scene, COUNT));
    signal(scene.terminator.pid(), Signal::KILL);
    all_end_cleanly(&ended, COUNT / 10);
    let since = Instant::now();
    all_end_cleanly(&ended, COUNT - COUNT / 10);
    let spread = since.elapsed();
    assert!(
        spread >= Duration::from_secs(4),
        "nine tenths of the connections ended within {spread:?}"
    );
}

#[test]
fn a_drain_can_be_stopped_and_survives_a_worker() {
    requires!(Can::BeDormouse);
    const COUNT: usize = 30;
    let (scene, admin) = scene(1);
    assert!(
        admin.order("/drain/stop").is_err(),
        "no drain is in progress"
    );
    let ended = ends(quiet(&scene, COUNT));
    admin.order("/drain?over=10s").expect("a drain");
    let closed = |status: &Value| status["drain"]["closed"].as_u64().unwrap_or(0);
    wait::until_true("some to be closed", || closed(&admin.status()) >= 3);
    // The next worker closes the rest.
    let worker = admin.status()["workers"][0]["pid"].as_u64().expect("a pid") as u32;
    let before = closed(&admin.status());
    signal(worker, Signal::KILL);
    wait::until_true("the next worker to continue", || {
        closed(&admin.status()) >= before + 2
    });
    admin.order("/drain/stop").expect("an end of the drain");
    let new = Peer::echoing(scene.address);
    let status = admin.status();
    assert_eq!(status["phase"], "ready");
    assert_eq!(status["drain"], Value::Null);
    // The next worker found the listener shut down, which is no lack of descriptors.
    assert_eq!(status["counts"]["paused_descriptors"], 0);
    let paused = scene.terminator.lines_with("accepting paused");
    assert!(paused.is_empty(), "{paused:?}");
    drop(new);
    admin.order("/drain?over=500ms").expect("a drain again");
    let reset = admin.status()["counts"]["closed_by_crash"]
        .as_u64()
        .unwrap_or(0) as usize;
    let ends: Vec<_> = (0..COUNT)
        .map(|_| ended.recv_timeout(PATIENCE).expect("an end"))
        .collect();
    let unclean = ends.iter().filter(|(_, end)| end.is_err()).count();
    assert!(
        unclean <= reset,
        "{unclean} ended uncleanly, {reset} were reset by the crash"
    );
}

/// SIGTERM: idle connections get close_notify at once, a connection with pending bytes may finish.
#[test]
fn a_stop_is_clean_and_finishes_pending_work() {
    requires!(Can::BeDormouse);
    const COUNT: usize = 20;
    const BYTES: usize = 8 << 20;
    let (mut scene, admin) = scene(2);
    let ended = ends(quiet(&scene, COUNT));
    let mut slow = Peer::saying(scene.address, &format!("download {BYTES}"));
    let mut first = vec![0; 1000];
    slow.stream().read_exact(&mut first).expect("the beginning");
    wait::until_true("the download to be pending", || {
        admin.status()["connections"]["pending"] == 1
    });
    signal(scene.terminator.pid(), Signal::TERM);
    all_end_cleanly(&ended, COUNT);
    wait::until_true("nothing new to be accepted", || {
        TcpStream::connect(scene.address).is_err()
    });
    // Nothing changes any more: an end of a drain, or a reload, would open the listeners for clients that nobody serves.
    for order in ["/reload", "/drain/stop", "/drain?over=1s"] {
        let why = admin.order(order).expect_err("a stop is in progress");
        assert!(why.contains("the program is stopping"), "{order}: {why}");
    }
    TcpStream::connect(scene.address).expect_err("the listeners are closed");
    let mut rest = Vec::new();
    let end = slow.stream().read_to_end(&mut rest);
    let is_whole = rest.len() + first.len() == BYTES;
    assert_eq!(
        end.is_ok(),
        is_whole,
        "an answer that was cut ends properly"
    );
    assert!(
        rest.len() > 64 << 10,
        "what was pending was thrown away: {} bytes came",
        rest.len()
    );
    let _ = slow.end_sending();
    let status = scene.terminator.wait_for_end(PATIENCE);
    assert!(status.success(), "{status}");
}
