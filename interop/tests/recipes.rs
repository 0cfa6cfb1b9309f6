//! The recipes of the guide: real servers behind `serve`, with the clients that people have.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use dormouse_interop::certificates::authority;
use dormouse_interop::process::Process;
use dormouse_interop::scene::{self, PLAIN_PORT, TLS_PORT, applies, unused_host};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};

/// `dormouse serve` in front of a server.
fn serve(to: Target, folder: &Path) -> (Process, SocketAddr) {
    let listen = SocketAddr::new(unused_host(), TLS_PORT);
    let settings = Settings::new(listen, to);
    (
        scene::start(Terminator::Dormouse, &settings, folder),
        listen,
    )
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(tools::path(program))
        .args(arguments)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {said}{wrong}");
    said
}

#[test]
fn redis() {
    if !applies(Can::BeDormouse) || !tools::present(&["redis-server", "redis-cli"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("redis.sock");
    let command = [
        tools::path("redis-server"),
        "--port".to_owned(),
        "0".to_owned(),
        "--unixsocket".to_owned(),
        socket.display().to_string(),
        "--save".to_owned(),
        String::new(),
        "--dir".to_owned(),
        folder.path().display().to_string(),
    ];
    let _server = Process::start("redis", &command, folder.path());
    wait::until("redis to listen", PATIENCE, || {
        UnixStream::connect(&socket).ok()
    });
    let (_terminator, listen) = serve(Target::Unix(socket), folder.path());
    let (host, port) = (listen.ip().to_string(), listen.port().to_string());
    let ca = authority().trust().display().to_string();
    let cli = |words: &[&str]| {
        // The certificate is for `localhost`, which is asked for by SNI.
        let tls = [
            "--tls",
            "--cacert",
            &ca,
            "--sni",
            "localhost",
            "-h",
            &host,
            "-p",
            &port,
        ];
        run("redis-cli", &[&tls, words].concat())
    };
    assert_eq!(cli(&["ping"]).trim(), "PONG");
    let value = "x".repeat(100_000);
    assert_eq!(cli(&["set", "key", &value]).trim(), "OK");
    assert_eq!(cli(&["get", "key"]).trim(), value);
}

#[test]
fn mosquitto() {
    let programs = ["mosquitto", "mosquitto_pub", "mosquitto_sub"];
    if !applies(Can::BeDormouse) || !tools::present(&programs) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plain = SocketAddr::new(unused_host(), PLAIN_PORT);
    let file = folder.path().join("mosquitto.conf");
    let text = format!(
        "listener {} {}\nallow_anonymous true\nuser root\n",
        plain.port(),
        plain.ip()
    );
    std::fs::write(&file, text).expect("written");
    let command = [
        tools::path("mosquitto"),
        "-c".to_owned(),
        file.display().to_string(),
    ];
    let _server = Process::start("mosquitto", &command, folder.path());
    wait::until("mosquitto to listen", PATIENCE, || {
        TcpStream::connect(plain).ok()
    });
    let (_terminator, listen) = serve(Target::Tcp(plain), folder.path());
    let (host, port) = (listen.ip().to_string(), listen.port().to_string());
    let ca = authority().trust().display().to_string();
    // The certificate is for `localhost`, and these can't be told another name to expect.
    let common = [
        "--cafile",
        &ca,
        "--insecure",
        "-h",
        &host,
        "-p",
        &port,
        "-t",
        "rooms/1",
    ];
    // Kept by the broker, so that it does not matter who comes first.
    run(
        "mosquitto_pub",
        &[&common[..], &["-r", "-q", "1", "-m", "warm"]].concat(),
    );
    let subscriber = Command::new(tools::path("mosquitto_sub"))
        .args(common)
        .args(["-C", "2", "-W", "20"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    for message in ["warmer", "hot"] {
        run(
            "mosquitto_pub",
            &[&common[..], &["-r", "-q", "1", "-m", message]].concat(),
        );
    }
    let output = subscriber.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said.lines().count(), 2, "{said}");
}
