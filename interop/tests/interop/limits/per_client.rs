//! Networks and limits per client, over all workers and across their deaths.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use dormouse_interop::admin::Admin;
use dormouse_interop::peer::{self, Peer, connect_from, connect_tcp};
use dormouse_interop::process::kill_asleep;
use dormouse_interop::scene::Scene;
use dormouse_interop::terminator::Can;
use dormouse_interop::wait;

const fn client(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 9, 8, last))
}

/// An echo connection from this address, if it is accepted.
fn echo_from(scene: &Scene, ip: IpAddr) -> Option<Peer> {
    let tcp = connect_from(ip, scene.address);
    let mut peer = Peer::over(tcp, peer::client(peer::config())).ok()?;
    peer.stream().write_all(b"echo\n").ok()?;
    peer.echo().ok()?;
    Some(peer)
}

#[test]
fn networks_are_allowed_and_denied() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.option("allow", "127.9.8.0/24");
        settings.option("deny", "127.9.8.2");
    });
    assert!(echo_from(&scene, client(1)).is_some(), "allowed");
    assert!(echo_from(&scene, client(2)).is_none(), "denied");
    let elsewhere = IpAddr::V4(Ipv4Addr::new(127, 9, 9, 1));
    assert!(echo_from(&scene, elsewhere).is_none(), "not allowed");
    let lines = scene.terminator.logged("connection refused", 1);
    assert_eq!(lines.len(), 1, "one line for the burst: {lines:#?}");
    assert_eq!(
        scene.backend.accepted(),
        1,
        "no other connection was accepted"
    );
}

/// The limit holds over all workers, closed connections free it, and a dead worker takes nothing with it.
#[test]
fn connections_per_client() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.workers = 2;
        settings.option("connections_per_client", "10");
    });
    let mut peers: Vec<Peer> = (0..10)
        .map(|n| echo_from(&scene, client(1)).unwrap_or_else(|| panic!("connection {n}")))
        .collect();
    assert!(echo_from(&scene, client(1)).is_none(), "the eleventh");
    let mut other = echo_from(&scene, client(2)).expect("another client has its own count");
    // The workers die; their connections survive, and still count.
    scene.terminator.leaves().into_iter().for_each(kill_asleep);
    for peer in peers.iter_mut().chain([&mut other]) {
        peer.echo().expect("an echo after the crash");
    }
    assert!(
        echo_from(&scene, client(1)).is_none(),
        "the eleventh, again"
    );
    for mut peer in peers.drain(..3) {
        peer.end_sending().expect("an end");
        peer.receive_all().expect("a clean end");
    }
    let mut more = Vec::new();
    wait::until_true("three places to be free", || {
        more.extend(echo_from(&scene, client(1)));
        more.len() == 3
    });
    assert!(echo_from(&scene, client(1)).is_none(), "full again");
}

/// A handshake that begins below the limit and ends above it is counted.
#[test]
fn a_handshake_that_ends_above_the_limit_is_counted() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.option("connections_per_client", "2");
        Admin::in_folder(settings);
    });
    let count = |name: &str| Admin::of(&scene).status()["counts"][name].as_u64();
    let all = [(); 3].map(|()| connect_from(client(1), scene.address));
    wait::until_true("all three to be accepted", || count("accepted") == Some(3));
    let echoes = all.into_iter().filter_map(|tcp| {
        let mut peer = Peer::over(tcp, peer::client(peer::config())).ok()?;
        peer.stream().write_all(b"echo\n").ok()?;
        peer.echo().ok()?;
        Some(peer)
    });
    assert_eq!(echoes.collect::<Vec<_>>().len(), 2);
    assert_eq!(count("denied_connections"), Some(1));
    let done = ["handshakes_full", "handshakes_resumed"].map(count);
    assert_eq!(done.into_iter().flatten().sum::<u64>(), 3);
}

#[test]
fn handshakes_per_client() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.workers = 2;
        settings.option("handshakes_per_client", "5");
    });
    let in_all = (0..12)
        .filter(|_| echo_from(&scene, client(1)).is_some())
        .count();
    // One more is allowed every twelve seconds, should the test take that long.
    assert!((5..8).contains(&in_all), "{in_all} of 12 came in");
    assert!(echo_from(&scene, client(2)).is_some(), "another client");
}

/// Plain HTTP on the TLS port gets a short answer that a browser can show.
#[test]
fn plain_http_is_answered() {
    requires!(Can::BeDormouse, "curl");
    let scene = Scene::new();
    let output = Command::new("curl")
        .args(["--silent", "--include", "--max-time", "20"])
        .arg(format!("http://{}/some/path", scene.address))
        .output()
        .expect("curl starts");
    let answer = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{:?}: {answer}", output.status);
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("https://"), "{answer}");
    // A request in pieces, too.
    let mut tcp = connect_tcp(scene.address).expect("a connection");
    for piece in ["P", "OST / HT", "TP/1.1\r\nHost: x\r\n", "\r\n"] {
        tcp.write_all(piece.as_bytes()).expect("sent");
    }
    let mut answer = String::new();
    tcp.read_to_string(&mut answer)
        .expect("an answer and an end");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

/// What OpenSSL can negotiate, by profile, suites and groups.
#[test]
fn profiles_suites_and_groups() {
    requires!(Can::BeDormouse, "openssl");
    let speaks = |scene: &Scene, arguments: &[&str]| {
        let output = Command::new("openssl")
            .args(["s_client", "-connect", &scene.address.to_string()])
            .args(arguments)
            .stdin(std::process::Stdio::null())
            .output()
            .expect("openssl starts");
        String::from_utf8_lossy(&output.stdout).contains("Verification") && output.status.success()
    };
    let modern = Scene::with(|settings| {
        settings.option("profile", "modern");
    });
    assert!(speaks(&modern, &["-tls1_3"]));
    assert!(!speaks(&modern, &["-tls1_2"]));
    let few = Scene::with(|settings| {
        settings.option("suites", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384");
        settings.option("max_version", "1.2");
        settings.option("groups", "secp384r1");
    });
    let suite = |name| ["-tls1_2", "-cipher", name];
    assert!(speaks(&few, &suite("ECDHE-ECDSA-AES256-GCM-SHA384")));
    assert!(!speaks(&few, &suite("ECDHE-ECDSA-AES128-GCM-SHA256")));
    assert!(speaks(&few, &["-tls1_2", "-groups", "P-256:P-384"]));
    assert!(!speaks(&few, &["-tls1_2", "-groups", "X25519:P-256"]));
    assert!(!speaks(&few, &["-tls1_3"]));
}
