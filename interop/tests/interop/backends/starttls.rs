//! Clients that begin without TLS (`starttls`): real clients and servers of each protocol, plaintext that somebody
//! inserts, and the greeting of the backend.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use dormouse_interop::certificates::authority;
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::Process;
use dormouse_interop::scene::{self, PLAIN_PORT, Scene, TLS_PORT, unused_host};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::{tools, wait};

use crate::audit::starttls::{StarttlsServer, dovecot, postfix, postgres, prosody, slapd};

/// The gateway in front of a server.
struct Gateway {
    process: Process,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Gateway {
    fn new(protocol: &str, target: Target, change: impl FnOnce(&mut Settings)) -> Self {
        let address = SocketAddr::new(unused_host(), TLS_PORT);
        let mut settings = Settings::new(address, target);
        settings.option("starttls", protocol);
        change(&mut settings);
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self {
            process: scene::start(Terminator::Dormouse, &settings, folder.path()),
            address,
            _folder: folder,
        }
    }

    fn before(protocol: &str, server: &StarttlsServer) -> Self {
        Self::new(protocol, Target::Tcp(server.address), |_| {})
    }
}

/// Runs a client with an input, and checks that it was content.
pub(crate) fn run(command: &mut Command, input: &str) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the client starts");
    let mut stdin = child.stdin.take().expect("an input");
    stdin.write_all(input.as_bytes()).expect("a write");
    drop(stdin);
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("its end");
    let said = String::from_utf8_lossy(&stdout).into_owned();
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{status}\n{said}\n{errors}");
    said
}

pub(crate) fn python(script: &str, address: SocketAddr) -> String {
    let mut command = Command::new("python3");
    command
        .args(["-c", script, &address.ip().to_string()])
        .args([&address.port().to_string()])
        .arg(authority().trust());
    run(&mut command, "")
}

#[test]
fn openssl_starts_tls_in_every_protocol() {
    requires!(Can::BeDormouse);
    for (protocol, name) in [
        ("smtp", "smtp"),
        ("imap", "imap"),
        ("pop3", "pop3"),
        ("xmpp", "xmpp"),
        ("xmpp", "xmpp-server"),
        ("ldap", "ldap"),
        ("postgres", "postgres"),
    ] {
        let gateway = Gateway::new(protocol, Target::Echo, |_| {});
        let mut command = Command::new("openssl");
        command
            .args(["s_client", "-quiet", "-no_ign_eof", "-verify_return_error"])
            .args(["-connect", &gateway.address.to_string()])
            .args(["-servername", "localhost", "-xmpphost", "localhost"])
            .args(["-starttls", name, "-CAfile"])
            .arg(authority().trust());
        // The end of the input ends the client, which may be before the echo; so the script waits for it.
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl starts");
        let mut input = child.stdin.take().expect("an input");
        input.write_all(b"hello\n").expect("a write");
        let mut output = BufReader::new(child.stdout.take().expect("an output"));
        let mut lines = String::new();
        while !lines.ends_with("hello\n") {
            let n = output.read_line(&mut lines).expect("a read");
            assert!(n > 0, "{name}: {lines}\n{}", gateway.process.log());
        }
        drop(input);
        child.wait().expect("its end");
    }
}

#[test]
fn smtplib_reaches_postfix() {
    requires!(Can::BeDormouse);
    let Some(server) = postfix() else { return };
    let gateway = Gateway::before("smtp", &server);
    let script = "import smtplib, ssl, sys
client = smtplib.SMTP(sys.argv[1], int(sys.argv[2]), timeout=20)
assert client.docmd('MAIL', 'FROM:<a@b.example>')[0] == 530
context = ssl.create_default_context(cafile=sys.argv[3])
context.check_hostname = False
assert client.starttls(context=context)[0] == 220
print(client.ehlo())
assert client.noop()[0] == 250
client.quit()
";
    let said = python(script, gateway.address);
    assert!(
        said.contains("localhost.localdomain") && said.contains("SIZE"),
        "{said}"
    );
}

#[test]
fn imaplib_and_poplib_reach_dovecot() {
    requires!(Can::BeDormouse);
    for (protocol, script) in [
        (
            "imap",
            "import imaplib, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[3])
context.check_hostname = False
client = imaplib.IMAP4(sys.argv[1], int(sys.argv[2]), timeout=20)
assert client.starttls(context)[0] == 'OK'
print(client.capability())
assert client.noop()[0] == 'OK'
client.logout()
",
        ),
        (
            "pop3",
            "import poplib, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[3])
context.check_hostname = False
client = poplib.POP3(sys.argv[1], int(sys.argv[2]), timeout=20)
assert 'STLS' in client.capa()
client.stls(context)
print(client.capa())
client.quit()
",
        ),
    ] {
        let Some(server) = dovecot(protocol) else {
            return;
        };
        let gateway = Gateway::before(protocol, &server);
        let said = python(script, gateway.address);
        assert!(said.contains("SASL") || said.contains("SASL-IR"), "{said}");
    }
}

#[test]
fn psql_reaches_postgres() {
    requires!(Can::BeDormouse);
    let Some(server) = postgres("host all all all trust\n") else {
        return;
    };
    let gateway = Gateway::before("postgres", &server);
    let query = |mode: &str| {
        let (host, port) = (gateway.address.ip(), gateway.address.port());
        let ca = authority().trust().display().to_string();
        let mut command = Command::new("psql");
        command.args(["-Atc", "select 6 * 7"]).arg(format!(
            "hostaddr={host} host=localhost port={port} user=postgres sslmode={mode} sslrootcert={ca} connect_timeout=20"
        ));
        command
    };
    assert_eq!(run(&mut query("verify-full"), ""), "42\n");
    assert_eq!(run(&mut query("prefer"), ""), "42\n");
    let refused = query("disable").output().expect("psql starts");
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(
        error.contains("accepts connections with TLS only"),
        "{error}"
    );
}

#[test]
fn ldapsearch_reaches_slapd() {
    requires!(Can::BeDormouse);
    let Some(server) = slapd().filter(|_| tools::present(&["ldapsearch"])) else {
        return;
    };
    let gateway = Gateway::before("ldap", &server);
    let mut command = Command::new("ldapsearch");
    command
        .env("LDAPTLS_CACERT", authority().trust())
        .env("LDAPTLS_REQCERT", "allow")
        .args(["-x", "-ZZ", "-H", &format!("ldap://{}", gateway.address)])
        .args(["-s", "base", "-b", "", "objectClass"]);
    let said = run(&mut command, "");
    assert!(said.contains("result: 0 Success"), "{said}");
    server.bench_at(gateway.address);
}

#[test]
fn an_xmpp_client_reaches_prosody() {
    requires!(Can::BeDormouse);
    let Some(server) = prosody() else { return };
    let gateway = Gateway::before("xmpp", &server);
    server.bench_at(gateway.address);
}

/// Bytes behind the request for TLS may come from somebody on the way (CVE-2011-0411). The client gets neither TLS nor a
/// backend.
#[test]
fn plaintext_behind_the_request_reaches_no_backend() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.option("starttls", "postgres");
    });
    let mut tcp = peer::connect_tcp(scene.address).expect("a connection");
    tcp.write_all(b"\0\0\0\x08\x04\xd2\x16\x2fecho\n")
        .expect("a write");
    let mut said = Vec::new();
    tcp.read_to_end(&mut said).expect("an end");
    assert_eq!(said, b"");
    wait::until_true("the refusal in the log", || {
        let lines = scene.terminator.lines_with("handshake failed");
        lines.iter().any(|line| line.contains("behind its request"))
    });
    assert_eq!(scene.backend.accepted(), 0);

    // The same bytes after the answer are not TLS.
    let mut tcp = peer::connect_tcp(scene.address).expect("a connection");
    tcp.write_all(b"\0\0\0\x08\x04\xd2\x16\x2f")
        .expect("a write");
    let mut answer = [0];
    tcp.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"S");
    tcp.write_all(b"echo\n").expect("a write");
    let _ = tcp.read_to_end(&mut said);
    assert!(!said.starts_with(b"echo"), "{said:?}");
    assert_eq!(scene.backend.accepted(), 0);
}

/// The client of a connection with SMTP until its handshake is done.
fn smtp_client(address: SocketAddr) -> Peer {
    let mut tcp = peer::connect_tcp(address).expect("a connection");
    let mut reader = BufReader::new(tcp.try_clone().expect("a second handle"));
    let mut expect = |code: &str| {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        assert!(line.starts_with(code), "{line}");
    };
    expect("220 ");
    tcp.write_all(b"STARTTLS\r\n").expect("a write");
    expect("220 ");
    Peer::over(tcp, peer::client(peer::config())).expect("a handshake")
}

/// A backend gets the PROXY header before its greeting, and the client's first bytes after it. The client reads nothing of
/// the greeting. If a backend ends before its greeting, the next one gets the same.
#[test]
fn the_greeting_of_the_backend_is_awaited_and_kept_back() {
    requires!(Can::BeDormouse);
    let host = unused_host();
    let [first, second] = [PLAIN_PORT, PLAIN_PORT + 1]
        .map(|port| TcpListener::bind(SocketAddr::new(host, port)).expect("a listener"));
    let address = |listener: &TcpListener| listener.local_addr().expect("its address");
    let to = format!("[\"{}\", \"{}\"]", address(&first), address(&second));
    let gateway = Gateway::new("smtp", Target::Tcp(address(&first)), |settings| {
        settings.options.push(("to", to));
        settings.option("proxy_protocol", "v1");
    });
    let backends = std::thread::spawn(move || {
        let (tcp, _) = first.accept().expect("the first connection");
        read_proxy_line(&tcp);
        (&tcp).write_all(b"220-half of a greet").expect("a write");
        drop(tcp);
        let (mut tcp, _) = second.accept().expect("the second connection");
        let mut reader = read_proxy_line(&tcp);
        tcp.write_all(b"220-mx.example\r\n22").expect("a write");
        tcp.set_read_timeout(Some(Duration::from_millis(300)))
            .expect("a timeout");
        let early = reader.fill_buf().map(<[u8]>::len);
        assert!(
            early.is_err(),
            "nothing comes before the greeting: {early:?}"
        );
        tcp.set_read_timeout(Some(wait::PATIENCE))
            .expect("a timeout");
        tcp.write_all(b"0 ESMTP\r\n").expect("a write");
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        tcp.write_all(format!("250 {line}").as_bytes())
            .expect("a write");
        // The client ends without close_notify, so this may be a reset.
        let _ = reader.read_line(&mut line);
    });
    let mut client = smtp_client(gateway.address);
    client.stream().write_all(b"EHLO me\r\n").expect("a write");
    let mut answer = [0; 13];
    client.stream().read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"250 EHLO me\r\n", "{}", gateway.process.log());
    // At rest it is an ordinary connection, which outlives its worker.
    gateway.process.kill_workers();
    drop(client);
    backends.join().expect("the backends saw what they expect");
}

/// A backend that does not welcome its client says why, and the client reads it as the answer to its first command.
#[test]
fn a_refusal_of_the_backend_reaches_the_client() {
    requires!(Can::BeDormouse);
    let listener = TcpListener::bind(SocketAddr::new(unused_host(), PLAIN_PORT)).expect("bound");
    let to = listener.local_addr().expect("its address");
    let gateway = Gateway::new("smtp", Target::Tcp(to), |_| {});
    let backend = std::thread::spawn(move || {
        let (mut tcp, _) = listener.accept().expect("a connection");
        tcp.write_all(b"554 not you\r\n").expect("a write");
        let _ = tcp.read(&mut [0; 100]);
    });
    let mut client = smtp_client(gateway.address);
    client.stream().write_all(b"EHLO me\r\n").expect("a write");
    let mut answer = [0; 13];
    client.stream().read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"554 not you\r\n");
    backend.join().expect("the backend ends");
}

fn read_proxy_line(tcp: &TcpStream) -> BufReader<TcpStream> {
    let mut reader = BufReader::new(tcp.try_clone().expect("a second handle"));
    let mut line = String::new();
    reader.read_line(&mut line).expect("a header");
    assert!(line.starts_with("PROXY TCP4 "), "{line}");
    reader
}
