//! The PROXY protocol: real backends log the client's address that dormouse sends, and dormouse believes real
//! proxies, if they are trusted.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use dormouse_interop::backend::Backend;
use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::peer::{self, Peer, connect_from};
use dormouse_interop::process::Process;
use dormouse_interop::scene::{self, PLAIN_PORT, Scene, TLS_PORT, unused_host};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Address of the client, which nothing else here uses.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 9, 8, 7));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Nginx,
    Haproxy,
    Apache,
}

impl Server {
    fn program(self) -> &'static str {
        match self {
            Server::Nginx => "nginx",
            Server::Haproxy => "haproxy",
            Server::Apache => "apache2",
        }
    }

    /// Starts the server, which requires a PROXY protocol header. It answers any request with `hello`.
    fn start(self, listen: SocketAddr, folder: &Path) -> Process {
        let here = folder.display();
        let log = folder.join("access.log");
        let log = log.display();
        let (text, arguments): (String, &[&str]) = match self {
            Server::Nginx => (
                format!(
                    "daemon off; user root; pid {here}/nginx.pid; error_log stderr;
events {{ }}
http {{
    log_format who '$proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_addr $proxy_protocol_server_port';
    access_log {log} who;
    server {{ listen {listen} proxy_protocol; return 200 hello; }}
}}
"
                ),
                &["-e", "stderr", "-c"],
            ),
            Server::Haproxy => (
                format!(
                    "global
    log stdout format raw local0
defaults
    mode http
    log global
    timeout connect 5s
    timeout client 20s
    timeout server 20s
frontend f
    bind {listen} accept-proxy
    log-format \"%ci %cp %[dst] %[dst_port] authority=%[fc_pp_authority] id=%[fc_pp_unique_id]\"
    http-request return status 200 content-type text/plain string hello
"
                ),
                &["-db", "-f"],
            ),
            Server::Apache => (
                format!(
                    "ServerRoot {here}
Listen {listen}
PidFile {here}/apache.pid
Mutex file:{here}
ErrorLog /dev/stderr
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule remoteip_module /usr/lib/apache2/modules/mod_remoteip.so
ServerName localhost
DocumentRoot {here}
RemoteIPProxyProtocol On
LogFormat \"%a %{{remote}}p\" who
CustomLog {log} who
"
                ),
                &["-X", "-f"],
            ),
        };
        let file = folder.join("server.conf");
        std::fs::write(&file, text).expect("a file in the test's folder");
        let mut command = vec![tools::path(self.program())];
        command.extend(arguments.iter().map(ToString::to_string));
        command.push(file.to_string_lossy().into_owned());
        let process = Process::start(self.program(), &command, folder);
        wait::until_listening(self.program(), listen);
        process
    }

    /// Its access log.
    fn logged(self, process: &Process, folder: &Path) -> String {
        match self {
            Server::Haproxy => process.log(),
            _ => std::fs::read_to_string(folder.join("access.log")).unwrap_or_default(),
        }
    }
}

fn tls(tcp: TcpStream) -> io::Result<Peer> {
    Peer::over(tcp, peer::client(peer::config()))
}

fn request(peer: &mut Peer) -> io::Result<String> {
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    peer.stream().write_all(request.as_bytes())?;
    let mut answer = String::new();
    // Servers differ in whether they send close_notify.
    match peer.stream().read_to_string(&mut answer) {
        Ok(_) => Ok(answer),
        Err(_) if !answer.is_empty() => Ok(answer),
        Err(error) => Err(error),
    }
}

/// nginx, HAProxy and Apache log the client's address and port.
#[test]
fn backends_log_the_client() {
    requires!(Can::BeDormouse, "nginx", "haproxy", "apache2");
    for server in [Server::Nginx, Server::Haproxy, Server::Apache] {
        for version in ["v1", "v2"] {
            let host = unused_host();
            let behind = SocketAddr::new(host, PLAIN_PORT);
            let folder = tempfile::tempdir().expect("a temporary folder");
            let process = server.start(behind, folder.path());
            let mut settings = Settings::new(SocketAddr::new(host, TLS_PORT), Target::Tcp(behind));
            settings.option("proxy_protocol", version);
            settings.option("log_level", "debug");
            let terminator = scene::start(Terminator::Dormouse, &settings, folder.path());
            let tcp = connect_from(CLIENT, settings.listen);
            let port = tcp.local_addr().expect("a socket").port();
            let mut peer = tls(tcp).expect("a handshake");
            let answer = request(&mut peer)
                .unwrap_or_else(|error| panic!("{server:?} {version}: no answer: {error}"));
            assert!(
                answer.starts_with("HTTP/1.1 "),
                "{server:?} {version}: {answer}"
            );
            assert!(
                !answer.starts_with("HTTP/1.1 400"),
                "{server:?} {version}: {answer}"
            );
            let ends = match server {
                Server::Apache => format!("{CLIENT} {port}"),
                _ => format!("{CLIENT} {port} {host} {TLS_PORT}"),
            };
            let line = wait::until(&format!("{server:?} to log `{ends}`"), PATIENCE, || {
                let log = server.logged(&process, folder.path());
                log.lines()
                    .find(|line| line.contains(&ends))
                    .map(str::to_owned)
            });
            if server == Server::Haproxy && version == "v2" {
                assert!(line.contains("authority=localhost"), "{line}");
                let id = line.rsplit("id=").next().unwrap_or_default();
                assert_eq!(id.len(), 32, "{line}");
                // Our log has it, too.
                terminator.logged(id, 1);
            }
        }
    }
}

/// A scene that trusts `proxies`, in front of nginx, which logs the client's address.
struct Trusting {
    folder: tempfile::TempDir,
    behind: Process,
    terminator: Process,
    address: SocketAddr,
}

impl Trusting {
    fn new(proxies: &str) -> Self {
        let host = unused_host();
        let behind = SocketAddr::new(host, PLAIN_PORT);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let process = Server::Nginx.start(behind, folder.path());
        let mut settings = Settings::new(SocketAddr::new(host, TLS_PORT), Target::Tcp(behind));
        settings.option("accept_proxy_from", proxies);
        settings.option("proxy_protocol", "v2");
        settings.option("handshake_timeout", "3s");
        let terminator = scene::start(Terminator::Dormouse, &settings, folder.path());
        Self {
            folder,
            behind: process,
            terminator,
            address: settings.listen,
        }
    }

    fn assert_logged(&self, who: &str) {
        wait::until_true(&format!("the backend to log {who}"), || {
            let log = Server::Nginx.logged(&self.behind, self.folder.path());
            log.lines().any(|line| line.starts_with(who))
        });
    }
}

/// Headers of both versions, whole and byte by byte, with the ClientHello in the same segment and without.
#[test]
fn a_trusted_proxy_is_believed() {
    requires!(Can::BeDormouse, "nginx");
    let scene = Trusting::new("127.9.8.0/24");
    let line = b"PROXY TCP4 203.0.113.7 198.51.100.1 56324 443\r\n".to_vec();
    let mut binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x24".to_vec();
    binary.extend(
        "2001:db8::77"
            .parse::<std::net::Ipv6Addr>()
            .expect("valid")
            .octets(),
    );
    binary.extend(
        "2001:db8::1"
            .parse::<std::net::Ipv6Addr>()
            .expect("valid")
            .octets(),
    );
    binary.extend([0x12, 0x34, 1, 187]);
    for (header, who) in [
        (&line, "203.0.113.7 56324 198.51.100.1 443"),
        (&binary, "2001:db8::77 4660 2001:db8::1 443"),
    ] {
        for piecewise in [false, true] {
            let mut tcp = connect_from(CLIENT, scene.address);
            tcp.set_nodelay(true).expect("an option");
            if piecewise {
                for byte in header {
                    tcp.write_all(&[*byte]).expect("sent");
                }
                let mut peer = tls(tcp).expect("a handshake behind the header");
                request(&mut peer).expect("an answer");
            } else {
                // In one segment with the ClientHello.
                let mut client = peer::client(peer::config());
                let mut first = header.clone();
                client.write_tls(&mut first).expect("memory");
                tcp.write_all(&first).expect("sent");
                let mut peer = Peer::over(tcp, client).expect("a handshake behind the header");
                request(&mut peer).expect("an answer");
            }
            scene.assert_logged(who);
            std::fs::write(scene.folder.path().join("access.log"), "").expect("the log truncated");
        }
    }
}

/// Headers from other addresses, or malformed ones, are refused, so that no client can pose as another.
#[test]
fn headers_of_other_addresses_are_refused() {
    requires!(Can::BeDormouse, "nginx");
    let scene = Trusting::new("127.9.8.0/24");
    let header = b"PROXY TCP4 203.0.113.7 198.51.100.1 56324 443\r\n";
    // From an untrusted address: plain TLS is served, a header is not TLS.
    let elsewhere = IpAddr::V4(Ipv4Addr::new(127, 9, 9, 7));
    let mut peer = tls(connect_from(elsewhere, scene.address)).expect("a handshake without header");
    request(&mut peer).expect("an answer");
    scene.assert_logged("127.9.9.7 ");
    let mut tcp = connect_from(elsewhere, scene.address);
    tcp.write_all(header).expect("sent");
    assert!(
        tls(tcp).is_err(),
        "a header from an address that is not trusted"
    );
    // From a proxy: a valid header is required.
    for first in [
        &b"\x16\x03\x01\x02\x00\x01"[..],
        b"PROXY TCP4 203.0.113.7 198.51.100.1 056324 443\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c",
    ] {
        let mut tcp = connect_from(CLIENT, scene.address);
        tcp.write_all(first).expect("sent");
        let mut rest = Vec::new();
        // Closed without an answer; with a reset if unread bytes were left.
        let _ = tcp.read_to_end(&mut rest);
        assert!(rest.is_empty(), "an answer to {}", first.escape_ascii());
    }
    let lines = scene.terminator.logged("PROXY header rejected", 1);
    assert_eq!(lines.len(), 1, "one line for the burst: {lines:#?}");
    // A silent proxy is closed in time.
    let mut silent = connect_from(CLIENT, scene.address);
    silent.write_all(b"PROXY TCP4").expect("sent");
    silent
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a timeout");
    assert_eq!(silent.read(&mut [0; 1]).expect("an end in time"), 0);
    let log = Server::Nginx.logged(&scene.behind, scene.folder.path());
    assert!(!log.contains("203.0.113.7"), "{log}");
}

/// A client that waits for its backend gets the backend of its own address, not of the proxy's.
#[test]
fn a_retried_connect_goes_to_the_backend_of_the_client() {
    requires!(Can::BeDormouse);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let paths = ["a.sock", "b.sock"].map(|name| folder.path().join(name));
    // With one place in each queue, which nobody accepts: a connect finds the queue full.
    let listeners = paths.each_ref().map(|path| {
        let listener = UnixListener::bind(path).expect("a listener");
        rustix::net::listen(&listener, 0).expect("a shorter queue");
        listener.set_nonblocking(true).expect("an option");
        listener
    });
    let target = Target::Unix(paths[0].clone());
    let mut settings = Settings::new(SocketAddr::new(unused_host(), TLS_PORT), target);
    let to = paths
        .each_ref()
        .map(|path| format!("\"unix:{}\"", path.display()));
    settings
        .options
        .push(("to", format!("[{}]", to.join(", "))));
    settings.option("balance", "client-hash");
    settings.option("accept_proxy_from", "127.9.8.0/24");
    let _terminator = scene::start(Terminator::Dormouse, &settings, folder.path());
    let connect = |last: u8| {
        let mut tcp = connect_from(CLIENT, settings.listen);
        let header = format!("PROXY TCP4 203.0.113.{last} 198.51.100.1 56324 443\r\n");
        tcp.write_all(header.as_bytes()).expect("sent");
        tls(tcp).expect("a handshake")
    };
    let accepted = || {
        wait::until("a connection to a backend", PATIENCE, || {
            listeners.iter().position(|one| one.accept().is_ok())
        })
    };
    for last in 1..=8 {
        let first = connect(last);
        let own = accepted();
        drop(first);
        let others = paths
            .each_ref()
            .map(|path| UnixStream::connect(path).expect("queued"));
        let _waits = connect(last);
        std::thread::sleep(Duration::from_millis(150));
        drop(others);
        listeners.iter().for_each(|one| drop(one.accept()));
        assert_eq!(accepted(), own, "client {last}");
    }
}

/// HAProxy in front of dormouse sends its clients' addresses, in both versions, and its health checks pass.
#[test]
fn a_real_proxy_in_front() {
    requires!(Can::BeDormouse, "nginx", "haproxy");
    for send in ["send-proxy", "send-proxy-v2"] {
        let scene = Trusting::new("127.0.0.1");
        let front = SocketAddr::new(scene.address.ip(), 9443);
        let text = format!(
            "defaults
    mode tcp
    timeout connect 5s
    timeout client 20s
    timeout server 20s
listen l
    bind {front}
    source 127.0.0.1
    server s {} {send} check inter 200ms
",
            scene.address
        );
        let file = scene.folder.path().join("front.cfg");
        std::fs::write(&file, text).expect("a file in the test's folder");
        let command = [
            tools::path("haproxy"),
            "-db".into(),
            "-f".into(),
            file.to_string_lossy().into_owned(),
        ];
        let proxy = Process::start("front", &command, scene.folder.path());
        wait::until_listening("HAProxy", front);
        let mut peer = tls(connect_from(CLIENT, front)).expect("a handshake through both programs");
        request(&mut peer).expect("an answer");
        scene.assert_logged(&format!("{CLIENT} "));
        let down = proxy.lines_with("down");
        assert!(down.is_empty(), "health checks fail: {down:#?}");
    }
}

/// A terminator in front of a unix socket, which the test listens on.
fn scene_of_listener(folder: &Path, change: impl FnOnce(&mut Settings)) -> (Scene, UnixListener) {
    let path = folder.join("backend.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let listen = SocketAddr::new(unused_host(), TLS_PORT);
    let mut settings = Settings::new(listen, Target::Unix(path));
    change(&mut settings);
    let idle = Backend::tcp(SocketAddr::new(listen.ip(), 0));
    let scene = Scene::of(Terminator::Dormouse, idle, &settings);
    (scene, listener)
}

/// A backend that accepts late, or dies: the header is sent first, and once.
#[test]
fn the_header_comes_first_on_every_connection() {
    requires!(Can::BeDormouse);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (scene, listener) = scene_of_listener(folder.path(), |settings| {
        settings.option("proxy_protocol", "v1");
    });
    for round in 0..20 {
        let tcp = connect_from(CLIENT, scene.address);
        let port = tcp.local_addr().expect("a socket").port();
        let mut client = peer::client(peer::config());
        // The client's data goes out with its Finished.
        client.writer().write_all(b"first words").expect("memory");
        let peer = Peer::over(tcp, client).expect("a handshake");
        let (mut behind, _) = listener.accept().expect("a connection");
        let expected = format!(
            "PROXY TCP4 {CLIENT} {} {port} {TLS_PORT}\r\nfirst words",
            scene.address.ip()
        );
        let mut got = vec![0; expected.len()];
        behind.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        behind
            .read_exact(&mut got)
            .expect("the header and the words");
        assert_eq!(String::from_utf8_lossy(&got), expected, "round {round}");
        drop(peer);
    }
}

/// Version 2 reports whether the client's certificate was verified, in this or an earlier connection, and
/// its subject.
#[test]
fn version_2_reports_the_verified_certificate() {
    requires!(Can::BeDormouse);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (scene, listener) = scene_of_listener(folder.path(), |settings| {
        settings.option("proxy_protocol", "v2");
        settings.option("client_certificates", "optional");
        settings.option("client_ca", &authority().trust().to_string_lossy());
    });
    let told = |config| {
        let mut peer = tls_with(connect_from(CLIENT, scene.address), config);
        let (behind, _) = listener.accept().expect("a connection");
        behind.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        of_certificate(&header_body(behind, &mut peer)[12..])
    };
    let alice = authority().give_out("alice", Kind::EcdsaP256, 2034, folder.path());
    let alice = peer::config_showing(&alice);
    let name = || Some("localhost".to_owned());
    assert_eq!(told(alice.clone()), (7, 0, name()), "shown now");
    assert_eq!(
        told(alice),
        (5, 0, name()),
        "shown in an earlier connection"
    );
    assert_eq!(told(peer::config()), (1, 1, None), "none shown");
}

/// With `v2-certificate` the backend gets the whole certificate, also in a resumed connection; a
/// certificate that is too long is left out alone. HAProxy accepts it.
#[test]
fn version_2_passes_the_certificate() {
    requires!(Can::BeDormouse, "haproxy");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let host = unused_host();
    let listener = std::net::TcpListener::bind((host, PLAIN_PORT)).expect("an unused address");
    let haproxy = SocketAddr::new(host, PLAIN_PORT + 1);
    let _haproxy = Server::Haproxy.start(haproxy, folder.path());
    let start = |listen: SocketAddr, to: SocketAddr| {
        let mut settings = Settings::new(listen, Target::Tcp(to));
        settings.option("proxy_protocol", "v2-certificate");
        settings.option("client_certificates", "optional");
        settings.option("client_ca", &authority().trust().to_string_lossy());
        let own = tempfile::tempdir().expect("a temporary folder");
        (
            scene::start(Terminator::Dormouse, &settings, own.path()),
            own,
        )
    };
    let ours = SocketAddr::new(host, TLS_PORT);
    let _ours = start(ours, SocketAddr::new(host, PLAIN_PORT));
    let told = |config| tls_facts(tls_with(connect_from(CLIENT, ours), config), &listener);
    let some = |words: &str| Some(words.to_owned());
    let der = |files: &dormouse_interop::certificates::Files| {
        let text = std::fs::read(&files.cert).expect("a readable PEM file");
        CertificateDer::from_pem_slice(&text)
            .expect("a certificate")
            .to_vec()
    };
    let files = authority().give_out("alice", Kind::Rsa2048, 2034, folder.path());
    let alice = peer::config_showing(&files);
    let [name, signature, key] = [some("localhost"), some("ecdsa-with-SHA256"), some("EC256")];
    let group = some("X25519MLKEM768");
    let scheme = some("ecdsa_secp256r1_sha256");
    assert_eq!(
        told(alice.clone()),
        (
            7,
            Some(der(&files)),
            [
                name.clone(),
                signature.clone(),
                key.clone(),
                group.clone(),
                scheme
            ]
        )
    );
    // A resumed connection needs no signature.
    let resumed = [name.clone(), signature, key, group, None];
    assert_eq!(told(alice.clone()), (5, Some(der(&files)), resumed));
    let long = authority().give_out_with("long", Kind::EcdsaP256, folder.path(), |params| {
        let names = (0..600).map(|n| format!("a-rather-long-name-{n}.example.test"));
        let names = names.map(|name| rcgen::SanType::DnsName(name.try_into().expect("a name")));
        params.subject_alt_names = names.collect();
    });
    assert!(der(&long).len() > 12_288);
    let (flags, certificate, [told_name, ..]) = told(peer::config_showing(&long));
    assert_eq!((flags, certificate, told_name), (7, None, name));
    assert_eq!(told(peer::config()).1, None, "none shown");

    let front = SocketAddr::new(host, TLS_PORT + 1);
    let _front = start(front, haproxy);
    let mut peer = tls_with(connect_from(CLIENT, front), alice);
    let answer = request(&mut peer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// What a backend learns of a client's TLS: flags, the certificate, the values of 0x22, 0x24, 0x25, 0x26 and
/// 0x27.
type TlsFacts = (u8, Option<Vec<u8>>, [Option<String>; 5]);

fn tls_facts(mut peer: Peer, listener: &std::net::TcpListener) -> TlsFacts {
    let (behind, _) = listener.accept().expect("a connection");
    behind.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let ssl = find(&header_body(behind, &mut peer)[12..], 0x20).expect("PP2_TYPE_SSL");
    let part = |kind| find(&ssl[5..], kind);
    let text = |kind| part(kind).map(|value| String::from_utf8_lossy(&value).into_owned());
    (ssl[0], part(0x28), [0x22, 0x24, 0x25, 0x26, 0x27].map(text))
}

/// The bytes after the head of a version 2 header. Answers the client, so that it reads its tickets.
fn header_body(mut behind: impl Read + Write, peer: &mut Peer) -> Vec<u8> {
    let mut head = [0; 16];
    behind.read_exact(&mut head).expect("a header");
    let mut body = vec![0; usize::from(u16::from_be_bytes([head[14], head[15]]))];
    behind.read_exact(&mut body).expect("its body");
    behind.write_all(b"answer").expect("sent");
    peer.stream().read_exact(&mut [0; 6]).expect("an answer");
    body
}

fn tls_with(tcp: TcpStream, config: rustls::ClientConfig) -> Peer {
    Peer::over(tcp, peer::client(config)).expect("a handshake")
}

/// The value of a TLV.
fn find(mut parts: &[u8], wanted: u8) -> Option<Vec<u8>> {
    while let [kind, high, low, behind @ ..] = parts {
        let (value, next) = behind.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        if *kind == wanted {
            return Some(value.to_vec());
        }
        parts = next;
    }
    None
}

/// Flags and verdict of `PP2_TYPE_SSL`, and its common name, from the TLVs behind the addresses.
fn of_certificate(tlvs: &[u8]) -> (u8, u32, Option<String>) {
    let ssl = find(tlvs, 0x20).expect("PP2_TYPE_SSL");
    let (verify, nested) = ssl[1..].split_at(4);
    let verify = u32::from_be_bytes(verify.try_into().expect("four bytes"));
    let name = find(nested, 0x22).map(|name| String::from_utf8(name).expect("a name"));
    (ssl[0], verify, name)
}
