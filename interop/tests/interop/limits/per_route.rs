//! Limits of a route, over all workers, beside another route.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Instant;

use dormouse_interop::admin::Admin;
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::kill_asleep;
use dormouse_interop::scene::{Scene, TLS_PORT, unused_host};
use dormouse_interop::terminator::{Can, Settings, Target};
use dormouse_interop::wait;

/// A program with a limited route, and a second route without limits that echoes by itself.
fn scene(option: &'static str, value: &str) -> (Scene, SocketAddr) {
    scene_with(option, value, |_| ())
}

/// As [`scene`], with other settings of the program.
fn scene_with(
    option: &'static str,
    value: &str,
    change: impl FnOnce(&mut Settings),
) -> (Scene, SocketAddr) {
    let free = SocketAddr::new(unused_host(), TLS_PORT);
    let scene = Scene::with(|settings| {
        settings.workers = 2;
        change(settings);
        let files = &settings.certificate;
        let (cert, key) = (files.cert.display(), files.key.display());
        // What follows a route's options in the file.
        let second = format!(
            "[[route]]\nname = \"free\"\nlisten = \"{free}\"\nto = \"echo:\"\n\
             certificates = [{{ cert = \"{cert}\", key = \"{key}\" }}]"
        );
        settings.option("name", "limited");
        settings
            .options
            .push((option, format!("{value}\n{second}")));
        Admin::in_folder(settings);
    });
    (scene, free)
}

fn echo_of(address: SocketAddr) -> Option<Peer> {
    let mut peer = Peer::connect(address).ok()?;
    peer.stream().write_all(b"echo\n").ok()?;
    peer.echo().ok()?;
    Some(peer)
}

fn is_free(address: SocketAddr) -> bool {
    Peer::connect(address).is_ok_and(|mut peer| peer.echo().is_ok())
}

fn of_limited(scene: &Scene) -> serde_json::Value {
    let status = Admin::of(scene).status();
    let routes = status["routes"].as_array().expect("routes").clone();
    let limited = routes.into_iter().find(|one| one["name"] == "limited");
    limited.expect("the route")
}

/// Connections over both workers count; a closed one makes room; a dead worker forgets none.
#[test]
fn connections_of_a_route() {
    requires!(Can::BeDormouse);
    let (scene, free) = scene("route_max_connections", "6");
    let mut peers: Vec<Peer> = (0..6)
        .map(|n| echo_of(scene.address).unwrap_or_else(|| panic!("connection {n}")))
        .collect();
    assert!(echo_of(scene.address).is_none(), "the seventh");
    assert!(is_free(free), "another route");
    scene.terminator.leaves().into_iter().for_each(kill_asleep);
    for peer in &mut peers {
        peer.echo().expect("an echo after the crash");
    }
    assert!(echo_of(scene.address).is_none(), "the seventh, again");
    let mut gone = peers.pop().expect("a connection");
    gone.end_sending().expect("an end");
    gone.receive_all().expect("a clean end");
    wait::until_true("a place to be free", || {
        peers.extend(echo_of(scene.address));
        peers.len() == 6
    });
    let refused = of_limited(&scene)["refused"]["connections"].as_u64();
    assert!(refused >= Some(2), "{refused:?}");
    let (_, metrics) = Admin::of(&scene).ask("GET", "/metrics");
    let sample =
        "dormouse_route_connections_refused_total{route=\"limited\",limit=\"connections\"}";
    assert!(metrics.contains(sample), "{metrics}");
    let lines = scene.terminator.logged("connection refused by route", 1);
    assert!(
        lines
            .iter()
            .all(|line| line.contains("route_max_connections")),
        "{lines:?}"
    );
    assert!(
        !lines.is_empty() && lines[0].contains("limited"),
        "{lines:?}"
    );
}

/// A share of the connections of the program, over both workers, as a number.
#[test]
fn a_share_of_the_connections() {
    requires!(Can::BeDormouse);
    let (scene, free) = scene_with("route_memory_share", "10", |settings| {
        settings.option("max_connections", "60");
    });
    let peers: Vec<Peer> = (0..6)
        .map(|n| echo_of(scene.address).unwrap_or_else(|| panic!("connection {n}")))
        .collect();
    assert!(echo_of(scene.address).is_none(), "the seventh");
    assert!(is_free(free), "another route");
    let route = of_limited(&scene);
    assert!(
        route["refused"]["memory_share"].as_u64() >= Some(1),
        "{route}"
    );
    let memory = &route["memory"];
    assert_eq!(
        (&memory["share_percent"], &memory["connections_max"]),
        (&10.into(), &6.into())
    );
    let lines = scene.terminator.logged("connection refused by route", 1);
    assert!(
        lines.iter().any(|line| line.contains("route_memory_share")),
        "{lines:?}"
    );
    drop(peers);
}

/// A client that has asked for TLS in SMTP, after its first echo, unless it is refused.
fn smtp_of(address: SocketAddr) -> Option<Peer> {
    let mut tcp = peer::connect_tcp(address).ok()?;
    let mut heard = Vec::new();
    for (said, last) in [
        ("", "220 "),
        ("EHLO x\r\n", "250 "),
        ("STARTTLS\r\n", "220 "),
    ] {
        tcp.write_all(said.as_bytes()).ok()?;
        heard.clear();
        let is_last = |heard: &[u8]| {
            let text = String::from_utf8_lossy(heard);
            let line = text
                .lines()
                .last()
                .is_some_and(|line| line.starts_with(last));
            line && text.ends_with('\n')
        };
        while !is_last(&heard) {
            let mut byte = [0];
            tcp.read_exact(&mut byte).ok()?;
            heard.extend(byte);
        }
    }
    let mut peer = Peer::over(tcp, peer::client(peer::config())).ok()?;
    peer.echo().ok()?;
    Some(peer)
}

/// Those that are still asking have no connection yet.
#[test]
fn a_share_of_connections_that_begin_without_tls() {
    requires!(Can::BeDormouse);
    let (scene, free) = scene_with("route_memory_share", "10", |settings| {
        settings.option("max_connections", "60");
        settings.option("starttls", "smtp");
        settings.target = Target::Echo;
    });
    let asking: Vec<_> = (0..8)
        .map(|_| peer::connect_tcp(scene.address).expect("a connection"))
        .collect();
    let mut peers: Vec<Peer> = (0..6)
        .map(|n| smtp_of(scene.address).unwrap_or_else(|| panic!("connection {n}")))
        .collect();
    assert!(smtp_of(scene.address).is_none(), "the seventh");
    assert!(is_free(free), "another route");
    drop(peers.pop());
    wait::until_true("a place to be free", || {
        peers.extend(smtp_of(scene.address));
        peers.len() == 6
    });
    for peer in &mut peers {
        peer.echo().expect("an echo");
    }
    drop(asking);
}

/// Clients of one route that read nothing hold its share of the memory, and not that of another route.
#[test]
fn a_share_of_the_memory_for_slow_peers() {
    requires!(Can::BeDormouse);
    const READERS: usize = 100;
    let (scene, free) = scene_with("route_memory_share", "10", |settings| {
        settings.option("kernel_memory", "16 MiB");
        settings.option("pending_memory", "16 MiB");
        settings.option("stall_timeout", "1h");
    });
    let readers: Vec<Peer> = (0..READERS)
        .map(|_| Peer::saying(scene.address, "flood"))
        .collect();
    wait::until_still("floods before stopped readers", || scene.backend.sent());
    let memory = of_limited(&scene)["memory"].clone();
    let [held, bound] = ["held_bytes", "bound_bytes"].map(|field| memory[field].as_u64());
    assert_eq!(bound, Some(2 * ((16 << 20) / 10)), "{memory}");
    assert!(
        held <= bound && held > bound.map(|bound| bound / 8),
        "{memory}"
    );
    assert!(memory["waits"].as_u64() > Some(0), "{memory}");
    let counts = &Admin::of(&scene).status()["counts"];
    assert!(counts["share_exhausted"].as_u64() > Some(0), "{counts}");
    for whole in ["kernel_exhausted", "pending_exhausted", "stall_timeouts"] {
        assert_eq!(counts[whole], 0, "{whole}");
    }
    // One that reads gets its bytes, a record at a time, and another route does not notice.
    let mut quick = Peer::saying(scene.address, "flood");
    let mut some = vec![0; 1 << 20];
    quick.stream().read_exact(&mut some).expect("a flood");
    let mut other = Peer::connect(free).expect("a connection");
    for _ in 0..16 {
        other.stream().write_all(&some[..64 << 10]).expect("sent");
        other
            .stream()
            .read_exact(&mut some[64 << 10..128 << 10])
            .expect("received");
    }
    drop(readers);
    wait::until_true("the memory to be free", || {
        drop(echo_of(scene.address));
        of_limited(&scene)["memory"]["held_bytes"].as_u64() < held
    });
}

/// A flood of one route's clients leaves another route's alone.
#[test]
fn handshakes_of_a_route() {
    requires!(Can::BeDormouse);
    let (scene, free) = scene("route_handshakes_per_second", "5");
    let began = Instant::now();
    let tried = 40;
    let done = (0..tried)
        .filter(|_| echo_of(scene.address).is_some())
        .count();
    let seconds = began.elapsed().as_secs() as usize + 1;
    assert!(
        done >= 5 && done <= 5 + 5 * seconds,
        "{done} in {seconds} s"
    );
    assert!((0..10).all(|_| is_free(free)), "another route");
    let refused = of_limited(&scene)["refused"]["handshakes"].as_u64();
    assert_eq!(refused, Some((tried - done) as u64));
}

/// Two downloads share the route's rate, and all bytes arrive. A connection of another route does not wait for
/// them.
#[test]
fn bytes_of_a_route() {
    requires!(Can::BeDormouse);
    const RATE: usize = 256 << 10;
    const EACH: usize = 400_000;
    let (scene, free) = scene("route_bytes_per_second", "\"256 KiB\"");
    let mut quick = Peer::connect(free).expect("a connection");
    let began = Instant::now();
    let greedy = [(); 2].map(|()| {
        let mut peer = echo_of(scene.address).expect("a connection");
        std::thread::spawn(move || {
            let sent = vec![b'x'; EACH];
            let mut received = vec![0; EACH];
            for (piece, back) in sent.chunks(10_000).zip(received.chunks_mut(10_000)) {
                peer.stream().write_all(piece).expect("sent");
                peer.stream().read_exact(back).expect("received");
            }
            assert!(received == sent, "all bytes, unchanged");
        })
    });
    let mut echoes = 0;
    while !greedy.iter().all(|one| one.is_finished()) {
        quick.echo().expect("another route does not wait");
        echoes += 1;
    }
    greedy
        .into_iter()
        .for_each(|one| one.join().expect("no panic"));
    // Each byte counts in both directions.
    let least = (2 * 2 * EACH - RATE) as f64 / RATE as f64;
    let took = began.elapsed().as_secs_f64();
    assert!(took >= least / 2.0, "{took} s");
    assert!(echoes > 100, "{echoes}");
    let route = of_limited(&scene);
    assert!(route["paced"].as_u64() > Some(5), "{route}");
    let lines = scene.terminator.logged("route_bytes_per_second", 1);
    assert!(
        (1..=2).contains(&lines.len()),
        "a line per worker: {lines:?}"
    );
}
