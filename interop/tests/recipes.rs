//! The recipes of the guide: real servers behind `serve`, with the clients that people have.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use dormouse_interop::certificates::authority;
use dormouse_interop::peer::Peer;
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
    let heard = run(
        "mosquitto_sub",
        &[&common[..], &["-C", "1", "-W", "20"]].concat(),
    );
    assert_eq!(heard.trim(), "warm");
}

/// A chat server, with direct TLS (XEP-0368): a client logs in and asks who is there.
#[test]
fn prosody() {
    if !applies(Can::BeDormouse) || !tools::present(&["prosody", "prosodyctl"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plain = SocketAddr::new(unused_host(), PLAIN_PORT);
    let (here, file) = (
        folder.path().display(),
        folder.path().join("prosody.cfg.lua"),
    );
    let text = format!(
        "pidfile = '{here}/prosody.pid'
data_path = '{here}'
run_as_root = true
interfaces = {{ '{}' }}
c2s_ports = {{ {} }}
s2s_ports = {{ }}
modules_enabled = {{ 'saslauth', 'roster', 'disco', 'ping' }}
modules_disabled = {{ 's2s', 'tls' }}
c2s_require_encryption = false
allow_unencrypted_plain_auth = true
authentication = 'internal_hashed'
log = {{ info = '*console' }}
VirtualHost 'localhost'
",
        plain.ip(),
        plain.port()
    );
    std::fs::write(&file, text).expect("written");
    let file = file.display().to_string();
    let account = ["register", "ann", "localhost", "secret"];
    run(
        "prosodyctl",
        &[&["--root", "--config", &file], &account[..]].concat(),
    );
    let command = ["-F", "--root", "--config", &file].map(str::to_owned);
    let command = [vec![tools::path("prosody")], command.to_vec()].concat();
    let _server = Process::start("prosody", &command, folder.path());
    wait::until("prosody to listen", PATIENCE, || {
        TcpStream::connect(plain).ok()
    });
    let (_terminator, listen) = serve(Target::Tcp(plain), folder.path());
    let mut peer = Peer::connect(listen).expect("a handshake");
    let mut say = |words: &str, until: &str| {
        peer.stream().write_all(words.as_bytes()).expect("sent");
        let mut heard = String::new();
        while !heard.contains(until) {
            let mut room = [0; 4096];
            let n = peer.stream().read(&mut room).expect("an answer");
            assert!(n > 0, "it ended after {heard}");
            heard.push_str(&String::from_utf8_lossy(&room[..n]));
        }
    };
    let hello = "<?xml version='1.0'?><stream:stream to='localhost' version='1.0' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>";
    say(hello, "<mechanism>PLAIN</mechanism>");
    // NUL ann NUL secret.
    let auth =
        "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>AGFubgBzZWNyZXQ=</auth>";
    say(auth, "<success");
    say(hello, "xmpp-bind");
    let bind = "<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>phone</resource></bind></iq>";
    say(bind, "ann@localhost/phone");
    let ping = "<iq type='get' id='p' to='localhost'><ping xmlns='urn:xmpp:ping'/></iq>";
    say(ping, "result");
}

/// Node.js on a unix socket.
#[test]
fn node() {
    if !applies(Can::BeDormouse) || !tools::present(&["node", "curl"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("app.sock");
    let script = "require('http').createServer((req, res) => res.end('hello from node\\n')).listen(process.argv[1])";
    let command = [
        tools::path("node"),
        "-e".to_owned(),
        script.to_owned(),
        socket.display().to_string(),
    ];
    let _server = Process::start("node", &command, folder.path());
    wait::until("node to listen", PATIENCE, || {
        UnixStream::connect(&socket).ok()
    });
    let (_terminator, listen) = serve(Target::Unix(socket), folder.path());
    let ca = authority().trust().display().to_string();
    let to = format!("localhost:443:{listen}");
    let words = [
        "-sS",
        "--cacert",
        &ca,
        "--connect-to",
        &to,
        "https://localhost/",
    ];
    assert_eq!(run("curl", &words), "hello from node\n");
}
