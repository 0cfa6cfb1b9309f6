//! TLS to the backend: encrypted on both sides, and indistinguishable from a plain backend in every other
//! respect.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use dormouse_interop::admin::Admin;
use dormouse_interop::backend::{Backend, Ending};
use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::client::{Job, Language, Version};
use dormouse_interop::peer::Peer;
use dormouse_interop::process::{Process, kill_asleep, signal};
use dormouse_interop::scene::{self, PLAIN_PORT, Scene, TLS_PORT, unused_host};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::tools;
use dormouse_interop::wait;
use rustix::process::Signal;

/// Uses TLS to the backend, and trusts the CA of this test program.
fn encrypt_again(settings: &mut Settings) {
    settings.option("backend_tls", "true");
    settings.option("backend_ca", &authority().trust().display().to_string());
    settings.option("backend_name", "localhost");
}

/// A terminator behind a terminator: the inner one has the plain backend.
struct Chain {
    scene: Scene,
    inner: Process,
    _folder: tempfile::TempDir,
}

impl Chain {
    fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let host = unused_host();
        let backend = Backend::tcp(SocketAddr::new(host, PLAIN_PORT));
        let inner = Settings::new(
            SocketAddr::new(host, TLS_PORT + 1),
            Target::Tcp(backend.address()),
        );
        let folder = tempfile::tempdir().expect("a temporary folder");
        let process = scene::start(Terminator::Dormouse, &inner, folder.path());
        let mut outer = Settings::new(SocketAddr::new(host, TLS_PORT), Target::Tcp(inner.listen));
        encrypt_again(&mut outer);
        Admin::in_folder(&mut outer);
        change(&mut outer);
        Self {
            scene: Scene::of(Terminator::Dormouse, backend, &outer),
            inner: process,
            _folder: folder,
        }
    }
}

/// Bytes, their digests, half-closes in both directions, and both ends.
#[test]
fn everything_arrives_through_both() {
    requires!(Can::BeDormouse, Language::Python);
    let chain = Chain::new(|_| {});
    for version in [Version::Tls13, Version::Tls12] {
        for scenario in ["echo", "halfclose", "backendfirst"] {
            let answer = Job::new(Language::Python, version, scenario, 2_000_000)
                .option("--back", "2000000")
                .run(&chain.scene);
            let report = chain.scene.backend.report();
            assert_eq!(answer.received(), report.sent, "{scenario}");
            assert_eq!(answer.sent(), report.received, "{scenario}");
            assert_eq!(report.ended, Ending::Fin, "{scenario}");
            answer.assert_clean_end(&chain.scene);
        }
    }
    let status = Admin::of(&chain.scene).status();
    let counts = &status["counts"];
    assert_eq!(counts["connect_handshakes_full"], 1, "{counts}");
    assert_eq!(counts["connect_handshakes_resumed"], 5, "{counts}");
    assert_eq!(counts["closed_clean"], 12, "each counts as two: {counts}");
    assert_eq!(counts["connections"], 0);
}

/// Truncation is visible at the far end: when a client is cut off, and when a backend resets.
#[test]
fn truncation_is_visible_at_the_far_end() {
    requires!(Can::BeDormouse, Language::Python);
    let chain = Chain::new(|_| {});
    for version in [Version::Tls13, Version::Tls12] {
        let answer = Job::new(Language::Python, version, "truncate", 1_000_000).run(&chain.scene);
        let report = chain.scene.backend.report();
        assert_eq!(
            report.received,
            answer.sent(),
            "what was sent before the cut"
        );
        assert_eq!(report.ended, Ending::Reset, "the client was cut off");
        let answer = Job::new(Language::Python, version, "reset", 200_000).run(&chain.scene);
        let report = chain.scene.backend.report();
        assert_eq!(
            answer.received(),
            report.sent,
            "what was sent before the reset"
        );
        answer.assert_unclean_end();
    }
    // The server's process dies: its kernel sends FIN without close_notify.
    let mut peer = Peer::echoing(chain.scene.address);
    for pid in chain.inner.tree() {
        signal(pid, Signal::KILL);
    }
    peer.receive_all().expect_err("a truncated connection");
}

/// A reader that has stopped causes backpressure for the backend behind both, and nothing is lost.
#[test]
fn a_reader_that_stops_causes_backpressure() {
    requires!(Can::BeDormouse, Language::Python);
    const BYTES: u64 = 40_000_000;
    let chain = Chain::new(|_| {});
    let scene = &chain.scene;
    let mut client = Job::new(Language::Python, Version::Tls13, "download", BYTES).start(scene);
    let received = client.wait_for("paused ");
    let sent = wait::until_still("the backend that sends to a stopped reader", || {
        scene.backend.sent()
    });
    assert!(sent - received < 16 << 20, "{sent} sent, {received} read");
    client.resume_reading();
    let answer = client.answer();
    assert_eq!(answer.received(), scene.backend.report().sent);
    answer.assert_clean_end(scene);
}

/// Workers die: idle connections survive, on both sides of the joint.
#[test]
fn connections_survive_the_worker() {
    requires!(Can::BeDormouse);
    let chain = Chain::new(|settings| settings.workers = 2);
    let mut peers: Vec<Peer> = (0..40)
        .map(|_| Peer::echoing(chain.scene.address))
        .collect();
    let admin = Admin::of(&chain.scene);
    for round in 0..3 {
        for worker in admin.status()["workers"].as_array().expect("workers") {
            let pid = worker["pid"].as_u64().expect("a number");
            kill_asleep(u32::try_from(pid).expect("a pid"));
        }
        for peer in &mut peers {
            peer.echo()
                .unwrap_or_else(|error| panic!("an echo after crash {round}: {error}"));
        }
    }
    let counts = admin.status()["counts"].clone();
    assert_eq!(counts["connections"], 80, "{counts}");
    for mut peer in peers {
        peer.end_sending().expect("an end");
        peer.receive_all().expect("a clean end");
    }
    Peer::echoing(chain.scene.address);
}

/// A backend with a certificate for another name gets no data of the client. A valid backend is used
/// instead, and the client notices nothing.
#[test]
fn a_backend_with_a_wrong_certificate_gets_no_data() {
    requires!(Can::BeDormouse);
    let host = unused_host();
    let wrong = Backend::tcp(SocketAddr::new(host, PLAIN_PORT + 1));
    let other = tempfile::tempdir().expect("a temporary folder");
    let mut stranger = Settings::new(
        SocketAddr::new(host, TLS_PORT + 2),
        Target::Tcp(wrong.address()),
    );
    // A certificate of another CA.
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])
        .expect("a self-signed certificate");
    stranger.certificate.cert = other.path().join("cert.pem");
    stranger.certificate.key = other.path().join("key.pem");
    fs::write(&stranger.certificate.cert, key.cert.pem()).expect("written");
    fs::write(&stranger.certificate.key, key.signing_key.serialize_pem()).expect("written");
    let _stranger = scene::start(Terminator::Dormouse, &stranger, other.path());

    let right = SocketAddr::new(host, TLS_PORT + 1);
    let to = format!("[\"{}\", \"{right}\"]", stranger.listen);
    let chain = {
        let backend = Backend::tcp(SocketAddr::new(host, PLAIN_PORT));
        let inner = Settings::new(right, Target::Tcp(backend.address()));
        let folder = tempfile::tempdir().expect("a temporary folder");
        let process = scene::start(Terminator::Dormouse, &inner, folder.path());
        let mut outer = Settings::new(SocketAddr::new(host, TLS_PORT), Target::Tcp(right));
        encrypt_again(&mut outer);
        outer.options.push(("to", to));
        outer.option("backend_failures", "1");
        Chain {
            scene: Scene::of(Terminator::Dormouse, backend, &outer),
            inner: process,
            _folder: folder,
        }
    };
    for _ in 0..10 {
        Peer::echoing(chain.scene.address);
    }
    assert_eq!(wrong.accepted(), 0, "no client data at the wrong backend");
    let terminator = &chain.scene.terminator;
    let lines = terminator.logged("TLS connection to backend failed", 1);
    assert!(
        lines.len() == 1 && lines[0].contains("certificate"),
        "{lines:?}"
    );
    assert_eq!(terminator.logged("backend marked down", 1).len(), 1);
}

/// nginx as the backend: it requires a certificate, gets the client's address before the handshake, and
/// reports what it saw.
#[test]
fn nginx_sees_our_certificate_and_the_client() {
    requires!(Can::BeDormouse, "nginx");
    let host = unused_host();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let listen = SocketAddr::new(host, TLS_PORT + 1);
    let _nginx = nginx(listen, folder.path());
    let own = authority().certificate(Kind::EcdsaP256);
    let mut settings = Settings::new(SocketAddr::new(host, TLS_PORT), Target::Tcp(listen));
    encrypt_again(&mut settings);
    // nginx 1.22 with TLS does not accept TLVs of version 2.
    settings.option("proxy_protocol", "v1");
    settings.options.push((
        "backend_certificates",
        format!(
            "[{{ cert = \"{}\", key = \"{}\" }}]",
            own.cert.display(),
            own.key.display()
        ),
    ));
    settings
        .options
        .push(("backend_alpn", "[\"http/1.1\"]".to_owned()));
    let _terminator = scene::start(Terminator::Dormouse, &settings, folder.path());
    for resumed in [".", "r"] {
        let mut peer = Peer::connect(settings.listen).expect("a handshake");
        let from = peer.tcp.local_addr().expect("an address");
        peer.stream()
            .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("sent");
        let answer = peer.receive_all().expect("a clean end");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let expected = format!(
            "from {} verified SUCCESS resumed {resumed} name localhost over http/1.1",
            from.ip()
        );
        assert!(answer.contains(&expected), "{answer}");
    }
}

fn nginx(listen: SocketAddr, folder: &Path) -> Process {
    let (here, own) = (folder.display(), authority().certificate(Kind::EcdsaP256));
    let text = format!(
        "daemon off; user root; pid {here}/nginx.pid; error_log stderr;
events {{ }}
http {{
    access_log off;
    server {{
        listen {listen} ssl proxy_protocol;
        ssl_certificate {cert};
        ssl_certificate_key {key};
        ssl_client_certificate {ca};
        ssl_verify_client on;
        ssl_session_cache shared:s:1m;
        return 200 'from $proxy_protocol_addr verified $ssl_client_verify resumed $ssl_session_reused name $ssl_server_name over $ssl_alpn_protocol';
    }}
}}
",
        cert = own.cert.display(),
        key = own.key.display(),
        ca = authority().trust().display(),
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, text).expect("written");
    let command = tools::nginx(&file);
    let process = Process::start("nginx", &command, folder);
    wait::until_listening("nginx", listen);
    process
}

/// Connections that an administrator closes end properly on both sides, through both.
#[test]
fn connections_through_both_are_closed() {
    requires!(Can::BeDormouse);
    const COUNT: usize = 20;
    let chain = Chain::new(|_| {});
    let admin = Admin::of(&chain.scene);
    let peers: Vec<Peer> = (0..COUNT)
        .map(|_| Peer::echoing(chain.scene.address))
        .collect();
    let output = Command::new(tools::dormouse())
        .args(["close", "--client", "127.0.0.0/8", "--admin"])
        .arg(admin.path())
        .output()
        .expect("dormouse close");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, format!("closed {COUNT} connections\n"), "{output:?}");
    for mut peer in peers {
        assert!(peer.receive_all().expect("a proper end").is_empty());
        peer.end_sending().expect("an end");
    }
    wait::until_true("all slots to be free", || {
        admin.status()["counts"]["connections"] == 0
    });
}
