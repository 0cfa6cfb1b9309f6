//! The work of verifying a peer's certificates has a limit, whatever the peer sends.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dormouse_interop::bomb;
use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::originator::{Originator, Settings};
use dormouse_interop::peer::{self, Peer, connect_tcp};
use dormouse_interop::process::{Process, cpu_time};
use dormouse_interop::scene::unused_host;
use rustls::{ClientConfig, ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::PrivatePkcs8KeyDer;

use crate::certificates::site::{Site, can_run};

/// How many handshakes fail. A list that is searched to its end keeps the worker busy for ten seconds.
const TIMES: usize = 20;
/// How much more work such a list may be than one certificate of an unknown issuer.
const RATIO_MAX: u32 = 20;

/// Returns the CPU time of the only worker in `work`. The worker must survive.
fn cost(process: &Process, work: impl FnOnce()) -> Duration {
    let worker = process.workers()[0];
    let before = cpu_time(worker);
    work();
    assert_eq!(process.workers()[0], worker, "{}", process.log());
    cpu_time(worker) - before
}

#[test]
fn clients_with_hostile_certificates_delay_no_other_client() {
    requires!(can_run());
    let server = authority().certificate(Kind::EcdsaP256).both.clone();
    let site = Site::new(
        &format!(
            "[[route]]\nlisten = 'LISTEN'\nto = 'echo:'\ncertificates = '{}'\n\
             client_certificates = 'optional'\nclient_ca = '{}'\n",
            server.display(),
            authority().trust().display()
        ),
        |_| {},
    );
    let is_over = AtomicBool::new(false);
    let refused = |config: &ClientConfig| {
        for _ in 0..TIMES {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let tcp = connect_tcp(site.address).expect("a connection");
            let peer = Peer::over(tcp, peer::client(config.clone()));
            // In TLS 1.3 the client learns it only after its handshake.
            let heard = peer.and_then(|mut peer| peer.echo());
            let why = heard.expect_err("refused").to_string();
            assert!(why.contains("fatal alert"), "{why}");
        }
    };
    let mut other = Peer::connect(site.address).expect("a connection without certificate");
    let usual = cost(&site.process, || refused(&stranger()));
    let hostile = cost(&site.process, || {
        std::thread::scope(|scope| {
            let _over = OverOnDrop(&is_over);
            let refused = scope.spawn(|| refused(&bomb::client()));
            while !refused.is_finished() {
                other.echo().expect("an echo meanwhile");
            }
        });
    });
    assert!(hostile < RATIO_MAX * usual, "{hostile:?}, {usual:?}");
}

/// Ends the other thread's loop when a panic unwinds this one. The scope waits for it, and each of its handshakes may take ten
/// seconds of CPU time.
struct OverOnDrop<'a>(&'a AtomicBool);

impl Drop for OverOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The same from the other end: a server that `connect` connects to.
#[test]
fn servers_with_hostile_certificates_delay_no_other_connection() {
    requires!(can_run());
    let good = tls_server(peer::server());
    let bad = tls_server(bomb::server());
    let host = unused_host();
    let trust = format!("ca = {:?}", authority().trust());
    let settings = Settings::new(&[good]).line(&trust).line(&format!(
        "[[originate]]\nlisten = \"{host}:8081\"\nto = \"{bad}\"\nserver_name = \"localhost\"\n{trust}"
    ));
    let connect = Originator::start(&settings);
    let mut other = connect.client();
    other.echo().expect("an echo");
    let hostile = cost(&connect.process, || {
        for _ in 0..TIMES {
            let mut client = TcpStream::connect((host, 8081)).expect("connect listens");
            // The client is closed without a byte.
            assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
            other.echo().expect("an echo meanwhile");
        }
    });
    let good = cost(&connect.process, || {
        for _ in 0..TIMES {
            connect.client().echo().expect("an echo");
        }
    });
    assert!(hostile < RATIO_MAX * good, "{hostile:?}, {good:?}");
}

/// A client with a certificate of its own.
fn stranger() -> ClientConfig {
    let own = rcgen::generate_simple_self_signed(["stranger".to_owned()]).expect("a certificate");
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    ClientConfig::builder()
        .with_root_certificates(peer::roots())
        .with_client_auth_cert(vec![own.cert.der().clone()], key.into())
        .expect("a certificate with its key")
}

/// Starts a TLS server that echoes. Returns its address.
fn tls_server(config: ServerConfig) -> SocketAddr {
    let listener = TcpListener::bind((unused_host(), 0)).expect("a listener");
    let address = listener.local_addr().expect("its address");
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            let tls = ServerConnection::new(Arc::clone(&config)).expect("a usable configuration");
            std::thread::spawn(move || echo(StreamOwned::new(tls, tcp)));
        }
    });
    address
}

/// Echoes until the connection ends, in whatever way.
fn echo(mut stream: StreamOwned<ServerConnection, TcpStream>) -> Option<()> {
    let mut room = [0; 4096];
    loop {
        let len = stream.read(&mut room).ok().filter(|&len| len > 0)?;
        stream.write_all(room.get(..len)?).ok()?;
        stream.flush().ok()?;
    }
}
