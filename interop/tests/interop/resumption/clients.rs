//! Returning clients, each with its language's session reuse: the number of resumed handshakes, as seen by both
//! sides; and what a session must not allow.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::{io, iter, thread};

use dormouse_interop::admin::Admin;
use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::client::Version;
use dormouse_interop::counts::Counts;
use dormouse_interop::process::{Process, signal};
use dormouse_interop::requirement::Requirement;
use dormouse_interop::scene::{self, PLAIN_PORT, TLS_PORT, applies, unused_host};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use dormouse_interop::web::Web;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

const REQUESTS: u64 = 8;

/// `serve` in front of a web server, and its counters.
struct Site {
    settings: Settings,
    process: Process,
    counts: Counts,
    folder: TempDir,
}

impl Site {
    fn new(change: impl FnOnce(&mut Settings, &Path)) -> Self {
        let host = unused_host();
        let web = Web::start(SocketAddr::new(host, PLAIN_PORT));
        let folder = tempfile::tempdir().expect("a folder");
        let target = Target::Tcp(web.address());
        let mut settings = Settings::new(SocketAddr::new(host, TLS_PORT), target);
        settings.workers = 2;
        let counts = Counts::of(&mut settings, folder.path());
        change(&mut settings, folder.path());
        let process = scene::start(Terminator::Dormouse, &settings, folder.path());
        Self {
            settings,
            process,
            counts,
            folder,
        }
    }

    fn address(&self) -> SocketAddr {
        self.settings.listen
    }

    /// The file in which OpenSSL's client stores a session.
    fn session(&self) -> String {
        let file = self.folder.path().join("session.pem");
        file.to_string_lossy().into_owned()
    }

    /// Sends an order to the admin socket.
    fn ask(&self, what: &str) {
        let admin = Admin::at(&self.folder.path().join("admin.sock"));
        let (status, said) = admin.ask("POST", what);
        assert_eq!(status, 200, "{what}: {said}");
    }

    /// Ends the process and starts it again with the same settings.
    fn restart(&mut self) {
        self.process.terminate();
        self.process = scene::start(Terminator::Dormouse, &self.settings, self.folder.path());
    }
}

/// The clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    Curl,
    Python,
    PythonRequests,
    Node,
    Go,
    Java,
    Perl,
}

impl Requirement for Client {
    fn is_met(&self) -> bool {
        tools::present(match self {
            Client::Curl => &["curl"],
            Client::Python | Client::PythonRequests => &["python3"],
            Client::Node => &["node"],
            Client::Go => &["go"],
            Client::Java => &["java", "javac"],
            Client::Perl => &["perl"],
        })
    }
}

impl Client {
    fn command(self) -> Command {
        let source = |name: &str| tools::home().join("clients/sessions").join(name);
        let run = |program: &str, name: &str| {
            let mut command = Command::new(tools::path(program));
            command.arg(source(name));
            command
        };
        match self {
            Client::Curl => Command::new("curl"),
            Client::Python => run("python3", "plain_ssl.py"),
            Client::PythonRequests => run("python3", "with_requests.py"),
            Client::Node => run("node", "agent.mjs"),
            Client::Go => {
                let mut command = Command::new(tools::path("go"));
                command.arg("run").arg(source("transport.go"));
                command
            }
            Client::Java => {
                let java = tools::java();
                let mut command = Command::new(&java[0]);
                command.args(&java[1..]).arg(source("Fetch.java"));
                command
            }
            Client::Perl => run("perl", "socket_ssl.pl"),
        }
    }

    /// Makes the requests. Returns how many were resumed, as seen by the client.
    fn visit(self, address: SocketAddr, version: Version) -> Option<u64> {
        let url = format!("https://localhost:{}", address.port());
        let mut command = self.command();
        if self == Client::Curl {
            let host = format!("localhost:{}:{}", address.port(), address.ip());
            command.args(["-sv", "-H", "Connection: close", "--resolve", &host]);
            command.args(["--tls-max", version.number(), "--cacert"]);
            command.arg(authority().trust());
            command.arg(format!("--tlsv{}", version.number()));
            for _ in 0..REQUESTS {
                command.args(["-o", "/dev/null", &format!("{url}/bytes/100")]);
            }
        } else {
            command.args(["--url", &url, "--resolve", &address.ip().to_string()]);
            command.arg("--ca").arg(authority().trust());
            command.args(["--version", version.number()]);
            command.args(["--requests", &REQUESTS.to_string()]);
        }
        let output = command.output().expect("a client that starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{self:?} {version:?}:\n{errors}");
        if self == Client::Curl {
            let reused = |line: &&str| {
                line.contains("SSL re-using session") || line.contains("SSL reusing session")
            };
            return Some(errors.lines().filter(reused).count() as u64);
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let answer: Value = serde_json::from_str(said.trim()).expect("an answer in JSON");
        answer["resumed"].as_u64()
    }
}

/// Runs a client and compares what both sides saw.
fn assert_share(site: &Site, who: Client, version: Version, expected: u64) {
    requires!(who);
    let number = version.number().replace('.', "");
    let names = ["full", "resumed"].map(|kind| format!("handshakes_{kind}_tls{number}"));
    let before = names.clone().map(|name| site.counts.get(&name));
    let seen = who.visit(site.address(), version);
    let after = names.map(|name| site.counts.get(&name));
    let (full, resumed) = (after[0] - before[0], after[1] - before[1]);
    eprintln!(
        "{who:?}, TLS {}: of {REQUESTS} handshakes the server resumed {resumed}, the client saw {}",
        version.number(),
        seen.map_or_else(|| "nothing of it".to_owned(), |seen| seen.to_string()),
    );
    assert_eq!(full + resumed, REQUESTS, "{who:?} {version:?}");
    assert_eq!(resumed, expected, "{who:?} {version:?}");
    // curl counts the sessions that it offered.
    assert!(
        seen.is_none_or(|seen| seen == resumed),
        "{who:?} saw {seen:?}"
    );
}

/// Every client that can resume does; with the cache alone, TLS 1.2 clients that support only tickets cannot.
fn assert_all_resume(site: &Site, without_tickets: bool) {
    for version in [Version::Tls13, Version::Tls12] {
        for who in [
            Client::Curl,
            Client::Python,
            Client::Node,
            Client::Java,
            Client::Go,
        ] {
            // In TLS 1.2, Go supports no session ids. (curl, built on OpenSSL, supports no tickets.)
            let never = who == Client::Go && without_tickets && version == Version::Tls12;
            assert_share(site, who, version, if never { 0 } else { REQUESTS - 1 });
        }
        // A resumed TLS 1.2 connection gets a new ticket, for which OpenSSL drops the session without telling
        // IO::Socket::SSL of the new one.
        let of_perl = match version {
            Version::Tls12 if !without_tickets => REQUESTS / 2,
            _ => REQUESTS - 1,
        };
        assert_share(site, Client::Perl, version, of_perl);
        // requests never offers a session, whatever the server does.
        assert_share(site, Client::PythonRequests, version, 0);
    }
}

#[test]
fn every_capable_client_resumes_with_tickets() {
    if applies(Can::BeDormouse) {
        assert_all_resume(&Site::new(|_, _| {}), false);
    }
}

#[test]
fn every_capable_client_resumes_with_the_session_cache() {
    if applies(Can::BeDormouse) {
        let site = Site::new(|settings, _| {
            settings.option("session_cache", "1 MiB");
        });
        assert_all_resume(&site, true);
    }
}

/// The session of the first connection comes from OpenSSL's server, with a suite of another hash than this client's next
/// connections get. Those need another key share, so the client withdraws the session from its second ClientHello.
#[test]
fn a_session_of_the_server_before_is_no_hindrance() {
    requires!(Can::BeDormouse);
    let site = Site::new(|settings, _| {
        settings.option("groups", "secp384r1");
    });
    let files = authority().certificate(Kind::EcdsaP256);
    for (suite, clients) in [
        (
            "TLS_AES_128_GCM_SHA256",
            &[Client::Curl, Client::Python, Client::Node, Client::Java][..],
        ),
        ("TLS_AES_256_GCM_SHA384", &[Client::Go]),
    ] {
        let before = SocketAddr::new(unused_host(), TLS_PORT);
        let (cert, key) = (files.cert.display(), files.key.display());
        let command = format!(
            "openssl s_server -accept {before} -cert {cert} -key {key} -www -quiet -ciphersuites {suite}"
        );
        let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let _server = Process::start("s_server", &command, site.folder.path());
        wait::until("s_server to listen", PATIENCE, || {
            TcpStream::connect(before).ok()
        });
        for &who in clients {
            requires!(who);
            let full = site.counts.get("handshakes_full_tls13");
            let address = replaced(before, site.address());
            who.visit(address, Version::Tls13);
            assert_eq!(
                site.counts.get("handshakes_full_tls13") - full,
                1,
                "{who:?}"
            );
        }
    }
}

/// Returns an address at which the first connection reaches one server, and the following ones another.
fn replaced(first: SocketAddr, then: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((unused_host(), 0)).expect("a listener");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        let servers = iter::once(first).chain(iter::repeat(then));
        for (client, server) in listener.incoming().zip(servers) {
            let client = client.expect("a client");
            let server = TcpStream::connect(server).expect("a server");
            for (from, to) in [(&client, &server), (&server, &client)] {
                let [mut from, mut to] = [from, to].map(|one| one.try_clone().expect("a socket"));
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    address
}

impl Site {
    /// A request by OpenSSL's client with these arguments. Returns its output.
    fn s_client(&self, usual: &[&str], more: &[&str]) -> String {
        use std::io::{BufRead as _, BufReader, Write as _};
        use std::process::Stdio;
        let address = self.address().to_string();
        let mut child = Command::new("openssl")
            .args(["s_client", "-connect", &address, "-CAfile"])
            .arg(authority().trust())
            .args(usual)
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("openssl");
        // The answer must come before the close, and the tickets before the answer.
        let mut input = child.stdin.take().expect("a pipe");
        let _ = input.write_all(b"GET /bytes/10 HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut input = Some(input);
        let mut said = String::new();
        for line in BufReader::new(child.stdout.take().expect("a pipe")).split(b'\n') {
            let line = String::from_utf8_lossy(&line.expect("its output")).into_owned();
            if line.contains("HTTP/1.1 200")
                && let Some(mut input) = input.take()
            {
                let _ = input.write_all(b"Q\n");
            }
            said.push_str(&line);
            said.push('\n');
        }
        let errors = child.wait_with_output().expect("its end").stderr;
        said + &String::from_utf8_lossy(&errors)
    }
}

/// Asserts a full handshake without an alert, and its counter.
fn assert_full(site: &Site, said: &str, refused: &str, before: u64) {
    assert!(
        said.contains("New, TLSv1."),
        "expected a full handshake:\n{said}"
    );
    assert!(!said.contains("alert"), "{said}");
    let name = format!("resumption_refused_{refused}");
    assert_eq!(site.counts.get(&name), before + 1, "{name}\n{said}");
}

/// Each kind of session that must not be resumed, offered by OpenSSL.
fn never_resumed(version: &str, cached: bool) {
    let site = Site::new(|settings, _| {
        settings.alpn = vec!["http/1.1", "h2"];
        settings.option("ticket_lifetime", "1m");
        if cached {
            settings.option("session_cache", "1 MiB");
        }
    });
    let session = site.session();
    let usual = [version, "-servername", "localhost", "-alpn", "http/1.1"];
    let take = || {
        let said = site.s_client(&usual, &["-sess_out", &session]);
        assert!(said.contains("New, TLSv1."), "{said}");
    };
    let count = |refused: &str| site.counts.get(&format!("resumption_refused_{refused}"));
    let offer = ["-sess_in", session.as_str()];

    // The valid case first; otherwise the failures below would prove nothing.
    take();
    let said = site.s_client(&usual, &offer);
    assert!(said.contains("Reused, TLSv1."), "{said}");

    if cached && version == "-tls1_3" {
        let before = count("not_cached");
        let said = site.s_client(&usual, &offer);
        assert_full(&site, &said, "not_cached", before);
    }
    take();
    let before = count("other_alpn");
    let said = site.s_client(
        &[version, "-servername", "localhost", "-alpn", "h2"],
        &offer,
    );
    assert_full(&site, &said, "other_alpn", before);

    take();
    let before = count("other_server_name");
    let said = site.s_client(
        &[version, "-servername", "other.test", "-alpn", "http/1.1"],
        &offer,
    );
    assert_full(&site, &said, "other_server_name", before);
}

#[test]
fn a_session_is_valid_only_for_its_name_and_protocol_tls13() {
    if applies(Can::BeDormouse) {
        never_resumed("-tls1_3", false);
    }
}

#[test]
fn a_session_is_valid_only_for_its_name_and_protocol_tls12() {
    if applies(Can::BeDormouse) {
        never_resumed("-tls1_2", false);
    }
}

#[test]
fn a_cached_session_is_valid_only_for_its_name_and_protocol_tls13() {
    if applies(Can::BeDormouse) {
        never_resumed("-tls1_3", true);
    }
}

#[test]
fn a_cached_session_is_valid_only_for_its_name_and_protocol_tls12() {
    if applies(Can::BeDormouse) {
        never_resumed("-tls1_2", true);
    }
}

/// A client that would resume without a new key exchange gets one anyway.
#[test]
fn a_resumed_handshake_exchanges_keys() {
    requires!(Can::BeDormouse);
    let site = Site::new(|_, _| {});
    let session = site.session();
    let both = [
        "-tls1_3",
        "-servername",
        "localhost",
        "-groups",
        "X25519",
        "-allow_no_dhe_kex",
    ];
    site.s_client(&both, &["-sess_out", &session]);
    let said = site.s_client(&both, &["-sess_in", &session]);
    assert!(said.contains("Reused, TLSv1.3"), "{said}");
    assert!(said.contains(" Temp Key: X25519"), "{said}");
}

/// 0-RTT data is never accepted, and no ticket offers it.
#[test]
fn no_ticket_offers_early_data() {
    requires!(Can::BeDormouse);
    let site = Site::new(|_, _| {});
    let session = site.session();
    let name = ["-tls1_3", "-servername", "localhost"];
    site.s_client(&name, &["-sess_out", &session]);
    let dump = Command::new("openssl")
        .args(["sess_id", "-noout", "-text", "-in", &session])
        .output()
        .expect("openssl");
    let dump = String::from_utf8_lossy(&dump.stdout);
    assert!(dump.contains("Max Early Data: 0"), "{dump}");
}

/// A ticket survives a restart with a key file, but not without one.
#[test]
fn tickets_survive_a_restart_only_with_their_keys() {
    requires!(Can::BeDormouse);
    for kept in [true, false] {
        let mut site = Site::new(|settings, folder| {
            if kept {
                private(
                    &folder.join("secret"),
                    b"0123456789abcdef0123456789abcdef\n",
                );
                let keys = folder.join("tickets.keys");
                let secret = folder.join("secret");
                settings.option("ticket_keys", &format!("file:{}", keys.display()));
                settings.option("ticket_secret_file", &secret.to_string_lossy());
            }
        });
        let session = site.session();
        for version in ["-tls1_3", "-tls1_2"] {
            let name = [version, "-servername", "localhost"];
            site.s_client(&name, &["-sess_out", &session]);
            site.restart();
            let said = site.s_client(&name, &["-sess_in", &session]);
            let word = if kept {
                "Reused, TLSv1."
            } else {
                "New, TLSv1."
            };
            assert!(said.contains(word), "kept: {kept}\n{said}");
            assert!(!said.contains("alert"), "{said}");
        }
        if !kept {
            assert_eq!(site.counts.get("resumption_refused_unknown_key"), 1);
        }
    }
}

/// Tickets and the session cache survive reloads, upgrades and killed workers.
#[test]
fn sessions_survive_reloads_upgrades_and_crashes() {
    requires!(Can::BeDormouse);
    for cached in [false, true] {
        let mut site = Site::new(|settings, _| {
            if cached {
                settings.option("session_cache", "1 MiB");
            }
        });
        let session = site.session();
        for version in ["-tls1_3", "-tls1_2"] {
            let usual = [version, "-servername", "localhost", "-sess_out", &session];
            site.s_client(&usual, &[]);
            for what in ["/reload", "/upgrade", "a crash"] {
                if what == "a crash" {
                    let workers = site.process.leaves();
                    workers.iter().for_each(|&pid| signal(pid, Signal::KILL));
                } else {
                    site.ask(what);
                }
                let said = site.s_client(&usual, &["-sess_in", &session]);
                assert!(
                    said.contains("Reused, TLSv1."),
                    "cached: {cached}, after {what}:\n{said}"
                );
            }
        }
        assert!(site.process.runs());
    }
}

/// Writes a file that only its owner may read.
fn private(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, bytes).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("changed");
}

/// With `log_handshakes`, every handshake has a line, successful or not.
#[test]
fn log_handshakes_writes_a_line_for_every_handshake() {
    requires!(Can::BeDormouse);
    let mut site = Site::new(|settings, _| {
        settings.option("log_handshakes", "true");
        settings.option("min_version", "1.3");
    });
    let session = site.session();
    let name = ["-tls1_3", "-servername", "localhost", "-groups", "X25519"];
    site.s_client(&name, &["-sess_out", &session]);
    site.s_client(&name, &["-sess_in", &session]);
    for _ in 0..3 {
        site.s_client(&["-tls1_2"], &[]);
    }
    let done = wait::until("two lines", PATIENCE, || {
        let lines = site.process.lines_with("handshake done");
        (lines.len() == 2).then_some(lines)
    });
    for part in [
        "TLS 1.3",
        "TLS_AES",
        "x25519",
        "localhost",
        "flights",
        "took_ms",
    ] {
        assert!(done[0].contains(part), "{part} in {}", done[0]);
    }
    assert!(
        done[0].contains("resumed=false") || done[0].contains("resumed\u{1b}"),
        "{}",
        done[0]
    );
    let failed = wait::until("a line each", PATIENCE, || {
        let lines = site.process.lines_with("handshake failed");
        (lines.len() == 3).then_some(lines)
    });
    for part in [
        "no common protocol version",
        "protocol_version",
        "by=dormouse",
    ] {
        assert!(failed[2].contains(part), "{part} in {}", failed[2]);
    }
    site.process.wait_for_line("handshake done", PATIENCE);
}

/// The serial number of a certificate, by OpenSSL.
fn serial(cert: &Path) -> Vec<u8> {
    let output = Command::new("openssl")
        .args(["x509", "-noout", "-serial", "-in"])
        .arg(cert)
        .output()
        .expect("openssl");
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let hex = said.strip_prefix("serial=").expect("a serial number");
    let digits: Vec<u8> = hex
        .chars()
        .map(|digit| digit.to_digit(16).expect("hexadecimal") as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] * 16 + pair[1])
        .collect()
}

/// A client's certificate is revoked after its ticket was issued, and a restart or reload reads the CRL again.
/// The ticket is still valid, but not resumed; the full handshake refuses the client with the right alert, and
/// the backend gets no data.
#[test]
fn a_resumed_client_with_a_revoked_certificate_never_reaches_the_backend() {
    requires!(Can::BeDormouse);
    for (version, reload) in [
        ("-tls1_3", false),
        ("-tls1_2", false),
        ("-tls1_3", true),
        ("-tls1_2", true),
    ] {
        let mut site = Site::new(|settings, folder| {
            let list = authority().revocation_list(&[]);
            std::fs::create_dir(folder.join("crl")).expect("a folder");
            std::fs::write(folder.join("crl/ca.crl"), list).expect("written");
            private(
                &folder.join("secret"),
                b"0123456789abcdef0123456789abcdef\n",
            );
            let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
            settings.option("ticket_keys", &format!("file:{}", path("tickets.keys")));
            settings.option("ticket_secret_file", &path("secret"));
            settings.option("client_certificates", "required");
            settings.option("client_ca", &authority().trust().to_string_lossy());
            settings.option("client_crl", &path("crl"));
        });
        let folder = site.folder.path().to_owned();
        let alice = authority().give_out("alice", Kind::EcdsaP256, 2034, &folder);
        let session = site.session();
        let (cert, key) = (alice.cert.to_string_lossy(), alice.key.to_string_lossy());
        let as_alice = [
            version,
            "-servername",
            "localhost",
            "-cert",
            &cert,
            "-key",
            &key,
        ];
        let said = site.s_client(&as_alice, &["-sess_out", &session]);
        assert!(said.contains("HTTP/1.1 200"), "{said}");
        let said = site.s_client(&as_alice, &["-sess_in", &session, "-sess_out", &session]);
        assert!(
            said.contains("Reused, TLSv1.") && said.contains("HTTP/1.1 200"),
            "{said}"
        );
        let nobody = site.s_client(&[version, "-servername", "localhost"], &[]);
        assert!(!nobody.contains("HTTP/1.1 200"), "{nobody}");

        let list = authority().revocation_list(&[serial(&alice.cert)]);
        std::fs::write(folder.join("crl/ca.crl"), list).expect("written");
        if reload {
            site.ask("/reload");
        } else {
            site.restart();
        }
        let counts = ["client_certificates_refused", "plain_bytes_out"];
        let before = counts.map(|name| site.counts.get(name));
        let said = site.s_client(&as_alice, &["-sess_in", &session]);
        assert!(said.contains("alert certificate revoked"), "{said}");
        assert!(
            !said.contains("Reused") && !said.contains("HTTP/1.1 200"),
            "{said}"
        );
        // The client may get the alert before the worker has counted the refusal.
        let line = site.process.wait_for_line("was revoked", PATIENCE);
        assert!(line.contains("CN=localhost"), "{line}");
        let after = counts.map(|name| site.counts.get(name));
        assert_eq!(after[0], before[0] + 1);
        assert_eq!(after[1], before[1], "the backend heard something");
    }
}
