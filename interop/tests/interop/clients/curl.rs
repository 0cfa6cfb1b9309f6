//! curl with a small web server behind the terminator.

use std::net::SocketAddr;
use std::process::Command;

use dormouse_interop::backend::Backend;
use dormouse_interop::certificates::authority;
use dormouse_interop::content::{self, Total};
use dormouse_interop::scene::{PLAIN_PORT, Scene, TLS_PORT, unused_host};
use dormouse_interop::terminator::{Settings, Target, Terminator};
use dormouse_interop::web::Web;

const VERSIONS: [&[&str]; 2] = [&["--tlsv1.3"], &["--tlsv1.2", "--tls-max", "1.2"]];

/// A web server behind the terminator. The scene's own backend is not used.
fn scene() -> (Scene, Web) {
    let host = unused_host();
    let web = Web::start(SocketAddr::new(host, PLAIN_PORT));
    let mut settings = Settings::new(SocketAddr::new(host, TLS_PORT), Target::Tcp(web.address()));
    settings.alpn = vec!["http/1.1"];
    let idle = Backend::tcp(SocketAddr::new(host, 0));
    (Scene::of(Terminator::chosen(), idle, &settings), web)
}

fn curl(scene: &Scene, arguments: &[&str], paths: &[&str]) -> Vec<u8> {
    let mut command = Command::new("curl");
    command
        .args(["--silent", "--show-error", "--fail", "--max-time", "100"])
        .arg("--cacert")
        .arg(authority().trust())
        .args([
            "--resolve",
            &format!("localhost:{TLS_PORT}:{}", scene.address.ip()),
        ])
        .args(arguments);
    for path in paths {
        command.arg(format!("https://localhost:{TLS_PORT}{path}"));
    }
    let output = command.output().expect("curl starts");
    assert!(
        output.status.success(),
        "expected {command:?} to succeed, it ended with {}:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// Body size in every run; the long runs use another one.
const BIG: usize = 20_000_000;
const HUGE: usize = 100_000_000;

#[test]
fn get_with_a_limited_rate() {
    get(BIG, "12M");
}

#[test]
#[ignore = "100 MB: part of the long run"]
fn get_100_mb_with_a_limited_rate() {
    get(HUGE, "20M");
}

/// Downloads more slowly than the backend could send.
fn get(bytes: usize, rate: &str) {
    requires!("curl");
    let (scene, web) = scene();
    let path = format!("/bytes/{bytes}");
    for version in VERSIONS {
        let arguments = [version, &["--limit-rate", rate]].concat();
        let body = curl(&scene, &arguments, &[&path]);
        let sent = web.sent();
        assert_eq!(
            Some(&Total::of(&body)),
            sent.last(),
            "received and sent, {version:?}"
        );
    }
}

/// Two requests on one connection.
#[test]
fn keep_alive() {
    requires!("curl");
    let (scene, web) = scene();
    for version in VERSIONS {
        let arguments = [version, &["--write-out", "%{num_connects}"]].concat();
        let body = curl(&scene, &arguments, &["/bytes/1000", "/bytes/0"]);
        let (last, first) = (web.sent().pop(), body.get(..1000).map(Total::of));
        assert_eq!(first, last, "the first body, {version:?}");
        assert_eq!(
            body.get(1000..),
            Some(&b"10"[..]),
            "connections made for each"
        );
    }
}

#[test]
fn put_and_post() {
    requires!("curl");
    let (scene, _web) = scene();
    let body = content::random(BIG);
    let file = scene.folder.path().join("body");
    std::fs::write(&file, &body).expect("a file");
    let file = file.to_str().expect("a path of plain letters");
    let post = format!("@{file}");
    let expected = Total::of(&body).sha256;
    for version in VERSIONS {
        for how in [["--upload-file", file], ["--data-binary", &post]] {
            let said = curl(&scene, &[version, &how].concat(), &["/"]);
            assert_eq!(
                String::from_utf8_lossy(&said),
                expected,
                "{version:?} {how:?}"
            );
        }
    }
}
