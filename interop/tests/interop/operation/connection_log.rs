//! The connection log: one complete line for each connection, whatever happens meanwhile, and no connection
//! waits for the log.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::Command;

use dormouse_interop::admin::Admin;
use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::peer::{self, Peer, client, connect_tcp};
use dormouse_interop::process::{kill_asleep, signal, until_ended};
use dormouse_interop::scene::Scene;
use dormouse_interop::terminator::{Can, Settings};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rustix::net::sockopt;
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

use crate::certificates::site::Site;

const NAME: &str = "connections.log";

fn scene(change: impl FnOnce(&mut Settings)) -> (Scene, Admin) {
    let scene = Scene::with(|settings| {
        settings.option("connection_log", NAME);
        settings.option("connection_log_format", "json");
        settings.option("log_handshakes", "true");
        settings.alpn = vec!["echo"];
        Admin::in_folder(settings);
        change(settings);
    });
    let admin = Admin::of(&scene);
    (scene, admin)
}

fn file(scene: &Scene) -> PathBuf {
    scene.folder.path().join(NAME)
}

/// The lines, once there are `count` of them; each is a complete JSON object.
fn lines(scene: &Scene, count: usize) -> Vec<Value> {
    let text = wait::until(&format!("{count} lines"), PATIENCE, || {
        let text = fs::read_to_string(file(scene)).unwrap_or_default();
        (text.lines().count() >= count && text.ends_with('\n')).then_some(text)
    });
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    let lines: Vec<Value> = text.lines().map(parse).collect();
    assert_eq!(lines.len(), count, "{text}");
    lines
}

/// The ids of all handshakes, which are this many, in order.
fn ids_of_handshakes(scene: &Scene, count: usize) -> Vec<String> {
    let id = |line: &String| {
        let (_, id) = line.split_once(" id=")?;
        Some(id.split(' ').next()?.trim_matches('"').to_owned())
    };
    let lines = scene.terminator.logged("handshake done", count);
    lines.iter().filter_map(id).collect()
}

fn close(mut peer: Peer) {
    peer.end_sending().expect("an end");
    peer.receive_all().expect("its answer");
}

#[test]
fn each_connection_has_a_line_with_its_end() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene(|_| {});
    let [tls13, tls12] = peer::configs_by_version();
    let connect = |config: &rustls::ClientConfig, line: &str| {
        let mut config = config.clone();
        config.alpn_protocols = vec![b"echo".to_vec()];
        let tcp = connect_tcp(scene.address).expect("a connection");
        let own = tcp.local_addr().expect("its address").to_string();
        let mut peer = Peer::over(tcp, client(config)).expect("a handshake");
        peer.stream().write_all(line.as_bytes()).expect("sent");
        (peer, own)
    };
    let mut expected = Vec::new();
    let mut expect = |version: &str, own: String, end: &str, by: &str| {
        expected.push((version.to_owned(), own, end.to_owned(), by.to_owned()));
        lines(&scene, expected.len())
    };
    // The client closes; the second time with a resumed session.
    for resumed in [false, true] {
        let (mut peer, own) = connect(&tls13, "echo\n");
        peer.echo().expect("an echo");
        close(peer);
        let line = expect("TLSv1.3", own, "closed", "client").remove(usize::from(resumed));
        assert_eq!(line["resumed"], resumed, "{line}");
        assert_eq!(
            (&line["bytes_in"], &line["bytes_out"]),
            (&1505.into(), &1500.into())
        );
        assert_eq!(line["sni"], "localhost");
        assert_eq!(line["alpn"], "echo");
        assert_eq!(line["route"], "1");
        assert_eq!(line["backend"], scene.backend.address().to_string());
        let begins = |name: &str, with| line[name].as_str().is_some_and(|it| it.starts_with(with));
        assert!(begins("suite", "TLS_") && begins("time", "20"), "{line}");
    }
    // The backend closes.
    scene.backend.close_at_once(true);
    // Nothing is sent, because unread bytes would turn the backend's close into a reset.
    let (mut peer, own) = connect(&tls12, "");
    let _ = peer.receive_all().and_then(|_| peer.end_sending());
    drop(peer);
    let line = expect("TLSv1.2", own, "closed", "backend").remove(2);
    assert!(line["duration_ms"].is_u64(), "{line}");
    scene.backend.close_at_once(false);
    // A FIN without close_notify; a reset.
    let (mut peer, own) = connect(&tls12, "echo\n");
    peer.echo().expect("an echo");
    peer.tcp.shutdown(Shutdown::Write).expect("an end");
    expect("TLSv1.2", own, "truncated", "client");
    let (mut peer, own) = connect(&tls13, "echo\n");
    peer.echo().expect("an echo");
    sockopt::set_socket_linger(&peer.tcp, Some(Duration::ZERO)).expect("set");
    drop(peer);
    expect("TLSv1.3", own, "failed", "client");
    let count = expected.len();
    let found = lines(&scene, count);
    for (line, (version, own, end, by)) in found.iter().zip(&expected) {
        let said = [&line["version"], &line["client"], &line["end"], &line["by"]];
        assert_eq!(
            said,
            [version, own, end, by].map(|text| text.as_str()),
            "{line}"
        );
    }
    let ids: Vec<&str> = found
        .iter()
        .filter_map(|line| line["id"].as_str())
        .collect();
    assert_eq!(
        ids,
        ids_of_handshakes(&scene, ids.len()),
        "ids are those of the handshakes"
    );
    let counts = &admin.status()["counts"];
    assert_eq!(counts["connection_log_lines"], count);
    assert_eq!(counts["connection_log_dropped"], 0);
}

/// A failed handshake has a line with its reason; a connection without a byte, as of a health check, has none.
/// A route to `echo:` has no backend, and its answers are counted all the same.
#[test]
fn echoed_bytes_are_counted() {
    requires!(Can::BeDormouse);
    let site = Site::new(
        "workers = 1\nconnection_log = 'HERE/connections.log'\n\
         [[route]]\nlisten = 'LISTEN'\nto = 'echo:'\ncertificates = 'HERE/both.pem'\n",
        |folder| {
            let files = authority().give_out_for("site", Kind::EcdsaP256, &["localhost"], folder);
            fs::rename(files.both, folder.join("both.pem")).expect("moved");
        },
    );
    let tcp = connect_tcp(site.address).expect("a connection");
    let mut peer = Peer::over(tcp, client(peer::config())).expect("a handshake");
    peer.echo().expect("an echo");
    close(peer);
    let log = site.folder.path().join(NAME);
    let line = wait::until("a line", PATIENCE, || {
        fs::read_to_string(&log)
            .ok()
            .filter(|text| text.ends_with('\n'))
    });
    assert!(line.contains("bytes_in=1500 bytes_out=1500"), "{line}");
}

#[test]
fn a_failed_handshake_has_a_line() {
    requires!(Can::BeDormouse);
    let (scene, _) = scene(|_| {});
    drop(connect_tcp(scene.address).expect("a connection"));
    let mut tcp = connect_tcp(scene.address).expect("a connection");
    let own = tcp.local_addr().expect("its address").to_string();
    tcp.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").expect("sent");
    let _ = tcp.read_to_end(&mut Vec::new());
    let line = &lines(&scene, 1)[0];
    assert_eq!(line["end"], "handshake_failed", "{line}");
    assert_eq!(line["by"], "dormouse", "{line}");
    assert_eq!(line["client"], own.as_str(), "{line}");
    assert!(line["error"].is_string() && line["id"].is_null(), "{line}");
}

#[test]
fn an_idle_timeout_has_a_line() {
    requires!(Can::BeDormouse);
    let (scene, _) = scene(|settings| {
        settings.option("idle_timeout", "1s");
    });
    let mut peer = Peer::connect(scene.address).expect("a connection");
    let _ = peer.receive_all();
    let line = lines(&scene, 1).remove(0);
    let said = (&line["end"], &line["by"]);
    assert_eq!(said, (&"idle_timeout".into(), &"dormouse".into()), "{line}");
}

#[test]
fn a_backend_failure_has_a_line() {
    requires!(Can::BeDormouse);
    let (scene, _) = scene(|settings| {
        let address = std::net::SocketAddr::new(settings.listen.ip(), 9);
        settings.target = dormouse_interop::terminator::Target::Tcp(address);
    });
    let mut peer = Peer::connect(scene.address).expect("a connection");
    peer.receive_all().expect_err("an alert");
    let line = lines(&scene, 1).remove(0);
    assert_eq!(
        (&line["end"], &line["by"]),
        (&"backend_down".into(), &"backend".into())
    );
}

/// A line holds what a dead worker and a previous binary have recorded.
#[test]
fn a_line_is_complete_after_crashes_and_upgrades() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene(|_| {});
    let mut peers: Vec<Peer> = (0..5)
        .map(|_| Peer::saying(scene.address, "echo"))
        .collect();
    let owns: Vec<String> = (peers.iter())
        .map(|peer| peer.tcp.local_addr().expect("an address").to_string())
        .collect();
    let echo = |peers: &mut Vec<Peer>| peers.iter_mut().for_each(|p| p.echo().expect("an echo"));
    echo(&mut peers);
    let named = |name: &str| wait::until(name, PATIENCE, || scene.terminator.named(name));
    for _ in 0..2 {
        let worker = named("worker-0");
        kill_asleep(worker);
        wait::until_true("another worker", || named("worker-0") != worker);
        echo(&mut peers);
    }
    admin.order("/upgrade").expect("an upgrade");
    echo(&mut peers);
    // The writer may die, too: nothing is lost.
    let writer = named("log-writer");
    signal(writer, Signal::KILL);
    for peer in peers {
        close(peer);
    }
    let mut found = lines(&scene, 5);
    found.sort_by_key(|line| owns.iter().position(|own| line["client"] == own.as_str()));
    for ((line, own), id) in found.iter().zip(&owns).zip(ids_of_handshakes(&scene, 5)) {
        assert_eq!(line["client"], own.as_str(), "{line}");
        assert_eq!(line["id"], id, "{line}");
        assert_eq!(line["bytes_in"], 5 + 4 * 1500, "{line}");
        assert_eq!(line["bytes_out"], 4 * 1500, "{line}");
        assert_eq!(line["sni"], "localhost");
        assert_eq!(
            (&line["end"], &line["by"]),
            (&"closed".into(), &"client".into())
        );
    }
}

/// Main is killed: the log writer writes the lines of all connections that end later, and ends after the last worker. If it is
/// killed too, the program's log says once that lines are lost.
#[test]
fn lines_are_written_after_the_death_of_main() {
    requires!(Can::BeDormouse);
    for kills_writer in [false, true] {
        let (mut scene, _) = scene(|settings| {
            settings.option("shutdown_drain", "30s");
        });
        let peers: Vec<Peer> = (0..20)
            .map(|_| Peer::saying(scene.address, "echo"))
            .collect();
        let named = |name| wait::until(name, PATIENCE, || scene.terminator.named(name));
        let [writer, worker] = ["log-writer", "worker-0"].map(named);
        signal(scene.terminator.pid(), Signal::KILL);
        scene.terminator.wait_for_end(PATIENCE);
        if kills_writer {
            signal(writer, Signal::KILL);
            until_ended(&[writer]);
        }
        for peer in peers {
            close(peer);
        }
        if !kills_writer {
            lines(&scene, 20);
        }
        until_ended(&[worker, writer]);
        let lost = scene.terminator.lines_with("connection log lines dropped");
        assert_eq!(lost.len(), usize::from(kills_writer), "{lost:?}");
    }
}

/// Also if the worker had no connection when it died, and the next one starts within the same second.
#[test]
fn ids_are_unique_across_crashes_and_upgrades() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene(|_| {});
    let mut count = 0;
    for round in 0..4 {
        for _ in 0..3 {
            close(Peer::saying(scene.address, "echo"));
            count += 1;
        }
        lines(&scene, count);
        if round == 2 {
            admin.order("/upgrade").expect("an upgrade");
        } else {
            let worker = admin.status()["workers"][0]["pid"].as_u64().expect("a pid");
            signal(worker as u32, Signal::KILL);
        }
    }
    let lines = lines(&scene, count);
    let ids: BTreeSet<&str> = lines
        .iter()
        .filter_map(|line| line["id"].as_str())
        .collect();
    assert_eq!(ids.len(), count, "{lines:?}");
}

/// An order opens the file again, and so does a reload. No line is split between two files.
#[test]
fn the_connection_log_is_rotated_disabled_and_sampled() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene(|_| {});
    let connect = || close(Peer::saying(scene.address, "echo"));
    let mut files = 0;
    for (round, order) in ["/logs/reopen", "/reload", "/logs/reopen"]
        .iter()
        .enumerate()
    {
        let reopen = || admin.order(order).expect("an order");
        (0..20).for_each(|_| connect());
        lines(&scene, 20);
        let old = scene.folder.path().join(format!("old.{round}"));
        fs::rename(file(&scene), &old).expect("renamed");
        reopen();
        wait::until_true("another file", || file(&scene).exists());
        connect();
        lines(&scene, 1);
        let text = fs::read_to_string(&old).expect("read");
        let is_whole = |line: &str| serde_json::from_str::<Value>(line).is_ok();
        assert!(text.lines().all(is_whole) && text.ends_with('\n'), "{text}");
        files += text.lines().count();
        fs::remove_file(file(&scene)).expect("removed");
        reopen();
        wait::until_true("another file", || file(&scene).exists());
    }
    assert_eq!(files, 60);
    assert_eq!(admin.status()["configuration"]["edition"], 3, "two reloads");
    let mode = fs::metadata(file(&scene))
        .expect("an existing file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
    let set = |line: &str| set(&scene, &admin, line);
    set("connection_log = 'off'");
    (0..5).for_each(|_| connect());
    set(
        "connection_log = 'connections.log'\nconnection_log_format = 'json'\nconnection_log_one_in = 10",
    );
    (0..100).for_each(|_| connect());
    let count = || {
        let text = fs::read_to_string(file(&scene)).unwrap_or_default();
        text.lines().count() as u64
    };
    let sampled = wait::until_still("lines of a sample", count);
    // One of each ten generations, of which the first and the last may be cut.
    assert!((9..=11).contains(&sampled), "{sampled}");
    // An unwritable path rejects the reload; the log continues.
    let path = scene.folder.path().join("dormouse.toml");
    let text = fs::read_to_string(&path).expect("read");
    fs::write(&path, text.replace("'connections.log'", "'nowhere/x.log'")).expect("written");
    let words = admin.order("/reload").expect_err("a rejected order");
    assert!(
        words.contains("create the directory") && words.contains("nowhere/x.log"),
        "{words}"
    );
    (0..20).for_each(|_| connect());
    wait::until_true("more lines", || count() > sampled);
}

/// Replaces the options of the connection log by a reload.
fn set(scene: &Scene, admin: &Admin, line: &str) {
    let path = scene.folder.path().join("dormouse.toml");
    let text = fs::read_to_string(&path).expect("read");
    let others = text
        .lines()
        .filter(|line| !line.starts_with("connection_log"));
    let others: Vec<&str> = others.collect();
    fs::write(&path, format!("{line}\n{}\n", others.join("\n"))).expect("written");
    admin.order("/reload").expect("a reload");
}

/// What is known of a connection that was established with the log on, and has ended with the log off, describes
/// no later connection in the same slot.
#[test]
fn a_connection_from_while_the_log_was_off_has_no_line() {
    requires!(Can::BeDormouse);
    const ON: &str = "connection_log = 'connections.log'\nconnection_log_format = 'json'";
    let (scene, admin) = scene(|_| {});
    let connect = || Peer::saying(scene.address, "echo");
    for (without_it, with_it) in [
        ("connection_log = 'off'".to_owned(), ON.to_owned()),
        (
            format!("{ON}\nconnection_log_one_in = 1000000"),
            ON.to_owned(),
        ),
    ] {
        let before = fs::read_to_string(file(&scene)).unwrap_or_default();
        let logged = connect();
        set(&scene, &admin, &without_it);
        close(logged);
        // The slot is used again, by a connection without a line.
        let unlogged = connect();
        set(&scene, &admin, &with_it);
        close(unlogged);
        let last = connect();
        let own = last.tcp.local_addr().expect("an address").to_string();
        close(last);
        let lines = lines(&scene, before.lines().count() + 1);
        let line = lines.last().expect("a line");
        assert_eq!(line["client"], own.as_str(), "{line}");
    }
}

/// Text lines on standard error, from `dormouse connect`.
#[test]
fn originated_connections_have_lines() {
    requires!(Can::BeDormouse, "openssl");
    let (inner, _) = scene(|_| {});
    let folder = tempfile::tempdir().expect("a folder");
    let listen = std::net::SocketAddr::new(inner.address.ip(), 7000);
    let ca = dormouse_interop::certificates::authority()
        .trust()
        .display()
        .to_string();
    let command = format!(
        "{} connect --listen {listen} --to {} --server-name localhost --ca {ca} --workers 1 \
         --admin none --connection-log stderr --warm 1",
        tools::dormouse().display(),
        inner.address
    );
    let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    let mut process = dormouse_interop::process::Process::start("connect", &command, folder.path());
    process.wait_for_line("ready", PATIENCE);
    let mut tcp = std::net::TcpStream::connect(listen).expect("a connection");
    let own = tcp.local_addr().expect("an address");
    tcp.write_all(b"echo\nhello").expect("sent");
    let mut back = [0; 5];
    tcp.read_exact(&mut back).expect("an echo");
    tcp.shutdown(Shutdown::Write).expect("an end");
    tcp.read_to_end(&mut Vec::new()).expect("its answer");
    let line = process.wait_for_line("bytes_in=10 ", PATIENCE);
    for part in [
        format!("client={own}"),
        format!("backend={}", inner.address),
        "sni=localhost".to_owned(),
        "version=TLSv1.3".to_owned(),
        "bytes_out=5".to_owned(),
        "end=closed by=client".to_owned(),
    ] {
        assert!(line.contains(&part), "{part}: {line}");
    }
}

/// A pipe without a reader, and a full disk: connections continue, and lost lines are counted.
#[test]
fn a_blocked_log_delays_no_connection() {
    requires!(Can::BeDormouse, "mkfifo");
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("it runs");
    assert!(made.success());
    let path = pipe.display().to_string();
    let open = |flags| -> File {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags);
        options.open(&pipe).expect("the pipe")
    };
    // The pipe is open, but nothing reads it.
    let mut reader = open(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let scene = Scene::with(|settings| {
        settings.option("connection_log", &path);
        Admin::in_folder(settings);
    });
    let admin = Admin::of(&scene);
    let mut steady = Peer::saying(scene.address, "echo");
    let connect = || close(Peer::saying(scene.address, "echo"));
    let dropped = || admin.status()["counts"]["connection_log_dropped"].as_u64();
    let mut made = 0;
    while dropped() == Some(0) {
        (0..100).for_each(|_| connect());
        made += 100;
        assert!(made < 20_000, "nothing is dropped");
        steady.echo().expect("an echo while the log is blocked");
    }
    let counted = dropped().expect("a number");
    let written = admin.status()["counts"]["connection_log_lines"].as_u64();
    assert_eq!(written, Some(made - counted), "each is counted once");
    // A reader returns: all lines that were not dropped arrive, each complete.
    let mut text = Vec::new();
    wait::until_true("what was kept", || {
        let mut chunk = [0; 65_536];
        while let Ok(n @ 1..) = reader.read(&mut chunk) {
            text.extend_from_slice(&chunk[..n]);
        }
        let lines = text.iter().filter(|&&byte| byte == b'\n').count() as u64;
        lines >= made - counted
    });
    let text = String::from_utf8(text).expect("text");
    for line in text.lines() {
        assert!(
            line.contains(" id=") && line.ends_with("by=client"),
            "{line}"
        );
    }

    // A full disk.
    let config = scene.folder.path().join("dormouse.toml");
    let text = fs::read_to_string(&config).expect("read");
    fs::write(&config, text.replace(&path, "/dev/full")).expect("written");
    admin.order("/reload").expect("a reload");
    (0..20).for_each(|_| connect());
    steady.echo().expect("an echo while the disk is full");
    let line = wait::until("a word", PATIENCE, || {
        let lines = scene.terminator.lines_with("connection log lines lost");
        lines.into_iter().next()
    });
    assert!(line.contains("No space left"), "{line}");
    let lost = || {
        let (_, metrics) = admin.ask("GET", "/metrics");
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("dormouse_connection_log_lost_total "));
        line.and_then(|number| number.parse::<u64>().ok())
    };
    wait::until("lost lines to be counted", PATIENCE, || {
        (lost()? == 20).then_some(())
    });
}

/// With `connection_log_begin`, the line of the beginning comes while the connection is open, and has the id of the end's. A route
/// may have a share of its own.
#[test]
fn a_connection_has_a_line_when_it_begins_and_a_route_its_own_share() {
    requires!(Can::BeDormouse);
    let host = dormouse_interop::scene::unused_host();
    let routes = "connection_log = 'connections.log'\nconnection_log_format = 'json'\nconnection_log_begin = true\n\
                  [[route]]\nname = 'logged'\nlisten = 'LISTEN'\nserver_names = 'localhost'\nto = 'echo:'\nself_signed = 'localhost'\n\
                  [[route]]\nname = 'quiet'\nlisten = 'LISTEN'\nserver_names = 'quiet.test'\nto = 'echo:'\nself_signed = 'quiet.test'\n\
                  route_connection_log_one_in = 0\n";
    let site = Site::at(host, routes, |_| {});
    let path = site.folder.path().join(NAME);
    let lines = |count: usize| -> Vec<Value> {
        let text = wait::until("lines", PATIENCE, || {
            let text = fs::read_to_string(&path).unwrap_or_default();
            (text.lines().count() >= count && text.ends_with('\n')).then_some(text)
        });
        let lines = text
            .lines()
            .map(|line| serde_json::from_str(line).expect(line));
        lines.collect()
    };
    let _quiet = site.s_client(&["-servername", "quiet.test"]);
    let _logged = site.s_client(&["-servername", "localhost"]);
    let lines = lines(2);
    assert_eq!(lines.len(), 2, "{lines:?}");
    let [begun, ended] = &lines[..] else {
        panic!("two lines: {lines:?}");
    };
    assert_eq!(begun["begin"], "established", "{begun}");
    assert_eq!(begun["id"], ended["id"]);
    assert!(
        begun.get("end").is_none() && begun.get("bytes_in").is_none(),
        "{begun}"
    );
    assert!(
        ended.get("begin").is_none() && ended.get("end").is_some(),
        "{ended}"
    );
    for name in ["route", "client", "sni", "version", "suite", "resumed"] {
        assert_eq!(begun[name], ended[name], "{name}");
        assert!(!begun[name].is_null(), "{name}: {begun}");
    }
    assert_eq!(begun["route"], "logged");
}
