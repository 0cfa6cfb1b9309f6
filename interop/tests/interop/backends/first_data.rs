//! `backend_connect = "first-data"`: silent clients cost no connection to a backend.

use std::time::Duration;

use dormouse_interop::backend::Ending;
use dormouse_interop::peer::Peer;
use dormouse_interop::scene::Scene;
use dormouse_interop::terminator::Can;

fn scene() -> Scene {
    Scene::with(|settings| {
        settings.option("backend_connect", "first-data");
    })
}

#[test]
fn a_backend_is_connected_at_the_clients_first_data() {
    requires!(Can::BeDormouse);
    let scene = scene();
    let silent: Vec<Peer> = (0..10)
        .map(|_| Peer::connect(scene.address).expect("a handshake"))
        .collect();
    let mut talking = Peer::connect(scene.address).expect("a handshake");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(scene.backend.accepted(), 0);
    std::io::Write::write_all(&mut talking.stream(), b"echo\n").expect("sent");
    talking.echo().expect("an echo");
    assert_eq!(scene.backend.accepted(), 1);
    for mut client in silent {
        std::io::Write::write_all(&mut client.stream(), b"echo\n").expect("sent");
        client.echo().expect("an echo");
        client.end_sending().expect("close_notify");
        client.receive_all().expect("a clean end");
        assert_eq!(scene.backend.report().ended, Ending::Fin);
    }
    assert_eq!(scene.backend.accepted(), 11);
}

/// A client that waits for its backend survives the worker, and is connected by the next one.
#[test]
fn a_silent_client_survives_a_crash() {
    requires!(Can::BeDormouse);
    let scene = scene();
    let mut client = Peer::connect(scene.address).expect("a handshake");
    std::thread::sleep(Duration::from_millis(200));
    scene.terminator.kill_workers();
    std::io::Write::write_all(&mut client.stream(), b"echo\n").expect("sent");
    client.echo().expect("an echo from the next worker");
    assert_eq!(scene.backend.accepted(), 1);
}
