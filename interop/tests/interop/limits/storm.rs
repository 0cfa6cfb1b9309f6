//! Clients that wait for their handshakes together.

use std::io::Write;
use std::net::TcpStream;

use dormouse_interop::counts::Counts;
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::signal;
use dormouse_interop::scene::Scene;
use dormouse_interop::slots;
use dormouse_interop::terminator::Can;
use rustix::process::Signal;
use rustls::ClientConnection;

const CLIENTS: usize = 40;

/// A client whose ClientHello is on its way.
fn client_with_hello(scene: &Scene) -> (TcpStream, ClientConnection) {
    let mut tcp = peer::connect_tcp(scene.address).expect("a connection");
    let mut tls = peer::client(peer::config());
    tls.write_tls(&mut tcp).expect("a ClientHello");
    (tcp, tls)
}

/// The worker stands still while clients connect, so all wait when it goes on. Each gets a handshake of its own, whether
/// its agreement was computed with others or alone, also beside clients that have gone, that send no TLS, or that send
/// half a hello.
#[test]
fn handshakes_that_wait_together() {
    requires!(Can::BeDormouse);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut counts = None;
    let scene = Scene::with(|settings| {
        settings.option("hang_timeout", "off");
        counts = Some(Counts::of(settings, folder.path()));
    });
    let counts = counts.expect("an admin socket");
    Peer::echoing(scene.address);
    assert_eq!(counts.get("agreements_batched"), 0, "one client is alone");

    let worker = scene.terminator.leaves();
    let worker = worker
        .into_iter()
        .find(|&pid| slots::Slots::of(pid).is_some());
    let worker = worker.expect("a worker");
    slots::stop(worker);
    let mut waiting = Vec::new();
    let mut others = Vec::new();
    for nth in 0..CLIENTS {
        waiting.push(client_with_hello(&scene));
        match nth % 4 {
            0 => drop(client_with_hello(&scene)),
            1 => {
                let mut tcp = peer::connect_tcp(scene.address).expect("a connection");
                tcp.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("a request");
                others.push(tcp);
            }
            2 => {
                let mut hello = Vec::new();
                let written = peer::client(peer::config()).write_tls(&mut hello);
                let (half, _) = hello.split_at(written.expect("a ClientHello") / 2);
                let mut tcp = peer::connect_tcp(scene.address).expect("a connection");
                tcp.write_all(half).expect("half of a ClientHello");
                others.push(tcp);
            }
            _ => {}
        }
    }
    signal(worker, Signal::CONT);
    for (tcp, tls) in waiting {
        let mut peer = Peer::over(tcp, tls).expect("a handshake");
        peer.stream().write_all(b"echo\n").expect("a first line");
        peer.echo().expect("an echo");
    }
    let batched = counts.get("agreements_batched");
    if has_ifma() {
        assert!(
            batched >= CLIENTS as u64 / 2,
            "{batched} agreements in batches"
        );
        assert!(batched <= 2 * CLIENTS as u64, "a hello is looked at once");
    } else {
        assert_eq!(batched, 0);
    }
}

fn has_ifma() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512ifma");
    #[cfg(not(target_arch = "x86_64"))]
    false
}
