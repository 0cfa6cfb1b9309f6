//! Other TLS libraries as clients, each with its own certificate: an echo around a KeyUpdate, then a resumed
//! connection that closes its own direction first, if the library supports that.

use std::process::Command;

use dormouse_interop::backend::Ending;
use dormouse_interop::certificates::authority;
use dormouse_interop::client::Version;
use dormouse_interop::scene::Scene;
use dormouse_interop::stack::Stack;
use dormouse_interop::terminator::Can;

fn connect(stack: Stack) {
    requires!(Can::BeDormouse, stack);
    for version in [Version::Tls13, Version::Tls12] {
        let Some(abilities) = stack.abilities(version) else {
            continue;
        };
        let scene = Scene::with(|settings| {
            let trust = authority().trust();
            settings.option("client_certificates", "required");
            settings.option("client_ca", &trust.to_string_lossy());
        });
        let command = stack.command("client", scene.address, version);
        let (program, arguments) = command.split_first().expect("a program");
        let ended = Command::new(program).args(arguments).output();
        let ended = ended.expect("the program starts");
        let (out, error) = [&ended.stdout, &ended.stderr]
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .into();
        assert!(ended.status.success(), "{stack} {version:?}: {out}{error}");
        let name = version.name();
        let updated = u8::from(abilities.updates);
        let resumed = u8::from(abilities.client_resumes);
        let expected = format!(
            "version={name} resumed=0 updated={updated} received=0\n\
             version={name} resumed={resumed} updated=0 received=50000\n"
        );
        assert_eq!(out, expected, "{stack} {version:?}: {error}");
        assert_eq!(scene.backend.report().ended, Ending::Fin, "{stack}");
        let last = scene.backend.report();
        assert_eq!(last.sent.bytes, 50_000, "{stack}");
        if abilities.half_closes {
            assert_eq!(last.command, "halfclose 50000");
            assert_eq!(last.ended, Ending::Fin, "{stack}");
        }
    }
}

#[test]
#[ignore = "Java takes seconds to start"]
fn bouncy_castle() {
    connect(Stack::BouncyCastle);
}

#[test]
fn botan() {
    connect(Stack::Botan);
}

#[test]
#[ignore = "Erlang takes seconds to start"]
fn erlang() {
    connect(Stack::Erlang);
}

#[test]
fn gnutls() {
    connect(Stack::GnuTls);
}

#[test]
fn mbed_tls() {
    connect(Stack::MbedTls);
}

#[test]
fn nss() {
    connect(Stack::Nss);
}

#[test]
fn wolfssl() {
    connect(Stack::WolfSsl);
}
