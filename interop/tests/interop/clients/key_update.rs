//! A KeyUpdate in the same segment as Finished.

use std::io::{Read, Write};
use std::net::TcpStream;

use dormouse_interop::peer;
use dormouse_interop::scene::Scene;
use dormouse_interop::terminator::Can;

/// Header, KeyUpdate, content type, tag.
const KEY_UPDATE_RECORD_LEN: usize = 5 + 5 + 1 + 16;

/// The backend stays silent until it receives something: the answer to the KeyUpdate must not wait for it.
#[test]
fn is_answered_at_once() {
    requires!(Can::BeDormouse);
    let scene = Scene::new();
    let mut tcp = peer::connect_tcp(scene.address).expect("a connection");
    let mut config = peer::config();
    config.resumption = rustls::client::Resumption::disabled();
    let mut tls = peer::client(config);
    while tls.is_handshaking() {
        if tls.wants_write() {
            tls.write_tls(&mut tcp).expect("sent");
        } else {
            tls.read_tls(&mut tcp).expect("received");
            tls.process_new_packets().expect("a good flight");
        }
    }
    tls.refresh_traffic_keys().expect("TLS 1.3");
    let mut flight = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut flight).expect("memory");
    }
    tcp.write_all(&flight).expect("Finished and a KeyUpdate");
    // The tickets come first.
    while record_len(&mut tcp) != KEY_UPDATE_RECORD_LEN {}
}

/// Receives a record.
fn record_len(tcp: &mut TcpStream) -> usize {
    let mut header = [0; 5];
    tcp.read_exact(&mut header).expect("a record in time");
    let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
    let mut payload = vec![0; len];
    tcp.read_exact(&mut payload).expect("its payload");
    header.len() + len
}
