//! What a server offers and requests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::scene::unused_port;
use dormouse_interop::tools;
use serde_json::Value;

use super::{Started, audit, finds, read, until_listening};

/// A server that requires a client certificate: with one the flights are known; without one the audit says
/// that it could not find out, not that the server does not resume.
#[test]
fn a_server_that_asks_for_a_client_certificate() {
    requires!("openssl");
    let files = authority().certificate(Kind::Rsa2048);
    let (own, trust) = (
        authority().certificate(Kind::EcdsaP256),
        authority().trust(),
    );
    let port = unused_port();
    let mut server = Command::new("openssl")
        .args([
            "s_server",
            "-quiet",
            "-naccept",
            "100000",
            "-Verify",
            "2",
            "-verify_return_error",
        ])
        .args(["-accept", &port.to_string(), "-rev"])
        .arg("-CAfile")
        .arg(&trust)
        .arg("-cert")
        .arg(&files.cert)
        .arg("-key")
        .arg(&files.key)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl starts");
    let target = format!("127.0.0.1:{port}");
    until_listening("the server", &target);
    let (cert, key) = (own.cert.to_string_lossy(), own.key.to_string_lossy());
    let plain = ["server", &target, "--insecure", "-q", "--quick"];
    let with = read(&audit(
        &[&plain[..], &["--cert", &cert, "--key", &key]].concat(),
    ));
    let (without, refused) = read(&audit(&plain));
    server.kill().expect("openssl runs");
    server.wait().expect("an end");

    let flights = with.0["server"]["flights"].as_array().expect("flights");
    for version in ["TLS 1.3", "TLS 1.2"] {
        let shown = flights.iter().find(|flight| {
            flight["version"] == version
                && flight["client_certificate"] == true
                && flight["resumed"] == false
        });
        let bytes = shown.unwrap_or_else(|| panic!("{version}: {flights:#?}"))["bytes"][2].as_u64();
        assert!(
            bytes > Some(400),
            "{version}: {bytes:?} bytes with a certificate"
        );
    }
    assert_eq!(refused, Some(3), "{without:#}");
    let said = without["outcome"]["message"].as_str().unwrap_or_default();
    assert!(said.contains("--cert and --key"), "{said}");
    let findings = without["findings"].as_array().expect("findings");
    assert!(
        findings
            .iter()
            .all(|finding| finding["id"] != "no-resumption"),
        "{findings:#?}"
    );
}

/// Renegotiation by the client, with real servers and all suites.
#[test]
fn renegotiation_by_real_servers() {
    requires!("openssl", "node");
    let files = authority().certificate(Kind::EcdsaP256);
    let openssl = &|port: u16, more: &[&str]| {
        let mut command = Command::new("openssl");
        command.args(["s_server", "-quiet", "-rev", "-accept", &port.to_string()]);
        command
            .arg("-cert")
            .arg(&files.cert)
            .arg("-key")
            .arg(&files.key);
        command.args(more);
        command
    };
    let node = &|port: u16, limit: &str| {
        let mut command = Command::new("node");
        command
            .args(["-e", NODE, &port.to_string(), limit])
            .arg(&files.cert)
            .arg(&files.key);
        command
    };
    std::thread::scope(|scope| {
        // By default OpenSSL 3 refuses it.
        scope.spawn(|| {
            let refused = answer(|port| openssl(port, &[]));
            assert_eq!(
                refused,
                (
                    Some(false),
                    "a warning alert, no_renegotiation".into(),
                    false
                )
            );
        });
        for suite in [
            "AES128-GCM-SHA256",
            "AES256-GCM-SHA384",
            "CHACHA20-POLY1305",
        ] {
            scope.spawn(move || {
                let cipher = format!("ECDHE-ECDSA-{suite}");
                let more = ["-client_renegotiation", "-cipher", &cipher];
                let (accepted, _, found) = answer(|port| openssl(port, &more));
                assert_eq!((accepted, found), (Some(true), true), "{suite}");
            });
        }
        scope.spawn(|| {
            let (accepted, _, found) = answer(|port| node(port, "3"));
            assert_eq!((accepted, found), (Some(true), true), "Node.js allows it");
        });
        scope.spawn(|| {
            let (accepted, words, found) = answer(|port| node(port, "0"));
            assert_eq!((accepted, found), (Some(false), false), "{words}");
        });
        // TLS 1.3 has no renegotiation, so a TLS 1.3 server is neither yes nor no.
        scope.spawn(|| {
            let (accepted, _, found) = answer(|port| openssl(port, &["-tls1_3"]));
            assert_eq!((accepted, found), (None, false));
        });
    });
}

/// Java without RFC 5746, as before 2010: a client that renegotiates may continue what another client began
/// (CVE-2009-3555). System properties still allow it.
#[test]
fn renegotiation_without_protection() {
    requires!("java", "openssl");
    let folder = tempfile::tempdir().expect("a folder");
    let store = &key_store(folder.path());
    let program = &tools::home().join("servers/Echo.java");
    let java = &|port: u16, properties: &[&str]| {
        let java = tools::java();
        let mut command = Command::new(&java[0]);
        command
            .args(&java[1..])
            .arg("-Djdk.tls.server.disableExtensions=renegotiation_info")
            .arg("-Djdk.tls.allowLegacyHelloMessages=true")
            .args(properties)
            .arg(program)
            .arg(port.to_string())
            .arg(store);
        command
    };
    let insecure = "renegotiation-insecure";
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let unsafe_one = "-Dsun.security.ssl.allowUnsafeRenegotiation=true";
            let audit = look(|port| java(port, &[unsafe_one]));
            let offer = &audit["server"]["offer"]["measured"];
            assert_eq!(offer["secure_renegotiation"], false, "{offer:#}");
            assert_eq!(offer["client_renegotiation"], true, "{offer:#}");
            let mut findings = audit["findings"].as_array().expect("findings").iter();
            let finding = findings.find(|finding| finding["id"] == insecure);
            let finding = finding.unwrap_or_else(|| panic!("{:#}", audit["findings"]));
            assert_eq!(finding["severity"], "high");
        });
        // By default Java refuses it; the audit reports that RFC 5746 is missing.
        scope.spawn(|| {
            let audit = look(|port| java(port, &[]));
            let offer = &audit["server"]["offer"]["measured"];
            assert_eq!(offer["client_renegotiation"], false, "{offer:#}");
            assert!(!finds(&audit, insecure) && finds(&audit, "no-renegotiation-info"));
        });
    });
}

/// A Java key store with a certificate and its key; the password is "interop".
pub(crate) fn key_store(folder: &Path) -> PathBuf {
    let files = authority().certificate(Kind::EcdsaP256);
    let store = folder.join("store.p12");
    let mut openssl = Command::new("openssl");
    openssl
        .args(["pkcs12", "-export", "-passout", "pass:interop", "-in"])
        .arg(&files.cert)
        .arg("-inkey")
        .arg(&files.key)
        .arg("-out")
        .arg(&store);
    let made = openssl.output().expect("openssl starts");
    assert!(made.status.success(), "{made:?}");
    store
}

/// An echo server; its arguments are the port, the number of allowed renegotiations, certificate and key.
pub(crate) const NODE: &str = "
const { readFileSync } = require('node:fs');
const [port, limit, cert, key] = process.argv.slice(1);
const tls = require('node:tls');
tls.CLIENT_RENEG_LIMIT = Number(limit);
const identity = { cert: readFileSync(cert), key: readFileSync(key) };
const server = tls.createServer(identity, (socket) => {
  socket.on('error', () => socket.destroy());
  socket.pipe(socket);
});
server.on('tlsClientError', () => {});
server.listen(Number(port), '127.0.0.1');
";

/// Audits a server that listens on the given port.
fn look(server: impl Fn(u16) -> Command) -> Value {
    let port = unused_port();
    let _server = Started::new(&mut server(port));
    let target = format!("127.0.0.1:{port}");
    until_listening("the server", &target);
    let (audit, status) = read(&audit(&["server", &target, "--insecure", "--quick", "-q"]));
    assert_eq!(status, Some(0), "{audit:#}");
    audit
}

/// Whether renegotiation was accepted, in which words, and whether it is a finding.
fn answer(server: impl Fn(u16) -> Command) -> (Option<bool>, String, bool) {
    let audit = look(server);
    let offer: &Value = &audit["server"]["offer"]["measured"];
    let words = offer["client_renegotiation_answer"].as_str();
    if words.is_none() {
        assert!(
            offer["not_measured"]["client_renegotiation"].is_string(),
            "{offer:#}"
        );
    }
    (
        offer["client_renegotiation"].as_bool(),
        words.unwrap_or_default().to_owned(),
        finds(&audit, "renegotiation-by-client"),
    )
}
