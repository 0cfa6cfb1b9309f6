//! `dormouse connect` with servers of other TLS libraries, which require a certificate: an echo around a
//! KeyUpdate, and a second connection that resumes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::client::Version;
use dormouse_interop::originator::{Client, Originator, Settings};
use dormouse_interop::process::Process;
use dormouse_interop::scene::{TLS_PORT, unused_host};
use dormouse_interop::stack::Stack;
use dormouse_interop::wait::{self, PATIENCE};

fn originate(stack: Stack) {
    requires!(stack);
    for version in [Version::Tls13, Version::Tls12] {
        let Some(abilities) = stack.abilities(version) else {
            continue;
        };
        let address = SocketAddr::new(unused_host(), TLS_PORT);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let command = stack.command("server", address, version);
        let mut server = Process::start("server", &command, folder.path());
        server.wait_for_line("listening", PATIENCE);
        let own = authority().certificate(Kind::EcdsaP256);
        let (cert, key) = (own.cert.display(), own.key.display());
        let certificates = format!("certificates = [{{ cert = \"{cert}\", key = \"{key}\" }}]");
        let connect = Originator::start(&Settings::new(&[address]).line(&certificates));
        for lines in [&["before", "update", "after"][..], &["again"]] {
            let mut client = connect.client();
            for line in lines {
                echo(&mut client, line);
            }
            let (last, expected) = if abilities.half_closes {
                client
                    .tcp
                    .shutdown(Shutdown::Write)
                    .expect("an open socket");
                (rest(client), "bye\n")
            } else {
                client.tcp.write_all(b"quit\n").expect("taken");
                (rest(client), "")
            };
            assert_eq!(last, expected, "{stack} {version:?}");
        }
        let resumed = usize::from(abilities.server_resumes);
        wait::until_true("both handshakes to be in the log", || {
            let (full, again) = connect.handshakes();
            full + again == 2
        });
        let handshakes = connect.handshakes();
        assert_eq!(handshakes, (2 - resumed, resumed), "{stack} {version:?}");
        let name = version.name();
        let of_server = wait::until("the server to tell of both", PATIENCE, || {
            let lines = server.lines_with(&format!("version={name} "));
            (lines.len() == 2).then_some(lines)
        });
        let updated = format!(" updated={} ", u8::from(abilities.updates));
        assert!(of_server[0].contains(&updated), "{stack}: {of_server:?}");
        for line in &of_server {
            assert!(line.contains(" verified=1"), "{stack}: {line}");
        }
    }
}

fn echo(client: &mut Client, line: &str) {
    let line = format!("{line}\n");
    client.tcp.write_all(line.as_bytes()).expect("taken");
    let mut back = vec![0; line.len()];
    client.tcp.read_exact(&mut back).expect("an echo");
    assert_eq!(String::from_utf8_lossy(&back), line);
}

fn rest(mut client: Client) -> String {
    let mut last = String::new();
    client.tcp.read_to_string(&mut last).expect("a clean end");
    last
}

#[test]
#[ignore = "Java takes seconds to start"]
fn bouncy_castle() {
    originate(Stack::BouncyCastle);
}

#[test]
fn botan() {
    originate(Stack::Botan);
}

#[test]
#[ignore = "Erlang takes seconds to start"]
fn erlang() {
    originate(Stack::Erlang);
}

#[test]
fn gnutls() {
    originate(Stack::GnuTls);
}

#[test]
fn mbed_tls() {
    originate(Stack::MbedTls);
}

#[test]
fn nss() {
    originate(Stack::Nss);
}

#[test]
fn wolfssl() {
    originate(Stack::WolfSsl);
}
