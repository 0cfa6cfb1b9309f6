//! Deep rest together with other options: shares of the memory, originations, timeouts that a reload lowers, orders that
//! choose connections, traces, and a sample in the connection log.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output};

use dormouse_interop::admin::Admin;
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::requirement::Root;
use dormouse_interop::scene::{PLAIN_PORT, TLS_PORT};
use dormouse_interop::terminator::{Can, Settings, Target};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};

use super::max_awake::storm;
use super::rest_after::{Quiet, address, connect_over};

/// The listeners beside that of the route whose connections rest.
const FREE_PORT: u16 = TLS_PORT + 1;
const LOCAL_PORT: u16 = TLS_PORT + 2;

const AWAKE: usize = 64;
const CONNECTIONS: usize = 400;
const PERCENT: usize = 25;

fn backend() -> Target {
    Target::Tcp(address(PLAIN_PORT))
}

/// A route `limited`, whose connections rest, and an origination have a quarter of everything; a route `free` has no limit,
/// and is the server of the origination.
fn shared(time: &str) -> Option<Quiet> {
    Quiet::after(time, &backend(), |settings| {
        settings.workers = 1;
        settings.option("max_awake", &AWAKE.to_string());
        settings.option("max_connections", &CONNECTIONS.to_string());
        settings.option("name", "limited");
        let files = &settings.certificate;
        let (cert, key) = (files.cert.display(), files.key.display());
        let (free, local) = (address(FREE_PORT), address(LOCAL_PORT));
        let more = format!(
            "{PERCENT}\n[[route]]\nname = \"free\"\nlisten = \"{free}\"\nto = \"echo:\"\n\
             certificates = [{{ cert = \"{cert}\", key = \"{key}\" }}]\n\
             [[originate]]\nname = \"out\"\nlisten = \"{local}\"\nto = \"{free}\"\ninsecure = true\n\
             server_name = \"localhost\"\nroute_memory_share = {PERCENT}\n"
        );
        settings.options.push(("route_memory_share", more));
    })
}

/// A connection that has echoed once, unless it is refused.
fn admitted(quiet: &Quiet, port: u16, number: usize) -> Option<Peer> {
    quiet.room.run(move || {
        let tcp = peer::connect_tcp(address(port)).ok()?;
        let configs = peer::configs_by_version();
        let config = configs[number % configs.len()].clone();
        let mut client = Peer::over(tcp, peer::client(config)).ok()?;
        if port == TLS_PORT {
            client.stream().write_all(b"echo\n").ok()?;
        }
        client.echo().ok()?;
        Some(client)
    })
}

fn local(quiet: &Quiet) -> TcpStream {
    quiet.room.run(|| {
        let tcp = TcpStream::connect(address(LOCAL_PORT)).expect("the listener");
        tcp.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        tcp
    })
}

fn echoes(client: &mut TcpStream) -> bool {
    let mut back = [0; 7];
    let sent = client.write_all(b"a local");
    sent.and_then(|()| client.read_exact(&mut back)).is_ok() && back == *b"a local"
}

/// The share holds for each kind, sleepers need no place, and nobody waits for others.
#[test]
fn shares_hold_for_connections_that_rest_and_for_originations() {
    requires!(Can::BeDormouse, Root);
    const MOST: usize = CONNECTIONS * PERCENT / 100;
    const PLACES: usize = AWAKE * PERCENT / 100;
    // None rests by its own time.
    let Some(quiet) = shared("1h") else { return };
    let mut free = admitted(&quiet, FREE_PORT, 0).expect("a connection");
    // One that comes while no place is free is refused; those before it rest soon.
    let mut sleepers: Vec<Peer> = (0..MOST)
        .map(|number| {
            let one = wait::until(&format!("connection {number}"), PATIENCE, || {
                free.echo().expect("another route does not wait");
                admitted(&quiet, TLS_PORT, number)
            });
            let awake = quiet.counter("awake") as usize;
            assert!(awake <= PLACES + 1, "{awake} of a share of {PLACES}");
            one
        })
        .collect();
    for _ in 0..3 {
        assert!(admitted(&quiet, TLS_PORT, 0).is_none(), "beyond the share");
    }
    let mut locals: Vec<TcpStream> = (0..PLACES).map(|_| local(&quiet)).collect();
    for (number, one) in locals.iter_mut().enumerate() {
        assert!(echoes(one), "local client {number}");
    }
    assert!(
        !echoes(&mut local(&quiet)),
        "beyond the origination's share"
    );
    // Packets wake more than the share at once.
    for round in 0..2 {
        sleepers = storm(&quiet, sleepers, AWAKE as u64);
        assert!(locals.iter_mut().all(echoes), "after storm {round}");
        free.echo().expect("another route");
        assert!(admitted(&quiet, TLS_PORT, 0).is_none(), "beyond the share");
        assert!(
            !echoes(&mut local(&quiet)),
            "beyond the origination's share"
        );
        quiet.scene.terminator.kill_workers();
    }
    assert!(locals.iter_mut().all(echoes), "after the crashes");
    // The places of those that end are free.
    drop(locals.pop());
    wait::until_true("a place for a local client", || {
        let mut one = local(&quiet);
        let has_place = echoes(&mut one);
        locals.push(one);
        has_place
    });
    sleepers.truncate(MOST - 1);
    wait::until_true("room for a client", || {
        sleepers.extend(admitted(&quiet, TLS_PORT, 0));
        sleepers.len() == MOST
    });
    sleepers = storm(&quiet, sleepers, AWAKE as u64);
    drop(sleepers);
}

/// The file with another beginning, read again.
fn reload_with(quiet: &Quiet, top: &str) {
    let file = quiet.scene.folder.path().join("dormouse.toml");
    let text = std::fs::read_to_string(&file).expect("the file");
    std::fs::write(&file, format!("{top}\n{text}")).expect("written");
    quiet.admin.order("/reload").expect("a reload");
}

/// Of some the client's side rests, others wait for it. A reload spreads their ends over ten seconds.
#[test]
fn a_reload_that_lowers_a_timeout_ends_connections_that_rest_or_are_to_rest() {
    requires!(Can::BeDormouse, Root);
    let scenes = ["200ms", "1h"].map(|time| Quiet::after(time, &backend(), |_| {}));
    let [Some(resting), Some(waiting)] = scenes else {
        return;
    };
    let clients = [&resting, &waiting].map(|quiet| quiet.clients(4, &backend()));
    resting.wait_for_rest();
    for (quiet, top) in [
        (&resting, "total_timeout = '1s'\ntimeout_jitter = 50"),
        (&waiting, "idle_timeout = '1s'\ntimeout_jitter = 50"),
    ] {
        reload_with(quiet, top);
    }
    for mut client in clients.into_iter().flatten() {
        client
            .tcp
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout");
        let rest = client.receive_all().expect("close_notify");
        assert!(rest.is_empty());
    }
    assert_eq!([&resting, &waiting].map(Quiet::resets), [0, 0]);
}

fn dormouse(admin: &Admin, words: &[&str]) -> Output {
    let mut command = Command::new(tools::dormouse());
    let admin = admin.path().to_string_lossy();
    let output = command.args(words).args(["--admin", &admin]).output();
    output.expect("the program runs")
}

fn said(output: &Output) -> String {
    let both = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    both.concat()
}

/// Each of these orders finds and ends connections that rest. All ends are traced, and a part of them is in the log.
#[test]
fn orders_reach_connections_that_rest() {
    requires!(Can::BeDormouse, Root);
    const COUNT: usize = 12;
    let out = address(PLAIN_PORT).to_string();
    let orders: [&[&str]; 3] = [
        &["close", "--client", "127.0.0.1", "--over", "1s"],
        &["close", "--route", "1", "--older", "0s"],
        &["ctl", "out", &out, "--wait", "200ms", "--close-rest"],
    ];
    for order in orders {
        let quiet = Quiet::after("200ms", &backend(), |settings: &mut Settings| {
            settings.workers = 2;
            settings.option("connection_log", "connections.log");
            settings.option("connection_log_one_in", "3");
            let other = address(PLAIN_PORT + 1);
            let backends = format!("['{out}', {{ address = '{other}', backup = true }}]");
            settings.options.push(("to", backends));
        });
        let Some(quiet) = quiet else { return };
        let (status, traced) = quiet.admin.ask("POST", "/trace?client=127.0.0.0/8&for=10m");
        assert_eq!(status, 200, "{traced}");
        let clients = quiet.clients(COUNT, &backend());
        quiet.wait_for_rest();
        let ended = dormouse(&quiet.admin, order);
        assert!(
            ended.status.success() && said(&ended).contains("closed 12 connections"),
            "{order:?}: {}",
            said(&ended)
        );
        // Side by side: a second after its close_notify, Dormouse answers a client's with a reset.
        std::thread::scope(|scope| {
            for mut client in clients {
                scope.spawn(move || {
                    client
                        .tcp
                        .set_read_timeout(Some(PATIENCE))
                        .expect("a timeout");
                    let rest = client.receive_all();
                    let rest = rest.unwrap_or_else(|error| panic!("{order:?}: {error}"));
                    assert!(rest.is_empty());
                    let _ = client.end_sending();
                });
            }
        });
        wait::until_true("all to end", || quiet.counter("connections") == 0);
        let lines = quiet.scene.terminator.logged("connection ended", COUNT);
        assert_eq!(lines.len(), COUNT, "{order:?}: {lines:?}");
        assert!(lines.iter().all(|line| line.contains("closed_by_admin")));
        assert!(quiet.counter("connection_log_lines") < COUNT as u64);
        assert_eq!(quiet.resets(), 0, "{order:?}");
    }
}

/// None of them has to be ended by its backend, so the caller need not come again.
#[test]
fn a_close_of_connections_that_rest_waits_for_no_backend() {
    requires!(Can::BeDormouse, Root);
    let Some(quiet) = Quiet::after("200ms", &backend(), |_| {}) else {
        return;
    };
    let clients = quiet.clients(3, &backend());
    quiet.wait_for_rest();
    let (status, page) = quiet.admin.ask("POST", "/connections/close?route=1");
    assert_eq!(status, 200, "{page}");
    let page: serde_json::Value = serde_json::from_str(&page).expect("JSON");
    assert_eq!((&page["closed"], &page["ending"]), (&3.into(), &0.into()));
    drop(clients);
}

/// The rules of a reload are compared with clients that have no socket.
#[test]
fn a_recheck_finds_clients_that_rest() {
    requires!(Can::BeDormouse, Root);
    let Some(quiet) = Quiet::after("200ms", &backend(), |settings| {
        settings.option("deny", "192.0.2.0/24");
        settings.option("recheck", "established");
    }) else {
        return;
    };
    let listen: SocketAddr = quiet.scene.address;
    let [mut stays, denied] = [[127, 0, 0, 1], [127, 0, 0, 9]].map(|ip| {
        quiet.room.run(move || {
            let tcp = peer::connect_from(ip.into(), listen);
            connect_over(tcp, 0, true)
        })
    });
    quiet.wait_for_rest();
    let file = quiet.scene.folder.path().join("dormouse.toml");
    let text = std::fs::read_to_string(&file).expect("the file");
    let other = text.replace("192.0.2.0/24", "127.0.0.9");
    assert_ne!(text, other);
    std::fs::write(&file, other).expect("written");
    quiet.admin.order("/reload").expect("a reload");
    let mut denied = denied;
    denied
        .tcp
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout");
    assert!(denied.receive_all().expect("close_notify").is_empty());
    let _ = denied.end_sending();
    wait::until_true("the refused one to end", || {
        quiet.counter("connections") == 1
    });
    stays.echo().expect("an echo");
    assert_eq!(quiet.resets(), 0);
}
