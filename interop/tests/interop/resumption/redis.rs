//! Machines that share ticket keys through Redis: two `serve` on two addresses, one store, and a client that
//! alternates between them. The store is stopped, started, emptied and filled with nonsense, and no client
//! notices.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dormouse_interop::admin::Admin;
use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::counts::Counts;
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::{Process, signal};
use dormouse_interop::scene::{self, TLS_PORT, unused_host, unused_port};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::tools;
use dormouse_interop::wait::{PATIENCE, until_true};
use rustix::process::Signal;
use rustls::{ClientConfig, HandshakeKind};
use tempfile::TempDir;

const PASSWORD: &str = "fleet & co";
const PASSWORD_IN_URL: &str = "fleet%20%26%20co";
const KEY: &str = "dormouse:ticket-keys";

/// The test's own Redis server.
struct Store {
    port: u16,
    tls: bool,
    /// Whether clients need a certificate.
    is_mutual: bool,
    process: Option<Process>,
    folder: TempDir,
}

impl Store {
    fn start(tls: bool) -> Self {
        Store::start_with(tls, false)
    }

    fn start_with(tls: bool, is_mutual: bool) -> Self {
        let mut store = Self {
            port: unused_port(),
            tls,
            is_mutual,
            process: None,
            folder: tempfile::tempdir().expect("a folder"),
        };
        store.begin();
        store
    }

    fn begin(&mut self) {
        let port = self.port.to_string();
        let mut command: Vec<String> = vec![tools::path("redis-server")];
        let mut option = |name: &str, value: &str| {
            command.extend([format!("--{name}"), value.to_owned()]);
        };
        option("bind", "127.0.0.1");
        option("save", "");
        option("appendonly", "no");
        option("requirepass", PASSWORD);
        let folder = self.folder.path().to_string_lossy().into_owned();
        option("dir", &folder);
        if self.tls {
            let files = authority().certificate(Kind::EcdsaP256);
            option("port", "0");
            option("tls-port", &port);
            option("tls-cert-file", &files.cert.to_string_lossy());
            option("tls-key-file", &files.key.to_string_lossy());
            option("tls-ca-cert-file", &authority().trust().to_string_lossy());
            let asks = if self.is_mutual { "yes" } else { "no" };
            option("tls-auth-clients", asks);
        } else {
            option("port", &port);
        }
        let mut process = Process::start("redis", &command, self.folder.path());
        process.wait_for_line("Ready to accept connections", PATIENCE);
        self.process = Some(process);
    }

    /// Stops it, with the loss of all its data.
    fn end(&mut self) {
        self.process = None;
    }

    fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").pid()
    }

    fn url(&self) -> String {
        let scheme = if self.tls { "rediss" } else { "redis" };
        format!("{scheme}://:{PASSWORD_IN_URL}@localhost:{}", self.port)
    }

    /// Runs a redis-cli command.
    fn command(&self, words: &[&str]) -> String {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let mut stream = TcpStream::connect(address).expect("a connection to the store");
        let mut answers = BufReader::new(stream.try_clone().expect("a second handle"));
        let mut last = String::new();
        for words in [&["AUTH", PASSWORD][..], words] {
            let mut bytes = format!("*{}\r\n", words.len());
            for word in words {
                bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
            }
            stream.write_all(bytes.as_bytes()).expect("sent");
            last.clear();
            answers.read_line(&mut last).expect("an answer");
        }
        last
    }
}

/// A machine of the fleet.
struct Machine {
    settings: Settings,
    process: Process,
    counts: Counts,
    folder: TempDir,
}

impl Machine {
    fn new(store: &Store, secret: &str) -> Self {
        Machine::with(store, secret, |_, _| {})
    }

    fn with(store: &Store, secret: &str, change: impl FnOnce(&mut Settings, &Path)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("fleet.secret");
        private(&file, secret);
        let mut settings = Settings::new(SocketAddr::new(unused_host(), TLS_PORT), Target::Echo);
        settings.workers = 2;
        settings.option("ticket_keys", &store.url());
        settings.option("ticket_secret_file", &file.to_string_lossy());
        if store.tls {
            let trust = authority().trust();
            settings.option("ticket_store_ca", &trust.to_string_lossy());
        }
        change(&mut settings, folder.path());
        let counts = Counts::of(&mut settings, folder.path());
        let process = scene::start(Terminator::Dormouse, &settings, folder.path());
        Self {
            settings,
            process,
            counts,
            folder,
        }
    }

    fn restart(&mut self) {
        self.process.terminate();
        self.process = scene::start(Terminator::Dormouse, &self.settings, self.folder.path());
    }

    /// Number of main's threads, and the store's process; 0: there is none.
    fn parts(&self) -> (usize, u32) {
        let main = self.process.pid();
        let threads = std::fs::read_dir(format!("/proc/{main}/task")).map_or(0, Iterator::count);
        (threads, self.process.named("ticket-store").unwrap_or(0))
    }

    fn wait_for_store(&self, word: &str) {
        until_true(&format!("the store to be {word}"), || {
            let all = self.counts.all();
            all["ticket_keys"]["store"] == word
        });
    }
}

fn private(path: &Path, text: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("changed");
    path.to_owned()
}

/// One connection. Returns the kind of its handshake.
fn visit(machine: &Machine, config: &ClientConfig) -> HandshakeKind {
    let tcp = peer::connect_tcp(machine.settings.listen).expect("a connection");
    let mut peer = Peer::over(tcp, peer::client(config.clone())).expect("a handshake");
    // An echo, with tickets before it.
    peer.stream().write_all(b"hello").expect("sent");
    let mut answer = [0; 5];
    peer.stream().read_exact(&mut answer).expect("an echo");
    peer.tls.handshake_kind().expect("done")
}

/// Alternates between the machines: every handshake is resumed.
fn alternates(machines: &[&Machine], configs: &[ClientConfig], when: &str) {
    for round in 0..4 {
        for machine in machines {
            for config in configs {
                let kind = visit(machine, config);
                assert_eq!(kind, HandshakeKind::Resumed, "{when}, round {round}");
            }
        }
    }
}

const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef";

fn fleet(tls: bool) {
    requires!(Can::BeDormouse, "redis-server");
    let mut store = Store::start(tls);
    let mut one = Machine::new(&store, SECRET);
    let other = Machine::new(&store, SECRET);
    for machine in [&one, &other] {
        machine.wait_for_store("reachable");
    }
    let configs: Vec<ClientConfig> = peer::configs_by_version().into();
    for config in &configs {
        assert_eq!(visit(&one, config), HandshakeKind::Full);
    }
    alternates(&[&other, &one], &configs, "as usual");

    // After a restart it has the fleet's keys before it serves.
    one.restart();
    alternates(&[&one, &other], &configs, "after a restart");

    // After an upgrade too.
    let admin = Admin::at(&one.folder.path().join("admin.sock"));
    let (status, said) = admin.ask("POST", "/upgrade");
    assert_eq!(status, 200, "{said}");
    alternates(&[&one, &other], &configs, "after an upgrade");
    one.wait_for_store("reachable");

    // The process for the store is killed: another one starts, and no client notices.
    let (threads, former) = one.parts();
    assert_eq!(
        threads, 1,
        "threads of main, which reads nothing from the network"
    );
    signal(former, Signal::KILL);
    alternates(&[&one, &other], &configs, "without a process for the store");
    until_true("another process for the store", || {
        one.parts().1 != former && one.parts().1 != 0
    });
    one.wait_for_store("reachable");

    // The store is gone with all its data. No handshake waits or fails; the machines keep their keys.
    store.end();
    alternates(&[&one, &other], &configs, "without a store");
    for machine in [&one, &other] {
        machine.wait_for_store("unreachable");
    }
    alternates(&[&one, &other], &configs, "known to be without a store");

    // The store is back, and empty: the fleet's keys continue, not new ones.
    store.begin();
    for machine in [&one, &other] {
        machine.wait_for_store("reachable");
    }
    alternates(&[&one, &other], &configs, "with the store back");
    one.restart();
    one.wait_for_store("reachable");
    alternates(
        &[&one, &other],
        &configs,
        "after a restart with the store back",
    );
    assert!(other.counts.all()["ticket_keys"]["store_failures"].as_u64() > Some(0));
    assert_eq!(other.counts.get("handshakes_failed"), 0);
}

#[test]
fn a_fleet_resumes_each_others_sessions() {
    fleet(false);
}

#[test]
fn a_fleet_shares_its_keys_over_tls() {
    fleet(true);
}

/// A store that requires a certificate refuses a machine without one, and one with another authority's. A certificate that is
/// renewed is shown to it without a reload, also after an upgrade.
#[test]
fn a_store_may_require_a_certificate() {
    requires!(Can::BeDormouse, "redis-server");
    let store = Store::start_with(true, true);
    let bare = Machine::new(&store, SECRET);
    bare.wait_for_store("unreachable");
    let strange =
        rcgen::generate_simple_self_signed(["machine".to_owned()]).expect("a certificate");
    let one = Machine::with(&store, SECRET, |settings, folder| {
        private(&folder.join("own.pem"), &strange.cert.pem());
        private(
            &folder.join("own.key"),
            &strange.signing_key.serialize_pem(),
        );
        let own = r#"[{ cert = "own.pem", key = "own.key" }]"#;
        let own = ("ticket_store_certificates", own.to_owned());
        settings.options.push(own);
        settings.option("reload_certificates", "100ms");
    });
    one.wait_for_store("unreachable");
    let admin = Admin::at(&one.folder.path().join("admin.sock"));
    let (status, said) = admin.ask("POST", "/upgrade");
    assert_eq!(status, 200, "{said}");
    one.wait_for_store("unreachable");
    let good = authority().give_out("own", Kind::EcdsaP256, 2035, one.folder.path());
    assert_eq!(good.cert, one.folder.path().join("own.pem"));
    one.wait_for_store("reachable");
    let (status, said) = admin.ask("POST", "/upgrade");
    assert_eq!(status, 200, "{said}");
    let (_, former) = one.parts();
    signal(former, Signal::KILL);
    until_true("another process for the store", || {
        one.parts().1 != former && one.parts().1 != 0
    });
    one.wait_for_store("reachable");
}

/// The store hangs, is full, holds nonsense, or belongs to another fleet: handshakes continue.
#[test]
fn handshakes_continue_while_the_store_fails() {
    requires!(Can::BeDormouse, "redis-server");
    let store = Store::start(false);
    let one = Machine::new(&store, SECRET);
    one.wait_for_store("reachable");
    let configs: Vec<ClientConfig> = peer::configs_by_version().into();
    for config in &configs {
        visit(&one, config);
    }

    // It does not answer any more, but its connections are open.
    signal(store.pid(), Signal::STOP);
    alternates(&[&one], &configs, "with a store that hangs");
    one.wait_for_store("unreachable");
    alternates(&[&one], &configs, "with a store that is known to hang");
    // A machine that starts now does not wait long for it.
    let late = Machine::new(&store, SECRET);
    for config in &peer::configs_by_version() {
        assert_eq!(visit(&late, config), HandshakeKind::Full);
        assert_eq!(visit(&late, config), HandshakeKind::Resumed);
    }
    signal(store.pid(), Signal::CONT);
    for machine in [&one, &late] {
        machine.wait_for_store("reachable");
    }
    // The late machine replaces its own keys by the fleet's, each worker for itself.
    until_true("all workers of the late one to join", || {
        (0..16).all(|_| {
            visit(&one, &configs[0]);
            visit(&late, &configs[0]) == HandshakeKind::Resumed
        })
    });
    alternates(&[&one, &late], &configs[..1], "with the store back");

    // A machine of another fleet by mistake: it reports that, and damages nothing.
    let stranger = Machine::new(
        &store,
        "another secret, which is just as long as it has to be",
    );
    stranger.wait_for_store("unreadable");
    let of_another = "ticket_secret_file does not decrypt";
    stranger.process.logged(of_another, 1);
    for config in &peer::configs_by_version() {
        assert_eq!(visit(&stranger, config), HandshakeKind::Full);
        assert_eq!(visit(&stranger, config), HandshakeKind::Resumed);
    }
    alternates(&[&one, &late], &configs[..1], "beside a stranger");
    assert_eq!(stranger.counts.get("handshakes_failed"), 0);
    // It would write keys of its own into an empty store.
    drop(stranger);

    assert!(store.command(&["SET", KEY, "nonsense"]).contains("OK"));
    one.wait_for_store("unreadable");
    alternates(&[&one, &late], &configs[..1], "with nonsense in the store");

    // The store is full.
    assert!(
        store
            .command(&["CONFIG", "SET", "maxmemory", "1"])
            .contains("OK")
    );
    assert!(store.command(&["DEL", KEY]).starts_with(':'));
    one.wait_for_store("refuses");
    alternates(&[&one, &late], &configs[..1], "with a full store");
    assert!(
        store
            .command(&["CONFIG", "SET", "maxmemory", "0"])
            .contains("OK")
    );
    one.wait_for_store("reachable");
    alternates(&[&one, &late], &configs[..1], "with room in the store");
    for machine in [&one, &late] {
        assert_eq!(machine.counts.get("handshakes_failed"), 0);
    }
}

/// The shortest rotation is a minute, so this test takes four. Every machine has the next key before any machine
/// encrypts with it, so a client that returns in time always resumes.
#[test]
#[ignore = "takes four minutes"]
fn one_machine_rotates_for_all() {
    let store = Store::start(false);
    let machine = || {
        let folder = tempfile::tempdir().expect("a folder");
        let file = private(&folder.path().join("fleet.secret"), SECRET);
        let mut settings = Settings::new(SocketAddr::new(unused_host(), TLS_PORT), Target::Echo);
        settings.option("ticket_keys", &store.url());
        settings.option("ticket_secret_file", &file.to_string_lossy());
        settings.option("ticket_lifetime", "1m");
        settings.option("ticket_rotation", "1m");
        let counts = Counts::of(&mut settings, folder.path());
        let process = scene::start(Terminator::Dormouse, &settings, folder.path());
        Machine {
            settings,
            process,
            counts,
            folder,
        }
    };
    let machines = [machine(), machine()];
    // In TLS 1.2 a session ends with the lifetime of its first ticket, however often it is resumed.
    let [config, _] = peer::configs_by_version();
    let configs = [config];
    visit(&machines[0], &configs[0]);
    let since = std::time::Instant::now();
    let mut rotations = 0;
    let mut age = 0;
    while since.elapsed() < Duration::from_secs(240) {
        alternates(&[&machines[1], &machines[0]], &configs, "while keys rotate");
        let now = machines[0].counts.all()["ticket_keys"]["age_s"].as_u64();
        rotations += u32::from(now < Some(age));
        age = now.unwrap_or_default();
        std::thread::sleep(Duration::from_secs(3));
    }
    assert!(rotations >= 3, "{rotations}");
    until_true("nothing refused", || {
        let refused = machines[0].counts.get("resumption_refused_unknown_key");
        refused == 0
    });
}
