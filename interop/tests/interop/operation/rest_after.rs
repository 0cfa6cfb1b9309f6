//! Deep rest (`rest_after`): quiet connections have no socket, and everything that is true of other connections is true
//! of them, whatever dies.

use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use dormouse_interop::admin::Admin;
use dormouse_interop::backend::Backend;
use dormouse_interop::namespace::Room;
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::signal;
use dormouse_interop::requirement::Root;
use dormouse_interop::scene::{PLAIN_PORT, Scene, TLS_PORT};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;

use super::deep_rest::counted;

/// The client's port and the backend's, in a network of its own.
const LISTEN: &str = "127.0.0.1";

/// The time after which connections rest.
const REST_AFTER: &str = "200ms";

/// A dormouse with a route whose connections rest, in a network of its own.
struct Quiet {
    room: Room,
    scene: Scene,
    admin: Admin,
}

impl Quiet {
    fn with(target: &Target, change: impl FnOnce(&mut Settings)) -> Option<Quiet> {
        Quiet::after(REST_AFTER, target, change)
    }

    fn after(time: &str, target: &Target, change: impl FnOnce(&mut Settings)) -> Option<Quiet> {
        let room = Room::make()?;
        let behind = address(PLAIN_PORT);
        let listener = room.run(move || TcpListener::bind(behind).expect("an address"));
        let mut settings = Settings::new(address(TLS_PORT), target.clone());
        settings.namespace = Some(room.name());
        settings.option("rest_after", time);
        Admin::in_folder(&mut settings);
        change(&mut settings);
        let scene = Scene::of(Terminator::chosen(), Backend::on(listener), &settings);
        let admin = Admin::of(&scene);
        Some(Quiet { room, scene, admin })
    }

    /// Connections of both TLS versions that have echoed once.
    fn clients(&self, count: usize, target: &Target) -> Vec<Peer> {
        let to_backend = !matches!(target, Target::Echo);
        let connect = move |number: usize| {
            let configs = peer::configs_by_version();
            let tcp = peer::connect_tcp(address(TLS_PORT)).expect("a connection");
            let config = configs[number % configs.len()].clone();
            let mut client = Peer::over(tcp, peer::client(config)).expect("a handshake");
            if to_backend {
                use std::io::Write as _;
                client.stream().write_all(b"echo\n").expect("a line");
            }
            client.echo().expect("an echo");
            client
        };
        self.room.run(move || (0..count).map(connect).collect())
    }

    /// The sockets of dormouse's ends: of clients, and of connections to the backend.
    fn sockets(&self) -> usize {
        self.room.run(|| {
            let table = std::fs::read_to_string("/proc/thread-self/net/tcp").expect("sockets");
            let is_ours = |line: &&str| {
                let mut words = line.split_whitespace().skip(1);
                let mut port = || {
                    let word = words.next().expect("an address");
                    u16::from_str_radix(&word[word.len() - 4..], 16).expect("a port")
                };
                let (local, remote) = (port(), port());
                let is_established = words.next() == Some("01");
                is_established && (local == TLS_PORT || remote == PLAIN_PORT)
            };
            table.lines().skip(1).filter(is_ours).count()
        })
    }

    fn wait_for_rest(&self) {
        wait::until_true("all connections to leave the kernel", || {
            self.sockets() == 0
        });
    }

    fn resets(&self) -> u64 {
        counted(&self.room, "OutRsts")
    }

    fn counter(&self, name: &str) -> u64 {
        let counts = &self.admin.status()["counts"];
        counts[name].as_u64().unwrap_or(0)
    }

    fn repair_process(&self) -> u32 {
        wait::until("the process tcp-repair", PATIENCE, || {
            self.scene.terminator.named("tcp-repair")
        })
    }
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::new(LISTEN.parse().expect("an address"), port)
}

fn targets() -> [Target; 2] {
    [Target::Echo, Target::Tcp(address(PLAIN_PORT))]
}

#[test]
fn resting_connections_survive_the_death_of_any_process() {
    requires!(Can::BeDormouse, Root);
    for target in targets() {
        let Some(quiet) = Quiet::with(&target, |settings| settings.workers = 2) else {
            return;
        };
        let mut clients = quiet.clients(8, &target);
        for round in 0..3 {
            quiet.wait_for_rest();
            signal(quiet.repair_process(), Signal::KILL);
            if round == 1 {
                // Both at once: the wakes of the others find neither.
                quiet.scene.terminator.kill_workers();
            }
            for client in &mut clients {
                client
                    .echo()
                    .expect("an echo after the death of tcp-repair");
            }
            quiet.wait_for_rest();
            quiet.scene.terminator.kill_workers();
            for client in &mut clients {
                client
                    .echo()
                    .expect("an echo after the death of the worker");
            }
        }
        assert_eq!(quiet.resets(), 0, "{target:?}");
    }
}

/// Connections go to rest and wake all the time, at any moment of an exchange, and tcp-repair dies meanwhile.
#[test]
fn connections_that_rest_between_any_two_messages_lose_no_byte() {
    requires!(Can::BeDormouse, Root);
    const CLIENTS: usize = 16;
    let target = Target::Tcp(address(PLAIN_PORT));
    let Some(quiet) = Quiet::after("1ms", &target, |settings| settings.workers = 2) else {
        return;
    };
    let end = Instant::now() + Duration::from_secs(8);
    let clients = quiet.clients(CLIENTS, &target).into_iter().enumerate();
    let threads: Vec<_> = clients
        .map(|(number, mut client)| {
            thread::spawn(move || {
                let mut pause_ms = number as u64 * 7;
                while Instant::now() < end {
                    client.echo().expect("an echo");
                    pause_ms = (pause_ms + 13) % 120;
                    thread::sleep(Duration::from_millis(pause_ms));
                }
                client
            })
        })
        .collect();
    while Instant::now() + Duration::from_secs(3) < end {
        thread::sleep(Duration::from_millis(700));
        signal(quiet.repair_process(), Signal::KILL);
    }
    let ended = threads.into_iter().map(|thread| thread.join());
    let clients: Vec<Peer> = ended
        .map(|client| client.expect("every echo was right"))
        .collect();
    assert!(quiet.counter("wakes") > 2 * CLIENTS as u64);
    assert_eq!(quiet.resets(), 0);
    drop(clients);
}

#[test]
fn an_upgrade_wakes_nobody() {
    requires!(Can::BeDormouse, Root);
    let target = Target::Tcp(address(PLAIN_PORT));
    let Some(quiet) = Quiet::with(&target, |_| {}) else {
        return;
    };
    let mut clients = quiet.clients(6, &target);
    quiet.wait_for_rest();
    let before = quiet.counter("wakes");
    for _ in 0..2 {
        quiet.scene.terminator.upgrade();
    }
    assert_eq!(quiet.sockets(), 0);
    assert_eq!(quiet.counter("wakes"), before);
    for client in &mut clients {
        client.echo().expect("an echo after two upgrades");
    }
    quiet.wait_for_rest();
    for client in &mut clients {
        client.echo().expect("an echo after another rest");
    }
    assert_eq!(quiet.resets(), 0);
}

/// What is not TCP stays open, and wakes the client's side by its bytes.
#[test]
fn other_kinds_of_routes_rest_as_far_as_they_can() {
    requires!(Can::BeDormouse, Root);
    let first_data: fn(&mut Settings) = |settings| {
        settings.option("backend_connect", "first-data");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let unix = folder.path().join("backend.sock");
    let backend = Backend::unix(&unix);
    let targets = [
        (Target::Tcp(address(PLAIN_PORT)), first_data),
        (Target::Unix(unix), |_: &mut Settings| {}),
    ];
    for (target, change) in targets {
        let Some(quiet) = Quiet::with(&target, change) else {
            return;
        };
        let mut clients = quiet.clients(3, &target);
        for _ in 0..2 {
            quiet.wait_for_rest();
            for client in &mut clients {
                client.echo().expect("an echo");
            }
        }
        assert_eq!(quiet.resets(), 0);
    }
    drop(backend);
}

/// What ends connections: its name, settings for it, and how it begins.
type End = (&'static str, fn(&mut Settings), fn(&mut Quiet));

/// Each of these ends a connection that rests, with close_notify.
#[test]
fn resting_connections_end_like_others() {
    requires!(Can::BeDormouse, Root);
    let ends: [End; 4] = [
        (
            "the idle timeout",
            |settings| {
                settings.option("idle_timeout", "2s");
            },
            |_| {},
        ),
        (
            "a drain",
            |_| {},
            |quiet| {
                quiet.admin.order("/drain?over=1s").expect("an order");
            },
        ),
        (
            "an administrator",
            |_| {},
            |quiet| {
                let (status, said) = quiet.admin.ask("POST", "/connections/close?route=1");
                assert_eq!(status, 200, "{said}");
            },
        ),
        (
            "a stop",
            |_| {},
            |quiet| signal(quiet.scene.terminator.pid(), Signal::TERM),
        ),
    ];
    for (what, change, end) in ends {
        let target = Target::Tcp(address(PLAIN_PORT));
        let Some(mut quiet) = Quiet::with(&target, change) else {
            return;
        };
        let clients = quiet.clients(4, &target);
        quiet.wait_for_rest();
        end(&mut quiet);
        for mut client in clients {
            let timeout = Some(PATIENCE);
            client.tcp.set_read_timeout(timeout).expect("a timeout");
            let rest = client.receive_all();
            let rest = rest.unwrap_or_else(|error| panic!("{what}: no close_notify: {error}"));
            assert!(rest.is_empty(), "{what}");
            // The client may end later than the program.
            let _ = client.end_sending();
        }
    }
}

#[test]
fn a_client_that_ends_while_it_rests_ends_its_backends_connection() {
    requires!(Can::BeDormouse, Root);
    let target = Target::Tcp(address(PLAIN_PORT));
    let Some(quiet) = Quiet::with(&target, |_| {}) else {
        return;
    };
    let mut clients = quiet.clients(3, &target);
    quiet.wait_for_rest();
    assert_eq!(quiet.counter("connections"), 3);
    // By close_notify, by a FIN, and by a reset.
    clients[0].end_sending().expect("close_notify");
    drop(clients.remove(1));
    let reset = clients.remove(1);
    let linger = Some(Duration::ZERO);
    rustix::net::sockopt::set_socket_linger(&reset.tcp, linger).expect("an option");
    drop(reset);
    wait::until_true("all connections to end", || {
        quiet.counter("connections") == 0
    });
}

#[test]
fn the_list_shows_connections_that_rest_and_a_reload_keeps_them() {
    requires!(Can::BeDormouse, Root);
    let target = Target::Echo;
    let Some(quiet) = Quiet::with(&target, |_| {}) else {
        return;
    };
    let mut clients = quiet.clients(2, &target);
    quiet.wait_for_rest();
    let port = clients[0].tcp.local_addr().expect("an address").port();
    let (_, list) = quiet.admin.ask("GET", "/connections");
    assert!(list.contains(&format!("127.0.0.1:{port}")), "{list}");
    assert!(list.contains("\"resting\":true"), "{list}");
    assert_eq!(quiet.counter("resting"), 2);
    // The listener of these connections goes.
    let file = quiet.scene.folder.path().join("dormouse.toml");
    let text = std::fs::read_to_string(&file).expect("the file");
    let listen = address(TLS_PORT).to_string();
    assert!(text.contains(&listen), "{text}");
    let other = text.replace(&listen, &address(TLS_PORT + 1).to_string());
    std::fs::write(&file, other).expect("written");
    quiet.admin.order("/reload").expect("a reload");
    for client in &mut clients {
        client.echo().expect("an echo after the reload");
    }
    assert_eq!(quiet.resets(), 0);
}

#[test]
fn a_machine_that_cannot_is_named_at_the_start() {
    requires!(Can::BeDormouse, Root, "setpriv");
    let Some(room) = Room::make() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dormouse.toml");
    let text = "[[route]]\nlisten = '127.0.0.1:8443'\nto = 'echo:'\nself_signed = 'x'\nrest_after = '1m'\n";
    std::fs::write(&file, text).expect("written");
    for command in ["serve -c", "check"] {
        let words = format!(
            "setpriv --bounding-set=-net_admin {} {command} {}",
            dormouse_interop::tools::dormouse().display(),
            file.display()
        );
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let words = room.command(&words);
        let output = std::process::Command::new(&words[0])
            .args(&words[1..])
            .output();
        let output = output.expect("an end");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{said}");
        for word in ["rest_after", "CAP_NET_ADMIN"] {
            assert!(said.contains(word), "{command}: {said}");
        }
    }
}
