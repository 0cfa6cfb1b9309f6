//! IPv4 clients with IPv6 addresses (`::ffff:192.0.2.1`): the rules for IPv4 networks apply to them.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};

use dormouse_interop::backend::Backend;
use dormouse_interop::peer::{self, Peer, connect_from};
use dormouse_interop::scene::{self, PLAIN_PORT, Scene, TLS_PORT, unused_host};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::tools;

const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 9, 8, 7));

fn echoes(tcp: TcpStream) -> bool {
    let Ok(mut peer) = Peer::over(tcp, peer::client(peer::config())) else {
        return false;
    };
    peer.stream().write_all(b"echo\n").is_ok() && peer.echo().is_ok()
}

/// A version 2 header of family IPv6 with a mapped address.
fn binary(client: Ipv4Addr) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x24".to_vec();
    header.extend(client.to_ipv6_mapped().octets());
    header.extend(Ipv4Addr::new(198, 51, 100, 1).to_ipv6_mapped().octets());
    header.extend([0x12, 0x34, 1, 187]);
    header
}

#[test]
fn a_mapped_address_from_a_proxy_is_ipv4() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.option("accept_proxy_from", "127.9.8.0/24");
        settings.option("deny", "10.0.0.0/8");
    });
    let (denied, admitted) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 1));
    let headers = |ip: Ipv4Addr| {
        let mapped = format!("PROXY TCP6 ::ffff:{ip} ::ffff:198.51.100.1 56324 443\r\n");
        [
            format!("PROXY TCP4 {ip} 198.51.100.1 56324 443\r\n").into_bytes(),
            mapped.into_bytes(),
            binary(ip),
        ]
    };
    for (ip, expected) in [(denied, false), (admitted, true)] {
        for header in headers(ip) {
            let mut tcp = connect_from(PROXY, scene.address);
            tcp.write_all(&header).expect("sent");
            assert_eq!(echoes(tcp), expected, "{}", header.escape_ascii());
        }
    }
}

/// Passes a listener for IPv4 and IPv6 as descriptor 3 to the command, and executes it.
const HANDING_IN: &str = "
import os, socket, sys
s = socket.socket(socket.AF_INET6)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
s.bind((sys.argv[1], int(sys.argv[2])))
s.listen(16)
if s.fileno() != 3:
    os.dup2(s.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))
os.execvp(sys.argv[3], sys.argv[3:])
";

#[test]
fn a_mapped_address_on_a_dual_stack_listener_is_ipv4() {
    requires!(Can::BeDormouse, "python3");
    let IpAddr::V4(host) = unused_host() else {
        unreachable!("hosts are IPv4 addresses");
    };
    let backend = Backend::tcp(SocketAddr::new(host.into(), PLAIN_PORT));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let listen = SocketAddr::new(host.to_ipv6_mapped().into(), TLS_PORT);
    let mut settings = Settings::new(listen, Target::Tcp(backend.address()));
    settings.option("deny", "127.9.8.2");
    settings.option("accept_proxy_from", "127.9.8.3");
    settings.wrapper = vec![
        tools::path("python3"),
        "-c".to_owned(),
        HANDING_IN.to_owned(),
        listen.ip().to_string(),
        listen.port().to_string(),
    ];
    let _terminator = scene::start(Terminator::Dormouse, &settings, folder.path());
    let from = |last| {
        let ip = IpAddr::V4(Ipv4Addr::new(127, 9, 8, last));
        connect_from(ip, SocketAddr::new(host.into(), TLS_PORT))
    };
    assert!(echoes(from(1)), "a client without a matching rule");
    assert!(!echoes(from(2)), "a denied client");
    let mut proxy = from(3);
    proxy
        .write_all(b"PROXY TCP4 127.9.8.1 198.51.100.1 56324 443\r\n")
        .expect("sent");
    assert!(echoes(proxy), "a trusted proxy");
}
