//! OpenSSL's client, for features that other clients do not expose: key updates, records of chosen sizes,
//! sessions in files, renegotiation.

use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_interop::backend::Ending;
use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::content::Total;
use dormouse_interop::process::signal;
use dormouse_interop::scene::{Scene, applies};
use dormouse_interop::terminator::Can;
use dormouse_interop::wait::{self, PATIENCE};
use dormouse_interop::{content, tools};

/// A running `openssl s_client` whose output goes to a file.
struct SClient {
    child: Child,
    input: Option<ChildStdin>,
    output: tempfile::NamedTempFile,
}

impl SClient {
    fn start(scene: &Scene, arguments: &[&str]) -> Self {
        let output = tempfile::NamedTempFile::new_in(scene.folder.path()).expect("a file");
        // Standard output and error share the file; without O_APPEND they would overwrite each other.
        let append = std::fs::OpenOptions::new().append(true).open(output.path());
        let append = append.expect("the same file");
        let mut child = Command::new("openssl")
            .args(["s_client", "-connect", &scene.address.to_string()])
            .args([
                "-servername",
                "localhost",
                "-verify_return_error",
                "-CAfile",
            ])
            .arg(authority().trust())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(append.try_clone().expect("a second handle"))
            .stderr(append)
            .spawn()
            .expect("openssl starts");
        let input = child.stdin.take();
        Self {
            child,
            input,
            output,
        }
    }

    fn said(&self) -> String {
        let bytes = std::fs::read(self.output.path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn count(&self, text: &str) -> usize {
        self.said().matches(text).count()
    }

    /// A single write, because the client looks for commands only at the start of what it reads.
    fn write(&mut self, text: &[u8]) {
        let input = self.input.as_mut().expect("an open pipe");
        if let Err(error) = input.write_all(text).and_then(|()| input.flush()) {
            panic!(
                "s_client takes no input ({error}), it said:\n{}",
                self.said()
            );
        }
    }

    fn wait_for(&self, text: &str, times: usize) {
        let end = Instant::now() + PATIENCE;
        while self.count(text) < times {
            let said = self.said();
            assert!(
                Instant::now() < end,
                "expected s_client to say {text:?} {times} times, it said:\n{said}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a line to the echo backend and waits for the answer.
    fn echo(&mut self, line: &str) {
        self.write(format!("{line}\n").as_bytes());
        self.wait_for(line, 1);
    }

    /// Closes the input and waits for the client's exit.
    fn end(mut self) -> String {
        drop(self.input.take());
        wait::until("s_client to end", PATIENCE, || {
            self.child.try_wait().ok()?
        });
        self.said()
    }
}

impl Drop for SClient {
    fn drop(&mut self) {
        signal(self.child.id(), rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}

fn ready() -> bool {
    tools::present(&["openssl"])
}

/// Hexadecimal content, which contains none of the letters that s_client takes for commands.
fn hexadecimal(bytes: usize) -> Vec<u8> {
    let half = content::random(bytes / 2);
    half.iter()
        .flat_map(|byte| format!("{byte:02x}").into_bytes())
        .collect()
}

#[test]
fn key_updates_with_and_without_an_answer() {
    requires!(ready());
    let scene = Scene::new();
    let mut client = SClient::start(&scene, &["-tls1_3", "-msg"]);
    client.write(b"echo\n");
    client.echo("before any update");
    let theirs = "<<< TLS 1.3, Handshake [length 0005], KeyUpdate";
    let ours = ">>> TLS 1.3, Handshake [length 0005], KeyUpdate";
    for round in 1..=10 {
        // `k`: update_not_requested. The other side keeps its keys.
        client.write(b"k\n");
        client.wait_for(ours, 2 * round - 1);
        client.echo(&format!("after silent update {round}"));
        assert_eq!(
            client.count(theirs),
            round - 1,
            "key updates by the terminator after one that asked for none:\n{}",
            client.said()
        );
        // `K`: update_requested. The other side must update too (RFC 8446 §4.6.3).
        client.write(b"K\n");
        client.wait_for(ours, 2 * round);
        client.echo(&format!("after asking update {round}"));
        client.wait_for(theirs, round);
    }
    let said = client.end();
    assert!(!said.contains("error:"), "expected no error:\n{said}");
    assert_eq!(scene.backend.report().ended, Ending::Fin);
}

/// Consecutive updates with nothing between them.
#[test]
fn key_updates_in_a_row() {
    requires!(ready());
    let scene = Scene::new();
    let mut client = SClient::start(&scene, &["-tls1_3"]);
    client.write(b"echo\n");
    client.echo("before any update");
    for number in 1..=8 {
        client.write(if number % 2 == 0 { b"K\n" } else { b"k\n" });
        client.wait_for("KEYUPDATE", number);
    }
    client.echo("after eight updates");
    client.end();
    assert_eq!(scene.backend.report().ended, Ending::Fin);
}

#[test]
fn records_of_512_bytes_tls13() {
    small_records("-tls1_3");
}

#[test]
fn records_of_512_bytes_tls12() {
    small_records("-tls1_2");
}

/// A megabyte of upload in the smallest records that OpenSSL can send.
fn small_records(version: &str) {
    requires!(ready());
    let scene = Scene::new();
    let body = hexadecimal(1 << 20);
    let sizes = ["-max_send_frag", "512", "-split_send_frag", "512"];
    let mut client = SClient::start(&scene, &[&[version, "-nocommands"][..], &sizes].concat());
    client.write(format!("upload {}\n", body.len()).as_bytes());
    client.write(&body);
    let expected = Total::of(&body);
    client.wait_for(&expected.sha256, 1);
    client.end();
    let report = scene.backend.report();
    assert_eq!(
        report.received, expected,
        "sent by s_client and received behind"
    );
    assert_eq!(report.ended, Ending::Fin);
}

#[test]
fn session_in_a_file_tls13() {
    session_in_a_file("-tls1_3");
}

#[test]
fn session_in_a_file_tls12() {
    session_in_a_file("-tls1_2");
}

/// One process writes a session to a file, another one resumes it.
fn session_in_a_file(version: &str) {
    requires!(ready());
    let scene = Scene::new();
    let file = scene.folder.path().join("session.pem");
    let file = file.to_str().expect("a path of plain letters");
    for (option, how) in [("-sess_out", "New, TLSv1."), ("-sess_in", "Reused, TLSv1.")] {
        let mut client = SClient::start(&scene, &[version, option, file]);
        client.write(b"echo\n");
        client.echo("a line of text");
        let said = client.end();
        assert!(
            said.contains(how),
            "expected {how:?} with {option}:\n{said}"
        );
        assert_eq!(scene.backend.report().ended, Ending::Fin);
    }
}

/// Five connections after the first, all with its session.
#[test]
fn reconnect_five_times_tls12() {
    requires!(ready());
    let scene = Scene::new();
    let client = SClient::start(&scene, &["-tls1_2", "-reconnect"]);
    client.wait_for("Reused, TLSv1.2", 5);
    client.end();
}

/// Renegotiation is refused and affects no other client.
#[test]
fn renegotiation_is_refused() {
    requires!(ready());
    let scene = Scene::new();
    let mut client = SClient::start(&scene, &["-tls1_2", "-msg"]);
    client.write(b"echo\n");
    client.echo("before");
    client.write(b"R\n");
    // OpenSSL treats the warning as the end of the connection.
    client.wait_for("no renegotiation", 1);
    client.end();
    let mut next = SClient::start(&scene, &["-tls1_2"]);
    next.write(b"echo\n");
    next.echo("another connection");
}

#[test]
fn x25519_and_p256_with_both_kinds_of_certificates() {
    requires!(ready());
    // As OpenSSL names them until 3.4, and since.
    let ecdsa = ["ECDSA", "ecdsa_secp256r1_sha256"];
    let rsa = ["RSA-PSS", "rsa_pss_rsae_"];
    for (kind, signatures) in [(Kind::EcdsaP256, ecdsa), (Kind::Rsa2048, rsa)] {
        let scene = Scene::with(|settings| {
            settings.certificate = authority().certificate(kind).clone();
        });
        for version in ["-tls1_3", "-tls1_2"] {
            for (group, said_as) in [
                // Without P-256 OpenSSL would not accept a P-256 certificate (RFC 8422 §5.1).
                ("X25519:P-256", "X25519"),
                ("P-256", "ECDH, prime256v1"),
            ] {
                let mut client = SClient::start(&scene, &[version, "-groups", group]);
                client.write(b"echo\n");
                client.echo("a line of text");
                let said = client.end();
                for expected in [
                    // "Server" until OpenSSL 3.4, "Peer" since.
                    format!(" Temp Key: {said_as}"),
                    "Verification: OK".to_owned(),
                ] {
                    assert!(
                        said.contains(&expected),
                        "expected {expected:?} with {kind:?} {version} {group}:\n{said}"
                    );
                }
                let is_signed = |by: &&str| said.contains(&format!("Peer signature type: {by}"));
                assert!(signatures.iter().any(is_signed), "{kind:?}:\n{said}");
            }
        }
    }
}

/// The server does not support the client's first key share, and asks for another one.
#[test]
fn hello_retry_request() {
    requires!(ready());
    let scene = Scene::new();
    let mut client = SClient::start(&scene, &["-tls1_3", "-groups", "P-521:X25519"]);
    client.write(b"echo\n");
    client.echo("a line of text");
    let said = client.end();
    if applies(Can::BeDormouse) {
        assert!(
            said.contains(" Temp Key: X25519"),
            "expected X25519:\n{said}"
        );
    }
}

/// Records with padding (RFC 8446 §5.4).
#[test]
fn padded_records() {
    requires!(ready());
    let scene = Scene::new();
    let body = hexadecimal(1 << 18);
    for padding in ["1000", "4096", "16384"] {
        let padded = ["-tls1_3", "-nocommands", "-record_padding", padding];
        let mut client = SClient::start(&scene, &padded);
        client.write(format!("upload {}\n", body.len()).as_bytes());
        client.write(&body);
        let expected = Total::of(&body);
        client.wait_for(&expected.sha256, 1);
        client.end();
        assert_eq!(
            scene.backend.report().received,
            expected,
            "padded to {padding}"
        );
    }
}

/// Only AEAD suites are supported; a TLS 1.2 client with others gets an alert.
#[test]
fn suites_without_aead_are_refused() {
    requires!(ready(), Can::BeDormouse);
    let scene = Scene::new();
    let client = SClient::start(&scene, &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA256"]);
    client.wait_for("handshake failure", 1);
}

/// Every supported suite.
#[test]
fn every_suite() {
    requires!(ready());
    let scene = Scene::new();
    let suites = [
        ("-ciphersuites", "-tls1_3", "TLS_AES_128_GCM_SHA256"),
        ("-ciphersuites", "-tls1_3", "TLS_AES_256_GCM_SHA384"),
        ("-ciphersuites", "-tls1_3", "TLS_CHACHA20_POLY1305_SHA256"),
        ("-cipher", "-tls1_2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("-cipher", "-tls1_2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("-cipher", "-tls1_2", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ];
    for (option, version, suite) in suites {
        let mut client = SClient::start(&scene, &[version, option, suite]);
        client.write(b"echo\n");
        client.echo("a line of text");
        let said = client.end();
        assert!(
            said.contains(&format!("Cipher is {suite}")),
            "expected {suite}:\n{said}"
        );
    }
}
