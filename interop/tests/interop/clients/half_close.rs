//! `half_close = false`: the client's end is the end of the connection, whatever the backend does.

use std::io::Read as _;

use dormouse_interop::backend::Ending;
use dormouse_interop::peer::Peer;
use dormouse_interop::scene::Scene;
use dormouse_interop::terminator::Can;

fn scene() -> Scene {
    Scene::with(|settings| {
        settings.option("half_close", "false");
    })
}

/// The backend would answer after the client's end.
#[test]
fn no_answer_follows_the_clients_end() {
    requires!(Can::BeDormouse);
    let scene = scene();
    let mut client = Peer::saying(scene.address, "halfclose 2000");
    client.end_sending().expect("close_notify");
    let answer = client.receive_all().expect("a clean end");
    assert!(answer.is_empty(), "{} bytes", answer.len());
    // The answer meets a closed connection.
    assert_ne!(scene.backend.report().ended, Ending::Fin);
}

/// Everything that the client has sent reaches the backend before the end does.
#[test]
fn the_clients_last_bytes_are_delivered() {
    requires!(Can::BeDormouse);
    const BYTES: usize = 300_000;
    let scene = scene();
    let mut client = Peer::saying(scene.address, "sink");
    let content = dormouse_interop::content::random(BYTES);
    std::io::Write::write_all(&mut client.stream(), &content).expect("sent");
    client.end_sending().expect("close_notify");
    client.receive_all().expect("a clean end");
    let report = scene.backend.report();
    assert_eq!(
        (report.ended, report.received.bytes),
        (Ending::Fin, BYTES as u64)
    );
}

/// The backend never stops sending by itself.
#[test]
fn a_backend_that_sends_without_end_is_closed() {
    requires!(Can::BeDormouse);
    let scene = scene();
    let mut client = Peer::saying(scene.address, "flood");
    client
        .stream()
        .read_exact(&mut [0; 100_000])
        .expect("some bytes");
    client.end_sending().expect("close_notify");
    client.receive_all().expect("a clean end");
    assert_eq!(scene.backend.report().ended, Ending::Reset);
}
