//! The exit status of an audit, by its findings and thresholds.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::scene::Scene;
use dormouse_interop::scene::unused_port;
use dormouse_interop::tools;
use dormouse_interop::web::Web;

use super::offered::NODE;
use super::{Started, until_listening};

/// Asserts this exit status of an audit of a server. Returns its output on standard error.
fn ends(expected: i32, words: &[&str]) -> String {
    audit_ends(
        expected,
        &[&["server", "-q", "--quick"][..], words].concat(),
    )
}

fn audit_ends(expected: i32, words: &[&str]) -> String {
    let output = Command::new(tools::dormouse())
        .arg("audit")
        .args(words)
        .output()
        .expect("the audit starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(expected), "{words:?}: {said}");
    said
}

/// 3: an audit that cannot reach, measure or judge something never passes.
#[test]
fn unjudged_results_never_pass() {
    let scene = Scene::new();
    let target = scene.address.to_string();
    let trust = authority().trust();
    let trust = trust.to_string_lossy();
    let good = [&*target, "--ca", &*trust, "--sni", "localhost"];
    ends(0, &good);
    ends(0, &[&good[..], &["--min-resumed", "95"]].concat());
    // The process is unknown, so its memory is too: that is not a pass.
    ends(
        3,
        &[&good[..], &["--max-bytes-per-connection", "20000"]].concat(),
    );
    // No trusted CA has issued its certificate, so the audit cannot talk to it.
    ends(3, &[&*target, "--sni", "localhost"]);
    ends(3, &["127.0.0.1:1", "--insecure"]);
    let plain = Web::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .address()
        .to_string();
    ends(3, &[&plain, "--insecure"]);
    ends(3, &[&good[..], &["--pid", "2147483647"]].concat());
    let unit = ends(
        3,
        &[&good[..], &["--unit", "there-is-no-such.service"]].concat(),
    );
    let container = ends(
        3,
        &[&good[..], &["--container", "there-is-no-such"]].concat(),
    );
    assert!(
        unit.contains("--pid") && container.contains("--pid"),
        "{unit}{container}"
    );
}

/// 2: invalid usage. 1: a threshold is exceeded.
#[test]
fn usage_and_thresholds() {
    let scene = Scene::with(|settings| {
        settings.option("tickets", "0");
    });
    let target = scene.address.to_string();
    let trust = authority().trust();
    let trust = trust.to_string_lossy();
    let good = [&*target, "--ca", &*trust, "--sni", "localhost"];
    ends(2, &["nonsense"]);
    ends(2, &["localhost:1", "--resolve", "localhost:2:127.0.0.1"]);
    ends(2, &["localhost:1", "--resolve", "localhost:1:nowhere"]);
    ends(2, &[&good[..], &["--cmd", "true", "--pid", "1"]].concat());
    ends(
        2,
        &[&good[..], &["--cert", &trust, "--key", &trust]].concat(),
    );
    ends(2, &[&good[..], &["--fail-on", "everything"]].concat());
    let said = ends(2, &[&good[..], &["--cmd", "sleep 5"]].concat());
    assert!(said.contains("listens on"), "{said}");
    // The server does not resume at all.
    ends(
        1,
        &[&good[..], &["--fail-on", "never", "--min-resumed", "50"]].concat(),
    );
    ends(1, &[&good[..], &["--fail-on", "high"]].concat());
    ends(0, &[&good[..], &["--fail-on", "never"]].concat());
}

/// Bytes per connection: below the limit, above it, and (see above) not measured. The server's connections
/// take so much memory that noise does not matter.
#[test]
#[ignore = "two whole audits: a minute"]
fn bytes_per_connection() {
    requires!("node");
    let files = authority().certificate(Kind::EcdsaP256);
    let port = unused_port();
    let target = format!("127.0.0.1:{port}");
    let mut node = Command::new("node");
    node.args(["-e", NODE, &port.to_string(), "3"])
        .arg(&files.cert)
        .arg(&files.key);
    let node = Started::new(&mut node);
    until_listening("the server", &target);
    let pid = node.0.id().to_string();
    let words = [
        "--insecure",
        "--pid",
        &pid,
        "-n",
        "100",
        "--fail-on",
        "never",
    ];
    let limit = |bytes| {
        [
            &[&*target],
            &words[..],
            &["--max-bytes-per-connection", bytes],
        ]
        .concat()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| ends(0, &limit("10000000")));
        let said = ends(1, &limit("1000"));
        assert!(said.contains("bytes per idle connection"), "{said}");
    });
}

/// Share of resumed handshakes of a client: too low, and unknown. (Sufficient: `lab/sick`.)
#[test]
fn a_client_that_must_resume() {
    requires!("curl");
    let run = |expected: i32, least: &str, script: &str| {
        let usual = ["client", "-q", "--fail-on", "never"];
        let client = ["--min-resumed", least, "--", "sh", "-c", script];
        audit_ends(expected, &[&usual[..], &client].concat())
    };
    let anew = "curl -sS $DORMOUSE_URL $DORMOUSE_URL; curl -sS $DORMOUSE_URL";
    run(0, "0", anew);
    let said = run(1, "50", anew);
    assert!(said.contains("0 % of the connections resumed"), "{said}");
    let said = run(3, "50", "curl -sS $DORMOUSE_URL");
    assert!(said.contains("fewer than two connections"), "{said}");
}

/// Results go to standard output only, and an address in use is reported.
#[test]
fn results_and_messages_are_separate() {
    let scene = Scene::new();
    let target = scene.address.to_string();
    let output = Command::new(tools::dormouse())
        .args(["audit", "server", &target, "--insecure", "--quick"])
        .output()
        .expect("the audit starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(out.starts_with("audit of a server"), "{out}");
    assert!(!out.contains("resuming ..."), "{out}");
    assert!(!err.contains("audit of a server"), "{err}");
}
