//! Clients that a route has admitted, and that have no backend yet when a reload changes whom it admits.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;

use dormouse_interop::admin::Admin;
use dormouse_interop::backend::Backend;
use dormouse_interop::certificates::authority;
use dormouse_interop::peer::{self, Peer, connect_tcp};
use dormouse_interop::scene::{PLAIN_PORT, Scene, unused_host};
use dormouse_interop::terminator::Can;
use dormouse_interop::wait;
use rustls::ClientConnection;

/// A scene whose route can get another backend and other rules.
struct Site {
    scene: Scene,
    admin: Admin,
    other: Backend,
    /// The configuration at the start.
    text: String,
}

impl Site {
    fn new(options: &[(&'static str, &str)]) -> Site {
        let scene = Scene::with(|settings| {
            Admin::in_folder(settings);
            for (name, value) in options {
                settings.option(name, value);
            }
        });
        let file = scene.folder.path().join("dormouse.toml");
        Site {
            admin: Admin::of(&scene),
            other: Backend::tcp(SocketAddr::new(unused_host(), PLAIN_PORT)),
            text: fs::read_to_string(file).expect("the configuration"),
            scene,
        }
    }

    /// Reloads with these lines in the route.
    fn reload(&self, text: &str, rules: &str) {
        let file = self.scene.folder.path().join("dormouse.toml");
        fs::write(file, format!("{text}{rules}\n")).expect("the configuration written");
        self.admin.order("/reload").expect("a reload");
    }

    /// The configuration with the other backend.
    fn moved(&self) -> String {
        let [from, to] = [&self.scene.backend, &self.other].map(|one| one.address().to_string());
        self.text.replace(&from, &to)
    }

    /// A client that has made its handshake and sent nothing.
    fn silent(&self) -> Peer {
        let accepted = &self.admin.status()["counts"]["accepted"];
        let before = accepted.as_u64().expect("a number");
        let peer = Peer::connect(self.scene.address).expect("a handshake");
        wait::until_true("the client to wait", || {
            let status = self.admin.status();
            status["counts"]["accepted"] == before + 1 && status["connections"]["handshaking"] == 0
        });
        peer
    }

    /// Connections to both backends.
    fn accepted(&self) -> (u64, u64) {
        (self.scene.backend.accepted(), self.other.accepted())
    }
}

/// Rules that ask more of a client, or tell its backend something else.
fn other_rules() -> [String; 4] {
    let ca = authority().trust();
    [
        format!(
            "client_certificates = 'required'\nclient_ca = '{}'",
            ca.display()
        ),
        "proxy_protocol = 'v1'".to_owned(),
        "deny = '127.0.0.0/8'".to_owned(),
        "allow = '10.0.0.0/8'".to_owned(),
    ]
}

#[test]
fn a_waiting_client_gets_no_backend_by_other_rules() {
    requires!(Can::BeDormouse);
    let site = Site::new(&[("backend_connect", "first-data")]);
    for rules in other_rules() {
        let mut silent = site.silent();
        site.reload(&site.moved(), &rules);
        silent.stream().write_all(b"echo\n").expect("sent");
        let error = silent.receive_all().expect_err("an alert").to_string();
        assert!(error.contains("InternalError"), "{rules}: {error}");
        assert_eq!(site.accepted(), (0, 0), "{rules}");
        site.reload(&site.text, "");
    }
    // The stored header is for a backend that expects one.
    site.reload(&site.text, "proxy_protocol = 'v1'");
    let mut silent = site.silent();
    site.reload(&site.text, "");
    let error = silent.receive_all().expect_err("an alert").to_string();
    assert!(error.contains("InternalError"), "{error}");
}

/// A reload without other rules for the client ends nothing: it gets the new backend, as any next client.
#[test]
fn a_waiting_client_follows_a_reload_that_admits_it() {
    requires!(Can::BeDormouse);
    let site = Site::new(&[("backend_connect", "first-data")]);
    let mut silent = [(); 2].map(|()| site.silent());
    let in_flight = begun(&site);
    site.reload(&site.text, "");
    site.reload(&site.moved(), "deny = '10.0.0.0/8'\nhalf_close = false");
    let (tls, tcp) = in_flight;
    let more = Peer { tls, tcp };
    for peer in silent.iter_mut().chain([&mut { more }]) {
        peer.stream().write_all(b"echo\n").expect("sent");
        peer.echo().expect("an echo");
    }
    assert_eq!(site.accepted(), (0, 3));
}

/// A handshake of which only the client's last flight is missing.
fn begun(site: &Site) -> (ClientConnection, std::net::TcpStream) {
    let mut tcp = connect_tcp(site.scene.address).expect("a connection");
    let mut tls = peer::client(peer::config());
    tls.write_tls(&mut tcp).expect("a hello sent");
    while tls.is_handshaking() {
        tls.read_tls(&mut tcp).expect("the server's flight");
        tls.process_new_packets().expect("a valid flight");
    }
    (tls, tcp)
}

#[test]
fn a_handshake_does_not_end_with_other_rules_than_it_began() {
    requires!(Can::BeDormouse);
    let site = Site::new(&[]);
    let rules = other_rules();
    for rules in &rules {
        let (tls, tcp) = begun(&site);
        site.reload(&site.moved(), rules);
        let mut late = Peer { tls, tcp };
        let _ = late.stream().write_all(b"echo\n");
        late.receive_all().expect_err("an abort");
        assert_eq!(site.accepted(), (0, 0), "{rules}");
        site.reload(&site.text, "");
    }
    // A connection whose handshake has not begun follows the reload.
    let early = connect_tcp(site.scene.address).expect("a connection");
    wait::until_true("a handshake in flight", || {
        site.admin.status()["connections"]["handshaking"] == 1
    });
    let asked = rules[0].replace("required", "optional");
    site.reload(&site.moved(), &asked);
    let mut early = Peer::over(early, peer::client(peer::config())).expect("a handshake");
    early.stream().write_all(b"echo\n").expect("sent");
    early.echo().expect("an echo");
    assert_eq!(site.accepted(), (0, 1));
}
