//! `dormouse audit` and those whom it looks at: it spares what is not its own, leaves everything as
//! it was, and says how it ended by its exit status.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use dormouse_interop::backend::Backend;
use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::namespace::{Cable, NEAR};
use dormouse_interop::peer::Peer;
use dormouse_interop::process::signal;
use dormouse_interop::scene::Scene;
use dormouse_interop::terminator::{Settings, Target, Terminator};
use dormouse_interop::web::Web;
use dormouse_interop::{tools, wait};
use rustix::process::Signal;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);
/// Somebody who owns nothing here.
const NOBODY: u32 = 65_534;

fn start(arguments: &[&str]) -> Child {
    Command::new(tools::dormouse())
        .arg("audit")
        .args(&arguments[..1])
        .args(["--json", "-", "--fail-on", "never"])
        .args(&arguments[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the audit can be started")
}

fn audit(arguments: &[&str]) -> Output {
    start(arguments).wait_with_output().expect("an end")
}

/// The audit, and its exit status.
fn read(output: &Output) -> (Value, Option<i32>) {
    let said = String::from_utf8_lossy(&output.stderr);
    let audit = serde_json::from_slice(&output.stdout);
    (
        audit.unwrap_or_else(|error| panic!("{error}: {said}")),
        output.status.code(),
    )
}

fn unused_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("its address").port()
}

/// Connections that were accepted in the network namespace of the calling thread.
fn accepted_here() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let place = names
        .split(' ')
        .position(|name| name == "PassiveOpens")
        .expect("its place");
    values
        .split(' ')
        .nth(place)
        .and_then(|value| value.parse().ok())
        .expect("a number")
}

/// A server elsewhere gets a handful of connections and no load, even if some process is named; with
/// its owner's word more is done. An address of this very machine is none of elsewhere.
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
    // Its connections to the backend are accepted in the same place.
    let accepted = || cable.at_near(accepted_here) - scene.backend.accepted();
    let before = accepted();
    let (polite, status) = read(&cable.at_far(run(&["--insecure", "-q", "--pid", &pid])));
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

    let near = cable.at_near(run(&["--insecure", "-q"]));
    let offer = &read(&near).0["server"]["offer"]["measured"];
    assert!(
        offer["suites_13"]
            .as_array()
            .is_some_and(|suites| !suites.is_empty()),
        "{offer:#}"
    );
}

/// Ctrl-C while hundreds of connections are held: the server runs on, nobody is attached to it or
/// has stopped it, and what it was given is taken back.
#[test]
fn an_interrupted_audit_leaves_the_server_as_it_was() {
    let scene = Scene::new();
    let mut bystander = Peer::saying(scene.address, "echo");
    bystander.echo().expect("an echo");
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
        "--say",
        "echo\\n",
    ]);
    wait::until("hundreds of connections", PATIENCE, || {
        (scene.backend.accepted() > before + 500).then_some(())
    });
    signal(running.id(), Signal::INT);
    let (audit, status) = read(&running.wait_with_output().expect("an end"));
    assert_eq!(status, Some(1));
    assert_eq!(audit["outcome"]["complete"], false);
    let said = audit["outcome"]["message"].as_str().unwrap_or_default();
    assert!(said.contains("interrupted"), "{said}");
    // What was known until then is told.
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
    bystander.echo().expect("an echo for who was in before");
    Peer::saying(scene.address, "echo")
        .echo()
        .expect("an echo for somebody new");
}

/// A server that the audit started itself is stopped, with all that it started.
#[test]
fn an_interrupted_audit_stops_what_it_started() {
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
        "sleep goes on"
    );
    assert!(
        std::net::TcpStream::connect(&target).is_err(),
        "it still listens"
    );
}

/// An interrupted client: it is ended, and what it did is told.
#[test]
fn an_interrupted_client() {
    if !tools::present(&["curl"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mark = folder.path().join("mark");
    let script = format!(
        "curl -sS $DORMOUSE_URL && echo $$ > {} && sleep 1234",
        mark.display()
    );
    let running = start(&["client", "-q", "--", "sh", "-c", &script]);
    let pid = wait::until("the first connection", PATIENCE, || {
        std::fs::read_to_string(&mark)
            .ok()
            .filter(|text| text.ends_with('\n'))
    });
    signal(running.id(), Signal::INT);
    let (audit, status) = read(&running.wait_with_output().expect("an end"));
    assert_eq!(
        (status, &audit["client"]["connections"]),
        (Some(1), &1.into()),
        "{audit:#}"
    );
    assert!(
        !Path::new(&format!("/proc/{}", pid.trim())).exists(),
        "the client goes on"
    );
}

fn curl(url: &str, trust: &Path, out: &Path) -> bool {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--cacert"])
        .arg(trust)
        .arg("-o")
        .arg(out)
        .arg(url);
    curl.status().expect("curl can be started").success()
}

/// Clients which come by themselves, to an address and with an authority that they are told.
#[test]
fn clients_that_come_by_themselves() {
    if !tools::present(&["curl"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (trust, out) = (folder.path().join("ca.pem"), folder.path().join("out"));
    let port = unused_port();
    let listen = format!("127.0.0.1:{port}");
    let ca_file = trust.to_string_lossy().into_owned();
    let running = start(&["client", "-q", "--listen", &listen, "--ca-file", &ca_file]);
    wait::until("a listener", PATIENCE, || {
        std::net::TcpStream::connect(&listen)
            .ok()
            .filter(|_| trust.exists())
    });
    for _ in 0..5 {
        assert!(curl(&format!("https://localhost:{port}/"), &trust, &out));
    }
    assert_eq!(std::fs::read_to_string(&out).expect("an answer"), "hello\n");
    signal(running.id(), Signal::INT);
    let (audit, status) = read(&running.wait_with_output().expect("an end"));
    // Nobody else would end it: that is no failure.
    assert_eq!(status, Some(0), "{audit:#}");
    assert_eq!(
        (&audit["client"]["connections"], &audit["client"]["offered"]),
        (&5.into(), &0.into())
    );
    let ids: Vec<_> = audit["findings"]
        .as_array()
        .expect("findings")
        .iter()
        .map(|f| &f["id"])
        .collect();
    assert!(ids.contains(&&"client-never-resumes".into()), "{ids:?}");
    assert!(audit["client"]["cpu_ms"]["not_measured"].is_string());
}

/// A relay passes on what a real server answers, whole, and counts requests.
#[test]
fn a_relay_in_front_of_a_real_server() {
    if !tools::present(&["curl"]) {
        return;
    }
    let web = Web::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let (relay, to) = (
        web.address().to_string(),
        out.to_string_lossy().into_owned(),
    );
    let urls = ["{url}bytes/1000000", "-o", "/dev/null", "{url}bytes/10"];
    let words = [
        "client", "-q", "--relay", &relay, "--", "curl", "-sS", "-o", &to,
    ];
    let (audit, status) = read(&audit(&[&words[..], &urls].concat()));
    assert_eq!(status, Some(0), "{audit:#}");
    assert_eq!(std::fs::metadata(&out).expect("an answer").len(), 1_000_000);
    let client = &audit["client"];
    assert_eq!(
        (&client["connections"], &client["requests"]),
        (&1.into(), &2.into()),
        "{client:#}"
    );
    assert_eq!(client["kept_alive"], 1);
}

/// A server which wants a client certificate: with one the flights are known, without one it is said
/// that nothing could be learnt, not that it does not resume.
#[test]
fn a_server_that_asks_for_a_client_certificate() {
    if !tools::present(&["openssl"]) {
        return;
    }
    let files = authority().certificate(Kind::Rsa2048);
    let (own, trust) = (
        authority().certificate(Kind::EcdsaP256),
        authority().trust(),
    );
    let port = unused_port();
    let mut server = Command::new("openssl")
        .args([
            "s_server",
            "-quiet",
            "-naccept",
            "100000",
            "-Verify",
            "2",
            "-verify_return_error",
        ])
        .args(["-accept", &port.to_string(), "-rev"])
        .arg("-CAfile")
        .arg(&trust)
        .arg("-cert")
        .arg(&files.cert)
        .arg("-key")
        .arg(&files.key)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl can be started");
    let target = format!("127.0.0.1:{port}");
    wait::until("a listener", PATIENCE, || {
        std::net::TcpStream::connect(&target).ok()
    });
    let (cert, key) = (own.cert.to_string_lossy(), own.key.to_string_lossy());
    let plain = ["server", &target, "--insecure", "-q", "--quick"];
    let with = read(&audit(
        &[&plain[..], &["--cert", &cert, "--key", &key]].concat(),
    ));
    let (without, refused) = read(&audit(&plain));
    server.kill().expect("openssl runs");
    server.wait().expect("an end");

    let flights = with.0["server"]["flights"].as_array().expect("flights");
    for version in ["TLS 1.3", "TLS 1.2"] {
        let shown = flights.iter().find(|flight| {
            flight["version"] == version
                && flight["client_certificate"] == true
                && flight["resumed"] == false
        });
        let bytes = shown.unwrap_or_else(|| panic!("{version}: {flights:#?}"))["bytes"][2].as_u64();
        assert!(
            bytes > Some(400),
            "{version}: {bytes:?} bytes with a certificate"
        );
    }
    assert_eq!(refused, Some(3), "{without:#}");
    let said = without["outcome"]["message"].as_str().unwrap_or_default();
    assert!(said.contains("--cert and --key"), "{said}");
    let findings = without["findings"].as_array().expect("findings");
    assert!(
        findings
            .iter()
            .all(|finding| finding["id"] != "no-resumption"),
        "{findings:#?}"
    );
}

/// What its owner may read is read without root: an audit and a server of somebody who owns nothing.
/// CPython's small objects are found in its own allocator.
#[test]
fn the_owner_of_a_process_needs_no_root() {
    if !tools::present(&["python3", "setpriv"]) {
        return;
    }
    if !Path::new("/usr/bin/python3").exists() {
        tools::unavailable("there is no Python that everybody may start");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    open(folder.path());
    let program = folder.path().join("dormouse");
    std::fs::copy(tools::dormouse(), &program).expect("a copy that everybody may run");
    let files = authority().certificate(Kind::EcdsaP256);
    for (file, name) in [(&files.cert, "cert.pem"), (&files.key, "key.pem")] {
        std::fs::copy(file, folder.path().join(name)).expect("a copy");
        open(&folder.path().join(name));
    }
    let server = folder.path().join("echo.py");
    std::fs::write(&server, ECHO).expect("a file");
    open(&server);
    let port = unused_port();
    let nobody = NOBODY.to_string();
    let as_nobody = |program: &str| {
        let mut command = Command::new(program);
        if rustix::process::geteuid().is_root() {
            command = Command::new("setpriv");
            command.args([&format!("--reuid={nobody}"), &format!("--regid={nobody}")]);
            command.args(["--clear-groups", program]);
        }
        command
            .current_dir(folder.path())
            .env("HOME", folder.path())
            // What root has in its own folders is not for everybody.
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null());
        command
    };
    let mut echo = as_nobody("python3");
    let mut echo = echo
        .arg("echo.py")
        .arg(port.to_string())
        .spawn()
        .expect("python can be started");
    let target = format!("127.0.0.1:{port}");
    wait::until("a listener", PATIENCE, || {
        std::net::TcpStream::connect(&target).ok()
    });
    let pid = echo.id().to_string();
    let output = as_nobody(&program.to_string_lossy())
        .args([
            "audit",
            "server",
            &target,
            "--pid",
            &pid,
            "--insecure",
            "--quick",
            "-q",
        ])
        .args(["--connections", "100", "--json", "-", "--fail-on", "never"])
        .output()
        .expect("the audit can be started");
    echo.kill().expect("it runs");
    echo.wait().expect("an end");
    let (audit, status) = read(&output);
    assert_eq!(status, Some(0), "{audit:#}");
    assert_eq!(audit["software"]["measured"]["kind"], "python");
    let census = &audit["server"]["census"]["measured"];
    assert_eq!(
        census["method"], "glibc malloc, CPython's allocator",
        "{census:#}"
    );
    // The server keeps ten objects of a size of its own for each connection.
    let classes = census["classes"].as_array().expect("classes");
    let own = classes
        .iter()
        .find(|class| class["heap"] == "CPython" && class["size_bytes"] == 432);
    let per = own.unwrap_or_else(|| panic!("{classes:#?}"))["per_connection"].as_f64();
    assert!(per.is_some_and(|per| (9.5..10.5).contains(&per)), "{per:?}");
}

/// An echo server which keeps ten byte strings of 400 bytes for each connection.
const ECHO: &str = r#"
import asyncio, ssl, sys

async def echo(reader, writer):
    kept = [bytes(390 + n) for n in range(10)]
    try:
        while data := await reader.read(4096):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()
    return kept

async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("cert.pem", "key.pem")
    server = await asyncio.start_server(echo, "127.0.0.1", int(sys.argv[1]), ssl=context, backlog=512)
    await server.serve_forever()

asyncio.run(main())
"#;

fn open(path: &Path) {
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("its permissions");
}

/// V8 tells its classes where the process offers it.
#[test]
fn the_classes_of_a_node_process() {
    if !tools::present(&["node"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("echo.cjs");
    std::fs::write(&script, NODE).expect("a file");
    let files = authority().certificate(Kind::EcdsaP256);
    let target = format!("127.0.0.1:{}", unused_port());
    let (_, port) = target.split_once(':').expect("a port");
    let command = format!(
        "exec node --inspect=127.0.0.1:0 {} {port} {} {}",
        script.display(),
        files.cert.display(),
        files.key.display()
    );
    let words = [
        "server",
        &target,
        "--insecure",
        "--quick",
        "-q",
        "-n",
        "100",
        "--cmd",
        &command,
    ];
    let (audit, status) = read(&audit(&words));
    assert_eq!(status, Some(0), "{audit:#}");
    assert_eq!(audit["software"]["measured"]["kind"], "node");
    let census = &audit["server"]["census"]["measured"];
    let classes = census["managed"].as_array().expect("classes");
    let sockets = classes.iter().find(|class| class["class"] == "TLSSocket");
    let per = sockets.unwrap_or_else(|| panic!("{census:#}"))["per_connection"].as_f64();
    assert!(
        per.is_some_and(|per| (0.95..1.05).contains(&per)),
        "{per:?}"
    );
}

const NODE: &str = "
const { readFileSync } = require('node:fs');
const [port, cert, key] = process.argv.slice(2);
const identity = { cert: readFileSync(cert), key: readFileSync(key) };
const server = require('node:tls').createServer(identity, (socket) => {
  socket.on('error', () => {});
  socket.on('data', (bytes) => socket.write(bytes));
});
server.on('tlsClientError', () => {});
server.listen(Number(port), '127.0.0.1', 512);
";

/// Ends with this exit status, and says something on the standard error.
fn ends(expected: i32, words: &[&str]) -> String {
    let output = Command::new(tools::dormouse())
        .args(["audit", "server"])
        .args(words)
        .args(["-q", "--quick"])
        .output()
        .expect("the audit can be started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(expected), "{words:?}: {said}");
    said
}

/// 3: what cannot be reached, measured or judged is never clean.
#[test]
fn what_cannot_be_judged_is_never_clean() {
    let scene = Scene::new();
    let target = scene.address.to_string();
    let trust = authority().trust();
    let trust = trust.to_string_lossy();
    let good = [&*target, "--ca", &*trust, "--sni", "localhost"];
    ends(0, &good);
    ends(0, &[&good[..], &["--min-resumed", "95"]].concat());
    // Whose process is not known, its memory is not either: that is no pass.
    ends(
        3,
        &[&good[..], &["--max-bytes-per-connection", "20000"]].concat(),
    );
    // Nobody vouches for it: it cannot be talked to.
    ends(3, &[&*target, "--sni", "localhost"]);
    ends(3, &["127.0.0.1:1", "--insecure"]);
    let plain = Web::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .address()
        .to_string();
    ends(3, &[&plain, "--insecure"]);
    ends(3, &[&good[..], &["--pid", "2147483647"]].concat());
    let unit = ends(
        3,
        &[&good[..], &["--unit", "there-is-no-such.service"]].concat(),
    );
    let container = ends(
        3,
        &[&good[..], &["--container", "there-is-no-such"]].concat(),
    );
    assert!(
        unit.contains("--pid") && container.contains("--pid"),
        "{unit}{container}"
    );
}

/// 2: what was asked for makes no sense. 1: it breaches a threshold.
#[test]
fn usage_and_thresholds() {
    let scene = Scene::with(|settings| {
        settings.option("tickets", "0");
    });
    let target = scene.address.to_string();
    let trust = authority().trust();
    let trust = trust.to_string_lossy();
    let good = [&*target, "--ca", &*trust, "--sni", "localhost"];
    ends(2, &["nonsense"]);
    ends(2, &[&good[..], &["--cmd", "true", "--pid", "1"]].concat());
    ends(
        2,
        &[&good[..], &["--cert", &trust, "--key", &trust]].concat(),
    );
    ends(2, &[&good[..], &["--fail-on", "everything"]].concat());
    let said = ends(2, &[&good[..], &["--cmd", "sleep 5"]].concat());
    assert!(said.contains("listens on"), "{said}");
    // It does not resume at all.
    ends(
        1,
        &[&good[..], &["--fail-on", "never", "--min-resumed", "50"]].concat(),
    );
    ends(1, &[&good[..], &["--fail-on", "high"]].concat());
    ends(0, &[&good[..], &["--fail-on", "never"]].concat());
}

/// Results go to the standard output alone, and an address in the way is said.
#[test]
fn results_and_words_are_apart() {
    let scene = Scene::new();
    let target = scene.address.to_string();
    let mut child = Command::new(tools::dormouse())
        .args(["audit", "server", &target, "--insecure", "--quick"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the audit can be started");
    let (mut out, mut err) = (String::new(), String::new());
    child
        .stdout
        .take()
        .expect("a pipe")
        .read_to_string(&mut out)
        .expect("text");
    child
        .stderr
        .take()
        .expect("a pipe")
        .read_to_string(&mut err)
        .expect("text");
    assert_eq!(child.wait().expect("an end").code(), Some(0), "{err}");
    assert!(out.starts_with("audit of a server"), "{out}");
    assert!(!out.contains("resuming ..."), "{out}");
    assert!(!err.contains("audit of a server"), "{err}");
}
