//! The control process: its answers, its permissions, and its independence of the other processes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use dormouse_interop::admin::Admin;
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::{kill_asleep, signal, until_ended};
use dormouse_interop::requirement::Root;
use dormouse_interop::scene::{Scene, unused_host};
use dormouse_interop::slots;
use dormouse_interop::terminator::{Can, Target};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;
use serde_json::Value;

fn scene(workers: u32) -> (Scene, Admin) {
    let scene = Scene::with(|settings| {
        settings.workers = workers;
        Admin::in_folder(settings);
    });
    let admin = Admin::of(&scene);
    (scene, admin)
}

fn pid(process: &Value) -> u32 {
    let pid = process["pid"].as_u64().unwrap_or_default();
    pid.try_into().expect("a process id")
}

fn until_status(admin: &Admin, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    wait::until(what, PATIENCE, || Some(admin.status()).filter(|s| is(s)))
}

#[test]
fn status_shows_processes_and_their_state() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene(2);
    let _peers: Vec<Peer> = (0..5).map(|_| Peer::echoing(scene.address)).collect();
    let status = until_status(&admin, "five connections at rest", |status| {
        status["connections"]["at_rest"] == 5
    });
    assert_eq!(status["phase"], "ready");
    assert_eq!(status["connections"]["pending"], 0);
    assert_eq!(status["counts"]["accepted"], 5);
    assert_eq!(status["memory"]["slots"]["used_bytes"], 5 * 192);
    assert_eq!(status["drain"], Value::Null);
    let mut tree = scene.terminator.tree();
    tree.sort_unstable();
    let workers = status["workers"].as_array().expect("workers");
    let mut seen = vec![pid(&status["main"]), pid(&status["control"])];
    for worker in workers {
        assert_eq!(worker["alive"], true, "{worker}");
        assert_eq!(worker["keeper"]["alive"], true, "{worker}");
        seen.extend([pid(worker), pid(&worker["keeper"])]);
    }
    seen.sort_unstable();
    assert_eq!(seen, tree, "every process is in the answer");

    let (code, metrics) = admin.ask("GET", "/metrics");
    assert_eq!(code, 200);
    for line in [
        "# TYPE dormouse_connections_accepted_total counter",
        "dormouse_connections_accepted_total 5",
        "# TYPE dormouse_connections gauge",
        "dormouse_connections{state=\"at_rest\"} 5",
        "dormouse_workers_alive 2",
        "dormouse_accepting 1",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line}:\n{metrics}");
    }
    assert_eq!(admin.ask("GET", "/healthz").0, 200);
    assert_eq!(admin.ask("GET", "/readyz").0, 200);
}

/// Clients that have sent nothing are handshakes in flight, but use no memory.
#[test]
fn the_memory_of_handshakes_is_that_of_begun_ones() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene(1);
    let connect = |_| TcpStream::connect(scene.address).expect("a connection");
    let mut silent: Vec<TcpStream> = (0..20).map(connect).collect();
    let is_used = |status: &Value, handshakes: u64| {
        status["connections"]["handshaking"] == 20
            && status["memory"]["handshakes"]["used_bytes"] == handshakes * 65_536
    };
    until_status(&admin, "silent clients", |status| is_used(status, 0));
    silent[0].write_all(b"\x16\x03").expect("sent");
    until_status(&admin, "a begun handshake", |status| is_used(status, 1));
}

#[test]
fn only_the_owner_may_use_the_socket_and_within_limits() {
    requires!(Can::BeDormouse);
    let (_scene, admin) = scene(1);
    let mode = std::fs::metadata(admin.path()).expect("a socket");
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    for (request, status) in [
        (&b"GET /nothing HTTP/1.1\r\n\r\n"[..], "404"),
        (b"POST /status HTTP/1.1\r\n\r\n", "405"),
        (b"GET /reload HTTP/1.1\r\n\r\n", "405"),
        (b"POST /drain?over=soon HTTP/1.1\r\n\r\n", "400"),
        (b"POST /drain?order=random HTTP/1.1\r\n\r\n", "400"),
        (b"POST /reload?now=1 HTTP/1.1\r\n\r\n", "400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\x7c\r\n\r\n", "400"),
        (
            b"POST /reload HTTP/1.1\r\nContent-Length: 99999\r\n\r\n",
            "413",
        ),
    ] {
        let answer = admin.say(request).expect("an answer");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "expected {status}, came: {answer}"
        );
    }
    // Silent clients are closed, and keep no client out for long.
    let mut silent: Vec<_> = (0..40)
        .map(|_| std::os::unix::net::UnixStream::connect(admin.path()).expect("a connection"))
        .collect();
    assert_eq!(admin.ask("GET", "/healthz").0, 200);
    let first = silent.first_mut().expect("a silent client");
    first.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert_eq!(first.read(&mut [0; 1]).expect("the end of the stream"), 0);
    assert_eq!(admin.status()["connections"]["at_rest"], 0);
}

/// `/proc` shows only processes that one may trace: so it is on hardened machines, and in units with `ProtectProc=`.
#[test]
fn workers_are_alive_although_proc_hides_them() {
    requires!(Can::BeDormouse, Root, "unshare");
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        let hide = "mount -t proc -o hidepid=2 proc /proc && exec \"$@\"";
        let words = [&tools::path("unshare"), "--mount", "sh", "-c", hide, "sh"];
        settings.wrapper = words.map(str::to_owned).to_vec();
        Admin::in_folder(settings);
    });
    let admin = Admin::of(&scene);
    let status = admin.status();
    assert_eq!(status["workers"][0]["alive"], true, "{status}");
    assert_eq!(status["workers"][0]["keeper"]["alive"], true, "{status}");
    let worker = pid(&status["workers"][0]);
    kill_asleep(worker);
    until_status(&admin, "the next worker", |status| {
        let next = &status["workers"][0];
        next["alive"] == true && pid(next) != worker
    });
}

/// The kernel's credentials decide who may use the socket, not the mode of the file.
#[test]
fn another_user_is_refused_with_any_mode_of_the_socket() {
    requires!(Can::BeDormouse, Root, "setpriv", "curl");
    let (scene, admin) = scene(1);
    let everybody = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(scene.folder.path(), everybody(0o755))
        .expect("permissions of the folder");
    std::fs::set_permissions(admin.path(), everybody(0o666)).expect("permissions of the socket");
    let ask = |user: &str, method: &str, path: &str| {
        let asked = Command::new(tools::path("setpriv"))
            .args(["--reuid", user, "--regid", user, "--clear-groups"])
            .args([&tools::path("curl"), "-s", "-m", "10", "-X", method])
            .args(["-w", " %{http_code}", "--unix-socket"])
            .arg(admin.path())
            .arg(format!("http://localhost{path}"))
            .output()
            .expect("setpriv and curl");
        String::from_utf8_lossy(&asked.stdout).into_owned()
    };
    for (method, path) in [("GET", "/status"), ("POST", "/reload"), ("POST", "/drain")] {
        // The refusal may come before the client has sent its request.
        let answer = ask("65534", method, path);
        let refused = answer.ends_with(" 403") || answer == " 000";
        assert!(refused, "{method} {path}: {answer}");
    }
    assert!(ask("0", "GET", "/status").ends_with(" 200"));
    assert_eq!(admin.status()["configuration"]["edition"], 1);
    assert_eq!(scene.terminator.logged("admin request denied", 3).len(), 3);
}

/// Metrics, health and the status page have a TCP address, and orders have the socket, both at once, each for
/// its own purpose. The control process dies, and both are back.
#[test]
fn metrics_have_a_tcp_address_and_orders_the_socket() {
    requires!(Can::BeDormouse);
    let address = format!("{}:9901", unused_host());
    let scene = Scene::with(|settings| {
        settings.option("metrics", &address);
        Admin::in_folder(settings);
    });
    let admin = Admin::of(&scene);
    let asks = |admin: &Admin| {
        for path in ["/", "/status", "/metrics", "/healthz", "/readyz"] {
            assert!(
                say(&address, "GET", path).starts_with("HTTP/1.1 200 "),
                "{path}"
            );
        }
        for path in ["/drain", "/reload", "/drain/stop", "/upgrade"] {
            let answer = say(&address, "POST", path);
            assert!(answer.starts_with("HTTP/1.1 403 "), "{path}: {answer}");
            assert!(answer.contains("only on the admin socket"), "{answer}");
        }
        let reloaded = admin.order("/reload").expect("a reload");
        assert!(reloaded.contains("configuration reloaded"), "{reloaded}");
    };
    asks(&admin);
    let control = pid(&admin.status()["control"]);
    signal(control, Signal::KILL);
    wait::until("the next control process", PATIENCE, || {
        let answer = admin.say(b"GET /status HTTP/1.1\r\n\r\n").ok()?;
        let status: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
        (pid(&status["control"]) != control && status["phase"] == "ready").then_some(())
    });
    asks(&admin);
    assert_eq!(admin.status()["configuration"]["edition"], 3);
    Peer::echoing(scene.address);
}

/// Metrics clients can keep out neither orders nor other metrics clients: not by silence, and not by staying after the
/// response.
#[test]
fn idle_metrics_clients_keep_nobody_out() {
    requires!(Can::BeDormouse);
    let address = format!("{}:9901", unused_host());
    let scene = Scene::with(|settings| {
        settings.option("metrics", &address);
        Admin::in_folder(settings);
    });
    let idle = |request: &str| -> Vec<TcpStream> {
        let client = |_| {
            let mut client = TcpStream::connect(&address).expect("a connection");
            client.write_all(request.as_bytes()).expect("sent");
            client
        };
        (0..40).map(client).collect()
    };
    let silent = idle("");
    let is_open = |mut client: &TcpStream| {
        client.set_nonblocking(true).expect("set");
        client.read(&mut [0]).is_err()
    };
    // The oldest has made room for this one. The last of the first 24 would have had to.
    assert!(say(&address, "GET", "/healthz").starts_with("HTTP/1.1 200 "));
    assert!(!is_open(&silent[0]) && is_open(&silent[23]));
    let reloaded = Admin::of(&scene).order("/reload").expect("a reload");
    assert!(reloaded.contains("edition 2"), "{reloaded}");
    let _answered = idle("GET /readyz HTTP/1.0\r\n\r\n");
    assert!(say(&address, "GET", "/healthz").starts_with("HTTP/1.1 200 "));
}

/// An older configuration with a TCP address as `admin` keeps working.
#[test]
fn a_tcp_admin_address_answers_queries_and_refuses_orders() {
    requires!(Can::BeDormouse);
    let address = format!("{}:9901", unused_host());
    let scene = Scene::with(|settings| {
        settings.option("admin", &address);
    });
    assert!(say(&address, "GET", "/status").contains("\"phase\": \"ready\""));
    assert!(say(&address, "POST", "/drain").starts_with("HTTP/1.1 403 "));
    assert_eq!(scene.terminator.logged("`admin` takes a path", 1).len(), 1);
    Peer::echoing(scene.address);
}

fn say(address: &str, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let request = format!("{method} {path} HTTP/1.1\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The control process is killed: it is restarted, and nothing else notices.
#[test]
fn control_dies() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene(1);
    let mut peer = Peer::echoing(scene.address);
    for round in 1..=3 {
        let control = pid(&admin.status()["control"]);
        signal(control, Signal::KILL);
        let asked = wait::until("the next control process", PATIENCE, || {
            let answer = admin.say(b"GET /status HTTP/1.1\r\n\r\n").ok()?;
            let status: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
            (pid(&status["control"]) != control && status["phase"] == "ready").then_some(status)
        });
        assert_eq!(asked["control"]["restarts"], round);
        peer.echo().expect("an echo");
    }
}

/// A worker is killed: the status reports the number of deaths and the last cause.
#[test]
fn a_worker_dies() {
    requires!(Can::BeDormouse);
    let (_scene, admin) = scene(2);
    let victim = pid(&admin.status()["workers"][1]);
    signal(victim, Signal::KILL);
    let status = until_status(&admin, "the next worker", |status| {
        status["workers"][1]["restarts"] == 1 && status["workers"][1]["alive"] == true
    });
    let worker = &status["workers"][1];
    assert_ne!(pid(worker), victim);
    assert_eq!(worker["last_death"]["reason"], "killed by SIGKILL (9)");
    assert_eq!(status["workers"][0]["last_death"], Value::Null);
}

/// A keeper is killed: its worker keeps serving, and the status says so.
#[test]
fn a_keeper_dies() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene(2);
    let mut peers: Vec<Peer> = (0..8)
        .map(|_| Peer::saying(scene.address, "echo"))
        .collect();
    signal(pid(&admin.status()["workers"][0]["keeper"]), Signal::KILL);
    let status = until_status(&admin, "the keeper to be seen dead", |status| {
        status["workers"][0]["keeper"]["ended"] == "killed by SIGKILL (9)"
    });
    assert_eq!(status["workers"][0]["keeper"]["alive"], false);
    assert_eq!(status["workers"][0]["alive"], true, "its worker serves on");
    for peer in &mut peers {
        peer.echo().expect("an echo");
    }
}

/// A connection that echoes; `None` if the program refuses it.
fn connected(scene: &Scene) -> Option<Peer> {
    let tcp = TcpStream::connect(scene.address).expect("a connection");
    let mut peer = Peer::over(tcp, peer::client(peer::config())).ok()?;
    peer.stream().write_all(b"echo\n").ok()?;
    peer.echo().is_ok().then_some(peer)
}

/// A keeper and its worker are killed: their connections are counted nowhere any more.
#[test]
fn a_keeper_and_its_worker_die() {
    requires!(Can::BeDormouse);
    const MOST: usize = 12;
    let scene = Scene::with(|settings| {
        settings.workers = 2;
        settings.option("connections_per_client", &MOST.to_string());
        Admin::in_folder(settings);
    });
    let admin = Admin::of(&scene);
    let connect = || connected(&scene);
    let mut peers: Vec<Peer> = (0..MOST).map(|_| connect().expect("an echo")).collect();
    let of = |worker: &Value| worker["at_rest"].as_u64().expect("a number");
    let status = until_status(&admin, "all connections", |status| {
        let workers = status["workers"].as_array().expect("workers");
        workers.iter().map(of).sum::<u64>() == MOST as u64
    });
    let lost = usize::from(of(&status["workers"][1]) > of(&status["workers"][0]));
    let left = of(&status["workers"][1 - lost]);
    let crashed = MOST as u64 - left;
    let pair = &status["workers"][lost];
    signal(pid(&pair["keeper"]), Signal::KILL);
    until_status(&admin, "the keeper to be seen dead", |status| {
        status["workers"][lost]["keeper"]["alive"] == false
    });
    signal(pid(pair), Signal::KILL);
    let status = until_status(&admin, "the connections to be forgotten", |status| {
        status["connections"]["at_rest"] == left
    });
    assert_eq!(status["routes"][0]["connections"], left);
    assert_eq!(status["routes"][0]["closed"]["crash"], crashed);
    assert_eq!(status["backends"][0]["connections"], left);
    assert_eq!(status["counts"]["closed_by_crash"], crashed);
    // The client may have as many connections as before, and not one more.
    let is_alive = |peer: &mut Peer| peer.echo().is_ok();
    peers.retain_mut(is_alive);
    assert_eq!(peers.len() as u64, left);
    let more: Vec<Peer> = wait::until("new connections", PATIENCE, || {
        let more: Vec<Peer> = (left..MOST as u64).map_while(|_| connect()).collect();
        (more.len() as u64 == crashed).then_some(more)
    });
    assert!(connect().is_none(), "one more than allowed");
    drop(more);
    wait::until("the places to be free again", PATIENCE, connect);
}

/// The others count again, but one of them is stopped. Main does not wait for it for ever, because no client would be limited
/// meanwhile.
#[test]
fn a_stopped_worker_does_not_lift_the_limit_of_connections() {
    requires!(Can::BeDormouse);
    const MOST: usize = 4;
    let scene = Scene::with(|settings| {
        settings.workers = 3;
        settings.option("hang_timeout", "off");
        settings.option("connections_per_client", &MOST.to_string());
        Admin::in_folder(settings);
    });
    let admin = Admin::of(&scene);
    let connect = || connected(&scene);
    drop(connect().expect("an echo"));
    let status = admin.status();
    let stopped = pid(&status["workers"][1]);
    slots::stop(stopped);
    signal(pid(&status["workers"][0]["keeper"]), Signal::KILL);
    until_status(&admin, "the keeper to be seen dead", |status| {
        status["workers"][0]["keeper"]["alive"] == false
    });
    signal(pid(&status["workers"][0]), Signal::KILL);
    scene.terminator.logged("are gone", 1);
    wait::until_true("the limit", || {
        let peers: Vec<Peer> = (0..=MOST).map_while(|_| connect()).collect();
        peers.len() == MOST
    });
    signal(stopped, Signal::CONT);
    wait::until("the places to be free again", PATIENCE, connect);
}

/// The main process is killed: connections are still served, new ones are refused, control reports that main
/// is gone and refuses orders; after the last worker it exits too.
#[test]
fn main_dies() {
    requires!(Can::BeDormouse);
    let (mut scene, admin) = scene(1);
    let mut peer = Peer::echoing(scene.address);
    let before = admin.status();
    signal(scene.terminator.pid(), Signal::KILL);
    scene.terminator.wait_for_end(PATIENCE);
    let status = until_status(&admin, "main to be seen dead", |status| {
        status["main"]["alive"] == false
    });
    peer.echo().expect("an echo after main died");
    assert_eq!(pid(&status["main"]), scene.terminator.pid());
    assert_eq!(status["phase"], "orphaned");
    assert_eq!(admin.ask("GET", "/readyz").0, 503);
    wait::until_true("new connections to be refused", || {
        TcpStream::connect(scene.address).is_err()
    });
    for order in ["/reload", "/drain", "/drain/stop"] {
        let words = admin.order(order).expect_err("a rejected order");
        assert!(words.contains("main process is gone"), "{words}");
    }
    assert_eq!(admin.ask("GET", "/healthz").0, 200);

    // A worker can still be replaced, because its keeper lives.
    kill_asleep(pid(&before["workers"][0]));
    until_status(&admin, "the next worker", |status| {
        status["workers"][0]["restarts"] == 1
    });
    peer.echo().expect("an echo after worker 0 died too");

    let now = admin.status();
    for worker in now["workers"].as_array().expect("workers") {
        signal(pid(&worker["keeper"]), Signal::KILL);
        signal(pid(worker), Signal::KILL);
    }
    let control = pid(&now["control"]);
    // Nobody is served any more.
    until_ended(&[control]);
}
