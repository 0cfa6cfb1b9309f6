//! Failing backends, and backends at other addresses than TCP.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use dormouse_interop::backend::{Backend, Ending};
use dormouse_interop::certificates::authority;
use dormouse_interop::client::{Job, Language, Version};
use dormouse_interop::peer::Peer;
use dormouse_interop::scene::{self, PLAIN_PORT, Scene, TLS_PORT, applies};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::wait::{self, PATIENCE};

/// While no backend listens, clients get an alert; as soon as one does, they are served.
#[test]
fn down_and_up_again() {
    let host = scene::unused_host();
    let behind = SocketAddr::new(host, PLAIN_PORT);
    let settings = Settings::new(SocketAddr::new(host, TLS_PORT), Target::Tcp(behind));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let terminator = scene::start(Terminator::chosen(), &settings, folder.path());
    for round in 0..30 {
        let mut peer = match Peer::connect(settings.listen) {
            Ok(peer) => peer,
            Err(error) if applies(Can::ReportBackendDown) => {
                panic!("expected a handshake in round {round}: {error}")
            }
            Err(_) => continue,
        };
        let end = peer.receive_all();
        if applies(Can::ReportBackendDown) {
            let error = end.expect_err("an alert when there is no backend");
            assert!(error.to_string().contains("InternalError"), "{error}");
        }
    }
    if applies(Can::BeDormouse) {
        let address = behind.to_string();
        let lines = wait::until("a log line with the backend's address", PATIENCE, || {
            let lines = terminator.lines_with(&address);
            (!lines.is_empty()).then_some(lines)
        });
        assert!(
            lines.len() <= 3,
            "expected one line for the start and one for the burst, not one per connection: {lines:#?}"
        );
    }
    let _backend = Backend::tcp(behind);
    Peer::echoing(settings.listen);
}

/// The reports of curl and `openssl s_client` for each value of `backend_down`: only `close` looks like an
/// answer.
#[test]
fn down_as_clients_report_it() {
    requires!(Can::BeDormouse, "curl", "openssl");
    let host = scene::unused_host();
    for (port, how, curl_exit, curl_says, openssl_says) in [
        (
            1,
            "alert",
            56,
            "alert internal error",
            "alert internal error",
        ),
        (2, "reset", 56, "", "errno=104"),
        (3, "close", 52, "Empty reply from server", "closed"),
    ] {
        let address = SocketAddr::new(host, TLS_PORT + port);
        let behind = Target::Tcp(SocketAddr::new(host, PLAIN_PORT));
        let mut settings = Settings::new(address, behind);
        settings.option("backend_down", how);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let _terminator = scene::start(Terminator::chosen(), &settings, folder.path());
        for version in [["--tls-max", "1.3"], ["--tls-max", "1.2"]] {
            let (exit, said) = run_curl(address, &version);
            assert_eq!(exit, Some(curl_exit), "curl {version:?} with {how}: {said}");
            assert!(
                said.contains(curl_says),
                "curl {version:?} with {how}: {said}"
            );
        }
        for version in ["-tls1_3", "-tls1_2"] {
            let said = run_s_client(address, version);
            assert!(said.contains(openssl_says), "{version} with {how}: {said}");
            let is_clean = !said.contains("alert internal error") && !said.contains("errno=104");
            assert_eq!(is_clean, how == "close", "{version} with {how}: {said}");
        }
    }
}

/// Its exit code and output.
fn run_curl(address: SocketAddr, arguments: &[&str]) -> (Option<i32>, String) {
    let port = address.port();
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "20", "--cacert"])
        .arg(authority().trust())
        .args(["--resolve", &format!("localhost:{port}:{}", address.ip())])
        .args(arguments)
        .arg(format!("https://localhost:{port}/"))
        .output()
        .expect("curl starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

/// Its output when the server closes the connection; its own input stays open.
fn run_s_client(address: SocketAddr, version: &str) -> String {
    let mut client = Command::new("openssl")
        .args(["s_client", "-connect", &address.to_string(), version])
        .args(["-servername", "localhost", "-CAfile"])
        .arg(authority().trust())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl starts");
    let input = client.stdin.take();
    let output = client.wait_with_output().expect("openssl ends");
    drop(input);
    let (out, err) = (output.stdout, output.stderr);
    String::from_utf8_lossy(&[out, err].concat()).into_owned()
}

/// A backend that closes every accepted connection.
#[test]
fn accepts_and_closes() {
    let scene = Scene::new();
    let mut bystander = Peer::echoing(scene.address);
    scene.backend.close_at_once(true);
    for round in 0..50 {
        let mut peer = Peer::connect(scene.address)
            .unwrap_or_else(|error| panic!("expected a handshake in round {round}: {error}"));
        let end = peer.receive_all();
        if applies(Can::EndCleanly) {
            end.unwrap_or_else(|error| {
                panic!("expected close_notify from a backend that closes, round {round}: {error}")
            });
        }
    }
    scene.backend.close_at_once(false);
    bystander.echo().expect("an echo after all failures");
    Peer::echoing(scene.address);
}

/// A backend that disappears during connections, and comes back.
#[test]
fn restarts_under_connections() {
    let host = scene::unused_host();
    let behind = SocketAddr::new(host, PLAIN_PORT);
    let settings = Settings::new(SocketAddr::new(host, TLS_PORT), Target::Tcp(behind));
    let backend = Backend::tcp(behind);
    let scene = Scene::of(
        Terminator::chosen(),
        Backend::tcp(SocketAddr::new(host, 0)),
        &settings,
    );
    let mut old: Vec<_> = (0..20).map(|_| Peer::echoing(scene.address)).collect();
    backend.stop();
    let backend = Backend::tcp(behind);
    let _new = Peer::echoing(scene.address);
    for peer in &mut old {
        peer.echo()
            .expect("an echo from the old process of the backend");
        peer.end_sending().expect("an end");
        peer.receive_all().ok();
    }
    drop(backend);
}

/// A unix socket behaves the same, except for resets, which it does not have.
#[test]
fn unix_socket() {
    requires!(Language::Python);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("backend.sock");
    let backend = Backend::unix(&path);
    let listen = SocketAddr::new(scene::unused_host(), TLS_PORT);
    let settings = Settings::new(listen, Target::Unix(path));
    let scene = Scene::of(Terminator::chosen(), backend, &settings);
    let scenarios: &[&'static str] = if applies(Can::HalfCloseByClient) {
        &["echo", "halfclose", "backendfirst"]
    } else {
        &["echo"]
    };
    for version in [Version::Tls13, Version::Tls12] {
        for scenario in scenarios {
            let answer = Job::new(Language::Python, version, scenario, 2_000_000)
                .option("--back", "2000000")
                .run(&scene);
            let report = scene.backend.report();
            assert_eq!(
                answer.received(),
                report.sent,
                "sent behind, received in {scenario}"
            );
            assert_eq!(
                answer.sent(),
                report.received,
                "sent, received behind in {scenario}"
            );
            assert_eq!(report.ended, Ending::Fin, "{scenario}");
            answer.assert_clean_end(&scene);
        }
    }
}

/// Two listeners, one of them IPv6.
#[test]
fn several_listeners_and_ipv6() {
    requires!(Can::BeDormouse);
    let six: SocketAddr = "[::1]:0".parse().expect("an address");
    let port = match std::net::TcpListener::bind(six).and_then(|listener| listener.local_addr()) {
        Ok(address) => address.port(),
        Err(error) => {
            dormouse_interop::tools::unavailable(&format!("no IPv6 here: {error}"));
            return;
        }
    };
    let six = SocketAddr::new(six.ip(), port);
    let scene = Scene::with(|settings| settings.also_listen.push(six));
    for address in [scene.address, six] {
        let mut peer = Peer::saying(address, "echo");
        peer.echo()
            .unwrap_or_else(|error| panic!("an echo through {address}: {error}"));
    }
}

/// The built-in echo backend.
#[test]
fn the_built_in_echo() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| settings.target = Target::Echo);
    let mut peer = Peer::connect(scene.address).expect("a connection");
    for _ in 0..100 {
        peer.echo().expect("an echo");
    }
    peer.end_sending().expect("an end");
    let rest = peer.receive_all().expect("a clean end");
    assert_eq!(rest, b"", "what came after the last echo");
    assert_eq!(
        scene.backend.accepted(),
        0,
        "connections to a backend which nobody named"
    );
}

/// The first message and the close in one flight: nothing is lost if the client closes before the backend
/// is connected.
#[test]
fn data_sent_before_the_backend_is_connected_arrives() {
    requires!(Can::HalfCloseByClient);
    let scene = Scene::new();
    for round in 0..50 {
        let mut peer = Peer::connect(scene.address).expect("a connection");
        peer.tls
            .writer()
            .write_all(b"halfclose 100000\n")
            .expect("memory");
        peer.end_sending().expect("line and end in one write");
        let all = peer
            .receive_all()
            .unwrap_or_else(|error| panic!("expected a clean end in round {round}: {error}"));
        assert_eq!(all.len(), 100_000, "received in round {round}");
    }
}
