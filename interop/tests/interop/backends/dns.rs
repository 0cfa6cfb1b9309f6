//! Backends given by name: a real DNS server returns their addresses, and changes them.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dormouse_interop::admin::Admin;
use dormouse_interop::backend::Backend;
use dormouse_interop::peer::Peer;
use dormouse_interop::process::{Process, kill_asleep, signal};
use dormouse_interop::scene::{self, PLAIN_PORT, TLS_PORT, applies, unused_host};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;

const NAME: &str = "app.dormouse.test";

/// A name in /etc/hosts at the start, with an address where no server is.
const MOVED: &str = "moved.dormouse.test";

/// dnsmasq on a loopback address, and a resolv.conf that names it.
struct Dns {
    server: Process,
    hosts: PathBuf,
    resolv_conf: PathBuf,
    /// The original /etc/hosts of the machine.
    own_hosts: PathBuf,
}

impl Dns {
    /// `None`: not possible here, and reported.
    fn start(folder: &Path, more: &[String]) -> Option<Self> {
        if !tools::present(&["dnsmasq", "unshare", "mount"]) {
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            tools::unavailable("port 53 and a resolv.conf of one's own need root");
            return None;
        }
        let address = unused_host();
        let hosts = folder.join("hosts");
        fs::write(&hosts, "").expect("a file");
        let resolv_conf = folder.join("resolv.conf");
        let own_hosts = folder.join("own-hosts");
        let own = format!("127.0.0.1 localhost\n127.255.0.9 {MOVED}\n");
        fs::write(&own_hosts, own).expect("a file");
        let text = format!("nameserver {address}\noptions timeout:30 attempts:1\n");
        fs::write(&resolv_conf, text).expect("a file");
        let mut command = vec![
            tools::path("dnsmasq"),
            "--keep-in-foreground".to_owned(),
            "--conf-file=/dev/null".to_owned(),
            "--log-facility=-".to_owned(),
            "--user=root".to_owned(),
            format!("--pid-file={}", folder.join("dnsmasq.pid").display()),
            format!("--listen-address={address}"),
            "--bind-interfaces".to_owned(),
            "--no-resolv".to_owned(),
            "--no-hosts".to_owned(),
            "--local=/dormouse.test/".to_owned(),
            format!("--addn-hosts={}", hosts.display()),
        ];
        command.extend_from_slice(more);
        let mut server = Process::start("dnsmasq", &command, folder);
        server.wait_for_line("started", PATIENCE);
        Some(Self {
            server,
            hosts,
            resolv_conf,
            own_hosts,
        })
    }

    /// Sets the addresses of the name.
    fn says(&self, addresses: &[IpAddr]) {
        let lines = addresses
            .iter()
            .map(|address| format!("{address} {NAME}\n"));
        fs::write(&self.hosts, lines.collect::<String>()).expect("written");
        signal(self.server.pid(), Signal::HUP);
        // dnsmasq logs that it has read them, and answers with them at once.
        std::thread::sleep(Duration::from_millis(50));
    }

    /// Stops answering, or answers again.
    fn silent(&self, yes: bool) {
        signal(
            self.server.pid(),
            if yes { Signal::STOP } else { Signal::CONT },
        );
    }
}

struct Scene {
    terminator: Process,
    listen: SocketAddr,
    admin: Admin,
    dns: Dns,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new(first: &[IpAddr]) -> Option<Self> {
        let name = format!("\"{NAME}:{PLAIN_PORT}\"");
        Self::with(first, name, "1s", &[])
    }

    /// With these backends, and further options for dnsmasq.
    fn with(first: &[IpAddr], to: String, resolve_every: &str, more: &[String]) -> Option<Self> {
        let options = |settings: &mut Settings| {
            settings.options.push(("to", to));
            settings.option("resolve_every", resolve_every);
        };
        Self::with_options(first, options, more)
    }

    /// With further options in the configuration.
    fn with_options(
        first: &[IpAddr],
        set: impl FnOnce(&mut Settings),
        more: &[String],
    ) -> Option<Self> {
        if !applies(Can::BeDormouse) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let dns = Dns::start(folder.path(), more)?;
        dns.says(first);
        let listen = SocketAddr::new(unused_host(), TLS_PORT);
        let target = Target::Tcp(SocketAddr::new(unused_host(), PLAIN_PORT));
        let mut settings = Settings::new(listen, target);
        settings.workers = 1;
        set(&mut settings);
        Admin::in_folder(&mut settings);
        let script = format!(
            "mount --bind {} /etc/resolv.conf && mount --bind {} /etc/hosts && exec \"$@\"",
            dns.resolv_conf.display(),
            dns.own_hosts.display()
        );
        settings.wrapper = ["unshare", "--mount", "sh", "-c", &script, "sh"]
            .map(str::to_owned)
            .to_vec();
        let terminator = scene::start(Terminator::Dormouse, &settings, folder.path());
        let admin = Admin::at(&folder.path().join("admin.sock"));
        Some(Self {
            terminator,
            listen,
            admin,
            dns,
            folder,
        })
    }

    fn echoes(&self) -> Peer {
        Peer::echoing(self.listen)
    }

    /// The file that the program reads.
    fn configuration(&self) -> PathBuf {
        fs::read_dir(self.folder.path())
            .expect("a folder")
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|e| e == "toml"))
            .expect("the configuration")
    }

    fn addresses(&self) -> Vec<String> {
        let status = self.admin.status();
        let backends = status["backends"].as_array().expect("backends").clone();
        assert!(
            backends
                .iter()
                .all(|b| b["name"] == format!("{NAME}:{PLAIN_PORT}"))
        );
        let address = |b: &serde_json::Value| b["address"].as_str().map(str::to_owned);
        backends.iter().filter_map(address).collect()
    }
}

fn backends<const N: usize>() -> ([IpAddr; N], [Backend; N]) {
    let hosts = std::array::from_fn(|_| unused_host());
    (
        hosts,
        hosts.map(|host| Backend::tcp(SocketAddr::new(host, PLAIN_PORT))),
    )
}

/// The name moves to another address, then to two: new connections follow, established ones stay, even
/// across a crash of the worker; a name that cannot be looked up keeps its addresses.
#[test]
fn new_connections_follow_a_name() {
    let (hosts, servers) = backends::<3>();
    let Some(scene) = Scene::new(&hosts[..1]) else {
        return;
    };
    let mut old = scene.echoes();
    assert_eq!(servers[0].accepted(), 1);
    scene.dns.says(&hosts[1..2]);
    wait::until_true("new connections to follow", || {
        scene.echoes();
        servers[1].accepted() > 0
    });
    old.echo().expect("the old connection stays");
    // The worker has the new address a moment before main shows it.
    wait::until_true("the status to have the address", || {
        scene.addresses() == [format!("{}:{PLAIN_PORT}", hosts[1])]
    });

    // A new worker begins with an old handover, and then receives the current addresses.
    for pid in scene.admin.status()["workers"].as_array().expect("workers") {
        let pid = pid["pid"].as_u64().expect("a number");
        kill_asleep(u32::try_from(pid).expect("a pid"));
    }
    old.echo().expect("the old connection survives");
    let before = servers[0].accepted();
    for _ in 0..5 {
        scene.echoes();
    }
    assert_eq!(
        servers[0].accepted(),
        before,
        "nobody goes to the old address"
    );

    scene.dns.says(&hosts[1..]);
    wait::until_true("both addresses to be used", || {
        scene.echoes();
        servers[2].accepted() > 1
    });
    assert_eq!(scene.addresses().len(), 2);
    scene.dns.says(&[]);
    wait::until_true("a line that it cannot be looked up", || {
        let lines = scene.terminator.lines_with("keeping its addresses");
        !lines.is_empty()
    });
    scene.echoes();
    assert_eq!(scene.addresses().len(), 2);
    old.echo().expect("the oldest connection is still there");
}

/// With `resolve = "lazy"`, names that do not resolve at the start are down, for backends and for servers of
/// originations. They come up when the names resolve.
#[test]
fn lazy_names_come_up_when_they_resolve() {
    let ([host], _servers) = backends::<1>();
    let plain = SocketAddr::new(unused_host(), PLAIN_PORT);
    let server_name = "tls.dormouse.test";
    let lazy = |settings: &mut Settings| {
        let originate = format!(
            "\"{NAME}:{PLAIN_PORT}\"\n[[originate]]\nname = \"out\"\nlisten = \"{plain}\"\n\
             to = \"{server_name}:{TLS_PORT}\"\ninsecure = true"
        );
        settings.options.push(("to", originate));
        settings.option("resolve", "lazy");
        settings.option("resolve_every", "1s");
    };
    let Some(mut scene) = Scene::with_options(&[], lazy, &[]) else {
        return;
    };
    let admin = scene.admin.clone();
    let warned = scene.terminator.logged("cannot be looked up now", 2);
    assert_eq!(warned.len(), 2, "{warned:?}");
    let backend = || admin.status()["backends"][0].clone();
    let unresolved = backend();
    assert_eq!(unresolved["unresolved"], true, "{unresolved}");
    assert_eq!(unresolved["up"], false, "{unresolved}");
    assert_eq!(unresolved["address"], format!("{NAME}:{PLAIN_PORT}"));
    let (_, metrics) = scene.admin.ask("GET", "/metrics");
    let up = format!("dormouse_backend_up{{route=\"1\",backend=\"{NAME}:{PLAIN_PORT}\"}} 0");
    assert!(metrics.contains(&up), "{metrics}");
    let refused = Peer::connect(scene.listen).and_then(|mut peer| peer.echo());
    let error = refused.expect_err("no backend").to_string();
    assert!(
        error.contains("InternalError") || error.contains("internal_error"),
        "{error}"
    );
    scene
        .terminator
        .wait_for_line("has not resolved yet", PATIENCE);
    let local = |line: &str| {
        let mut client = TcpStream::connect(plain)?;
        client.set_read_timeout(Some(PATIENCE))?;
        // The backend sends back what follows this line.
        client.write_all(format!("echo\n{line}").as_bytes())?;
        let mut answer = vec![0; line.len()];
        client.read_exact(&mut answer).map(|()| answer)
    };
    local("too early").expect_err("no server");
    scene
        .terminator
        .wait_for_line("server name has not resolved yet", PATIENCE);

    let own = format!("{host} {NAME}\n{} {server_name}\n", scene.listen.ip());
    fs::write(&scene.dns.own_hosts, own).expect("written");
    wait::until_true("the backend to come up", || backend()["up"] == true);
    assert_eq!(backend()["address"], format!("{host}:{PLAIN_PORT}"));
    scene.echoes();
    wait::until_true("the server to come up", || local("now").is_ok());
    // A new worker has both, and so has a reload that finds no resolver.
    for pid in scene.admin.status()["workers"].as_array().expect("workers") {
        kill_asleep(u32::try_from(pid["pid"].as_u64().expect("a number")).expect("a pid"));
    }
    wait::until_true("the next worker to connect", || local("again").is_ok());
    scene.echoes();
    fs::write(&scene.dns.own_hosts, "").expect("written");
    scene.admin.order("/reload").expect("reloaded");
    scene.echoes();
    local("still").expect("the server keeps its addresses");
}

/// A pool that rotates faster than a check can conclude: the address that stays is found healthy anyway, by
/// the scout that runs from the start.
#[test]
fn a_rotating_pool_does_not_starve_checks() {
    let (hosts, _servers) = backends::<6>();
    let checked = |settings: &mut Settings| {
        settings.option("to", &format!("{NAME}:{PLAIN_PORT}"));
        settings.option("resolve_every", "1s");
        settings.option("check", "connect");
        settings.option("check_every", "1s");
        settings.option("check_rise", "4");
    };
    let Some(scene) = Scene::with_options(&hosts[..2], checked, &[]) else {
        return;
    };
    let stays = format!("{}:{PLAIN_PORT}", hosts[0]);
    let mut others = hosts[1..].iter().cycle();
    wait::until("the address that stays to be well", PATIENCE, || {
        scene.dns.says(&[hosts[0], *others.next()?]);
        std::thread::sleep(Duration::from_millis(200));
        let status = scene.admin.status();
        let all = status["backends"].as_array()?;
        let is_well = |b: &serde_json::Value| b["address"] == stays && b["check"] == "healthy";
        all.iter().any(is_well).then_some(())
    });
}

/// Each name is looked up again when its TTL is over, also behind an alias and with an answer too long for a
/// datagram; a name with a TTL of an hour is not looked up again.
#[test]
fn names_are_looked_up_again_after_their_ttl() {
    let (hosts, servers) = backends::<3>();
    let (alias, long, slow) = (
        "alias.dormouse.test",
        "long.dormouse.test",
        "slow.dormouse.test",
    );
    let mut more = ["--log-queries", "--local-ttl=1"]
        .map(str::to_owned)
        .to_vec();
    more.push(format!("--cname={alias},{NAME},1"));
    more.push(format!("--host-record={slow},{},3600", hosts[2]));
    // 40 addresses do not fit 512 bytes.
    more.extend((0..40).map(|n| format!("--host-record={long},127.255.0.{n},2")));
    let names = [alias, slow, long].map(|name| format!("\"{name}:{PLAIN_PORT}\""));
    let to = format!("[{}]", names.join(", "));
    let Some(scene) = Scene::with(&hosts[..1], to, "1d", &more) else {
        return;
    };
    let asked = |name: &str| {
        let lines = scene.dns.server.lines_with(&format!("query[A] {name} "));
        lines.len()
    };
    let grown = |name: &str, by: usize| {
        let before = asked(name);
        wait::until_true(&format!("{name} to be asked for again"), || {
            asked(name) >= before + by
        });
    };
    grown(alias, 2);
    scene.dns.says(&hosts[1..2]);
    wait::until_true("new connections to follow the alias", || {
        scene.echoes();
        servers[1].accepted() > 0
    });
    grown(alias, 4);
    grown(long, 2);
    // The processes that look up names when dormouse starts need not all have done so at any earlier point.
    let asked = asked(slow);
    assert!(
        (1..=3).contains(&asked),
        "a name that is valid for an hour was asked for {asked} times"
    );
}

/// A name in /etc/hosts has no TTL, and is looked up every `resolve_every`.
#[test]
fn a_name_in_etc_hosts_has_no_ttl() {
    let (hosts, servers) = backends::<2>();
    let name = "filed.dormouse.test";
    let more = [
        "--log-queries".to_owned(),
        format!("--host-record={name},127.255.0.1,3600"),
    ];
    let folder_says = |scene: &Scene, host: IpAddr| {
        fs::write(&scene.dns.own_hosts, format!("{host} {name} {NAME}\n")).expect("written");
    };
    // At the start DNS has the name.
    let to = format!("\"{NAME}:{PLAIN_PORT}\"");
    let Some(scene) = Scene::with(&hosts[..1], to, "1s", &more) else {
        return;
    };
    scene.echoes();
    folder_says(&scene, hosts[1]);
    wait::until_true("new connections to follow the file", || {
        scene.echoes();
        servers[1].accepted() > 0
    });
    let asked = || {
        scene
            .dns
            .server
            .lines_with(&format!("query[A] {NAME} "))
            .len()
    };
    let before = asked();
    folder_says(&scene, hosts[0]);
    let first = servers[0].accepted();
    wait::until_true("new connections to follow it again", || {
        scene.echoes();
        servers[0].accepted() > first
    });
    assert_eq!(asked(), before, "no DNS query for a name in /etc/hosts");
}

/// A resolver that does not answer delays a reload, and nothing else; the reload continues when it answers,
/// and every requester gets the result.
#[test]
fn a_reload_waits_for_names_but_main_does_not() {
    let (hosts, servers) = backends::<2>();
    let Some(scene) = Scene::new(&hosts[..1]) else {
        return;
    };
    scene.echoes();
    scene.dns.says(&hosts[1..]);
    scene.dns.silent(true);
    let ask = || {
        let admin = scene.admin.clone();
        std::thread::spawn(move || admin.order("/reload"))
    };
    let (first, second) = (ask(), ask());
    std::thread::sleep(Duration::from_millis(300));
    let refused = scene.admin.order("/drain/stop");
    assert!(refused.is_err(), "there is no drain: {refused:?}");
    scene.echoes();
    assert!(
        !first.is_finished() && !second.is_finished(),
        "main answered before the resolver"
    );
    // An upgrade would end the lookup and leave both without an answer.
    let refused = scene.admin.order("/upgrade").expect_err("reloads wait");
    assert!(refused.contains("a reload is in progress"), "{refused}");
    scene.dns.silent(false);
    for asked in [first, second] {
        let words = asked.join().expect("no panic").expect("reloaded");
        assert!(words.contains("configuration reloaded"), "{words}");
    }
    let before = servers[1].accepted();
    scene.echoes();
    assert_eq!(
        servers[1].accepted(),
        before + 1,
        "what the name stands for now"
    );

    // An unknown name is rejected with its place in the file, and nothing changes.
    let file = scene.configuration();
    let text = fs::read_to_string(&file).expect("the configuration");
    let wrong = text.replace(NAME, "nowhere.dormouse.test");
    let mut open = fs::File::create(&file).expect("the configuration");
    open.write_all(wrong.as_bytes()).expect("written");
    let words = scene.admin.order("/reload").expect_err("no such name");
    assert!(words.contains("cannot be looked up"), "{words}");
    scene.echoes();
}

/// An upgrade keeps the running configuration, addresses of names included, so it needs no resolver: one that
/// does not answer, or does not know the name, neither delays nor prevents it.
#[test]
fn an_upgrade_looks_up_no_known_name() {
    let (hosts, servers) = backends::<1>();
    let Some(scene) = Scene::new(&hosts) else {
        return;
    };
    let mut old = scene.echoes();
    scene.dns.says(&[]);
    scene.admin.order("/upgrade").expect("the name is unknown");
    scene.dns.silent(true);
    scene.admin.order("/upgrade").expect("DNS does not answer");
    let before = servers[0].accepted();
    scene.echoes();
    assert_eq!(servers[0].accepted(), before + 1);
    old.echo().expect("the old connection survives");
}

/// An upgrade hands over the state that it found, so main takes no new addresses meanwhile. If the upgrade fails, main
/// looks the name up again, although the answer that it did not take is valid for an hour.
#[test]
fn a_failed_upgrade_misses_no_new_address() {
    let (hosts, _servers) = backends::<1>();
    let more = [
        "--log-queries".to_owned(),
        format!("--host-record={MOVED},{},3600", hosts[0]),
    ];
    let to = format!("\"{MOVED}:{PLAIN_PORT}\"");
    let Some(scene) = Scene::with(&[], to, "1s", &more) else {
        return;
    };
    // Its check does not end, and main gives it up.
    let binary = scene.folder.path().join("binary");
    fs::copy(tools::dormouse(), &binary).expect("copied");
    fs::write(scene.folder.path().join("binary.trial"), "hang:check").expect("a file");
    let (admin, order) = (
        scene.admin.clone(),
        format!("/upgrade?binary={}", binary.display()),
    );
    let upgrade = std::thread::spawn(move || admin.order(&order));
    wait::until_true("the new binary to be checked", || {
        let lines = scene.terminator.lines_with("checking the new binary");
        !lines.is_empty()
    });
    fs::write(&scene.dns.own_hosts, "127.0.0.1 localhost\n").expect("written");
    wait::until_true("the address and its TTL to be asked for", || {
        let asked = format!("query[A] {MOVED} ");
        scene.dns.server.lines_with(&asked).len() >= 2
    });
    // The scout's report arrives.
    std::thread::sleep(Duration::from_millis(300));
    let why = upgrade.join().expect("no panic").expect_err("it failed");
    assert!(why.contains("the old binary continues"), "{why}");
    let new = format!("{}:{PLAIN_PORT}", hosts[0]);
    wait::until_true("the new address", || {
        let status = scene.admin.status();
        status["backends"][0]["address"] == new
    });
}

/// The next start must be able to read the file. A refusal says that the file is the reason.
#[test]
fn an_upgrade_is_refused_because_of_the_file() {
    let (hosts, _servers) = backends::<1>();
    let Some(scene) = Scene::new(&hosts) else {
        return;
    };
    let file = scene.configuration();
    let text = fs::read_to_string(&file).expect("the configuration");
    fs::write(&file, format!("frobnicate = true\n{text}")).expect("written");
    let refused = scene.admin.order("/upgrade").expect_err("a mistake");
    let words = "does not accept the configuration file; `dormouse check` says why";
    assert!(refused.contains(words), "{refused}");
    scene.echoes();
}
