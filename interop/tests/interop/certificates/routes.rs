//! Several routes on one address: by name, by wildcard, by protocol.

use std::io::{Read, Write};

use dormouse_interop::certificates::{Files, Kind, authority};
use dormouse_interop::peer::{self, Peer, connect_from, connect_tcp};

use super::site::{Site, can_run, greeter};

/// The backend's greeting to a TLS client with this name and these protocols.
fn greeting(site: &Site, name: &str, alpn: &[&str]) -> Result<String, String> {
    let mut config = peer::config();
    config.alpn_protocols = alpn.iter().map(|one| one.as_bytes().to_vec()).collect();
    let tcp = connect_tcp(site.address).expect("a connection");
    let mut peer =
        Peer::over(tcp, peer::client_for(config, name)).map_err(|error| error.to_string())?;
    let said = peer.receive_all().expect("a greeting and an end");
    Ok(String::from_utf8_lossy(&said).into_owned())
}

fn route(more: &str, to: &str, files: &Files) -> String {
    let to = greeter(Box::leak(to.to_owned().into_boxed_str()));
    let certificates = files.both.display();
    format!("[[route]]\nlisten = 'LISTEN'\nto = '{to}'\ncertificates = '{certificates}'\n{more}\n")
}

fn files() -> (tempfile::TempDir, Files) {
    let folder = tempfile::tempdir().expect("a folder");
    let names = [
        "a.example",
        "b.example",
        "c.example",
        "b.test",
        "c.test",
        "x.test",
    ];
    let files = authority().give_out_for("all", Kind::EcdsaP256, &names, folder.path());
    (folder, files)
}

#[test]
fn each_client_finds_its_route() {
    requires!(can_run());
    let (_folder, files) = files();
    let routes = [
        route("", "the rest", &files),
        route("server_names = ['*.example']", "wildcard", &files),
        route("server_names = ['A.example']", "exact", &files),
        route("server_names = 'b.test'\nalpn = 'mqtt'", "mqtt", &files),
        route(
            "server_names = 'b.test'\nalpn = ['h2', 'http/1.1']",
            "web",
            &files,
        ),
        route("server_names = 'b.test'", "other protocols", &files),
    ]
    .concat();
    let site = Site::new(&routes, |_| {});
    let all = [
        ("a.example", &[][..], "exact"),
        ("b.example", &[], "wildcard"),
        ("c.test", &["h2"], "the rest"),
        ("b.test", &["h2", "mqtt"], "mqtt"),
        ("b.test", &["http/1.1"], "web"),
        ("b.test", &["xmpp-client"], "other protocols"),
        ("b.test", &[], "other protocols"),
    ];
    for (name, alpn, backend) in all {
        assert_eq!(
            greeting(&site, name, alpn).as_deref(),
            Ok(backend),
            "{name} {alpn:?}"
        );
    }
}

/// A hello that arrives byte by byte is parsed like one that arrives at once, and bytes that are no hello
/// are answered too.
#[test]
fn slow_and_invalid_hellos_are_answered() {
    requires!(can_run());
    let (_folder, files) = files();
    let routes = [
        route("server_names = 'a.example'", "a", &files),
        route("server_names = '*.test'", "b", &files),
    ]
    .concat();
    let site = Site::new(&routes, |_| {});
    let mut tls = peer::client_for(peer::config(), "x.test");
    let mut hello = Vec::new();
    tls.write_tls(&mut hello).expect("a hello");
    let mut tcp = connect_tcp(site.address).expect("a connection");
    for byte in &hello {
        tcp.write_all(&[*byte]).expect("a write of a byte");
    }
    let mut peer = Peer::over(tcp, tls).expect("a handshake");
    assert_eq!(peer.receive_all().expect("an end"), b"b");

    let refused = greeting(&site, "other.host", &[]).expect_err("there is no default");
    assert!(refused.to_lowercase().contains("unrecognis"), "{refused}");
    let mut tcp = connect_tcp(site.address).expect("a connection");
    tcp.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

/// A reload moves routes: established connections keep their backend, and new ones use the new route.
/// Networks are those of the chosen route.
#[test]
fn reloads_and_networks() {
    requires!(can_run());
    let (_folder, files) = files();
    let here = "deny = '127.0.0.1'";
    let a = route("server_names = 'a.example'", "a", &files);
    let rest = route(here, "the rest", &files);
    let site = Site::new(&[a.clone(), rest.clone()].concat(), |_| {});
    let from = |name: &str, ip: &str| {
        let tcp = connect_from(ip.parse().expect("an address"), site.address);
        let mut peer = Peer::over(tcp, peer::client_for(peer::config(), name)).ok()?;
        String::from_utf8(peer.receive_all().ok()?).ok()
    };
    assert_eq!(from("a.example", "127.0.0.1").as_deref(), Some("a"));
    assert_eq!(
        from("b.example", "127.0.0.1"),
        None,
        "its network is denied"
    );
    assert_eq!(from("b.example", "127.0.0.2").as_deref(), Some("the rest"));
    let b = route("server_names = 'b.example'", "b", &files);
    site.reload(&[rest, b, a].concat());
    assert_eq!(from("a.example", "127.0.0.1").as_deref(), Some("a"));
    assert_eq!(from("b.example", "127.0.0.1").as_deref(), Some("b"));
    assert_eq!(from("c.example", "127.0.0.1"), None);

    // A client that no route allows gets no answer, whatever name it asks for.
    let named = |name: &str| route(&format!("server_names = '{name}'\n{here}"), "x", &files);
    site.reload(&["a.example", "b.example"].map(named).concat());
    for (ip, is_answered) in [("127.0.0.1", false), ("127.0.0.2", true)] {
        let mut tcp = connect_from(ip.parse().expect("an address"), site.address);
        let mut tls = peer::client_for(peer::config(), "c.example");
        tls.write_tls(&mut tcp).expect("a hello sent");
        let mut answer = Vec::new();
        let _ = tcp.read_to_end(&mut answer);
        assert_eq!(!answer.is_empty(), is_answered, "from {ip}");
    }
}
