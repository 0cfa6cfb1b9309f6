//! Several backends behind one listener: the balance, and what clients notice of failures.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType};

use dormouse_interop::admin::Admin;
use dormouse_interop::backend::Backend;
use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::peer::{self, Peer, connect_from};
use dormouse_interop::process::{Process, kill_asleep};
use dormouse_interop::scene::{self, TLS_PORT, unused_host};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::tools;
use dormouse_interop::wait;

use crate::certificates::site::{Site, can_run};

/// A terminator in front of several backends.
pub(crate) struct Scene {
    pub(crate) terminator: Process,
    pub(crate) address: SocketAddr,
    pub(crate) backends: BTreeMap<u16, Backend>,
    pub(crate) folder: tempfile::TempDir,
}

impl Scene {
    /// `to` has the settings of each backend besides its address; those with `down` do not listen.
    pub(crate) fn new(to: &[&str], change: impl FnOnce(&mut Settings)) -> Self {
        let host = unused_host();
        let ports = 8080..8080 + to.len() as u16;
        let address = |port| SocketAddr::new(host, port);
        let listed: Vec<String> = ports
            .clone()
            .zip(to)
            .map(|(port, more)| {
                let more = more.trim_start_matches("down");
                format!("{{ address = \"{}\"{more} }}", address(port))
            })
            .collect();
        let target = Target::Tcp(address(8080));
        let mut settings = Settings::new(SocketAddr::new(host, TLS_PORT), target);
        settings
            .options
            .push(("to", format!("[{}]", listed.join(", "))));
        change(&mut settings);
        let backends = ports
            .zip(to)
            .filter(|(_, more)| !more.starts_with("down"))
            .map(|(port, _)| (port, Backend::tcp(address(port))))
            .collect();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let terminator = scene::start(Terminator::Dormouse, &settings, folder.path());
        Self {
            terminator,
            address: settings.listen,
            backends,
            folder,
        }
    }

    pub(crate) fn connect(&self, last: u8) -> Peer {
        self.try_connect(last).expect("a handshake and an echo")
    }

    pub(crate) fn try_connect(&self, last: u8) -> io::Result<Peer> {
        let ip = IpAddr::V4(Ipv4Addr::new(127, 9, 8, last));
        let tcp = connect_from(ip, self.address);
        let mut peer = Peer::over(tcp, peer::client(peer::config()))?;
        peer.stream().write_all(b"echo\n")?;
        peer.echo()?;
        Ok(peer)
    }

    /// Connections accepted by each backend so far.
    pub(crate) fn accepted(&self) -> Vec<u64> {
        self.backends.values().map(Backend::accepted).collect()
    }
}

#[test]
fn round_robin_by_weight() {
    requires!(Can::BeDormouse);
    let scene = Scene::new(&["", ", weight = 2", ""], |_| {});
    let peers: Vec<Peer> = (0..12).map(|_| scene.connect(1)).collect();
    assert_eq!(scene.accepted(), [3, 6, 3]);
    drop(peers);
}

/// One of three backends is down. Clients notice nothing; after a few failures it is skipped, and when it
/// is back it gets its share.
#[test]
fn clients_do_not_notice_a_backend_that_is_down() {
    requires!(Can::BeDormouse);
    let mut scene = Scene::new(&["", "down", ""], |settings| {
        settings.option("backend_pause", "2s");
    });
    for _ in 0..30 {
        scene.connect(1);
    }
    let lines = scene.terminator.logged("backend marked down", 1);
    assert_eq!(lines.len(), 1, "{}", scene.terminator.log());
    assert_eq!(scene.accepted().iter().sum::<u64>(), 30);
    let again = SocketAddr::new(scene.address.ip(), 8081);
    scene.backends.insert(8081, Backend::tcp(again));
    wait::until_true("the backend to serve again", || {
        scene.connect(1);
        scene.backends[&8081].accepted() > 2
    });
    assert_eq!(scene.terminator.logged("backend recovered", 1).len(), 1);
    let failed = scene.terminator.lines_with("backend connect failed");
    assert!(failed.is_empty(), "{failed:?}");
}

/// MQTT's first packet, with this client id.
fn mqtt_connect(id: &str) -> Vec<u8> {
    let len = 12 + id.len();
    let head = [0x10, u8::try_from(len).expect("short"), 0, 4];
    let middle = [4, 2, 0, 60, 0, u8::try_from(id.len()).expect("short")];
    [&head[..], b"MQTT", &middle, id.as_bytes()].concat()
}

/// Which backend has got one more connection.
fn chosen(scene: &Scene, before: &[u64]) -> usize {
    wait::until("a connection", wait::PATIENCE, || {
        let mut now = scene.accepted().into_iter().zip(before);
        now.position(|(now, before)| now > *before)
    })
}

/// A client of MQTT gets the same backend wherever it comes from, also if its packet arrives in parts, and with a PROXY
/// header that waits.
#[test]
fn clients_of_mqtt_stay_with_their_backend() {
    requires!(Can::BeDormouse);
    for header in ["off", "v2"] {
        let mut scene = Scene::new(&["", "", ""], |settings| {
            settings.option("balance", "mqtt-client-id");
            settings.option("backend_connect", "first-data");
            settings.option("proxy_protocol", header);
            settings.workers = 2;
        });
        let connect = |scene: &Scene, id: &str, last: u8, in_parts: bool| {
            let before = scene.accepted();
            let ip = IpAddr::V4(Ipv4Addr::new(127, 9, 8, last));
            let tcp = connect_from(ip, scene.address);
            let mut peer = Peer::over(tcp, peer::client(peer::config())).expect("a handshake");
            if in_parts {
                let mut record = Vec::new();
                let mut writer = peer.tls.writer();
                writer.write_all(&mqtt_connect(id)).expect("buffered");
                peer.tls.write_tls(&mut record).expect("written");
                let (first, rest) = record.split_at(record.len() / 2);
                peer.tcp.write_all(first).expect("taken");
                std::thread::sleep(Duration::from_millis(300));
                assert_eq!(scene.accepted(), before, "the packet is incomplete");
                peer.tcp.write_all(rest).expect("taken");
            } else {
                let mut stream = peer.stream();
                stream.write_all(&mqtt_connect(id)).expect("taken");
                stream.flush().expect("taken");
            }
            (chosen(scene, &before), peer)
        };
        let ids: Vec<String> = (0..12).map(|n| format!("device-{n}")).collect();
        let first: Vec<usize> = ids
            .iter()
            .map(|id| connect(&scene, id, 1, false).0)
            .collect();
        let used = first.iter().collect::<std::collections::BTreeSet<_>>();
        assert!(used.len() > 1, "{first:?}");
        for (n, id) in ids.iter().enumerate() {
            let (again, _peer) = connect(&scene, id, 2, n < 2);
            assert_eq!(again, first[n], "{id}");
        }
        // Only the clients of a lost backend move.
        let lost = first[0];
        scene
            .backends
            .remove(&(8080 + lost as u16))
            .expect("a backend")
            .stop();
        let others: Vec<usize> = (0..12).filter(|&n| first[n] != lost).collect();
        for n in others {
            let (again, _peer) = connect(&scene, &ids[n], 3, false);
            let port = scene.backends.keys().nth(again).expect("a backend");
            assert_eq!(usize::from(port - 8080), first[n], "{}", ids[n]);
        }
    }
}

/// The same by the server name.
#[test]
fn clients_stay_with_the_backend_of_their_server_name() {
    requires!(Can::BeDormouse, "openssl");
    let scene = Scene::new(&["", "", ""], |settings| {
        settings.option("balance", "sni-hash");
        settings.workers = 2;
    });
    let ask = |name: &str| {
        let before = scene.accepted();
        let mut client = Command::new(tools::path("openssl"));
        client.args([
            "s_client",
            "-connect",
            &scene.address.to_string(),
            "-servername",
            name,
        ]);
        client.stdin(Stdio::null()).output().expect("openssl runs");
        chosen(&scene, &before)
    };
    let names: Vec<String> = (0..10).map(|n| format!("{n}.example")).collect();
    let first: Vec<usize> = names.iter().map(|name| ask(name)).collect();
    let again: Vec<usize> = names.iter().map(|name| ask(&name.to_uppercase())).collect();
    assert_eq!(first, again);
    assert!(first.iter().any(|one| *one != first[0]), "{first:?}");
}

/// The only backends of two routes are down. They are still tried, and operators see both: in the state, in the metric that
/// the documented alert reads, and in the log, where the lines of one route hide none of the other's.
#[test]
fn a_single_backend_that_is_down_is_shown() {
    requires!(can_run());
    let host = unused_host();
    let [listen, other] = [TLS_PORT, TLS_PORT + 1].map(|port| SocketAddr::new(host, port));
    let own = authority().certificate(Kind::EcdsaP256);
    let route = |listen: SocketAddr, port: u16| {
        format!(
            "[[route]]\nlisten = '{listen}'\nto = '{host}:{port}'\nbackend_pause = '100ms'\n\
             certificates = [{{ cert = {:?}, key = {:?} }}]\n",
            own.cert, own.key
        )
    };
    let site = Site::at(host, &(route(listen, 8080) + &route(other, 8081)), |_| {});
    let try_connect = |address: SocketAddr| -> io::Result<()> {
        let mut peer = Peer::connect(address)?;
        peer.stream().write_all(b"echo\n")?;
        peer.echo()
    };
    for address in [listen, other] {
        for _ in 0..30 {
            try_connect(address).expect_err("no backend");
        }
    }
    for message in [
        "backend marked down after failures",
        "backend connect failed",
    ] {
        for port in [8080, 8081] {
            let port = format!(":{port}");
            wait::until_true(&format!("{message}, {port}"), || {
                let lines = site.process.lines_with(message);
                lines.iter().any(|line| line.contains(&port))
            });
        }
    }
    // The pause is over, but nothing has succeeded since.
    std::thread::sleep(Duration::from_millis(200));
    let up = || {
        let (_, metrics) = site.admin.ask("GET", "/metrics");
        let shown = metrics
            .lines()
            .filter(|line| line.starts_with("dormouse_backend_up{"));
        shown
            .map(|line| line.ends_with(" 1"))
            .collect::<Vec<bool>>()
    };
    assert_eq!(up(), [false, false]);
    let _again = Backend::tcp(SocketAddr::new(host, 8080));
    try_connect(listen).expect("an echo");
    assert_eq!(up(), [true, false]);
    assert_eq!(site.process.logged("backend recovered", 1).len(), 1);
}

/// A backend that does not answer: the next one is tried after the timeout. After its pause one client
/// tries it again, not all new clients.
#[test]
fn a_silent_backend_is_replaced_by_the_next() {
    requires!(Can::BeDormouse);
    let scene = Scene::new(&["down", ""], |settings| {
        settings.workers = 2;
        settings.option("backend_connect_timeout", "300ms");
        settings.option("backend_failures", "1");
        settings.option("backend_pause", "2s");
        Admin::in_folder(settings);
    });
    let failed = || {
        let status = Admin::at(&scene.folder.path().join("admin.sock")).status();
        status["counts"]["backend_connects_failed"].as_u64()
    };
    // A full listen queue, so that further SYNs are not answered.
    let socket =
        rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    let silent = SocketAddr::new(scene.address.ip(), 8080);
    rustix::net::bind(&socket, &silent).expect("an unused address");
    rustix::net::listen(&socket, 0).expect("a listener");
    let mut queued = Vec::new();
    while let Ok(stream) =
        TcpStream::connect_timeout(&silent, std::time::Duration::from_millis(200))
    {
        queued.push(stream);
    }
    for _ in 0..4 {
        scene.connect(1);
    }
    assert_eq!(scene.accepted(), [4]);
    assert_eq!(scene.terminator.logged("backend marked down", 1).len(), 1);
    let before = failed();
    assert!(
        (Some(1)..=Some(2)).contains(&before),
        "one per worker at most"
    );
    std::thread::sleep(std::time::Duration::from_millis(2_400));
    let crowd: Vec<_> = (0..16)
        .map(|_| {
            let address = scene.address;
            std::thread::spawn(move || Peer::saying(address, "echo").echo())
        })
        .collect();
    for one in crowd {
        one.join().expect("no panic").expect("an echo");
    }
    // On a busy machine the crowd may take longer than another pause.
    let tried = failed().zip(before).map(|(after, before)| after - before);
    assert!(
        (Some(1)..=Some(3)).contains(&tried),
        "of sixteen: {tried:?}"
    );
}

/// All backends are down: the client gets a fatal alert. A backend that comes back is used at once, although
/// it is marked as down.
#[test]
fn all_backends_are_tried_when_all_are_down() {
    requires!(Can::BeDormouse);
    let mut scene = Scene::new(&["down", "down"], |settings| {
        settings.option("backend_failures", "1");
        settings.option("backend_pause", "1h");
    });
    for _ in 0..5 {
        let mut peer = Peer::connect(scene.address).expect("a handshake");
        let refused = peer.receive_all().expect_err("a fatal alert");
        assert!(refused.to_string().contains("InternalError"), "{refused}");
    }
    let back = SocketAddr::new(scene.address.ip(), 8081);
    scene.backends.insert(8081, Backend::tcp(back));
    scene.connect(1);
    assert_eq!(scene.accepted(), [1]);
}

/// The load is that of all workers together, even after their deaths.
#[test]
fn least_connections_over_all_workers() {
    requires!(Can::BeDormouse);
    let scene = Scene::new(&["", ""], |settings| {
        settings.workers = 2;
        settings.option("balance", "least-connections");
    });
    let mut peers: Vec<Peer> = (0..20).map(|_| scene.connect(1)).collect();
    let accepted = scene.accepted();
    assert!(
        accepted.iter().all(|count| (9..=11).contains(count)),
        "{accepted:?}"
    );
    scene.terminator.leaves().into_iter().for_each(kill_asleep);
    for peer in &mut peers {
        peer.echo().expect("an echo after the crash");
    }
    peers.extend((0..20).map(|_| scene.connect(1)));
    let accepted = scene.accepted();
    assert!(
        accepted.iter().all(|count| (18..=22).contains(count)),
        "{accepted:?}"
    );
}

#[test]
fn a_client_address_has_its_backend() {
    requires!(Can::BeDormouse);
    let scene = Scene::new(&["", "", ""], |settings| {
        settings.workers = 2;
        settings.option("balance", "client-hash");
    });
    for client in 1..30 {
        let before = scene.accepted();
        for _ in 0..3 {
            scene.connect(client);
        }
        let more: Vec<u64> = scene
            .accepted()
            .iter()
            .zip(before)
            .map(|(now, was)| now - was)
            .collect();
        assert!(more.contains(&3), "client {client} went to {more:?}");
    }
    assert!(
        scene.accepted().iter().all(|&count| count > 0),
        "{:?}",
        scene.accepted()
    );
}

#[test]
fn limits_and_backups() {
    requires!(Can::BeDormouse);
    let scene = Scene::new(
        &[
            ", max_connections = 3",
            ", backup = true, max_connections = 2",
        ],
        |settings| {
            settings.option("backend_connect_timeout", "20s");
        },
    );
    let mut peers: Vec<Peer> = (0..5).map(|_| scene.connect(1)).collect();
    assert_eq!(
        scene.accepted(),
        [3, 2],
        "the backup only when the first is full"
    );
    // The sixth client waits until another one leaves.
    let address = scene.address;
    let sixth = std::thread::spawn(move || {
        let mut peer = Peer::saying(address, "echo");
        peer.echo()
    });
    let mut first = peers.remove(0);
    first.end_sending().expect("an end");
    first.receive_all().expect("a clean end");
    sixth.join().expect("no panic").expect("an echo in time");
    assert_eq!(scene.accepted(), [4, 2]);
}

/// A short wait for a free place does not depend on the moment at which it begins.
#[test]
fn a_place_is_awaited_for_a_fraction_of_a_second() {
    requires!(Can::BeDormouse);
    let limits = [", max_connections = 1", ", max_connections = 1"];
    let scene = Scene::new(&limits, |settings| {
        settings.option("backend_connect_timeout", "300ms");
    });
    let _both: Vec<Peer> = (0..2).map(|_| scene.connect(1)).collect();
    for _ in 0..4 {
        let began = Instant::now();
        let mut peer = Peer::saying(scene.address, "echo");
        peer.echo().expect_err("no free place");
        let waited = began.elapsed();
        assert!(waited >= Duration::from_millis(300), "{waited:?}");
        std::thread::sleep(Duration::from_millis(230));
    }
}

/// A backend never has more connections than its limit, even if several workers choose at the same time.
#[test]
fn a_limit_holds_over_all_workers() {
    requires!(Can::BeDormouse);
    let scene = Scene::new(&[", max_connections = 3, weight = 1000", ""], |settings| {
        settings.workers = 4;
    });
    let crowd: Vec<_> = (0..24)
        .map(|_| {
            let address = scene.address;
            std::thread::spawn(move || {
                let mut peer = Peer::saying(address, "echo");
                peer.echo().map(|()| peer)
            })
        })
        .collect();
    let crowd: Vec<Peer> = crowd
        .into_iter()
        .map(|one| one.join().expect("no panic").expect("an echo"))
        .collect();
    let accepted = scene.accepted();
    assert!((1..=3).contains(&accepted[0]), "{accepted:?}");
    assert_eq!(accepted.iter().sum::<u64>(), crowd.len() as u64);
}
