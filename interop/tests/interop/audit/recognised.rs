//! Recognition of software: real programs, as the lab starts them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use dormouse_interop::scene::unused_port;
use dormouse_interop::tools;
use rustix::process::{Signal, kill_process_group};

use super::{Started, audit, is_here, read, until_listening};

/// Peers of the lab, with their expected names.
const PEERS: [(&str, &str); 15] = [
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
    ("perl", "perl"),
    ("openssl", "open-ssl"),
];

fn lab() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab")
}

/// Installs what programs of the lab need, where it is missing.
fn install(script: &str, names: &[&str]) {
    let status = Command::new(lab().join(script)).args(names).status();
    assert!(status.expect("it runs").success(), "lab/{script} {names:?}");
}

#[test]
#[ignore = "installs servers, and takes minutes"]
fn every_server_of_the_lab() {
    install("install", &PEERS.map(|(peer, _)| peer));
    let backend = unused_port();
    let _echo = Started::new(Command::new(lab().join("tools/echo")).arg(backend.to_string()));
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
    let tls = lab().join(".cache/tls");
    let with_identity = |mut command: Command, words: &str| {
        command.args(words.split_whitespace());
        command.arg("-cert").arg(tls.join("cert.pem"));
        command.arg("-key").arg(tls.join("key.pem"));
        command
    };
    // The library's own program, and dormouse itself.
    let port = unused_port();
    let words = format!("s_server -quiet -rev -accept {port}");
    let server = Server::new(with_identity(Command::new("openssl"), &words));
    let (audit, _) = server.audit(port, "openssl s_server");
    assert_eq!(audit["software"]["measured"]["kind"], "open-ssl");

    let port = unused_port();
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(tools::dormouse());
    let listen = format!("127.0.0.1:{port}");
    command
        .args(["serve", "--listen", &listen, "--to", "echo:", "--cert"])
        .arg(tls.join("cert.pem"))
        .arg("--key")
        .arg(tls.join("key.pem"))
        .arg("--admin")
        .arg(folder.path().join("admin"));
    let (audit, _) = Server::new(command).audit(port, "dormouse");
    assert_eq!(audit["software"]["measured"]["kind"], "dormouse");
}

/// As clients: programs of libraries, those of the lab, and servers with TLS to their backends.
#[test]
#[ignore = "installs clients, and needs rustup"]
fn every_client_of_the_lab() {
    install("install", &["twisted"]);
    install("callers/install", &[]);
    let (lab, folder) = (lab(), tempfile::tempdir().expect("a folder"));
    let (callers, built) = (lab.join("callers"), lab.join(".cache/callers"));
    let (callers, built) = (callers.display(), built.display());
    let asking = folder.path().join("ask.py");
    std::fs::write(&asking, TWISTED).expect("a file");
    let python = lab.join(".cache/twisted/bin/python3");
    let twisted = format!("{} {} {{port}}", python.display(), asking.display());
    let rustup = format!(
        "RUSTUP_HOME={}/rustup RUSTUP_MAX_RETRIES=0 RUSTUP_DIST_SERVER=https://localhost:{{port}} \
         rustup toolchain install --profile minimal nightly-2020-01-01 || true",
        folder.path().display()
    );
    let curl = "curl -sS --limit-rate 2 {url} >&2".to_owned();
    let s_client = "sleep 1 | openssl s_client -connect {address} >&2".to_owned();
    let mut clients = vec![
        ("LWP", format!("perl {callers}/lwp.pl {{url}} new"), "perl"),
        ("s_client", s_client, "open-ssl"),
        ("curl", curl, "curl"),
        ("Go", format!("{built}/client {{url}} new"), "go"),
        (
            "Java",
            format!("java -cp {built} Client {{url}} {{ca}} new"),
            "jvm",
        ),
        (
            "Node.js",
            format!("node {callers}/agent.cjs {{url}} new"),
            "node",
        ),
        (
            "requests",
            format!("python3 {callers}/with_requests.py {{url}} new"),
            "python",
        ),
        ("Twisted", twisted, "twisted"),
        ("rustup", rustup, "rustls"),
    ];
    clients.extend(speaking_tls_behind(folder.path()));
    for (name, script, kind) in clients {
        let words = ["client", "-q", "--limit", "60s", "--", "sh", "-c", &script];
        let (audit, _) = read(&audit(&words));
        let software = &audit["software"]["measured"];
        assert_eq!(software["kind"], kind, "{name}: {audit:#}");
        let connections = audit["client"]["connections"].as_u64();
        assert!(connections > Some(0), "{name}: {audit:#}");
    }
}

/// Servers as clients of their backends: name, script, and expected name.
fn speaking_tls_behind(folder: &Path) -> [(&'static str, String, &'static str); 3] {
    let (port, root) = (unused_port(), folder.display());
    let stunnel = format!(
        "foreground = yes\npid =\n[s]\nclient = yes\naccept = 127.0.0.1:{port}\nconnect = ADDRESS\n"
    );
    let haproxy = format!(
        "defaults\n mode tcp\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n\
         listen l\n bind 127.0.0.1:{port}\n server s ADDRESS ssl verify none\n"
    );
    let nginx = format!(
        "daemon off; pid {root}/pid; error_log stderr; events {{}}\nhttp {{ access_log off;\n\
         client_body_temp_path {root}/b; proxy_temp_path {root}/p; fastcgi_temp_path {root}/f;\n\
         uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n\
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass https://ADDRESS; }} }} }}\n"
    );
    let script = |program: &str, option: &str, text: &str| {
        let file = folder.join(program);
        std::fs::write(&file, text).expect("a file");
        let (file, path) = (file.display(), tools::path(program));
        format!(
            "sed -i \"s/ADDRESS/$DORMOUSE_ADDRESS/\" {file}; {path} {option} {file} & \
             for i in 1 2 3 4 5; do sleep 1; curl -sS http://127.0.0.1:{port}/ && break; done >&2; kill $!"
        )
    };
    [
        ("stunnel", script("stunnel", "", &stunnel), "stunnel"),
        ("HAProxy", script("haproxy", "-f", &haproxy), "haproxy"),
        ("nginx", script("nginx", "-c", &nginx), "nginx"),
    ]
}

/// Connects over TLS to a local port, sends something, and exits after the answer.
const TWISTED: &str = "
import sys
from twisted.internet import reactor, ssl
from twisted.internet.protocol import ClientFactory, Protocol

class Ask(Protocol):
    def connectionMade(self):
        self.transport.write(b'GET / HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')

    def dataReceived(self, data):
        reactor.callLater(1, reactor.stop)

class Factory(ClientFactory):
    protocol = Ask

    def clientConnectionFailed(self, connector, reason):
        reactor.stop()

reactor.connectSSL('127.0.0.1', int(sys.argv[1]), Factory(), ssl.ClientContextFactory())
reactor.run()
";

/// A server with its children.
struct Server(Started);

impl Server {
    fn new(mut command: Command) -> Self {
        use std::os::unix::process::CommandExt;
        Self(Started::new(command.process_group(0)))
    }

    /// A short audit, with the least possible load.
    fn audit(&self, port: u16, peer: &str) -> (serde_json::Value, Option<i32>) {
        let (target, pid) = (format!("127.0.0.1:{port}"), self.0.0.id().to_string());
        until_listening(peer, &target);
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
            let _ = kill_process_group(group, Signal::TERM);
            // Apache's children do not always notice that it has ended.
            for _ in 0..100 {
                if !matches!(self.0.0.try_wait(), Ok(None)) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Programs that act as clients; `{url}` is the address for them.
#[test]
fn client_programs_are_recognised() {
    let lwp = "use LWP::UserAgent; my $agent = LWP::UserAgent->new; \
        $agent->get($ENV{DORMOUSE_URL})->is_success or die; sleep 1";
    let perl = "use IO::Socket::SSL; for (1..2) { IO::Socket::SSL->new(PeerAddr => $ENV{DORMOUSE_ADDRESS}, \
        SSL_hostname => 'localhost', SSL_verifycn_name => 'localhost', SSL_ca_file => $ENV{SSL_CERT_FILE}) or die; sleep 1 }";
    let python = "import os, ssl, time, urllib.request as r; r.urlopen(os.environ['DORMOUSE_URL']).read(); time.sleep(1)";
    let node = "require('node:https').get(process.env.DORMOUSE_URL, (r) => { r.resume(); setTimeout(() => process.exit(0), 1000) })";
    let clients = [
        ("perl", "/usr/bin/perl", ["-e", perl], "perl"),
        ("LWP", "/usr/bin/perl", ["-e", lwp], "perl"),
        ("python3", "/usr/bin/python3", ["-c", python], "python"),
        ("node", "/usr/bin/node", ["-e", node], "node"),
    ];
    for (name, program, words, kind) in clients {
        if !is_here(Path::new(program)) {
            continue;
        }
        let module = match name {
            "perl" => Some("-MIO::Socket::SSL"),
            "LWP" => Some("-MLWP::Protocol::https"),
            _ => None,
        };
        if module.is_some_and(|module| !has(program, module)) {
            tools::unavailable(&format!("Perl has not {module:?}"));
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

fn has(perl: &str, module: &str) -> bool {
    let mut command = Command::new(perl);
    command.args([module, "-e", "1"]).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
