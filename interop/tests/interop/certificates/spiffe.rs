//! Certificates and trust bundles of a SPIFFE agent: a program in Go with the project's own definitions of the protocol.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use dormouse_interop::admin::Admin;
use dormouse_interop::certificates::{Files, Kind, authority};
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::{self, Process, signal};
use dormouse_interop::scene::{TLS_PORT, unused_host};
use dormouse_interop::terminator::Can;
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rcgen::{CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use rustix::process::Signal;
use tempfile::TempDir;

const WEB: &str = "spiffe://example.org/web";
const DB: &str = "spiffe://example.org/db";

/// Compiles the agent, once per test program.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = std::env::current_exe().expect("the test's own path");
        let program = program.with_extension("spiffe-agent");
        let built = Command::new(tools::path("go"))
            .args(["build", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(tools::home().join("servers/spiffe-agent"))
            .output()
            .expect("go starts");
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{said}");
        program
    })
}

/// A running agent.
struct Agent {
    child: Child,
}

impl Agent {
    fn start(socket: &Path) -> Agent {
        let child = Command::new(program())
            .arg(socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the agent starts");
        Agent { child }
    }

    /// Gives the agent an order, and waits until it is done.
    fn say(&mut self, order: &str) {
        let input = self.child.stdin.as_mut().expect("its input");
        writeln!(input, "{order}").expect("an order");
        let output = self.child.stdout.as_mut().expect("its output");
        let mut line = String::new();
        BufReader::with_capacity(1, output)
            .read_line(&mut line)
            .expect("an answer");
        assert_eq!(line, "done\n");
    }

    fn serve(&mut self, svids: &[Svid]) {
        let all: Vec<String> = svids.iter().map(Svid::words).collect();
        self.say(&format!("serve {}", all.join(" ")));
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A certificate as the agent gives it.
struct Svid {
    id: String,
    files: Files,
    bundle: PathBuf,
}

impl Svid {
    fn words(&self) -> String {
        let Svid { id, files, bundle } = self;
        let (chain, key) = (files.cert.display(), files.key.display());
        format!("{id} {chain} {key} {}", bundle.display())
    }
}

/// A folder with an agent's socket and certificates of the trust domain example.org, whose authority is the tests' own.
struct World {
    folder: TempDir,
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().expect("a folder");
        // The process that asks the agent is another user's.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), mode).expect("its mode");
        World { folder }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("agent.sock")
    }

    fn agent(&self) -> Agent {
        let agent = Agent::start(&self.socket());
        let socket = self.socket();
        wait::until_true("the agent's socket", || socket.exists());
        agent
    }

    /// A certificate with these URIs, in files with this name.
    fn files(&self, name: &str, uris: &[&str]) -> Files {
        authority().give_out_with(name, Kind::EcdsaP256, self.folder.path(), |params| {
            let uris = uris.iter().map(|&uri| uri.try_into().expect("a URI"));
            params.subject_alt_names.extend(uris.map(SanType::URI));
        })
    }

    fn svid(&self, name: &str, id: &str) -> Svid {
        Svid {
            id: id.to_owned(),
            files: self.files(name, &[id]),
            bundle: authority().trust(),
        }
    }

    /// Starts the program with these sections.
    fn dormouse(&self, sections: &str) -> Process {
        self.named("dormouse", "admin.sock", sections)
    }

    fn named(&self, name: &str, admin: &str, sections: &str) -> Process {
        let file = self.folder.path().join(format!("{name}.toml"));
        let text = format!(
            "workers = 1\nlog_level = 'debug'\nlog_handshakes = true\nadmin = '{}'\nspiffe_agent = 'unix:{}'\n{sections}",
            self.folder.path().join(admin).display(),
            self.socket().display()
        );
        fs::write(&file, text).expect("written");
        let command = ["serve", "-c"].map(str::to_owned);
        let command = [
            &[tools::dormouse().display().to_string()],
            &command[..],
            &[file.display().to_string()],
        ];
        let mut process = Process::start(name, &command.concat(), self.folder.path());
        process.wait_for_line(" ready ", PATIENCE);
        process
    }

    fn admin(&self) -> Admin {
        Admin::at(&self.folder.path().join("admin.sock"))
    }
}

/// A route with mutual TLS by ids, and an origination to it.
fn mutual(route: SocketAddr, local: SocketAddr) -> String {
    format!(
        "[[route]]\nlisten = '{route}'\nto = 'echo:'\ncertificates = '{WEB}'\n\
         client_certificates = 'required'\nclient_ca = 'spiffe://example.org'\n\
         [[originate]]\nlisten = '{local}'\nto = '{route}'\nca = 'spiffe://example.org'\n\
         server_ids = '{WEB}'\ncertificates = '{DB}'\n"
    )
}

fn addresses() -> (SocketAddr, SocketAddr) {
    let host = unused_host();
    (SocketAddr::new(host, TLS_PORT), SocketAddr::new(host, 8081))
}

/// Connects with TLS and shows these files. Fails if either side refuses the other.
fn connect(address: SocketAddr, files: &Files) -> std::io::Result<Peer> {
    let tls = peer::client(peer::config_showing(files));
    let mut peer = Peer::over(peer::connect_tcp(address)?, tls)?;
    // A server of TLS 1.3 refuses a client after its handshake.
    peer.echo()?;
    Ok(peer)
}

/// Whether a plain connection through `connect` gets an echo.
fn is_carried(local: SocketAddr) -> bool {
    let echo = || -> std::io::Result<bool> {
        let mut tcp = peer::connect_tcp(local)?;
        tcp.write_all(b"hallo")?;
        let mut answer = [0; 5];
        std::io::Read::read_exact(&mut tcp, &mut answer)?;
        Ok(&answer == b"hallo")
    };
    echo().unwrap_or(false)
}

/// Whether the server shows the certificate in these files.
fn shows(peer: &Peer, files: &Files) -> bool {
    let text = fs::read_to_string(&files.cert).expect("PEM");
    let own = rustls::pki_types::pem::PemObject::from_pem_slice(text.as_bytes());
    let own: rustls::pki_types::CertificateDer<'_> = own.expect("a certificate");
    peer.tls.peer_certificates().and_then(|all| all.first()) == Some(&own)
}

/// The program starts without the agent and says so. Then both sides of a connection have their certificates from it, and
/// a new one is served without a reload.
#[test]
fn certificates_arrive_and_rotate_without_a_reload() {
    requires!(Can::BeDormouse, "go");
    let world = World::new();
    let (route, local) = addresses();
    let mut dormouse = world.dormouse(&mutual(route, local));
    let client = world.svid("client", DB);
    dormouse.wait_for_line("no SPIFFE agent", PATIENCE);
    assert!(connect(route, &client.files).is_err());
    dormouse.wait_for_line("whose certificate has not been issued yet", PATIENCE);
    let status = world.admin().status();
    assert!(status["spiffe"]["away"].is_string(), "{status}");

    let mut agent = world.agent();
    let first = world.svid("first", WEB);
    agent.serve(&[world.svid("db", DB), first]);
    wait::until_true("a connection with ids on both sides", || is_carried(local));
    let mut established = connect(route, &client.files).expect("a connection");
    assert!(shows(&established, &world.svid_files("first")));
    // The worker may have them before the status does.
    let status = wait::until("the certificates in the status", PATIENCE, || {
        let status = world.admin().status();
        (status["spiffe"]["certificates"][0]["id"] == DB).then_some(status)
    });
    assert!(status["spiffe"]["away"].is_null(), "{status}");
    let edition = status["configuration"]["edition"].clone();

    agent.serve(&[world.svid("db2", DB), world.svid("second", WEB)]);
    let second = world.svid_files("second");
    wait::until_true("the next certificate", || {
        connect(route, &client.files).is_ok_and(|peer| shows(&peer, &second))
    });
    established.echo().expect("an echo on the old connection");
    assert!(is_carried(local));
    let status = world.admin().status();
    assert_ne!(status["configuration"]["edition"], edition, "{status}");
    assert!(status["configuration"]["last_reload"].is_null(), "{status}");
    assert!(!dormouse.log().contains("PRIVATE KEY"));
}

impl World {
    /// The files that [`World::svid`] has made.
    fn svid_files(&self, name: &str) -> Files {
        let path = |end: &str| self.folder.path().join(format!("{name}{end}"));
        Files {
            cert: path(".pem"),
            key: path(".key"),
            both: path(".both.pem"),
        }
    }
}

/// The authority of example.org signs for no other trust domain, and an id is the only URI.
#[test]
fn only_ids_of_the_trust_domain_are_clients() {
    requires!(Can::BeDormouse, "go");
    let world = World::new();
    let (route, local) = addresses();
    let dormouse = world.dormouse(&mutual(route, local));
    let mut agent = world.agent();
    agent.serve(&[world.svid("db", DB), world.svid("web", WEB)]);
    wait::until_true("a connection", || is_carried(local));
    for (name, uris, is_accepted) in [
        ("own", &["spiffe://example.org/ns/shop/sa/any"][..], true),
        ("none", &[], false),
        ("foreign", &["spiffe://example.organic/web"], false),
        ("other", &["https://example.org/web"], false),
        (
            "two",
            &["spiffe://example.org/a", "spiffe://example.org/b"],
            false,
        ),
    ] {
        let files = world.files(name, uris);
        assert_eq!(connect(route, &files).is_ok(), is_accepted, "{name}");
    }
    // The client may have its alert before the line is written.
    let refused = || dormouse.lines_with("of several uri none is a SPIFFE id");
    wait::until_true("the reason", || !refused().is_empty());
    assert_eq!(refused().len(), 1, "{}", dormouse.log());
}

/// A server with another id of the same trust domain is not the one that is wanted, in `connect` and among backends; a
/// backend with the right one is used, and its health checks agree.
#[test]
fn servers_are_known_by_their_ids() {
    requires!(Can::BeDormouse, "go");
    let world = World::new();
    let (route, local) = addresses();
    let at = |port| SocketAddr::new(route.ip(), port);
    let (front, wrong, stranger) = (at(8444), at(8445), at(8082));
    let site = authority().certificate(Kind::EcdsaP256);
    let site = format!(
        "[{{ cert = '{}', key = '{}' }}]",
        site.cert.display(),
        site.key.display()
    );
    let backend = |listen: SocketAddr, id: &str| {
        format!(
            "[[route]]\nlisten = '{listen}'\nto = '{route}'\ncertificates = {site}\nbackend_tls = true\n\
             backend_ca = 'spiffe://example.org'\nbackend_ids = '{id}'\nbackend_certificates = 'spiffe:'\n\
             check = 'tls'\ncheck_every = '100ms'\n"
        )
    };
    let _server = world.dormouse(&mutual(route, local));
    let mut dormouse = world.named("front", "front.sock", &format!(
        "{}{}[[originate]]\nlisten = '{stranger}'\nto = '{route}'\nca = 'spiffe://example.org'\n\
         server_ids = 'spiffe://example.org/db*'\ncertificates = 'spiffe:'\n",
        backend(front, "spiffe://example.org/we*"),
        backend(wrong, DB),
    ));
    let mut agent = world.agent();
    agent.serve(&[world.svid("db", DB), world.svid("web", WEB)]);
    wait::until_true("a connection", || is_carried(local));
    let through = |address| {
        let mut peer = Peer::connect(address)?;
        peer.echo()
    };
    wait::until_true("a connection through a route", || through(front).is_ok());
    assert!(through(wrong).is_err());
    assert!(!is_carried(stranger));
    dormouse.wait_for_line("none of the accepted SPIFFE ids", PATIENCE);
}

/// The agent goes away: the last certificates stay, after the deaths of a worker and of the process that asks, after a reload
/// and an upgrade. When it is back, its next certificate is served.
#[test]
fn certificates_outlast_the_agent_and_all_processes() {
    requires!(Can::BeDormouse, "go");
    let world = World::new();
    let (route, local) = addresses();
    let dormouse = world.dormouse(&mutual(route, local));
    let mut agent = world.agent();
    agent.serve(&[world.svid("db", DB), world.svid("web", WEB)]);
    wait::until_true("a connection", || is_carried(local));
    drop(agent);
    let is_away = || world.admin().status()["spiffe"]["away"].is_string();
    wait::until_true("status to name the absence", is_away);
    dormouse.logged("no SPIFFE agent; keeping", 1);
    assert!(is_carried(local));

    dormouse.kill_workers();
    wait::until_true("a connection by the next worker", || is_carried(local));
    let asks = |dormouse: &Process| dormouse.named("spiffe-client");
    let first = wait::until("the process", PATIENCE, || asks(&dormouse));
    if rustix::process::geteuid().is_root() {
        assert_eq!(process::status(first, "CapEff:"), "0000000000000000");
        assert!(process::status(first, "Uid:").starts_with("65534"));
    }
    assert_eq!(process::status(first, "Seccomp:"), "2");
    signal(first, Signal::KILL);
    wait::until_true("another process", || {
        asks(&dormouse).is_some_and(|pid| pid != first)
    });
    world.admin().order("/reload").expect("a reload");
    assert!(is_carried(local));
    dormouse.upgrade_until("upgraded; new binary running");
    wait::until_true("a connection after the upgrade", || is_carried(local));
    world.admin().order("/reload").expect("a reload");
    assert!(is_carried(local));

    let mut agent = world.agent();
    agent.serve(&[world.svid("db2", DB), world.svid("web2", WEB)]);
    let next = world.svid_files("web2");
    wait::until_true("the next certificate", || {
        connect(route, &world.svid_files("db2")).is_ok_and(|peer| shows(&peer, &next))
    });
}

/// What cannot be used changes nothing, and the log says what it was.
#[test]
fn a_response_that_cannot_be_used_changes_nothing() {
    requires!(Can::BeDormouse, "go");
    let world = World::new();
    let (route, local) = addresses();
    let mut dormouse = world.dormouse(&mutual(route, local));
    let mut agent = world.agent();
    let db = world.svid("db", DB);
    agent.serve(&[world.svid("web", WEB), world.svid("client", DB)]);
    wait::until_true("a connection", || is_carried(local));
    let mixed = Svid {
        files: Files {
            key: db.files.key.clone(),
            ..world.svid_files("web")
        },
        ..world.svid("unused", WEB)
    };
    let named = Svid {
        files: world.svid_files("web"),
        ..world.svid("unused", DB)
    };
    for (order, said) in [
        ("garbage".to_owned(), "not encoded as the Workload API says"),
        (
            format!("serve {}", mixed.words()),
            "the key does not belong to the certificate",
        ),
        (
            format!("serve {}", named.words()),
            "the certificate has another id",
        ),
        ("oversized".to_owned(), "a message of 5242880 bytes"),
        ("refuse".to_owned(), "PermissionDenied: no identity issued"),
    ] {
        agent.say(&order);
        dormouse.wait_for_line(said, PATIENCE);
        assert!(is_carried(local), "{order}");
    }
    agent.serve(&[world.svid("web2", WEB), db]);
    let next = world.svid_files("web2");
    wait::until_true("the next certificate", || {
        connect(route, &world.svid_files("db")).is_ok_and(|peer| shows(&peer, &next))
    });
}

/// The authority of another trust domain.
struct Partner {
    issuer: Issuer<'static, KeyPair>,
    bundle: PathBuf,
}

impl Partner {
    fn new(folder: &Path, name: &str) -> Partner {
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names");
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("a key");
        let bundle = folder.join(format!("{name}.bundle.pem"));
        let certificate = params.self_signed(&key).expect("a certificate");
        fs::write(&bundle, certificate.pem()).expect("written");
        let issuer = Issuer::new(params, key);
        Partner { issuer, bundle }
    }

    fn files(&self, folder: &Path, name: &str, id: &str) -> Files {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let id = SanType::URI(id.try_into().expect("a URI"));
        params.subject_alt_names.push(id);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let path = |end: &str| folder.join(format!("{name}.{end}"));
        fs::write(path("pem"), certificate.pem()).expect("written");
        fs::write(path("key"), key.serialize_pem()).expect("written");
        Files {
            cert: path("pem"),
            key: path("key"),
            both: path("both"),
        }
    }
}

/// A federated bundle is for its own trust domain only, and follows the agent as the own one does.
#[test]
fn clients_of_a_federated_trust_domain() {
    requires!(Can::BeDormouse, "go");
    let world = World::new();
    let (own, local) = addresses();
    let partners = SocketAddr::new(own.ip(), 8446);
    let folder = world.folder.path();
    let (first, second) = (Partner::new(folder, "one"), Partner::new(folder, "two"));
    let mut dormouse = world.dormouse(&format!(
        "{}[[route]]\nlisten = '{partners}'\nto = 'echo:'\ncertificates = 'spiffe:'\n\
         client_certificates = 'required'\nclient_ca = 'spiffe://partner.org'\n",
        mutual(own, local)
    ));
    let mut agent = world.agent();
    let (web, db) = (world.svid("web", WEB), world.svid("db", DB));
    agent.serve(&[world.svid("w", WEB), world.svid("d", DB)]);
    wait::until_true("a connection", || is_carried(local));
    let partner = first.files(folder, "partner", "spiffe://partner.org/app");
    // The agent does not know that trust domain yet.
    dormouse.wait_for_line("authorities of spiffe://partner.org", PATIENCE);
    assert!(connect(partners, &partner).is_err());

    let serve = |bundle: &Path| {
        let (web, db) = (web.words(), db.words());
        format!(
            "serve {web} {db} federated spiffe://partner.org {}",
            bundle.display()
        )
    };
    agent.say(&serve(&first.bundle));
    wait::until_true("the partner's client", || {
        connect(partners, &partner).is_ok()
    });
    assert!(connect(own, &partner).is_err());
    let forged = first.files(folder, "forged", "spiffe://example.org/web");
    assert!(connect(own, &forged).is_err());
    assert!(connect(partners, &forged).is_err());
    assert!(connect(partners, &db.files).is_err());

    agent.say(&serve(&second.bundle));
    let next = second.files(folder, "next", "spiffe://partner.org/app");
    wait::until_true("a client of the next authority", || {
        connect(partners, &next).is_ok()
    });
    assert!(connect(partners, &partner).is_err());
}
