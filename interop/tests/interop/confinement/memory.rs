//! What stays in a worker's memory of connections that are over: nothing.

use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex};

use dormouse_interop::content::random;
use dormouse_interop::peer::{self, Peer, connect_tcp};
use dormouse_interop::requirement::Root;
use dormouse_interop::scene::Scene;
use dormouse_interop::slots::in_memory;
use dormouse_interop::terminator::{Can, Target};
use dormouse_interop::wait;
use rustls::{ClientConfig, KeyLog};

/// Enough to recognise a secret.
const NEEDLE_LEN: usize = 16;

/// The secrets of the connections of one client.
#[derive(Debug, Default)]
struct Secrets(Mutex<Vec<(String, Vec<u8>)>>);

impl KeyLog for Secrets {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        let mut all = self.0.lock().expect("no panic");
        all.push((label.to_owned(), secret[..NEEDLE_LEN].to_vec()));
    }
}

impl Secrets {
    fn with(config: &ClientConfig) -> (Arc<Secrets>, ClientConfig) {
        let secrets = Arc::new(Secrets::default());
        let mut config = config.clone();
        config.key_log = Arc::clone(&secrets) as Arc<dyn KeyLog>;
        (secrets, config)
    }

    fn of(&self, label: &str) -> Option<Vec<u8>> {
        let all = self.0.lock().expect("no panic");
        let found = all.iter().find(|(found, _)| found == label);
        found.map(|(_, secret)| secret.clone())
    }

    /// Whether one of them, or of these, is in the memory of a process.
    fn are_in(&self, pid: u32, more: &[(&str, &[u8])]) -> bool {
        let all = self.0.lock().expect("no panic");
        let all = all.iter().map(|(label, secret)| (&**label, &**secret));
        let sought: Vec<_> = all.chain(more.iter().copied()).collect();
        !in_memory(pid, &sought).is_empty()
    }
}

fn scene() -> Scene {
    Scene::with(|settings| settings.target = Target::Echo)
}

#[test]
fn nothing_of_a_closed_connection_stays() {
    requires!(Can::BeDormouse, Root);
    let scene = scene();
    let worker = scene.terminator.workers()[0];
    for config in peer::configs_by_version() {
        let (secrets, config) = Secrets::with(&config);
        let tcp = connect_tcp(scene.address).expect("a connection");
        let mut peer = Peer::over(tcp, peer::client(config)).expect("a handshake");
        let plaintext = random(3_000);
        peer.stream().write_all(&plaintext).expect("sent");
        let mut back = vec![0; plaintext.len()];
        peer.stream().read_exact(&mut back).expect("an echo");
        // Proof that the search works: the slot has this secret.
        if let Some(secret) = secrets.of("CLIENT_TRAFFIC_SECRET_0") {
            let sought = ("the traffic secret", &*secret);
            assert_eq!(in_memory(worker, &[sought]), [sought.0]);
        }
        drop(peer);
        let parts: Vec<_> = plaintext
            .chunks_exact(1_000)
            .map(|part| ("plaintext", &part[..NEEDLE_LEN]))
            .collect();
        wait::until_true("nothing to be left", || !secrets.are_in(worker, &parts));
    }
}

/// The client leaves when it has the server's Finished, so that the server has derived all secrets.
#[test]
fn nothing_of_an_abandoned_handshake_stays() {
    requires!(Can::BeDormouse, Root);
    let scene = scene();
    let worker = scene.terminator.workers()[0];
    for config in peer::configs_by_version() {
        let (secrets, config) = Secrets::with(&config);
        let mut tcp = connect_tcp(scene.address).expect("a connection");
        let mut tls = peer::client(config);
        let is_derived = || {
            let label = "SERVER_TRAFFIC_SECRET_0";
            secrets
                .of(label)
                .or_else(|| secrets.of("CLIENT_RANDOM"))
                .is_some()
        };
        while !is_derived() {
            while tls.wants_write() {
                tls.write_tls(&mut tcp).expect("sent");
            }
            tls.read_tls(&mut tcp).expect("received");
            tls.process_new_packets().expect("a handshake");
        }
        drop((tls, tcp));
        wait::until_true("nothing to be left", || !secrets.are_in(worker, &[]));
    }
}
