//! Deep rest (`rest_after`): quiet connections have no socket, and everything that is true of other connections is true
//! of them, whatever dies.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dormouse_interop::admin::Admin;
use dormouse_interop::backend::Backend;
use dormouse_interop::namespace::Room;
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::probe::Load;
use dormouse_interop::process::signal;
use dormouse_interop::requirement::Root;
use dormouse_interop::scene::{PLAIN_PORT, Scene, TLS_PORT};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;
use serde_json::Value;

use super::deep_rest::counted;
use super::rest_on_machines::run;

/// The client's port and the backend's, in a network of its own.
const LISTEN: &str = "127.0.0.1";

const LOG: &str = "connections.log";

/// The time after which connections rest.
const REST_AFTER: &str = "200ms";

/// A dormouse with a route whose connections rest, in a network of its own.
pub(crate) struct Quiet {
    pub(crate) room: Room,
    pub(crate) scene: Scene,
    pub(crate) admin: Admin,
    pub(super) settings: Settings,
}

impl Quiet {
    fn with(target: &Target, change: impl FnOnce(&mut Settings)) -> Option<Quiet> {
        Quiet::after(REST_AFTER, target, change)
    }

    pub(super) fn after(
        time: &str,
        target: &Target,
        change: impl FnOnce(&mut Settings),
    ) -> Option<Quiet> {
        Quiet::inside(Room::make()?, time, target, change)
    }

    /// In this network.
    pub(crate) fn inside(
        room: Room,
        time: &str,
        target: &Target,
        change: impl FnOnce(&mut Settings),
    ) -> Option<Quiet> {
        let behind = match target {
            Target::Tcp(address) => *address,
            _ => address(PLAIN_PORT),
        };
        let listener = room.run(move || TcpListener::bind(behind).expect("an address"));
        let mut settings = Settings::new(address(TLS_PORT), target.clone());
        settings.namespace = Some(room.name());
        settings.option("rest_after", time);
        Admin::in_folder(&mut settings);
        change(&mut settings);
        let scene = Scene::of(Terminator::chosen(), Backend::on(listener), &settings);
        let admin = Admin::of(&scene);
        Some(Quiet {
            room,
            scene,
            admin,
            settings,
        })
    }

    /// Connections of both TLS versions that have echoed once.
    pub(crate) fn clients(&self, count: usize, target: &Target) -> Vec<Peer> {
        let to_backend = !matches!(target, Target::Echo);
        let listen = self.scene.address;
        let connect = move |number| connect(listen, number, to_backend);
        self.room.run(move || (0..count).map(connect).collect())
    }

    /// The sockets of dormouse's ends: of clients, and of connections to the backend.
    fn sockets(&self) -> usize {
        let listen = self.scene.address.port();
        self.room.run(move || {
            let tables = ["tcp", "tcp6"].map(|name| {
                let path = format!("/proc/thread-self/net/{name}");
                std::fs::read_to_string(path).expect("sockets")
            });
            let is_ours = move |line: &&str| {
                let mut words = line.split_whitespace().skip(1);
                let mut port = || {
                    let word = words.next().expect("an address");
                    u16::from_str_radix(&word[word.len() - 4..], 16).expect("a port")
                };
                let (local, remote) = (port(), port());
                let is_established = words.next() == Some("01");
                is_established && (local == listen || remote == PLAIN_PORT)
            };
            let lines = tables.iter().flat_map(|table| table.lines().skip(1));
            lines.filter(is_ours).count()
        })
    }

    pub(crate) fn wait_for_rest(&self) {
        wait::until_true("all connections to leave the kernel", || {
            self.sockets() == 0
        });
    }

    pub(crate) fn resets(&self) -> u64 {
        counted(&self.room, "OutRsts")
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let counts = &self.admin.status()["counts"];
        counts[name].as_u64().unwrap_or(0)
    }

    /// The lines of the connection log, once there are as many.
    fn logged(&self, count: usize) -> Vec<Value> {
        let file = self.scene.folder.path().join(LOG);
        let text = wait::until(&format!("{count} lines"), PATIENCE, || {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            (text.lines().count() >= count && text.ends_with('\n')).then_some(text)
        });
        let parse = |line: &str| serde_json::from_str(line).expect("JSON");
        text.lines().map(parse).collect()
    }

    pub(crate) fn repair_process(&self) -> u32 {
        wait::until("the process tcp-repair", PATIENCE, || {
            self.scene.terminator.named("tcp-repair")
        })
    }
}

/// A connection that has echoed once. Those with odd numbers have another TLS version.
fn connect(listen: SocketAddr, number: usize, to_backend: bool) -> Peer {
    let tcp = peer::connect_tcp(listen).expect("a connection");
    connect_over(tcp, number, to_backend)
}

pub(super) fn connect_over(tcp: TcpStream, number: usize, to_backend: bool) -> Peer {
    let configs = peer::configs_by_version();
    let config = configs[number % configs.len()].clone();
    let mut client = Peer::over(tcp, peer::client(config)).expect("a handshake");
    if to_backend {
        client.stream().write_all(b"echo\n").expect("a line");
    }
    client.echo().expect("an echo");
    client
}

pub(crate) fn address(port: u16) -> SocketAddr {
    SocketAddr::new(LISTEN.parse().expect("an address"), port)
}

pub(super) fn targets() -> [Target; 2] {
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

/// A client that sends a packet with the right numbers, which it will not repeat, for each line of its input, and then echoes
/// once more.
const UNREPEATED: &str = r#"
import socket, ssl, struct, sys
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
tcp = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60)
tls = context.wrap_socket(tcp)
def echo(words):
    tls.sendall(words)
    back = b""
    while len(back) < len(words): back += tls.recv(100)
    assert back == words
tls.sendall(b"echo\n")
echo(b"before")
# TCP_REPAIR, TCP_REPAIR_QUEUE, TCP_QUEUE_SEQ; -1 ends without a probe.
number = lambda queue: (tls.setsockopt(6, 20, queue), tls.getsockopt(6, 21) & 0xFFFFFFFF)[1]
tls.setsockopt(6, 19, 1)
received, sent = number(1), number(2)
tls.setsockopt(6, 19, -1)
fold = lambda words: (sum(words) & 0xFFFF) + (sum(words) >> 16)
def packet():
    (_, source), (_, target), data = tls.getsockname(), tls.getpeername(), b"unseen"
    tcp = struct.pack("!HHIIBBHHH", source, target, sent, received, 5 << 4, 0x18, 500, 0, 0) + data
    pseudo = socket.inet_aton("127.0.0.1") * 2 + struct.pack("!BBH", 0, 6, len(tcp)) + tcp
    words = struct.unpack(f"!{len(pseudo) // 2}H", pseudo)
    sum_of = ~fold([fold(words)]) & 0xFFFF
    return tcp[:16] + struct.pack("!H", sum_of) + tcp[18:]
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
print("ready", flush=True)
for line in sys.stdin:
    raw.sendto(packet(), ("127.0.0.1", 0))
    print("sent", flush=True)
echo(b"after")
print("echoed", flush=True)
"#;

/// A firewall drops each second packet of that length, the one that tcp-repair sends again, so each wake brings nothing, and the connection rests again, as
/// often as it was woken.
#[test]
fn a_wake_that_brings_nothing_sends_the_connection_back() {
    requires!(Can::BeDormouse, Root, "python3", "nft");
    const PACKETS: u64 = 3;
    let target = Target::Tcp(address(PLAIN_PORT));
    let Some(quiet) = Quiet::after("2s", &target, |settings| settings.workers = 1) else {
        return;
    };
    let port = TLS_PORT.to_string();
    let words = ["python3", "-c", UNREPEATED, &port].map(str::to_owned);
    let words = quiet.room.command(&words);
    let mut client = Command::new(&words[0])
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python");
    let mut input = client.stdin.take().expect("a pipe");
    let mut lines = BufReader::new(client.stdout.take().expect("a pipe")).lines();
    let mut expect = |word| assert_eq!(lines.next().expect("a line").expect("text"), word);
    expect("ready");
    quiet.wait_for_rest();
    let rule = "ip length 46 tcp dport 8443 numgen inc mod 2 == 1 drop";
    let table = format!(
        "table ip filter {{ chain output {{ type filter hook output priority 0; {rule}; }}; }}"
    );
    run(&quiet.room, &format!("nft '{table}'"));
    let (wakes, rests) = (quiet.counter("wakes"), quiet.counter("rests"));
    for number in 1..=PACKETS {
        input.write_all(b"\n").expect("an order");
        expect("sent");
        // Both sides: a step needs them.
        wait::until_true("the wake", || quiet.counter("wakes") >= wakes + 2 * number);
        quiet.wait_for_rest();
    }
    wait::until_true("the last rest", || {
        quiet.counter("rests") >= rests + 2 * PACKETS
    });
    assert_eq!(quiet.counter("wakes"), wakes + 2 * PACKETS);
    assert_eq!(quiet.resets(), 0);
    run(&quiet.room, "nft flush ruleset");
    drop(input);
    expect("echoed");
    assert!(client.wait().expect("its end").success());
}

/// Random traffic while connections rest after a millisecond: every stream is compared byte by byte.
fn race(seconds: u64) {
    requires!(Can::BeDormouse, Root);
    let target = Target::Tcp(address(PLAIN_PORT));
    let Some(quiet) = Quiet::after("1ms", &target, |settings| settings.workers = 2) else {
        return;
    };
    let pause = Duration::from_millis(12);
    let to = quiet.scene.address;
    let load = (quiet.room).run(move || Load::start(to, 4, 8, "echo\n", pause));
    thread::sleep(Duration::from_secs(seconds));
    let wakes = quiet.counter("wakes");
    let seen = load.finish();
    eprintln!(
        "{} echoes, {wakes} wakes, {} rests",
        seen.echoes,
        quiet.counter("rests")
    );
    assert!(seen.wrong.is_empty(), "{:?}", seen.wrong);
    assert!(seen.lost.is_empty(), "{:?}", seen.lost);
    assert!(wakes > 2 * seconds, "{wakes} wakes");
    assert_eq!(quiet.resets(), 0);
}

#[test]
fn random_traffic_loses_no_byte_to_rest() {
    race(8);
}

#[test]
#[ignore = "ten minutes"]
fn random_traffic_loses_no_byte_to_rest_at_length() {
    race(600);
}

/// A socket that tcp-repair makes has inherited nothing from a listener: neither the limits of its buffers, on which the
/// memory budget relies, nor keepalive.
#[test]
fn woken_connections_have_the_options_of_their_route() {
    requires!(Can::BeDormouse, Root, "ss");
    let target = Target::Tcp(address(PLAIN_PORT));
    let Some(quiet) = Quiet::after("2s", &target, |settings| {
        settings.option("socket_buffer", "96 KiB");
        settings.option("keepalive_idle", "60s");
    }) else {
        return;
    };
    let mut clients = quiet.clients(1, &target);
    let options = |room: &Room| {
        let ends = format!("( sport = :{TLS_PORT} or dport = :{PLAIN_PORT} )");
        let words = ["ss", "-Htnmo", "state", "established", &ends].map(str::to_owned);
        let words = room.command(&words);
        let output = std::process::Command::new(&words[0])
            .args(&words[1..])
            .output();
        let said = String::from_utf8(output.expect("ss").stdout).expect("text");
        let field = |line: &str, name: &str| {
            let value = line.split_once(name).map(|(_, after)| after);
            value.map(|value| value.chars().take_while(char::is_ascii_digit).collect())
        };
        let mut found: Vec<(bool, Option<String>, Option<String>)> = said
            .replace("\n\t", "\t")
            .lines()
            .map(|line| {
                let is_watched = line.contains("timer:(keepalive");
                (is_watched, field(line, ",rb"), field(line, ",tb"))
            })
            .collect();
        found.sort();
        found
    };
    // While an acknowledgement is outstanding, another timer is shown.
    let before = wait::until("two sockets, one with keepalive", PATIENCE, || {
        let found = options(&quiet.room);
        let is_watched = found.iter().any(|(is_watched, ..)| *is_watched);
        (found.len() == 2 && is_watched).then_some(found)
    });
    quiet.wait_for_rest();
    clients[0].echo().expect("an echo");
    wait::until_true("the same options", || options(&quiet.room) == before);
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

/// Each of these ends a connection that rests, with close_notify and a line in the connection log.
#[test]
fn resting_connections_end_like_others() {
    requires!(Can::BeDormouse, Root);
    let ends: [End; 5] = [
        (
            "the maximum age",
            |settings| {
                settings.option("total_timeout", "3s");
            },
            |_| {},
        ),
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
        let Some(mut quiet) = Quiet::with(&target, |settings| {
            settings.option("connection_log", LOG);
            settings.option("connection_log_format", "json");
            change(settings);
        }) else {
            return;
        };
        let clients = quiet.clients(4, &target);
        let named = clients.iter().map(|client| client.tcp.local_addr());
        let named: BTreeSet<String> = named
            .map(|own| own.expect("an address").to_string())
            .collect();
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
        let logged = quiet.logged(named.len());
        let clients: BTreeSet<String> = logged.iter().map(|line| text(line, "client")).collect();
        assert_eq!(clients, named, "{what}");
        for line in logged {
            assert_eq!(
                text(&line, "backend"),
                address(PLAIN_PORT).to_string(),
                "{what}"
            );
        }
    }
}

fn text(line: &Value, name: &str) -> String {
    line[name].as_str().unwrap_or_default().to_owned()
}

/// A client that does not answer is asked from the record, and given up like any other.
#[test]
fn a_client_that_has_vanished_is_given_up_while_it_rests() {
    requires!(Can::BeDormouse, Root);
    let target = Target::Tcp(address(PLAIN_PORT));
    let Some(quiet) = Quiet::with(&target, |settings| {
        settings.option("connection_log", LOG);
        settings.option("connection_log_format", "json");
        settings.option("keepalive_idle", "1s");
        settings.option("keepalive_interval", "1s");
        settings.option("keepalive_count", "2");
    }) else {
        return;
    };
    let mut stays = quiet.clients(2, &target);
    let gone = quiet.room.run(|| {
        connect_over(
            peer::connect_from([127, 0, 0, 9].into(), address(TLS_PORT)),
            0,
            true,
        )
    });
    quiet.wait_for_rest();
    let wakes = quiet.counter("wakes");
    // From now on nothing reaches it, and nothing comes from it.
    let words = "ip route add blackhole 127.0.0.9 table local".split(' ');
    let words: Vec<String> = words.map(str::to_owned).collect();
    let words = quiet.room.command(&words);
    let status = std::process::Command::new(&words[0])
        .args(&words[1..])
        .status();
    assert!(status.expect("an end").success());
    wait::until_true("the vanished client to be given up", || {
        quiet.counter("connections") == 2
    });
    let [line] = &quiet.logged(1)[..] else {
        panic!("a line")
    };
    assert!(text(line, "client").starts_with("127.0.0.9:"), "{line}");
    // The others were asked as often, and have answered without waking. One wakes: the other side of what has ended.
    assert!(quiet.counter("wakes") <= wakes + 1);
    for client in &mut stays {
        client.echo().expect("an echo");
    }
    drop(gone);
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
