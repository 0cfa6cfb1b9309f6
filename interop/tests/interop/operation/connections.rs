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

/// The lists, the status and the metrics have the same numbers, also after the death of a worker and the end of a route.
#[test]
fn connections_are_counted_by_route_backend_and_age() {
    requires!(Can::BeDormouse);
    let mut busy = Busy::new();
    let admin = busy.site.admin.clone();
    let cells = |words: &[&str]| -> Vec<Vec<String>> {
        let table = done(&admin, words);
        let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        table.lines().skip(1).map(cells).collect()
    };
    let all = (2 * EACH).to_string();
    let row = |name: &str, number: &str| [name, number, "0", "0", "0"].map(str::to_owned).to_vec();
    let mut by_route = cells(&["connections", "--by", "route"]);
    by_route.sort();
    assert_eq!(by_route, [row("mqtt", &all), row("shop", &all)]);
    let backend = busy.backends[0].address().to_string();
    let of_backend = cells(&["connections", "--by", "backend", "--route", "shop"]);
    assert_eq!(of_backend, [row(&backend, &all)]);
    let none = cells(&["connections", "--by", "route", "--older", "1h"]);
    assert!(none.is_empty(), "{none:?}");
    let by_age = done(&admin, &["connections", "--by", "age"]);
    assert!(
        by_age.starts_with(&format!("under 1 h  {}\n", 4 * EACH)),
        "{by_age}"
    );
    let json = done(
        &admin,
        &[
            "connections",
            "--by",
            "route",
            "--json",
            "--client",
            "127.9.1.0/24",
        ],
    );
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&json["matched"], &json["unknown"]),
        (&(2 * EACH).into(), &0.into())
    );
    assert_eq!(json["routes"][0]["under_1h"], EACH);
    // The status and the metrics wait for the first count.
    let status = admin.status();
    for (list, number) in [("routes", 2), ("backends", 2)] {
        let rows = status[list].as_array().expect("a list");
        assert_eq!(rows.len(), number);
        for row in rows {
            assert_eq!(row["ages"]["under_1h"], 2 * EACH, "{row}");
        }
    }
    assert!(status["connections"]["ages_counted_s_ago"].is_u64());
    let (_, metrics) = admin.ask("GET", "/metrics?route=shop");
    let sample = format!(
        "dormouse_route_connections_by_age{{route=\"shop\",age=\"under_1h\"}} {}\n",
        2 * EACH
    );
    assert!(metrics.contains(&sample), "{metrics}");
    let sample = format!("backend=\"{backend}\",age=\"under_1h\"}} {}\n", 2 * EACH);
    assert!(metrics.contains(&sample), "{metrics}");
    kill_asleep(busy.site.process.workers()[0]);
    let mut by_route = cells(&["connections", "--by", "route"]);
    by_route.sort();
    assert_eq!(by_route, [row("mqtt", &all), row("shop", &all)]);
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

/// The first digits of a certificate's fingerprint, as OpenSSL has it.
fn fingerprint(certificate: &Path) -> String {
    let mut openssl = Command::new("openssl");
    openssl.args(["x509", "-noout", "-fingerprint", "-sha256", "-in"]);
    let output = openssl.arg(certificate).output().expect("openssl");
    let text = String::from_utf8(output.stdout).expect("text");
    let (_, digits) = text.trim().split_once('=').expect("a fingerprint");
    digits.to_owned()
}

/// Also after the certificate was replaced: then its name does not decide any more, and its fingerprint does.
#[test]
fn connections_are_chosen_by_their_certificates() {
    requires!(Can::BeDormouse);
    let routes = format!(
        "connection_log = 'HERE/connections.log'\n[[route]]\nlisten = 'LISTEN'\nto = 'echo:'\n{CERTIFICATES}\n\
         client_certificates = 'optional'\nclient_ca = '{}'\n",
        authority().trust().display()
    );
    let give = |folder: &Path| give_certificate(&["localhost", "old.example"], folder);
    let site = Site::at(unused_host(), &routes, give);
    let folder = site.folder.path();
    let own = folder.join("cert.pem");
    let former = fingerprint(&own);
    let files = authority().give_out_for("alice", Kind::EcdsaP256, &["alice"], folder);
    let of_alice = fingerprint(&files.cert);
    let connect = |config: rustls::ClientConfig| {
        let tcp = peer::connect_tcp(site.address).expect("a connection");
        let mut peer = Peer::over(tcp, peer::client(config)).expect("a handshake");
        peer.echo().expect("an echo");
        peer
    };
    let mut alice = connect(peer::config_showing(&files));
    let mut anonymous = connect(peer::config());
    let admin = site.admin.clone();
    for (certificate, number) in [
        ("localhost", 2),
        ("old.example", 2),
        (&*former, 2),
        (&*of_alice, 1),
        ("0123456789abcdef", 0),
    ] {
        let found = count(&admin, &["--certificate", certificate]);
        assert_eq!(found, number, "{certificate}");
    }
    let short = |fingerprint: &str| fingerprint.replace(':', "").to_lowercase()[..16].to_owned();
    let rows = list(&admin, &["--certificate", &of_alice]);
    assert_eq!(rows[0]["certificate"], short(&former));
    assert_eq!(rows[0]["peer_certificate"], short(&of_alice));
    give_certificate(&["localhost"], folder);
    site.reload(&routes);
    let mut later = connect(peer::config());
    let ask = |certificate| {
        let words = ["connections", "--count", "--certificate", certificate];
        let output = dormouse(&admin, &words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let counted = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        (counted, output.status.code(), said)
    };
    let (counted, status, said) = ask("localhost");
    assert_eq!((&*counted, status), ("1", Some(1)), "{said}");
    assert!(
        said.contains("2 more") && said.contains("fingerprint"),
        "{said}"
    );
    let (_, status, said) = ask("old.example");
    assert_eq!(status, Some(2), "{said}");
    assert!(
        said.contains("no loaded certificate has the name"),
        "{said}"
    );
    let said = done(&admin, &["close", "--certificate", &short(&former)]);
    assert_eq!(said, "closed 2 connections\n");
    assert!(alice.echo().is_err() && anonymous.echo().is_err());
    later.echo().expect("an echo");
    // A closed connection counts until its client has closed, too.
    drop((alice, anonymous));
    wait::until_true("one connection to be left", || {
        admin.status()["connections"]["ages"]["under_1h"] == 1
    });
}

/// A client with a certificate for this common name, whose serial number and address end with `host`.
fn connect_as(site: &Site, name: &str, host: u8) -> Peer {
    let folder = site.folder.path();
    let files = authority().give_out_with(name, Kind::EcdsaP256, folder, |params| {
        params.distinguished_name = rcgen::DistinguishedName::new();
        let common_name = rcgen::DnType::CommonName;
        params.distinguished_name.push(common_name, name);
        params.serial_number = Some(rcgen::SerialNumber::from_slice(&[0x7f, host]));
    });
    let ip = IpAddr::V4(Ipv4Addr::new(127, 9, 1, host));
    let tcp = peer::connect_from(ip, site.address);
    let tls = peer::client(peer::config_showing(&files));
    let mut peer = Peer::over(tcp, tls).expect("a handshake");
    peer.echo().expect("an echo");
    peer
}

/// After a reload that would refuse their clients: a removed rule, a revoked certificate, a denied address.
#[test]
fn established_connections_are_checked_again() {
    requires!(Can::BeDormouse);
    let lists = "client_crl = 'HERE/lists'";
    let routes = |program: &str, rules: &str| {
        format!(
            "connection_log = 'HERE/connections.log'\n{program}\n[[route]]\nname = 'app'\nlisten = 'LISTEN'\n\
             to = 'echo:'\n{CERTIFICATES}\nclient_certificates = 'required'\nclient_ca = '{}'\n{rules}\n",
            authority().trust().display()
        )
    };
    let give = |folder: &Path| {
        give_certificate(&["localhost"], folder);
        fs::create_dir(folder.join("lists")).expect("a folder");
        let list = authority().revocation_list(&[]);
        fs::write(folder.join("lists/list.pem"), list).expect("written");
    };
    let all = "client_allow = ['cn=alice', 'cn=bob', 'cn=carol', 'cn=dora']";
    let site = Site::at(unused_host(), &routes("", &format!("{all}\n{lists}")), give);
    let folder = site.folder.path();
    let [mut alice, mut bob, mut carol, mut dora] =
        [("alice", 1), ("bob", 2), ("carol", 3), ("dora", 4)]
            .map(|(name, host)| connect_as(&site, name, host));
    let admin = site.admin.clone();
    assert_eq!(count(&admin, &["--refused"]), 0);
    let write = |program: &str, rules: &str| {
        let text = fs::read_to_string(folder.join("dormouse.toml")).expect("the file");
        let head = text
            .lines()
            .take_while(|line| !line.starts_with("connection_log"));
        let head: String = head.map(|line| format!("{line}\n")).collect();
        let rest = routes(program, rules)
            .replace("LISTEN", &site.address.to_string())
            .replace("HERE", &folder.display().to_string());
        fs::write(folder.join("dormouse.toml"), head + &rest).expect("written");
        done(&admin, &["reload"])
    };
    // Not asked: the reload says how many there are.
    let without_bob = "client_allow = ['cn=alice', 'cn=carol', 'cn=dora']";
    let said = write("", &format!("{without_bob}\n{lists}"));
    assert!(said.contains("would be refused now: 1 "), "{said}");
    bob.echo().expect("an echo");
    let rows = list(&admin, &["--refused"]);
    assert_eq!(rows.len(), 1);
    assert!(
        rows[0]["client"]
            .as_str()
            .expect("an address")
            .starts_with("127.9.1.2:")
    );
    let said = done(&admin, &["close", "--refused"]);
    assert_eq!(said, "closed 1 connection\n");
    assert!(bob.echo().is_err());
    // Asked: without a command, as soon as the list is read.
    let recheck = "recheck = 'established'";
    write(recheck, &format!("{without_bob}\n{lists}"));
    alice.echo().expect("an echo");
    let list = authority().revocation_list(&[vec![0x7f, 3]]);
    fs::write(folder.join("lists/list.pem"), list).expect("written");
    wait::until_true("carol's end", || {
        count(&admin, &["--client", "127.9.1.3"]) == 0
    });
    assert!(carol.echo().is_err());
    write(
        recheck,
        &format!("{without_bob}\n{lists}\ndeny = '127.9.1.4'"),
    );
    wait::until_true("dora's end", || {
        count(&admin, &["--client", "127.9.1.4"]) == 0
    });
    assert!(dora.echo().is_err());
    alice.echo().expect("an echo");
    let counts = &admin.status()["counts"];
    assert_eq!(counts["closed_by_admin"], 3, "{counts}");
}

/// The socket knows neither a client behind a proxy, nor its peer after a reset.
#[test]
fn a_trace_logs_ends_behind_a_proxy_and_resets() {
    requires!(Can::BeDormouse);
    let routes = format!(
        "[[route]]\nname = 'app'\nlisten = 'LISTEN'\nto = 'echo:'\naccept_proxy_from = ['127.9.2.9']\n{CERTIFICATES}\n"
    );
    let site = Site::at(unused_host(), &routes, |folder| {
        give_certificate(&["localhost"], folder);
    });
    done(&site.admin, &["trace", "--client", "10.9.0.0/16"]);
    done(&site.admin, &["trace", "--client", "127.9.2.1"]);
    let connect = |host: u8, header: &str| {
        let ip = IpAddr::V4(Ipv4Addr::new(127, 9, 2, host));
        let mut tcp = peer::connect_from(ip, site.address);
        tcp.write_all(header.as_bytes()).expect("sent");
        let mut peer = Peer::over(tcp, peer::client(peer::config())).expect("a handshake");
        peer.echo().expect("an echo");
        peer
    };
    drop(connect(9, "PROXY TCP4 10.8.0.1 10.0.0.1 1 443\r\n"));
    drop(connect(9, "PROXY TCP4 10.9.0.1 10.0.0.1 7 443\r\n"));
    let ended = || site.process.lines_with("connection ended");
    wait::until_true("an end behind the proxy", || ended().len() == 1);
    assert!(ended()[0].contains("peer=10.9.0.1:7 "), "{:?}", ended());
    let reset = connect(1, "");
    rustix::net::sockopt::set_socket_linger(&reset.tcp, Some(Duration::ZERO)).expect("set");
    drop(reset);
    wait::until_true("an end by a reset", || ended().len() == 2);
    assert!(ended()[1].contains("peer=127.9.2.1:"), "{:?}", ended());
}

/// Only those of the client that was asked for, and only while there is a trace.
#[test]
fn a_trace_logs_the_connections_of_one_client() {
    requires!(Can::BeDormouse);
    let routes =
        format!("[[route]]\nname = 'app'\nlisten = 'LISTEN'\nto = 'echo:'\n{CERTIFICATES}\n");
    let site = Site::at(unused_host(), &routes, |folder| {
        give_certificate(&["localhost"], folder);
    });
    let admin = site.admin.clone();
    let connect = |host: u8| {
        let ip = IpAddr::V4(Ipv4Addr::new(127, 9, 1, host));
        let tcp = peer::connect_from(ip, site.address);
        let mut peer = Peer::over(tcp, peer::client(peer::config())).expect("a handshake");
        peer.echo().expect("an echo");
        peer
    };
    drop(connect(1));
    let said = done(&admin, &["trace", "--client", "127.9.1.1", "--for", "1m"]);
    assert!(said.contains("127.9.1.1"), "{said}");
    drop(connect(2));
    // A new worker is told, too.
    kill_asleep(site.process.workers()[0]);
    drop(connect(1));
    let ended = || site.process.lines_with("connection ended");
    wait::until_true("the end in the log", || !ended().is_empty());
    let lines = ended();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("127.9.1.1:") && lines[0].contains("by=client"),
        "{lines:?}"
    );
    for (wrong, what) in [("2h", "at most an hour"), ("soon", "not a duration")] {
        let output = dormouse(&admin, &["trace", "--client", "127.9.1.1", "--for", wrong]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(what), "{said}");
    }
}
