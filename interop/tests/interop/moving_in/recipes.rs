//! The recipes of the guide: real servers behind `serve`, with their usual clients.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use dormouse_interop::certificates::authority;
use dormouse_interop::peer::{self, Peer, connect_from};
use dormouse_interop::process::Process;
use dormouse_interop::scene::{self, PLAIN_PORT, TLS_PORT, applies, unused_host};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};

/// Client address that its server should see; nothing else here uses it.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 9, 8, 6));

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
    requires!(Can::BeDormouse, "redis-server", "redis-cli");
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
        // The certificate is for `localhost`, so that is the SNI.
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
    requires!(Can::BeDormouse, tools::present(&programs));
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
    wait::until_listening("mosquitto", plain);
    let (_terminator, listen) = serve(Target::Tcp(plain), folder.path());
    let (host, port) = (listen.ip().to_string(), listen.port().to_string());
    let ca = authority().trust().display().to_string();
    // The certificate is for `localhost`, and these clients cannot expect another name.
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
    // The broker retains the message, so the order of clients does not matter.
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

/// A chat server with direct TLS (XEP-0368): a client logs in and requests its roster.
#[test]
fn prosody() {
    requires!(Can::BeDormouse, "prosody", "prosodyctl");
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
    wait::until_listening("prosody", plain);
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
    requires!(Can::BeDormouse, "node", "curl");
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

/// The program of a recipe, as in the guide, with this test's own address.
fn of_the_guide(heading: &str, language: &str, change: [(&str, &str); 2]) -> String {
    let page = tools::home().join("../docs/guide/recipes.md");
    let page = std::fs::read_to_string(page).expect("the guide");
    let (_, section) = page
        .split_once(&format!("## {heading}\n"))
        .expect("the recipe");
    let (_, code) = section
        .split_once(&format!("```{language}\n"))
        .expect("its program");
    let (code, _) = code.split_once("```").expect("the end of the code block");
    change.iter().fold(code.to_owned(), |code, (old, new)| {
        assert!(code.contains(old), "{old} in the recipe for {heading}");
        code.replace(old, new)
    })
}

/// Software that `interop/install` keeps for a recipe. `None`: skip the test.
fn kept(name: &str) -> Option<std::path::PathBuf> {
    let folder = tools::home().join(".cache").join(name);
    let there = folder.join("ready").exists()
        || tools::unavailable(&format!("{name} is not installed: run interop/install"));
    there.then_some(folder)
}

/// The server sees the client's own address, and reports it.
fn answers_with_the_clients_address(plain: SocketAddr, folder: &Path) {
    wait::until("the recipe to listen", Duration::from_secs(60), || {
        TcpStream::connect(plain).ok()
    });
    let listen = SocketAddr::new(unused_host(), TLS_PORT);
    let mut settings = Settings::new(listen, Target::Tcp(plain));
    settings.option("proxy_protocol", "v2");
    let _terminator = scene::start(Terminator::Dormouse, &settings, folder);
    let tcp = connect_from(CLIENT, listen);
    let mut peer = Peer::over(tcp, peer::client(peer::config())).expect("a handshake");
    let want = format!("{CLIENT} said hello\n");
    for _ in 0..2 {
        peer.stream().write_all(b"hello\n").expect("sent");
        let mut heard = vec![0; want.len()];
        peer.stream().read_exact(&mut heard).expect("an answer");
        assert_eq!(String::from_utf8_lossy(&heard), want);
    }
}

#[test]
fn twisted() {
    let Some(home) = applies(Can::BeDormouse).then(|| kept("twisted")).flatten() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plain = SocketAddr::new(unused_host(), PLAIN_PORT);
    let (port, host) = (plain.port().to_string(), plain.ip().to_string());
    let code = of_the_guide("Twisted", "python", [("8080", &port), ("127.0.0.1", &host)]);
    let file = folder.path().join("echo.py");
    std::fs::write(&file, code).expect("written");
    let command = [home.join("bin/python"), file].map(|path| path.display().to_string());
    let _server = Process::start("twisted", &command, folder.path());
    answers_with_the_clients_address(plain, folder.path());
}

#[test]
fn netty() {
    requires!(Can::BeDormouse, "java");
    let Some(home) = kept("netty") else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plain = SocketAddr::new(unused_host(), PLAIN_PORT);
    let (port, host) = (plain.port().to_string(), plain.ip().to_string());
    let code = of_the_guide("Netty", "java", [("8080", &port), ("127.0.0.1", &host)]);
    let file = folder.path().join("Echo.java");
    std::fs::write(&file, code).expect("written");
    let (jars, file) = (home.join("*"), file.display().to_string());
    let words = ["-cp".to_owned(), jars.display().to_string(), file];
    let command: Vec<_> = tools::java().into_iter().chain(words).collect();
    let _server = Process::start("netty", &command, folder.path());
    answers_with_the_clients_address(plain, folder.path());
}
