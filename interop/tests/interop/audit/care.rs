//! What an audit spares, and the state in which it leaves a server.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use dormouse_interop::backend::Backend;
use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::namespace::{Cable, NEAR};
use dormouse_interop::peer::Peer;
use dormouse_interop::process::signal;
use dormouse_interop::scene::Scene;
use dormouse_interop::terminator::{Settings, Target, Terminator};
use dormouse_interop::{tools, wait};
use rustix::process::Signal;

use dormouse_interop::scene::unused_port;

use super::{PATIENCE, audit, read, start};

/// Number of connections accepted in the network namespace of the calling thread.
fn accepted_here() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let place = names
        .split(' ')
        .position(|name| name == "PassiveOpens")
        .expect("the column of PassiveOpens");
    values
        .split(' ')
        .nth(place)
        .and_then(|value| value.parse().ok())
        .expect("a number")
}

/// A server on another machine gets a handful of connections and no load, even if a process is named. With
/// the owner's consent the audit does more. An address of this machine does not count as remote.
#[test]
fn a_server_on_another_machine_is_spared() {
    let Some(cable) = Cable::lay() else { return };
    let behind = SocketAddr::from((Ipv4Addr::LOCALHOST, 7000));
    let listener = cable.at_near(move || TcpListener::bind(behind).expect("an address"));
    let listen = SocketAddr::new(NEAR.parse().expect("an address"), 8443);
    let mut settings = Settings::new(listen, Target::Tcp(behind));
    settings.namespace = Some(cable.near());
    let scene = Scene::of(Terminator::Dormouse, Backend::on(listener), &settings);
    let target = scene.address.to_string();
    let pid = scene.terminator.pid().to_string();
    let words = [
        "server".to_owned(),
        target,
        "--sni".into(),
        "localhost".into(),
    ];
    let run = |more: &[&str]| {
        let words: Vec<String> = words
            .iter()
            .cloned()
            .chain(more.iter().map(|word| (*word).to_owned()))
            .collect();
        move || {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            audit(&words)
        }
    };
    // Its connections to the backend are accepted in the same namespace.
    let accepted = || cable.at_near(accepted_here) - scene.backend.accepted();
    let before = accepted();
    let (polite, status) =
        read(&cable.at_far(run(&["--insecure", "-q", "--quick", "--pid", &pid])));
    let connections = accepted() - before;
    assert_eq!(status, Some(0), "{polite:#}");
    assert!((8..=30).contains(&connections), "{connections} connections");
    for part in ["memory", "cpu", "census"] {
        let why = polite["server"][part]["not_measured"]
            .as_str()
            .unwrap_or_default();
        assert!(why.contains("another machine"), "{part}: {why}");
    }
    let offer = &polite["server"]["offer"]["measured"];
    assert_eq!(offer["versions"]["TLS 1.3"], true);
    assert!(
        offer["not_measured"]["suites_13"].as_str().is_some(),
        "{offer:#}"
    );

    let near = cable.at_near(run(&["--insecure", "-q", "--quick"]));
    let offer = &read(&near).0["server"]["offer"]["measured"];
    assert!(
        offer["suites_13"]
            .as_array()
            .is_some_and(|suites| !suites.is_empty()),
        "{offer:#}"
    );
}

/// Ctrl-C while hundreds of connections are open: the server keeps running, no tracer is attached, it is not
/// stopped, and the connections are closed.
#[test]
fn an_interrupted_audit_leaves_the_server_as_it_was() {
    let scene = Scene::new();
    let mut bystander = Peer::echoing(scene.address);
    let (tree, before) = (scene.terminator.tree(), scene.backend.accepted());
    let (target, pid) = (
        scene.address.to_string(),
        scene.terminator.pid().to_string(),
    );
    let running = start(&[
        "server",
        &target,
        "--insecure",
        "-q",
        "--pid",
        &pid,
        // The backend reads the first line as a command and echoes what follows.
        "--send",
        "echo\\nhello\\n",
        "--expect",
        "any",
    ]);
    // The audit chooses its pace by the server's, which other audits beside it slow down.
    let patience = Duration::from_secs(180);
    wait::until("hundreds of connections", patience, || {
        (scene.backend.accepted() > before + 500).then_some(())
    });
    signal(running.id(), Signal::INT);
    let (audit, status) = read(&running.wait_with_output().expect("an end"));
    assert_eq!(status, Some(1));
    assert_eq!(audit["outcome"]["complete"], false);
    let said = audit["outcome"]["message"].as_str().unwrap_or_default();
    assert!(said.contains("interrupted"), "{said}");
    // The audit reports what it knew until then.
    assert_eq!(
        audit["server"]["offer"]["measured"]["versions"]["TLS 1.3"],
        true
    );
    assert!(
        audit["server"]["memory"]["not_measured"].is_string(),
        "{audit:#}"
    );

    assert_eq!(scene.terminator.tree(), tree, "the same processes");
    for pid in tree {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        assert!(status.contains("TracerPid:\t0\n"), "{status}");
        assert!(!status.contains("State:\tT"), "{status}");
    }
    bystander.echo().expect("an echo on an older connection");
    Peer::echoing(scene.address);
}

/// A server that does not answer as `--send` and `--expect` promise is refused in one line, before each connection of the
/// load waits for its answer.
#[test]
fn a_server_that_does_not_answer_is_refused() {
    let scene = Scene::new();
    let (target, pid) = (
        scene.address.to_string(),
        scene.terminator.pid().to_string(),
    );
    for (say, remedy) in [
        ("echo\\n", "--expect none"),
        ("echo\\nhello\\n", "--expect any"),
    ] {
        let before = scene.backend.accepted();
        let words = ["server", &target, "--insecure", "-q", "--quick"];
        let more = ["--pid", &pid, "--send", say];
        let (audit, status) = read(&audit(&[&words[..], &more].concat()));
        assert_eq!(status, Some(3), "{say}: {audit:#}");
        let said = audit["outcome"]["message"].as_str().unwrap_or_default();
        assert!(said.contains("--send") && said.contains(remedy), "{said}");
        let connections = scene.backend.accepted() - before;
        assert!(connections < 100, "{say}: {connections} connections");
    }
}

/// A server that says nothing does not hold an interrupted audit, and is not blamed for the interrupt.
#[test]
fn an_audit_of_a_silent_server_is_interrupted() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = listener.local_addr().expect("its address").to_string();
    let running = start(&["server", &target, "--insecure", "-q", "--quick"]);
    let connection = listener.accept();
    signal(running.id(), Signal::INT);
    let (audit, status) = read(&running.wait_with_output().expect("an end"));
    drop(connection);
    assert_eq!(status, Some(1), "{audit:#}");
}

/// A server that the audit started is stopped, with all its children.
#[test]
fn an_interrupted_audit_stops_its_processes() {
    let port = unused_port();
    let folder = tempfile::tempdir().expect("a folder");
    let files = authority().certificate(Kind::EcdsaP256);
    let (mark, target) = (folder.path().join("pid"), format!("127.0.0.1:{port}"));
    let serve = format!(
        "sleep 1234 & echo $! > {}; exec {} serve --listen {target} --to echo: --cert {} --key {} --admin {}",
        mark.display(),
        tools::dormouse().display(),
        files.cert.display(),
        files.key.display(),
        folder.path().join("admin").display(),
    );
    let running = start(&["server", &target, "--insecure", "-q", "--cmd", &serve]);
    wait::until("a connection", PATIENCE, || {
        std::net::TcpStream::connect(&target).ok()
    });
    signal(running.id(), Signal::INT);
    let (_, status) = read(&running.wait_with_output().expect("an end"));
    assert_eq!(status, Some(1));
    let child = std::fs::read_to_string(mark).expect("a pid");
    assert!(
        !Path::new(&format!("/proc/{}", child.trim())).exists(),
        "sleep still runs"
    );
    assert!(
        std::net::TcpStream::connect(&target).is_err(),
        "it still listens"
    );
}

/// Interrupted in any part, the audit exits as interrupted and reports what it knows. The server has the
/// same processes, none of the audit's connections, and still serves its own clients.
#[test]
#[ignore = "several audits"]
fn an_audit_interrupted_in_any_part_leaves_nothing_behind() {
    let scene = Scene::with(|settings| settings.target = Target::Echo);
    let mut bystander = Peer::connect(scene.address).expect("a connection");
    bystander.echo().expect("an echo");
    let tree = scene.terminator.tree();
    let parts = [
        "what is offered",
        "resumption",
        "warming up",
        "opening",
        "16 kB each way",
        "quiet",
        "closing",
        "streaming",
        "round 2 of 5",
        "tickets age",
    ];
    std::thread::scope(|scope| {
        for part in parts {
            scope.spawn(|| interrupted_in(part, &scene));
        }
    });
    wait::until_true("no connection but the bystander's", || {
        established(scene.address) == 1
    });
    assert_eq!(scene.terminator.tree(), tree, "the same processes");
    bystander.echo().expect("an echo on an older connection");
}

fn interrupted_in(part: &str, scene: &Scene) {
    let (target, pid) = (
        scene.address.to_string(),
        scene.terminator.pid().to_string(),
    );
    let mut words = vec![
        "audit",
        "server",
        &target,
        "--insecure",
        "--quick",
        "-n",
        "50",
    ];
    // The time is for ten audits beside other tests.
    words.extend(["--time", "3m", "--json", "-"]);
    // Without a process there is no load, so the wait for tickets to age comes at once.
    if part != "tickets age" {
        words.extend(["--pid", &pid]);
    }
    let mut running = Command::new(tools::dormouse())
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the audit starts");
    let mut lines = BufReader::new(running.stderr.take().expect("a pipe")).lines();
    let mut said = Vec::new();
    let came = lines.by_ref().map_while(Result::ok).any(|line| {
        let came = line == part;
        said.push(line);
        came
    });
    assert!(came, "{part:?} never began: {said:#?}");
    signal(running.id(), Signal::INT);
    // A full pipe would block the audit.
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).count());
    let (audit, status) = read(&running.wait_with_output().expect("an end"));
    rest.join().expect("lines");
    assert_eq!(status, Some(1), "{part}: {audit:#}");
    assert_eq!(audit["outcome"]["complete"], false, "{part}");
    let message = audit["outcome"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("interrupted"), "{part}: {message}");
}

/// Number of connections to a server's address.
fn established(address: SocketAddr) -> usize {
    let SocketAddr::V4(address) = address else {
        panic!("IPv4 in these tests");
    };
    let local = format!(
        "{:08X}:{:04X}",
        u32::from_le_bytes(address.ip().octets()),
        address.port()
    );
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let rows = table.lines().filter(|line| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next() == Some(&local) && fields.nth(1) == Some("01")
    });
    rows.count()
}
