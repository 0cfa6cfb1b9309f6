//! Pass-through: the bytes of TLS are forwarded unchanged.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::content::random;
use dormouse_interop::peer::{self, connect_tcp};
use dormouse_interop::scene::unused_host;
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};

use super::site::{Site, can_run, subject};

fn routes(to: SocketAddr, more: &str) -> String {
    let own = &authority().certificate(Kind::EcdsaP256).both;
    format!(
        "[[route]]\nlisten = 'LISTEN'\nto = 'echo:'\ncertificates = '{}'\n\
         [[route]]\nlisten = 'LISTEN'\nserver_names = '*.through.example'\n\
         pass_through = true\nto = '{to}'\n{more}\n",
        own.display()
    )
}

/// A real ClientHello for this name.
fn hello(name: &str) -> Vec<u8> {
    let mut tls = peer::client_for(peer::config(), name);
    let mut hello = Vec::new();
    tls.write_tls(&mut hello).expect("a hello");
    hello
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((unused_host(), 0)).expect("a listener");
    let address = listener.local_addr().expect("its address");
    (listener, address)
}

/// Both ends of a passed-through connection, with the hello in flight.
fn pair(site: &Site, behind: &TcpListener) -> (TcpStream, TcpStream, Vec<u8>) {
    let hello = hello("a.through.example");
    let mut client = connect_tcp(site.address).expect("a connection");
    client.write_all(&hello).expect("sent");
    let (backend, _) = behind.accept().expect("a connection");
    backend.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    (client, backend, hello)
}

/// OpenSSL's server, which has the certificate.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn passed_through_tls_ends_at_the_backend() {
    requires!(can_run());
    let folder = tempfile::tempdir().expect("a folder");
    let names = ["a.through.example"];
    let files = authority().give_out_for("behind", Kind::EcdsaP256, &names, folder.path());
    let address = listener().1;
    let server = Command::new(tools::path("openssl"))
        .args([
            "s_server",
            "-quiet",
            "-www",
            "-accept",
            &address.to_string(),
        ])
        .args([
            "-cert",
            &files.cert.to_string_lossy(),
            "-key",
            &files.key.to_string_lossy(),
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _server = Server(server.expect("openssl runs"));
    let listens = || TcpStream::connect(address).ok();
    wait::until("openssl to listen", PATIENCE, listens);
    let site = Site::new(&routes(address, ""), |_| {});
    for version in ["-tls1_3", "-tls1_2"] {
        let said = site.s_client(&["-servername", "a.through.example", version]);
        assert_eq!(subject(&said), "behind", "{version}");
        let said = site.s_client(&["-servername", "other.example", version]);
        assert_eq!(subject(&said), "localhost", "{version}");
    }
    assert_eq!(site.admin.status()["counts"]["passed_through"], 2);
}

#[test]
fn bytes_and_closes_pass_through_unchanged() {
    requires!(can_run());
    let (behind, address) = listener();
    let site = Site::new(&routes(address, ""), |_| {});
    let mut from_clients = 0;
    for client_first in [true, false] {
        let (mut client, mut backend, hello) = pair(&site, &behind);
        let (there, back) = (random(5 << 20), random(5 << 20));
        let sent = [hello, there.clone()].concat();
        from_clients += sent.len();
        let reader = thread::spawn(move || {
            let mut received = vec![0; sent.len()];
            backend.read_exact(&mut received).expect("all bytes");
            assert!(received == sent, "the client's bytes");
            backend
        });
        client.write_all(&there).expect("sent");
        let mut backend = reader.join().expect("read");
        let writer = {
            let (mut backend, back) = (backend.try_clone().expect("a clone"), back.clone());
            thread::spawn(move || backend.write_all(&back).expect("sent"))
        };
        let mut received = vec![0; back.len()];
        client.read_exact(&mut received).expect("all bytes");
        assert!(received == back, "the backend's bytes");
        writer.join().expect("written");
        // A close in one direction leaves the other open.
        let (first, second) = if client_first {
            (&mut client, &mut backend)
        } else {
            (&mut backend, &mut client)
        };
        first.shutdown(Shutdown::Write).expect("an end");
        assert_eq!(second.read(&mut [0; 9]).expect("an end"), 0);
        second.write_all(b"and yet").expect("sent");
        second.shutdown(Shutdown::Write).expect("an end");
        let mut rest = Vec::new();
        first.read_to_end(&mut rest).expect("the rest");
        assert_eq!(rest, b"and yet");
        from_clients += if client_first { 0 } else { rest.len() };
    }
    // A reset is forwarded as a reset.
    let (client, mut backend, hello) = pair(&site, &behind);
    from_clients += hello.len();
    backend
        .read_exact(&mut vec![0; hello.len()])
        .expect("the hello");
    rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO))
        .expect("the option SO_LINGER");
    drop(client);
    let error = backend.read(&mut [0; 9]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let clean = || (site.admin.status()["counts"]["closed_clean"] == 2).then_some(());
    wait::until("two clean ends", PATIENCE, clean);
    // The hello counts like all other bytes.
    let status = site.admin.status();
    assert_eq!(status["counts"]["tls_bytes_in"], from_clients);
    assert_eq!(status["backends"][0]["plain_bytes"]["sent"], from_clients);
}

/// They survive a killed worker and an upgrade, like any other connection.
#[test]
fn passed_through_connections_survive_a_kill_and_an_upgrade() {
    requires!(can_run());
    let (behind, address) = listener();
    let site = Site::new(&routes(address, ""), |_| {});
    let mut pairs: Vec<_> = (0..20).map(|_| pair(&site, &behind)).collect();
    for (_, backend, hello) in &mut pairs {
        let mut received = vec![0; hello.len()];
        backend.read_exact(&mut received).expect("the hello");
        assert!(received == *hello);
    }
    let mut pass = |when: &str| {
        for (client, backend, _) in &mut pairs {
            carry(client, backend, when);
            carry(backend, client, when);
        }
    };
    pass("before");
    let restarts = || {
        site.admin.status()["counts"]["restarts"]
            .as_u64()
            .unwrap_or_default()
    };
    let at_rest = || (site.admin.status()["counts"]["at_rest"] == 20).then_some(());
    wait::until("all to be at rest", PATIENCE, at_rest);
    site.process.kill_workers();
    wait::until_true("another worker", || restarts() == 1);
    pass("after a kill");
    let binary = tools::dormouse().to_string_lossy().into_owned();
    site.admin
        .order(&format!("/upgrade?binary={binary}"))
        .expect("an upgrade");
    pass("after an upgrade");
}

fn carry(from: &mut TcpStream, to: &mut TcpStream, when: &str) {
    let message = random(3_000);
    from.write_all(&message)
        .unwrap_or_else(|e| panic!("{when}: {e}"));
    let mut received = vec![0; message.len()];
    to.read_exact(&mut received)
        .unwrap_or_else(|e| panic!("{when}: {e}"));
    assert!(received == message, "{when}");
}
