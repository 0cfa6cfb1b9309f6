//! Reloads: no connection is affected, nothing is left behind.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use dormouse_interop::admin::Admin;
use dormouse_interop::backend::Backend;
use dormouse_interop::certificates::{Files, Kind, authority};
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::{kill_asleep, signal};
use dormouse_interop::scene::{PLAIN_PORT, Scene, unused_host};
use dormouse_interop::terminator::Can;
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;

/// Memory that reloads may leave behind, in all processes together: rounding by the allocators.
const LEFT_BEHIND_MAX: u64 = 256 << 10;

fn scene(workers: u32) -> (Scene, Admin) {
    let scene = Scene::with(|settings| {
        settings.workers = workers;
        settings.option("reload_certificates", "100ms");
        Admin::in_folder(settings);
    });
    let admin = Admin::of(&scene);
    (scene, admin)
}

/// Changes the configuration file of a scene.
fn edit(scene: &Scene, change: impl FnOnce(String) -> String) {
    let file = scene.folder.path().join("dormouse.toml");
    let text = fs::read_to_string(&file).expect("the configuration");
    fs::write(&file, change(text)).expect("the configuration written");
}

fn echoes(peers: &mut [Peer]) {
    for (number, peer) in peers.iter_mut().enumerate() {
        peer.echo()
            .unwrap_or_else(|error| panic!("connection {number}: {error}"));
    }
}

#[test]
fn reloads_leave_nothing_behind() {
    reload_often(200);
}

#[test]
#[ignore = "the same with 1,000 reloads"]
fn a_thousand_reloads_leave_nothing_behind() {
    reload_often(1_000);
}

fn reload_often(times: u64) {
    requires!(Can::BeDormouse);
    const WARM_UP: u64 = 20;
    let (scene, admin) = scene(2);
    let mut peers: Vec<Peer> = (0..50)
        .map(|_| Peer::saying(scene.address, "echo"))
        .collect();
    echoes(&mut peers);
    for _ in 0..WARM_UP {
        admin.order("/reload").expect("a reload");
    }
    // Control closes the connection of an order after its answer.
    let descriptors = |pids: &[u32]| {
        let of = |pid: &u32| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        let open = || pids.iter().map(of).sum::<usize>() as u64;
        wait::until_still("the number of descriptors", open)
    };
    let tree = scene.terminator.tree();
    let (before, open_before) = (scene.terminator.own_memory(), descriptors(&tree));
    for reload in 0..times {
        admin.order("/reload").expect("a reload");
        if reload % 10 == 0 {
            let peer = reload as usize / 10 % peers.len();
            peers[peer].echo().expect("an echo between reloads");
        }
    }
    let after = scene.terminator.own_memory();
    println!("{times} reloads: {before} bytes before, {after} after");
    assert_eq!(scene.terminator.tree(), tree, "the processes are the same");
    assert_eq!(descriptors(&tree), open_before, "descriptors");
    assert!(
        after <= before + LEFT_BEHIND_MAX,
        "{before} bytes before {times} reloads, {after} after"
    );
    echoes(&mut peers);
    let status = admin.status();
    assert_eq!(status["configuration"]["edition"], 1 + WARM_UP + times);
    assert_eq!(status["counts"]["accepted"], 50);
    Peer::echoing(scene.address);
}

/// `workers` needs a restart: the connection limit stays the same, so that an alert at nine tenths of it can
/// fire.
#[test]
fn a_changed_worker_count_keeps_the_connection_limit() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene(1);
    let before = admin.status()["connections"]["max"].clone();
    for workers in [4, 2, 1] {
        edit(&scene, |text| {
            let rest = text.split_once('\n').expect("several lines").1.to_owned();
            format!("workers = {workers}\n{rest}")
        });
        admin.order("/reload").expect("a reload");
        let status = admin.status();
        assert_eq!(
            status["connections"]["max"], before,
            "with workers = {workers}"
        );
        let waits = &status["configuration"]["waits_for_restart"];
        assert_eq!(
            waits.as_array().map(Vec::len),
            Some(usize::from(workers != 1))
        );
    }
}

/// The output of `dormouse reload` for a mistake, and its exit status.
#[test]
fn a_rejected_reload_reports_once_and_exits_with_2() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene(1);
    edit(&scene, |text| format!("wokers = 2\n{text}"));
    let ran = Command::new(tools::dormouse())
        .args(["reload", "--admin"])
        .arg(admin.path())
        .output()
        .expect("dormouse");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(said.starts_with("error: unknown option `wokers`"), "{said}");
    assert_eq!(said.matches("error").count(), 1, "{said}");
}

#[test]
fn a_mistake_rejects_the_whole_configuration() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene(1);
    let mut peer = Peer::saying(scene.address, "echo");
    let folder = scene.folder.path().to_owned();
    let good = fs::read_to_string(folder.join("dormouse.toml")).expect("the configuration");
    let other = TcpListener::bind((scene.address.ip(), 0)).expect("a listener");
    let taken = other.local_addr().expect("its address");
    let mistakes: [&dyn Fn(&str) -> String; 4] = [
        &|good| format!("max_conections = 7\ntickets = 99\n{good}"),
        &|good| good.replace("cert = \"", "cert = \"nowhere"),
        &|good| good.replace("[[route]]", "[[route"),
        // The configuration is valid, but another process listens on the address.
        &|good| good.replace(&scene.address.to_string(), &taken.to_string()),
    ];
    for (number, mistake) in mistakes.iter().enumerate() {
        edit(&scene, |_| mistake(&good));
        let words = admin.order("/reload").expect_err("a rejected order");
        if number < 3 {
            let check = Command::new(tools::dormouse())
                .args(["check", "-c"])
                .arg(folder.join("dormouse.toml"))
                .output()
                .expect("dormouse check");
            let said = String::from_utf8_lossy(&check.stderr).into_owned();
            assert_eq!(check.status.code(), Some(2), "{said}");
            for line in words.lines() {
                assert!(said.contains(line), "check does not say `{line}`:\n{said}");
            }
        } else {
            assert!(words.contains("address in use by"), "{words}");
        }
        let configuration = &admin.status()["configuration"];
        assert_eq!(configuration["edition"], 1);
        assert_eq!(configuration["last_reload"]["done"], false);
        peer.echo().expect("an echo");
        Peer::echoing(scene.address);
    }
    edit(&scene, |_| good.clone());
    signal(scene.terminator.pid(), Signal::HUP);
    wait::until_true("SIGHUP to reload", || {
        admin.status()["configuration"]["edition"] == 2
    });
}

/// Listeners come and go, backends change; established connections stay. After a crash, the next worker begins
/// with the new configuration.
#[test]
fn routes_come_and_go_and_connections_stay() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene(2);
    let host = unused_host();
    let second = SocketAddr::new(host, 8444);
    let other = Backend::tcp(SocketAddr::new(host, PLAIN_PORT));
    let mut of_first = Peer::echoing(scene.address);

    // A second route before the first one, with another backend.
    let added = |text: &str| {
        let (whole, route) = text.split_once("[[route]]").expect("a route");
        let new = route
            .replace(&scene.address.to_string(), &second.to_string())
            .replace(
                &scene.backend.address().to_string(),
                &other.address().to_string(),
            );
        format!("{whole}[[route]]{new}\n[[route]]{route}")
    };
    let first_only = fs::read_to_string(scene.folder.path().join("dormouse.toml")).expect("text");
    edit(&scene, |text| added(&text));
    admin.order("/reload").expect("a reload");
    let mut of_second = Peer::echoing(second);
    of_first.echo().expect("an echo");

    // All workers die: the next ones begin with both routes.
    for round in 0..2 {
        let worker = admin.status()["workers"][round]["pid"]
            .as_u64()
            .expect("a pid") as u32;
        kill_asleep(worker);
        wait::until_true("the next worker", || {
            admin.status()["workers"][round]["restarts"] == 1
        });
    }
    of_first.echo().expect("an echo after the crash");
    of_second.echo().expect("an echo after the crash");
    for address in [scene.address, second] {
        Peer::echoing(address);
    }

    // The first route is removed: its connection stays, its address is free.
    edit(&scene, |text| {
        let (before, _) = text.rsplit_once("[[route]]").expect("two routes");
        before.to_owned()
    });
    admin.order("/reload").expect("a reload");
    of_first
        .echo()
        .expect("an echo on a connection of a removed route");
    assert!(
        TcpStream::connect(scene.address).is_err(),
        "the old listener is still open"
    );
    Peer::echoing(second);

    // It comes back as a new route.
    edit(&scene, |_| first_only);
    admin.order("/reload").expect("a reload");
    Peer::echoing(scene.address);
    assert!(
        TcpStream::connect(second).is_err(),
        "the old listener is still open"
    );
    of_first.echo().expect("an echo");
    of_second.echo().expect("an echo");
    of_first.end_sending().expect("an end");
    assert_eq!(of_first.receive_all().expect("a clean end"), b"");
}

/// A client waits on the last route until a reload has removed it. It gets the alert, and no backend of another route.
#[test]
fn a_client_of_a_removed_route_gets_no_other_routes_backend() {
    requires!(Can::BeDormouse);
    assert_refused_after_its_route_became(|_| String::new());
}

/// As above, but the route's address now belongs to an origination. The client does not get its own bytes back.
#[test]
fn a_client_whose_address_moves_to_an_origination_gets_no_echo() {
    requires!(Can::BeDormouse);
    assert_refused_after_its_route_became(|address| {
        format!("[[originate]]\nlisten = \"{address}\"\n{UNUSED_SERVER}")
    });
}

const UNUSED_SERVER: &str = "to = \"127.0.0.1:1\"\nserver_name = \"x\"\ninsecure = true\n";

fn assert_refused_after_its_route_became(other: impl FnOnce(SocketAddr) -> String) {
    let scene = Scene::with(|settings| {
        Admin::in_folder(settings);
        // Without an origination at the start, a reload could not add one.
        let origination =
            format!("true\n[[originate]]\nlisten = \"unix:plain.sock\"\n{UNUSED_SERVER}");
        settings.options.push(("half_close", origination));
    });
    let admin = Admin::of(&scene);
    let second = SocketAddr::new(unused_host(), 8444);
    let backend = Backend::tcp(SocketAddr::new(second.ip(), PLAIN_PORT));
    let file = scene.folder.path().join("dormouse.toml");
    let without = fs::read_to_string(file).expect("the configuration");
    let (_, rest) = without.split_once("[[route]]").expect("a route");
    let (route, _) = rest
        .split_once("[[originate]]")
        .expect("an origination after it");
    let route = route
        .replace(&scene.address.to_string(), &second.to_string())
        .replace(
            &scene.backend.address().to_string(),
            &backend.address().to_string(),
        );
    edit(&scene, |text| {
        format!("{text}[[route]]{route}backend_connect = \"first-data\"\n")
    });
    admin.order("/reload").expect("a reload");
    let mut silent = Peer::connect(second).expect("a handshake");
    wait::until_true("the client to wait", || {
        let status = admin.status();
        status["counts"]["accepted"] == 1 && status["connections"]["handshaking"] == 0
    });
    edit(&scene, |_| format!("{without}{}", other(second)));
    let words = admin.order("/reload").expect("a reload");
    assert!(!words.contains("restart"), "{words}");
    silent.stream().write_all(b"echo\n").expect("sent");
    let error = silent.receive_all().expect_err("an alert");
    assert!(error.to_string().contains("InternalError"), "{error}");
    assert_eq!((scene.backend.accepted(), backend.accepted()), (0, 0));
}

#[test]
fn options_that_need_a_restart_are_named() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene(1);
    edit(&scene, |text| {
        format!("pending_memory = \"32 MiB\"\nlog_level = \"debug\"\n{text}")
            .replace("workers = 1", "workers = 2")
    });
    let words = admin.order("/reload").expect("a reload");
    assert!(
        words.ends_with("restart: workers, pending_memory"),
        "{words}"
    );
    let waits = &admin.status()["configuration"]["waits_for_restart"];
    assert_eq!(*waits, serde_json::json!(["workers", "pending_memory"]));
    assert_eq!(scene.terminator.lines_with("handshake done").len(), 0);
    Peer::echoing(scene.address);
    scene.terminator.logged("handshake done", 1);
}

/// Other addresses of control are opened by the next start, which must not fail then: a reload tries them.
#[test]
fn control_addresses_that_the_next_start_could_not_open_reject_a_reload() {
    requires!(Can::BeDormouse);
    let ip = unused_host();
    let scene = Scene::with(|settings| {
        settings.option("metrics", &format!("{ip}:9901"));
        Admin::in_folder(settings);
    });
    let admin = Admin::of(&scene);
    let taken = TcpListener::bind((ip, 0)).expect("an address");
    let port = taken.local_addr().expect("an address").port();
    let holder = format!("(pid {})", std::process::id());
    let own = format!("metrics = \"{ip}:9901\"");
    let socket = "admin = \"admin.sock\"".to_owned();
    let path = scene.folder.path().join("not-a-socket");
    fs::write(&path, "").expect("a file");
    let rejected = [
        (&own, format!("metrics = \"{ip}:{port}\""), &*holder),
        // Includes IPv4, unlike `[::]` of a route.
        (&own, format!("metrics = \"[::]:{port}\""), "[::]"),
        (
            &socket,
            "admin = \"not-a-socket\"".to_owned(),
            "not a socket",
        ),
        (
            &socket,
            "admin = \"missing/x\"".to_owned(),
            "no such directory",
        ),
    ];
    for (before, after, says) in &rejected {
        edit(&scene, |text| text.replace(*before, after));
        let why = admin.order("/reload").expect_err(after);
        assert!(why.contains(says) && why.contains(&**after), "{why}");
        edit(&scene, |text| text.replace(&**after, before));
    }
    // A free address is accepted, and so are all of the program's own, which are free at the next start.
    for after in [format!("{ip}:9902"), "0.0.0.0:9901".to_owned()] {
        let after = format!("metrics = \"{after}\"");
        edit(&scene, |text| text.replace(&own, &after));
        let words = admin.order("/reload").expect("a reload");
        assert!(words.contains("need a restart: metrics"), "{words}");
        edit(&scene, |text| text.replace(&after, &own));
    }
    let words = admin.order("/reload").expect("a reload");
    assert!(!words.contains("restart"), "{words}");
}

/// A reload adds the first backend on a unix socket, which the workers' sandbox does not allow. A client whose handshake
/// is in flight keeps the former backend, and the next one gets the new backend: no client is refused.
#[test]
fn a_reload_that_needs_another_sandbox_refuses_no_client() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.option("handshake_grace", "5s");
        Admin::in_folder(settings);
    });
    let admin = Admin::of(&scene);
    let path = scene.folder.path().join("backend.sock");
    let next = Backend::unix(&path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("for all users");
    let tcp = TcpStream::connect(scene.address).expect("a connection");
    wait::until_true("a handshake in flight", || {
        admin.status()["connections"]["handshaking"] == 1
    });
    let target = format!("\"{}\"", scene.backend.address());
    edit(&scene, |text| {
        assert!(text.contains(&target), "{text}");
        text.replace(&target, &format!("\"unix:{}\"", path.display()))
    });
    let reload = std::thread::spawn({
        let admin = admin.clone();
        move || admin.order("/reload")
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    let mut peer = Peer::over(tcp, peer::client(peer::config())).expect("a handshake");
    peer.stream().write_all(b"echo\n").expect("sent");
    peer.echo().expect("an echo of the former backend");
    assert_eq!((scene.backend.accepted(), next.accepted()), (1, 0));
    reload.join().expect("the order").expect("a reload");
    let _new = Peer::echoing(scene.address);
    peer.echo().expect("an echo of the former backend");
    assert_eq!((scene.backend.accepted(), next.accepted()), (1, 1));
}

/// A worker starts with the sandbox of its configuration, even if its predecessor's allowed more: a later reload that
/// needs more replaces it.
#[test]
fn the_sandbox_of_a_new_worker_may_be_narrower_than_its_predecessors() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene(1);
    let path = scene.folder.path().join("backend.sock");
    let other = Backend::unix(&path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("for all users");
    let tcp = format!("\"{}\"", scene.backend.address());
    let unix = format!("\"unix:{}\"", path.display());
    let switch = |from: &str, to: &str| {
        edit(&scene, |text| text.replace(from, to));
        admin.order("/reload").expect("a reload");
        Peer::echoing(scene.address);
    };
    switch(&tcp, &unix);
    switch(&unix, &tcp);
    let worker = scene.terminator.workers()[0];
    kill_asleep(worker);
    wait::until_true("the next worker", || {
        let status = admin.status();
        status["workers"][0]["alive"] == true && status["workers"][0]["pid"] != worker
    });
    let _peer = Peer::echoing(scene.address);
    switch(&tcp, &unix);
    assert_eq!((scene.backend.accepted(), other.accepted()), (2, 2));
}

/// A keeper's settings stay as they were at its start: it cannot change its user, and with another timeout it
/// would kill a healthy worker. So the next crash is repaired as usual.
#[test]
fn a_reload_does_not_mislead_keepers() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene(1);
    let mut peer = Peer::saying(scene.address, "echo");
    edit(&scene, |text| {
        let more = "user = \"65534\"\nhang_timeout = \"1s\"\nmemory = \"512 MiB\"\nbacklog = 77\n";
        format!("{more}{text}")
    });
    let words = admin.order("/reload").expect("a reload");
    let waits = &admin.status()["configuration"]["waits_for_restart"];
    let names: Vec<&str> = (waits.as_array().expect("a list").iter())
        .filter_map(|name| name.as_str())
        .collect();
    let has_all = ["user", "hang_timeout", "memory", "backlog"].map(|name| names.contains(&name));
    assert_eq!(has_all, [true; 4], "{words}");
    scene.terminator.kill_workers();
    peer.echo().expect("an echo after a crash after the reload");
    Peer::echoing(scene.address);
}

/// The certificate that a new connection gets.
fn shown(scene: &Scene) -> Vec<u8> {
    let peer = Peer::connect(scene.address).expect("a connection");
    let certificates = peer.tls.peer_certificates().expect("a certificate");
    certificates.first().expect("a certificate").to_vec()
}

fn wait_for_other_certificate(scene: &Scene, than: &[u8]) -> Vec<u8> {
    wait::until("the new certificate to be shown", PATIENCE, || {
        Some(shown(scene)).filter(|now| now != than)
    })
}

/// Certificates are replaced in all usual ways: rewritten, one file after the other; renamed over; behind a
/// symbolic link that changes.
#[test]
fn changed_certificates_are_used() {
    requires!(Can::BeDormouse);
    let folder = tempfile::tempdir().expect("a folder");
    let new = |name: &str| {
        let there = folder.path().join(name);
        fs::create_dir(&there).expect("a folder");
        authority().give_out("site", Kind::EcdsaP256, 2036, &there)
    };
    let copy = |from: &Path, to: &Path| {
        fs::copy(from, to).expect("a copy");
    };
    let [first, second, third, fourth] = ["1", "2", "3", "4"].map(new);
    let data = folder.path().join("..data");
    symlink(folder.path().join("1"), &data).expect("a link");
    let live = Files {
        cert: folder.path().join("live.pem"),
        key: folder.path().join("live.key"),
        both: first.both.clone(),
    };
    // As Kubernetes mounts a secret: the files are links into `..data`, which is a link.
    symlink(data.join("site.pem"), &live.cert).expect("a link");
    symlink(data.join("site.key"), &live.key).expect("a link");
    let scene = Scene::with(|settings| {
        settings.certificate = live.clone();
        settings.option("reload_certificates", "100ms");
        Admin::in_folder(settings);
    });
    let mut old = Peer::echoing(scene.address);
    let seen = shown(&scene);

    let temporary = folder.path().join("..new");
    symlink(folder.path().join("2"), &temporary).expect("a link");
    fs::rename(&temporary, &data).expect("the link replaced atomically");
    let seen = wait_for_other_certificate(&scene, &seen);

    // Renamed over, as certbot does; certificate and key at different times.
    for (path, from) in [(&live.cert, &third.cert), (&live.key, &third.key)] {
        copy(from, &temporary);
        fs::rename(&temporary, path).expect("renamed over");
        if path == &live.cert {
            wait::until_true("the log to say that they do not fit", || {
                let lines = scene.terminator.lines_with("changed file rejected");
                !lines.is_empty()
            });
            assert_eq!(shown(&scene), seen, "a certificate without its key");
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
    }
    let seen = wait_for_other_certificate(&scene, &seen);
    let complaints = scene.terminator.logged("changed file rejected", 1);
    assert_eq!(complaints.len(), 1, "said once: {complaints:?}");

    // Rewritten in place.
    copy(&fourth.key, &live.key);
    copy(&fourth.cert, &live.cert);
    wait_for_other_certificate(&scene, &seen);
    assert!(second.cert.exists());
    old.echo().expect("an echo on an older connection");
    assert!(Admin::of(&scene).status()["configuration"]["edition"].as_u64() >= Some(4));
}
