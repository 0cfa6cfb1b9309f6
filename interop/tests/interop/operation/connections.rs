//! Lists of connections, and connections closed by their properties.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use dormouse_interop::admin::Admin;
use dormouse_interop::backend::Backend;
use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::kill_asleep;
use dormouse_interop::scene::{PLAIN_PORT, Scene, unused_host};
use dormouse_interop::terminator::Can;
use dormouse_interop::tools;
use dormouse_interop::wait;
use serde_json::Value;

use crate::certificates::site::Site;

/// Connections of each route and network.
const EACH: usize = 40;
/// Port of the metrics.
const METRICS_PORT: u16 = 9901;

fn dormouse(admin: &Admin, words: &[&str]) -> Output {
    Command::new(tools::dormouse())
        .args(words)
        .arg("--admin")
        .arg(admin.path())
        .output()
        .expect("dormouse")
}

fn done(admin: &Admin, words: &[&str]) -> String {
    let output = dormouse(admin, words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "dormouse {words:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn count(admin: &Admin, filter: &[&str]) -> usize {
    let words = [&["connections", "--count"][..], filter].concat();
    done(admin, &words).trim().parse().expect("a number")
}

fn list(admin: &Admin, filter: &[&str]) -> Vec<Value> {
    let words = [&["connections", "--json"][..], filter].concat();
    let text = done(admin, &words);
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    text.lines().map(parse).collect()
}

/// Puts a certificate for these names and its key into the folder.
fn give_certificate(names: &[&str], folder: &Path) {
    let files = authority().give_out_for("site", Kind::EcdsaP256, names, folder);
    fs::rename(files.cert, folder.join("cert.pem")).expect("moved");
    fs::rename(files.key, folder.join("key.pem")).expect("moved");
}

const CERTIFICATES: &str = "certificates = [{ cert = 'HERE/cert.pem', key = 'HERE/key.pem' }]";

/// Two routes with a backend each, and clients from two networks.
struct Busy {
    site: Site,
    backends: [Backend; 2],
    clients: Vec<Client>,
}

struct Client {
    route: &'static str,
    network: u8,
    own: SocketAddr,
    peer: Peer,
}

impl Busy {
    fn new() -> Busy {
        let host = unused_host();
        let backend = |n| Backend::tcp(SocketAddr::new(host, PLAIN_PORT + n));
        let backends = [backend(0), backend(1)];
        let route = |name: &str, backend: &Backend| {
            format!(
                "[[route]]\nname = '{name}'\nlisten = 'LISTEN'\nserver_names = ['{name}.example']\nto = '{}'\n\
                 {CERTIFICATES}\n",
                backend.address()
            )
        };
        let routes = format!(
            "workers = 2\nmetrics = '{host}:{METRICS_PORT}'\nconnection_log = 'HERE/connections.log'\n{}{}",
            route("shop", &backends[0]),
            route("mqtt", &backends[1])
        );
        let site = Site::at(host, &routes, |folder| {
            give_certificate(&["shop.example", "mqtt.example"], folder);
        });
        let mut busy = Busy {
            site,
            backends,
            clients: Vec::new(),
        };
        for network in [1, 2] {
            for route in ["shop", "mqtt"] {
                for n in 0..EACH {
                    let client = busy.connect(route, network, n as u8 + 1);
                    busy.clients.push(client);
                }
            }
        }
        busy
    }

    fn connect(&self, route: &'static str, network: u8, host: u8) -> Client {
        let ip = IpAddr::V4(Ipv4Addr::new(127, 9, network, host));
        let tcp = peer::connect_from(ip, self.site.address);
        let own = tcp.local_addr().expect("its address");
        let tls = peer::client_for(peer::config(), &format!("{route}.example"));
        let mut peer = Peer::over(tcp, tls).expect("a handshake");
        peer.stream().write_all(b"echo\n").expect("a line");
        peer.echo().expect("an echo");
        Client {
            route,
            network,
            own,
            peer,
        }
    }

    /// Takes out the clients of this route and network.
    fn take(&mut self, route: &str, network: u8) -> Vec<Client> {
        let is_it = |client: &mut Client| client.route == route && client.network == network;
        self.clients.extract_if(.., is_it).collect()
    }

    fn all_echo(&mut self) {
        for Client { own, peer, .. } in &mut self.clients {
            peer.echo()
                .unwrap_or_else(|error| panic!("the client at {own}: {error}"));
        }
    }
}

fn assert_closed(clients: Vec<Client>) {
    for Client { own, mut peer, .. } in clients {
        let rest = peer.receive_all();
        let rest = rest.unwrap_or_else(|error| panic!("the client at {own}: {error}"));
        assert!(rest.is_empty(), "{own}: bytes came which nobody sent");
    }
}

#[test]
fn connections_are_listed_by_their_properties() {
    requires!(Can::BeDormouse);
    let mut busy = Busy::new();
    let admin = busy.site.admin.clone();
    let all = list(&admin, &[]);
    assert_eq!(all.len(), 4 * EACH);
    for client in &busy.clients {
        let of_client = |row: &&Value| row["client"] == client.own.to_string();
        let row = all.iter().find(of_client).expect("the client's row");
        let backend = usize::from(client.route == "mqtt");
        assert_eq!(row["route"], client.route);
        assert_eq!(row["sni"], format!("{}.example", client.route));
        assert_eq!(row["backend"], busy.backends[backend].address().to_string());
        assert_eq!(
            (&row["version"], &row["state"]),
            (&"TLSv1.3".into(), &"at_rest".into())
        );
        assert_eq!(
            (&row["bytes_in"], &row["bytes_out"]),
            (&1505.into(), &1500.into())
        );
        assert!(
            row["suite"].is_string() && row["resumed"].is_boolean(),
            "{row}"
        );
    }
    let backend = busy.backends[0].address().to_string();
    let id = all[0]["id"].as_str().expect("an id");
    for (filter, expected) in [
        (&["--route", "shop"][..], 2 * EACH),
        (&["--route", "removed"], 0),
        (&["--backend", &backend], 2 * EACH),
        (&["--backend", "192.0.2.1:80"], 0),
        (&["--client", "127.9.1.0/24"], 2 * EACH),
        (&["--client", "127.9.1.1"], 2),
        (&["--name", "mqtt.example"], 2 * EACH),
        (&["--name", "*.example"], 4 * EACH),
        (&["--name", "other.example"], 0),
        (&["--older", "1h"], 0),
        (&["--idle", "1h"], 0),
        (&["--id", id], 1),
        (&["--route", "shop", "--client", "127.9.2.0/24"], EACH),
    ] {
        assert_eq!(count(&admin, filter), expected, "{filter:?}");
        assert_eq!(list(&admin, filter).len(), expected, "{filter:?}");
    }
    let table = done(&admin, &["connections", "--client", "127.9.1.1"]);
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(
        table.starts_with("route") && table.contains("shop.example"),
        "{table}"
    );
    for (wrong, what) in [
        (&["--route", "shp"][..], "shop, mqtt"),
        (&["--backend", "shop"], "no backend shop"),
        (&["--client", "127.9.1.1/24"], "127.9.1.0/24"),
        (&["--older", "long"], "not a duration"),
    ] {
        let output = dormouse(&admin, &[&["connections"][..], wrong].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {said}");
        assert!(said.contains(what), "{wrong:?}: {said}");
    }
    // The address of the metrics knows no users.
    let mut tcp = TcpStream::connect((busy.site.address.ip(), METRICS_PORT)).expect("a connection");
    tcp.write_all(b"GET /connections HTTP/1.0\r\n\r\n")
        .expect("sent");
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    // A worker dies: the list is asked of its successor, and connections are the same.
    kill_asleep(busy.site.process.workers()[0]);
    assert_eq!(count(&admin, &["--name", "*.example"]), 4 * EACH);
    busy.all_echo();
}

#[test]
fn connections_are_closed_by_their_properties() {
    requires!(Can::BeDormouse);
    let mut busy = Busy::new();
    let admin = busy.site.admin.clone();
    let filter = ["--route", "shop", "--client", "127.9.1.0/24"];
    let close = |more: &[&'static str]| [&["close"][..], &filter, more].concat();
    let said = done(&admin, &close(&["--dry-run"]));
    assert_eq!(said, format!("{EACH} connections would be closed\n"));
    busy.all_echo();
    let said = done(&admin, &close(&[]));
    assert_eq!(said, format!("closed {EACH} connections\n"));
    assert_closed(busy.take("shop", 1));
    busy.all_echo();
    assert_eq!(admin.status()["counts"]["closed_by_admin"], EACH);
    let file = busy.site.folder.path().join("connections.log");
    wait::until_true("the lines of the log", || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        text.matches("end=closed_by_admin by=dormouse").count() == EACH
    });
    // Evenly; a client that comes back meanwhile stays.
    let begun = Instant::now();
    let mut command = Command::new(tools::dormouse());
    command.args([
        "close",
        "--client",
        "127.9.2.0/24",
        "--name",
        "mqtt.example",
    ]);
    command.args(["--over", "3s", "--admin"]).arg(admin.path());
    let child = command.spawn().expect("dormouse close");
    let mut closing = busy.take("mqtt", 2);
    wait::until_true("the first to be closed", || {
        admin.status()["counts"]["closed_by_admin"].as_u64() > Some(EACH as u64)
    });
    // Times in a slot are whole seconds.
    std::thread::sleep(Duration::from_millis(1_100));
    let back = busy.connect("mqtt", 2, 200);
    busy.clients.push(back);
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "{output:?}");
    assert!(
        begun.elapsed() >= Duration::from_millis(2_500),
        "not at once"
    );
    assert_closed(std::mem::take(&mut closing));
    busy.all_echo();
    assert_eq!(count(&admin, &[]), 2 * EACH + 1);
    // All of them is what a drain is for.
    let output = dormouse(&admin, &["close"]);
    assert_eq!(output.status.code(), Some(2));
}

/// What only the log knows is not taken for a fact.
#[test]
fn without_the_log_a_name_is_unknown() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(Admin::in_folder);
    let admin = Admin::of(&scene);
    let mut peers = [Peer::echoing(scene.address), Peer::echoing(scene.address)];
    assert_eq!(list(&admin, &[]).len(), 2);
    for command in [&["connections"][..], &["close"]] {
        let output = dormouse(&admin, &[command, &["--name", "localhost"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("2 more") && said.contains("connection log"),
            "{said}"
        );
    }
    for peer in &mut peers {
        peer.echo().expect("an echo");
    }
}

/// A backend is taken out, and the connections that do not end by themselves are closed.
#[test]
fn the_rest_of_a_backend_is_closed() {
    requires!(Can::BeDormouse);
    const COUNT: usize = 5;
    let host = unused_host();
    let backend = |n| Backend::tcp(SocketAddr::new(host, PLAIN_PORT + n));
    let backends = [backend(0), backend(1)];
    let [leaves, stays] = [0, 1].map(|n: usize| backends[n].address().to_string());
    let route =
        format!("[[route]]\nlisten = 'LISTEN'\nto = ['{leaves}', '{stays}']\n{CERTIFICATES}\n");
    let site = Site::at(host, &route, |folder| {
        give_certificate(&["localhost"], folder)
    });
    let admin = site.admin.clone();
    let connect = |_| Peer::echoing(site.address);
    let peers: Vec<Peer> = (0..2 * COUNT).map(connect).collect();
    assert_eq!(count(&admin, &["--backend", &leaves]), COUNT);
    let output = dormouse(&admin, &["ctl", "out", &leaves, "--wait", "200ms"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("still has connections: 5"), "{said}");
    let said = done(
        &admin,
        &["ctl", "out", &leaves, "--wait", "200ms", "--close-rest"],
    );
    assert!(said.ends_with("closed 5 connections\n"), "{said}");
    let survivors = peers
        .into_iter()
        .filter_map(|mut peer| peer.echo().is_ok().then_some(peer));
    let survivors: Vec<Peer> = survivors.collect();
    assert_eq!(survivors.len(), COUNT);
    wait::until_true("the others to have gone", || count(&admin, &[]) == COUNT);
}
