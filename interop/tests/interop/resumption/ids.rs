//! TLS 1.2 sessions by id: they end with the connection that fails (RFC 5246 §7.2.2).

use std::io::{Read as _, Write as _};

use dormouse_interop::peer::{self, Peer};
use dormouse_interop::scene::Scene;
use dormouse_interop::terminator::{Can, Target};
use rustls::{ClientConfig, HandshakeKind};

/// A record that fails authentication.
const FORGED: [u8; 69] = {
    let mut record = [0; 69];
    record[0] = 23;
    record[1] = 3;
    record[2] = 3;
    record[4] = 64;
    record
};

/// How a connection ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// close_notify.
    Proper,
    /// The server refuses a record.
    Refused,
    /// The client sends a fatal alert.
    Alert,
    /// As `Refused`, after another worker has taken over the connection.
    RefusedAfterCrash,
}

fn connect(scene: &Scene, config: &ClientConfig) -> Peer {
    let tcp = peer::connect_tcp(scene.address).expect("a connection");
    let mut peer = Peer::over(tcp, peer::client(config.clone())).expect("a handshake");
    peer.echo().expect("an echo");
    peer
}

fn end(scene: &Scene, mut peer: Peer, how: End) {
    match how {
        End::Proper => peer.end_sending().expect("a connection"),
        End::Refused => peer.tcp.write_all(&FORGED).expect("a connection"),
        End::Alert => {
            let _ = peer.tls.read_tls(&mut &FORGED[..]);
            peer.tls.process_new_packets().expect_err("a forged record");
            while peer.tls.wants_write() {
                peer.tls.write_tls(&mut peer.tcp).expect("a connection");
            }
        }
        End::RefusedAfterCrash => {
            scene.terminator.kill_workers();
            peer.echo().expect("an echo from the next worker");
            peer.tcp.write_all(&FORGED).expect("a connection");
        }
    }
    // The server has closed the connection, or reset it.
    let _ = peer.tcp.read_to_end(&mut Vec::new());
}

#[test]
fn a_session_ends_with_a_connection_that_fails() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.workers = 2;
    });
    for how in [
        End::Proper,
        End::Refused,
        End::Alert,
        End::RefusedAfterCrash,
    ] {
        let config = peer::config_by_id();
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut peer = connect(&scene, &config);
            assert_eq!(peer.tls.handshake_kind(), Some(expected), "{how:?}");
            peer.end_sending().expect("a connection");
        }
        let resumed = connect(&scene, &config);
        assert_eq!(resumed.tls.handshake_kind(), Some(HandshakeKind::Resumed));
        end(&scene, resumed, how);
        let expected = match how {
            End::Proper => HandshakeKind::Resumed,
            _ => HandshakeKind::Full,
        };
        let next = connect(&scene, &config);
        assert_eq!(next.tls.handshake_kind(), Some(expected), "after {how:?}");
    }
}
