//! Capacity limits: reaching one affects no established connection.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dormouse_interop::backend::{Backend, Ending};
use dormouse_interop::content::{Meter, random};
use dormouse_interop::counts::Counts;
use dormouse_interop::crowd::Crowd;
use dormouse_interop::namespace::{Cable, NEAR};
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::limit;
use dormouse_interop::requirement::Root;
use dormouse_interop::scene::{PLAIN_PORT, Scene, TLS_PORT, applies};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::tools;
use dormouse_interop::wait;

fn crowd(size: usize, address: SocketAddr) -> Crowd {
    Crowd::gather(size, Box::new(move || peer::connect_tcp(address)))
}

/// Two workers with ten connections each: twenty clients are admitted, twenty wait, and none is refused.
#[test]
fn full_workers_leave_new_clients_in_the_queue() {
    requires!(Can::QueueWhenFull);
    let scene = Scene::with(|settings| {
        settings.workers = 2;
        settings.option("max_connections", "20");
    });
    let mut crowd = crowd(40, scene.address);
    crowd.wait_until_in(20);
    assert_eq!(
        crowd.wait_until_full(),
        20,
        "clients in with max_connections = 20"
    );
    assert_eq!(
        crowd.turned_away,
        Vec::<String>::new(),
        "clients turned away"
    );
    crowd.disperse();
}

/// The process starts with few descriptors.
#[test]
fn few_descriptors_at_the_start() {
    requires!(Can::BeDormouse, "prlimit");
    let scene = Scene::with(|settings| {
        settings.wrapper = vec![tools::path("prlimit"), "--nofile=80:80".into()];
    });
    let mut crowd = crowd(60, scene.address);
    let places = crowd.wait_until_full();
    assert!(
        (5..60).contains(&places),
        "expected some of 60 clients to be in with 80 descriptors, {places} are"
    );
    crowd.disperse();
}

/// Descriptors run out at run time: accepting pauses, and continues on its own.
#[test]
fn descriptors_run_out() {
    requires!(Can::BeDormouse, "prlimit", "setpriv", Root);
    let scene = Scene::new();
    let mut bystander = Peer::echoing(scene.address);
    for pid in scene.terminator.tree() {
        limit(pid, "--nofile=70:70");
    }
    let mut crowd = crowd(60, scene.address);
    let places = crowd.wait_until_full();
    assert!(
        (5..60).contains(&places),
        "expected some of 60 clients to be in with 70 descriptors, {places} are"
    );
    bystander
        .echo()
        .expect("an echo while descriptors are short");
    crowd.disperse();
    bystander.echo().expect("a later echo");
}

/// The scene at the near end of a cable; clients connect from the far end.
fn scene_behind(cable: &Cable, change: impl FnOnce(&mut Settings)) -> Scene {
    let behind = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PLAIN_PORT);
    let listener = cable.at_near(move || TcpListener::bind(behind).expect("an address"));
    let listen = SocketAddr::new(NEAR.parse().expect("an address"), TLS_PORT);
    let mut settings = Settings::new(listen, Target::Tcp(behind));
    settings.namespace = Some(cable.near());
    change(&mut settings);
    Scene::of(Terminator::chosen(), Backend::on(listener), &settings)
}

const FEW_PORTS: u64 = 20;

/// The near end of a cable, on a machine with only twenty local ports.
fn few_ports() -> Option<Cable> {
    let cable = Cable::lay()?;
    cable.at_near(|| {
        let range = format!("40000 {}", 40_000 + FEW_PORTS - 1);
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", range)
            .expect("the port range of the namespace");
    });
    Some(cable)
}

fn crowd_at_far(cable: Cable, size: usize, address: SocketAddr) -> Crowd {
    let far = Arc::new(cable);
    let connect = move || far.at_far(move || peer::connect_tcp(address));
    Crowd::gather(size, Box::new(connect))
}

/// Local ports run out: connections without a port wait.
#[test]
fn local_ports_run_out() {
    requires!(Can::EndCleanly);
    let Some(cable) = few_ports() else {
        return;
    };
    let ours = applies(Can::BeDormouse);
    let scene = scene_behind(&cable, |settings| {
        if ours {
            settings.option("source_addresses", "127.0.0.1");
        }
    });
    let mut crowd = crowd_at_far(cable, 30, scene.address);
    // Dormouse uses nine of ten.
    let expected = if ours { 18 } else { 20 };
    crowd.wait_until_in(expected);
    assert_eq!(
        crowd.wait_until_full(),
        expected,
        "clients in with 20 local ports"
    );
    crowd.disperse();
}

/// Local ports to one of two backends run out: its clients get the other one at once, and no other client waits.
#[test]
fn local_ports_to_one_backend_run_out() {
    requires!(Can::BeDormouse);
    let Some(cable) = few_ports() else {
        return;
    };
    let behind = [PLAIN_PORT, PLAIN_PORT + 1].map(|port| format!("127.0.0.1:{port}"));
    let other = behind[1].clone();
    let other = cable.at_near(move || TcpListener::bind(other).expect("an address"));
    let other = Backend::on(other);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut counts = None;
    let scene = scene_behind(&cable, |settings| {
        settings.options.push(("to", format!("{behind:?}")));
        settings
            .option("balance", "client-hash")
            .option("source_addresses", "127.0.0.1");
        counts = Some(Counts::of(settings, folder.path()));
    });
    let counts = counts.expect("an admin socket");
    let mut crowd = crowd_at_far(cable, 30, scene.address);
    crowd.wait_until_in(30);
    let mut by_backend = [scene.backend.accepted(), other.accepted()];
    by_backend.sort_unstable();
    assert_eq!(by_backend, [30 - FEW_PORTS, FEW_PORTS]);
    for name in ["paused_ports", "backend_connects_failed"] {
        assert_eq!(counts.get(name), 0, "{name}");
    }
    crowd.disperse();
}

/// More connections than one source address has ports: dormouse uses further source addresses for a backend
/// on this machine.
#[test]
fn more_connections_than_local_ports() {
    requires!(Can::BeDormouse);
    let Some(cable) = few_ports() else {
        return;
    };
    let scene = scene_behind(&cable, |settings| {
        settings.option("max_connections", "100");
    });
    let mut crowd = crowd_at_far(cable, 100, scene.address);
    // Five clients per port.
    crowd.wait_until_in(100);
    crowd.disperse();
}

/// Peers whose cable is cut: an idle one, and one that receives data. Both connections are closed, and a live
/// peer's connection stays.
#[test]
fn peers_that_vanish() {
    requires!(Can::FindVanished);
    let Some(cable) = Cable::lay() else {
        return;
    };
    let scene = scene_behind(&cable, |settings| {
        settings
            .option("keepalive_idle", "1s")
            .option("keepalive_interval", "1s")
            .option("keepalive_count", "2")
            .option("user_timeout", "3s");
    });
    let address = scene.address;
    let mut near = cable.at_near(move || Peer::saying(address, "echo"));
    near.echo().expect("an echo");
    let mut at_rest = cable.at_far(move || Peer::saying(address, "echo"));
    at_rest.echo().expect("an echo");
    let _sent_to = cable.at_far(move || Peer::saying(address, "flood"));
    wait::until_still("the flood before a reader that has stopped", || {
        scene.backend.sent()
    });
    cable.cut();
    let mut ended = [scene.backend.report(), scene.backend.report()];
    ended.sort_by(|a, b| a.command.cmp(&b.command));
    assert_eq!(
        ended.each_ref().map(|report| report.command.as_str()),
        ["echo", "flood"]
    );
    assert_eq!(
        ended[0].ended,
        Ending::Reset,
        "the connection that was at rest"
    );
    assert_eq!(
        ended[1].ended,
        Ending::Reset,
        "the connection with something to send"
    );
    near.echo().expect("an echo for a reachable peer");
}

/// An idle connection is closed, if the configuration says so.
#[test]
fn idle_connections() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.option("idle_timeout", "1s");
    });
    let mut busy = Peer::saying(scene.address, "echo");
    let mut idle = Peer::echoing(scene.address);
    for _ in 0..15 {
        busy.echo().expect("an echo on a busy connection");
        std::thread::sleep(Duration::from_millis(200));
    }
    let nothing = idle
        .receive_all()
        .expect("an idle connection to end with close_notify");
    assert!(nothing.is_empty());
}

/// A connection is closed at its maximum age, even if it is busy.
#[test]
fn old_connections() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.option("total_timeout", "1s");
        settings.option("idle_timeout", "1h");
    });
    let mut busy = Peer::saying(scene.address, "echo");
    let mut echoes = 0;
    while busy.echo().is_ok() {
        echoes += 1;
        assert!(echoes < 300, "the connection outlives total_timeout");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(echoes >= 10, "not before a second: {echoes} echoes");
    Peer::echoing(scene.address);
}

/// Many clients that fall silent in their handshakes, and so take all of `max_handshakes`, do not keep out one that
/// completes its own.
#[test]
fn handshakes_in_flight() {
    requires!(Can::BeDormouse);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut counts = None;
    let scene = Scene::with(|settings| {
        settings
            .option("max_handshakes", "10")
            .option("handshake_timeout", "2s");
        counts = Some(Counts::of(settings, folder.path()));
    });
    let counts = counts.expect("an admin socket");
    let mut bystander = Peer::echoing(scene.address);
    let mut hello = Vec::new();
    let written = peer::client(peer::config()).write_tls(&mut hello);
    let (half, _) = hello.split_at(written.expect("a ClientHello") / 2);
    let _silent: Vec<_> = (0..100)
        .map(|_| {
            let mut tcp = peer::connect_tcp(scene.address).expect("a connection");
            tcp.write_all(half).expect("half of a ClientHello");
            tcp
        })
        .collect();
    wait::until_true("max_handshakes to be reached", || {
        counts.get("paused_handshakes") > 0
    });
    bystander.echo().expect("an echo beside silent clients");
    Peer::echoing(scene.address);
    wait::until_true("silent clients to lose their places", || {
        counts.get("handshakes_silent") > 0
    });
}

const READERS: usize = 200;

/// Two hundred clients that read nothing: the gateway's memory for them is bounded.
#[test]
fn readers_that_stop() {
    requires!(Root);
    let scene = Scene::with(|settings| {
        if applies(Can::BeDormouse) {
            settings.option("pending_per_connection", "64 KiB");
        }
    });
    let per_connection = 64 << 10;
    stopped_readers(&scene, per_connection * READERS as u64);
}

/// The same with less pending memory than they could use. None of them is closed for it.
#[test]
fn readers_that_stop_exhaust_the_pending_memory() {
    requires!(Can::BeDormouse, Root);
    let scene = Scene::with(|settings| {
        settings.option("pending_memory", "2 MiB");
    });
    stopped_readers(&scene, 2 << 20);
}

fn stopped_readers(scene: &Scene, pending_max: u64) {
    /// For everything else that grows with the first connections.
    const SLACK: u64 = 12 << 20;
    let mut bystander = Peer::echoing(scene.address);
    let before = scene.terminator.memory();
    let mut readers: Vec<_> = (0..READERS)
        .map(|_| Peer::saying(scene.address, "flood"))
        .collect();
    let sent = wait::until_still("floods before stopped readers", || scene.backend.sent());
    let grown = scene.terminator.memory().saturating_sub(before);
    eprintln!("{READERS} stopped readers: {sent} bytes sent to them, memory grew by {grown}");
    if applies(Can::BoundBuffers) {
        assert!(
            grown < pending_max + SLACK,
            "expected at most {pending_max} bytes of pending memory for {READERS} readers that \
             have stopped (and {SLACK} for the rest), memory grew by {grown}"
        );
        let each = sent / READERS as u64;
        assert!(
            each < 2 << 20,
            "expected less than 2 MiB between a backend and a reader that has stopped, it is {each}"
        );
    }
    bystander
        .echo()
        .expect("an echo while other connections are blocked");
    for reader in &mut readers {
        let mut some = [0; 4096];
        std::io::Read::read_exact(&mut reader.stream(), &mut some)
            .expect("a blocked connection continues when its client reads");
    }
}

/// Backends that read nothing: clients get backpressure, and all their data arrives in the end.
#[test]
fn backends_that_stop_reading() {
    const CLIENTS: usize = 16;
    const EACH: usize = 8 << 20;
    let scene = Scene::new();
    let taken = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (taken, address) = (Arc::clone(&taken), scene.address);
            std::thread::spawn(move || {
                let mut peer = Peer::saying(address, "hang");
                let mut meter = Meter::default();
                while meter.bytes() < EACH as u64 {
                    let part = random(64 << 10);
                    peer.stream()
                        .write_all(&part)
                        .expect("a write that completes later");
                    meter.add(&part);
                    taken.fetch_add(part.len() as u64, Ordering::SeqCst);
                }
                peer.end_sending().expect("an end");
                let end = peer.receive_all();
                if applies(Can::EndCleanly) {
                    end.expect("a clean end");
                }
                meter.total()
            })
        })
        .collect();
    let held_up = wait::until_still("clients before stopped backends", || {
        taken.load(Ordering::SeqCst)
    });
    eprintln!("{CLIENTS} clients held up after {held_up} bytes in all");
    if applies(Can::BoundBuffers) {
        let most = (CLIENTS as u64) * (2 << 20);
        assert!(
            held_up < most,
            "expected clients to be held up before {most} bytes, they sent {held_up}"
        );
    }
    scene.backend.open_gate();
    let mut sent: Vec<_> = clients
        .into_iter()
        .map(|client| client.join().expect("a client without an error"))
        .collect();
    let mut received: Vec<_> = (0..CLIENTS)
        .map(|_| scene.backend.report().received)
        .collect();
    sent.sort_by(|a, b| a.sha256.cmp(&b.sha256));
    received.sort_by(|a, b| a.sha256.cmp(&b.sha256));
    assert_eq!(sent, received, "what clients sent and what arrived behind");
}
