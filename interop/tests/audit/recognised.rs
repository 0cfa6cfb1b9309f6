//! Software is recognised as what it is: the programs themselves, as the lab starts them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dormouse_interop::{tools, wait};

use crate::{PATIENCE, Started, audit, is_here, read, unused_port};

/// Peer of the lab, and as what it is recognised.
const PEERS: [(&str, &str); 13] = [
    ("node", "node"),
    ("nginx-http", "nginx"),
    ("nginx-stream", "nginx"),
    ("apache", "apache"),
    ("haproxy", "haproxy"),
    ("hitch", "hitch"),
    ("stunnel", "stunnel"),
    ("netty-jdk", "netty-jdk"),
    ("netty-tcnative", "netty-tcnative"),
    ("asyncio", "python"),
    ("twisted", "twisted"),
    ("go", "go"),
    ("tokio-rustls", "rustls"),
];

fn lab() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab")
}

#[test]
#[ignore = "needs what lab/install installs, and takes minutes"]
fn every_server_of_the_lab() {
    let backend = unused_port();
    let _echo = Started::new(Command::new(lab().join("echo")).arg(backend.to_string()));
    for (peer, kind) in PEERS {
        let port = unused_port();
        let mut command = Command::new(lab().join("peer"));
        command.args([peer, "default", &port.to_string(), &backend.to_string()]);
        let server = Server::new(command);
        let (audit, status) = server.audit(port, peer);
        assert_eq!(status, Some(0), "{peer}: {audit:#}");
        let software = &audit["software"]["measured"];
        assert_eq!(software["kind"], kind, "{peer}: {software:#}");
    }
    let port = unused_port().to_string();
    let serve = [
        "serve",
        "--listen",
        &format!("127.0.0.1:{port}"),
        "--to",
        "echo:",
    ];
    let mut command = Command::new(tools::dormouse());
    let tls = lab().join(".cache/tls");
    command
        .args(serve)
        .arg("--cert")
        .arg(tls.join("cert.pem"))
        .arg("--key")
        .arg(tls.join("key.pem"));
    command.args(["--admin", "127.0.0.1:0"]);
    let (audit, _) = Server::new(command).audit(port.parse().expect("a port"), "dormouse");
    assert_eq!(audit["software"]["measured"]["kind"], "dormouse");
}

/// A server with its children.
struct Server(Started);

impl Server {
    fn new(mut command: Command) -> Self {
        use std::os::unix::process::CommandExt;
        Self(Started::new(command.process_group(0)))
    }

    /// A quick look, with as little load as there can be.
    fn audit(&self, port: u16, peer: &str) -> (serde_json::Value, Option<i32>) {
        let (target, pid) = (format!("127.0.0.1:{port}"), self.0.0.id().to_string());
        wait::until(peer, PATIENCE, || {
            std::net::TcpStream::connect(&target).ok()
        });
        let words = [
            "server",
            &target,
            "--pid",
            &pid,
            "--insecure",
            "--sni",
            "localhost",
        ];
        read(&audit(
            &[&words[..], &["--quick", "-q", "-n", "20"]].concat(),
        ))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = i32::try_from(self.0.0.id()).ok();
        if let Some(group) = group.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        }
    }
}

/// Programs which come as clients: `{url}` is where they are to go.
#[test]
fn programs_of_clients() {
    let perl = "use IO::Socket::SSL; for (1..2) { IO::Socket::SSL->new(PeerAddr => $ENV{DORMOUSE_ADDRESS}, \
        SSL_hostname => 'localhost', SSL_verifycn_name => 'localhost', SSL_ca_file => $ENV{SSL_CERT_FILE}) or die; sleep 1 }";
    let python = "import os, ssl, time, urllib.request as r; r.urlopen(os.environ['DORMOUSE_URL']).read(); time.sleep(1)";
    let node = "require('node:https').get(process.env.DORMOUSE_URL, (r) => r.resume()); setTimeout(() => process.exit(0), 1000)";
    let clients = [
        ("perl", "/usr/bin/perl", ["-e", perl], "perl"),
        ("python3", "/usr/bin/python3", ["-c", python], "python"),
        ("node", "/usr/bin/node", ["-e", node], "node"),
    ];
    for (name, program, words, kind) in clients {
        if !is_here(Path::new(program)) {
            continue;
        }
        if name == "perl" && !has_ssl(program) {
            tools::unavailable("Perl has no IO::Socket::SSL");
            continue;
        }
        let (audit, status) = read(&audit(
            &[&["client", "-q", "--", program], &words[..]].concat(),
        ));
        assert_eq!(status, Some(0), "{name}: {audit:#}");
        let software = &audit["software"]["measured"];
        assert_eq!(software["kind"], kind, "{name}: {software:#}");
    }
}

fn has_ssl(perl: &str) -> bool {
    let mut command = Command::new(perl);
    command
        .args(["-MIO::Socket::SSL", "-e", "1"])
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
