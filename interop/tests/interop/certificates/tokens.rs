//! Private keys in a PKCS #11 token: SoftHSM2, whose tokens are folders.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use dormouse_interop::admin::Admin;
use dormouse_interop::certificates::{Files, Kind, authority};
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::{self, Process, signal};
use dormouse_interop::scene::{Scene, TLS_PORT, unused_host};
use dormouse_interop::terminator::{Can, Settings};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;
use tempfile::TempDir;

const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";
const PIN: &str = "987654";
/// User and group of the signer, if the program runs as root.
const NOBODY: u32 = 65_534;

/// A token `web`, and what a program needs to use it.
struct Token {
    folder: TempDir,
}

impl Token {
    fn new() -> Token {
        let folder = tempfile::tempdir().expect("a folder");
        let token = Token { folder };
        fs::create_dir(token.tokens()).expect("a folder");
        let text = format!(
            "directories.tokendir = {}\nobjectstore.backend = file\nlog.level = ERROR\n",
            token.tokens().display()
        );
        fs::write(token.configuration(), text).expect("written");
        token.write_pin(PIN);
        token.util(&[
            "--init-token",
            "--free",
            "--label",
            "web",
            "--so-pin",
            "4321",
        ]);
        token
    }

    fn tokens(&self) -> PathBuf {
        self.folder.path().join("tokens")
    }

    fn configuration(&self) -> PathBuf {
        self.folder.path().join("softhsm2.conf")
    }

    fn write_pin(&self, pin: &str) {
        let file = self.folder.path().join("pin");
        fs::write(&file, format!("{pin}\n")).expect("written");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("its mode");
    }

    /// Runs SoftHSM's own tool, then lets the signer use what it wrote.
    fn util(&self, words: &[&str]) {
        let output = Command::new(tools::path("softhsm2-util"))
            .env("SOFTHSM2_CONF", self.configuration())
            .args(words)
            .args(["--pin", PIN])
            .output()
            .expect("softhsm2-util runs");
        assert!(output.status.success(), "{words:?}: {output:?}");
        fs::set_permissions(self.folder.path(), Permissions::from_mode(0o755)).expect("its mode");
        if rustix::process::geteuid().is_root() {
            give_to_nobody(&self.tokens());
        }
    }

    /// Puts the key of a certificate into the token.
    fn import(&self, key: &Path, label: &str, id: &str) {
        let file = key.to_string_lossy();
        self.util(&[
            "--import", &file, "--token", "web", "--label", label, "--id", id,
        ]);
    }

    fn uri(&self, label: &str) -> String {
        let pin = self.folder.path().join("pin");
        format!(
            "pkcs11:token=web;object={label};type=private?module-path={MODULE}&pin-source={}",
            pin.display()
        )
    }

    /// A certificate whose key is in the token.
    fn certificate(&self, label: &str, kind: Kind) -> Files {
        let files = authority().give_out(label, kind, 2035, self.folder.path());
        let id: String = label.bytes().map(|byte| format!("{byte:02x}")).collect();
        self.import(&files.key, label, &id);
        fs::remove_file(&files.key).expect("removed");
        Files {
            key: self.uri(label).into(),
            ..files
        }
    }

    fn scene(&self, certificate: Files, change: impl FnOnce(&mut Settings)) -> Scene {
        Scene::with(|settings| {
            settings.certificate = certificate;
            let variable = format!("SOFTHSM2_CONF={}", self.configuration().display());
            settings.wrapper = vec!["env".to_owned(), variable];
            Admin::in_folder(settings);
            change(settings);
        })
    }
}

fn give_to_nobody(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).expect("root may do that");
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a folder").flatten() {
            give_to_nobody(&entry.path());
        }
    }
}

fn can_run() -> bool {
    tools::present(&["softhsm2-util", "openssl"])
        && (Path::new(MODULE).exists() || tools::unavailable("SoftHSM2 has no library here"))
}

/// A client that has no session to resume.
fn connect(address: SocketAddr) -> std::io::Result<Peer> {
    let [config, _] = peer::configs_by_version();
    let mut peer = Peer::over(peer::connect_tcp(address)?, peer::client(config))?;
    peer.stream().write_all(b"echo\n")?;
    peer.echo()?;
    Ok(peer)
}

#[test]
fn a_token_signs_handshakes_of_each_version_and_kind() {
    requires!(Can::BeDormouse, can_run());
    for (kind, label) in [(Kind::EcdsaP256, "ecdsa"), (Kind::Rsa2048, "rsa")] {
        let token = Token::new();
        let certificate = token.certificate(label, kind);
        let scene = token.scene(certificate, |settings| settings.workers = 2);
        for config in peer::configs_by_version() {
            for expected in [rustls::HandshakeKind::Full, rustls::HandshakeKind::Resumed] {
                let tcp = peer::connect_tcp(scene.address).expect("a connection");
                let mut peer = Peer::over(tcp, peer::client(config.clone())).expect("a handshake");
                peer.stream().write_all(b"echo\n").expect("a line");
                peer.echo().expect("an echo");
                assert_eq!(peer.tls.handshake_kind(), Some(expected));
            }
        }
        // PKCS #1 in TLS 1.2, and a HelloRetryRequest in 1.3.
        for words in [
            &["-tls1_2", "-sigalgs", "RSA+SHA256:RSA+SHA512:ECDSA+SHA256"][..],
            &["-tls1_3", "-groups", "P-521:P-256"],
        ] {
            let output = Command::new(tools::path("openssl"))
                .args(["s_client", "-connect", &scene.address.to_string()])
                .args([
                    "-servername",
                    "localhost",
                    "-verify_return_error",
                    "-CAfile",
                ])
                .arg(authority().trust())
                .args(words)
                .stdin(std::process::Stdio::null())
                .output()
                .expect("openssl runs");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(
                said.contains("Verify return code: 0 (ok)"),
                "{words:?}: {said}"
            );
        }
        // Established connections and an upgrade need no key.
        let mut established = connect(scene.address).expect("a handshake");
        scene.terminator.upgrade();
        established.echo().expect("an echo after the upgrade");
        connect(scene.address).expect("a handshake after the upgrade");
        assert!(!scene.terminator.log().contains(PIN));
    }
}

/// Handshakes fail, the log says why, everything else continues; then the token is back.
#[test]
fn a_token_is_lost_and_found_again() {
    requires!(Can::BeDormouse, can_run());
    let token = Token::new();
    let certificate = token.certificate("site", Kind::EcdsaP256);
    let mut scene = token.scene(certificate, |_| {});
    let mut established = connect(scene.address).expect("a handshake");
    let signer = scene.terminator.named("signer").expect("a signer");
    if rustix::process::geteuid().is_root() {
        let no_rights = "0000000000000000";
        assert_eq!(process::status(signer, "CapEff:"), no_rights);
        assert!(process::status(signer, "Uid:").starts_with(&NOBODY.to_string()));
    }
    assert_eq!(process::status(signer, "Seccomp:"), "2");
    let elsewhere = token.folder.path().join("elsewhere");
    fs::rename(token.tokens(), &elsewhere).expect("moved");
    fs::create_dir(token.tokens()).expect("an empty folder");
    signal(signer, Signal::KILL);
    wait::until_true("another signer", || {
        scene
            .terminator
            .named("signer")
            .is_some_and(|pid| pid != signer)
    });
    wait::until_true("a refused handshake", || connect(scene.address).is_err());
    scene
        .terminator
        .wait_for_line("no signature by a key in a token", PATIENCE);
    scene
        .terminator
        .wait_for_line("there is no such token", PATIENCE);
    established.echo().expect("an echo");
    fs::remove_dir(token.tokens()).expect("removed");
    fs::rename(&elsewhere, token.tokens()).expect("moved back");
    wait::until_true("a handshake", || connect(scene.address).is_ok());
    scene
        .terminator
        .wait_for_line("keys in tokens sign again", PATIENCE);
    established.echo().expect("an echo");
}

/// A token that does not answer holds up its own handshakes, and nothing else.
#[test]
fn a_silent_token_blocks_only_its_handshakes() {
    requires!(Can::BeDormouse, can_run());
    let token = Token::new();
    let certificate = token.certificate("site", Kind::EcdsaP256);
    let mut scene = token.scene(certificate, |_| {});
    let file = scene.folder.path().join("dormouse.toml");
    let text = fs::read_to_string(&file).expect("the configuration");
    let other = SocketAddr::new(scene.address.ip(), TLS_PORT + 1);
    let site = authority().certificate(Kind::EcdsaP256);
    let more = format!(
        "\n[[route]]\nlisten = '{other}'\nto = '{}'\ncertificates = [{{ cert = '{}', key = '{}' }}]\n",
        scene.backend.address(),
        site.cert.display(),
        site.key.display()
    );
    fs::write(&file, text + &more).expect("written");
    Admin::of(&scene).order("/reload").expect("a reload");
    let mut established = connect(scene.address).expect("a handshake");
    let signer = scene.terminator.named("signer").expect("a signer");
    signal(signer, Signal::STOP);
    let address = scene.address;
    let waiting: Vec<_> = (0..20)
        .map(|_| std::thread::spawn(move || connect(address).map(drop)))
        .collect();
    for _ in 0..20 {
        established
            .echo()
            .expect("an echo beside waiting handshakes");
        connect(other).expect("a handshake with a key in a file");
    }
    assert!(waiting.iter().any(|client| !client.is_finished()));
    // Main ends the signer, and another one signs.
    scene
        .terminator
        .wait_for_line("the token has not signed within 5 s", PATIENCE);
    for client in waiting {
        let _ = client.join().expect("its end");
    }
    wait::until_true("a handshake", || connect(scene.address).is_ok());
    established.echo().expect("an echo");
}

/// A signature reaches its handshake while the worker loads hundreds of certificates.
#[test]
#[ignore = "a signature has five seconds, which a busy machine may need: part of the long run"]
fn a_signature_does_not_wait_for_a_reload() {
    requires!(Can::BeDormouse, can_run());
    let token = Token::new();
    let certificate = token.certificate("site", Kind::EcdsaP256);
    let many = tempfile::tempdir().expect("a folder");
    let names: Vec<String> = (0..1_500).map(|n| format!("site{n}.example")).collect();
    authority().give_out_many(&names, many.path());
    let scene = token.scene(certificate, |settings| {
        settings.option("reload_certificates", "1h");
        settings.option("hang_timeout", "off");
    });
    let file = scene.folder.path().join("dormouse.toml");
    let text = fs::read_to_string(&file).expect("the configuration");
    let all = format!("certificates = ['{}', ", many.path().display());
    fs::write(&file, text.replace("certificates = [", &all)).expect("written");
    let admin = Admin::of(&scene);
    connect(scene.address).expect("a handshake");
    let [worker, signer] = ["worker-0", "signer"].map(|name| scene.terminator.named(name));
    let (worker, signer) = (worker.expect("a worker"), signer.expect("a signer"));
    signal(signer, Signal::STOP);
    let mut tcp = peer::connect_tcp(scene.address).expect("a connection");
    let [config, _] = peer::configs_by_version();
    let mut tls = peer::client(config);
    tls.write_tls(&mut tcp).expect("a ClientHello");
    std::thread::scope(|scope| {
        let client = scope.spawn(|| Peer::over(tcp, tls));
        wait::until_true("a handshake", || {
            admin.status()["workers"][0]["handshaking"] == 1
        });
        // It waits for its signature, and the reload comes before that.
        process::until_asleep(worker);
        signal(worker, Signal::STOP);
        let reload = scope.spawn(|| admin.order("/reload").expect("a reload"));
        wait::until_true("the reload", || {
            admin.status()["configuration"]["edition"] == 2
        });
        signal(signer, Signal::CONT);
        process::until_asleep(signer);
        process::until_asleep(scene.terminator.pid());
        signal(worker, Signal::CONT);
        let client = client.join().expect("no panic");
        let mut client = client.expect("a handshake");
        client.stream().write_all(b"echo\n").expect("a line");
        // As many turns as the answer to a reload that has ended would need.
        for _ in 0..5 {
            client.echo().expect("an echo");
        }
        assert!(!reload.is_finished(), "the certificates are still loaded");
    });
}

/// Keys that cannot serve, and what is said of them.
fn unusable(token: &Token, uri: &str, other: &Files) -> Vec<(String, &'static str)> {
    vec![
        (token.uri("nothing"), "there is no such key in the token"),
        (
            token.uri("rsa"),
            "the certificate is for ECDSA, and the key in the token is for CKK_RSA",
        ),
        (
            uri.replace("SoftHSM%20v2", "other"),
            "there is no such token",
        ),
        (
            uri.replace("token=web", "token=app"),
            "there is no such token",
        ),
        (
            uri.replace(MODULE, "/nowhere.so"),
            "the library cannot be loaded",
        ),
        (
            other.key.to_string_lossy().into_owned(),
            "is not the key of the certificate",
        ),
    ]
}

/// A reload brings keys in tokens and removes them; `check` and a reload say what is wrong.
#[test]
fn keys_in_tokens_are_tried_before_they_serve() {
    requires!(Can::BeDormouse, can_run());
    let token = Token::new();
    let certificate = token.certificate("site", Kind::EcdsaP256);
    let other = token.certificate("other", Kind::EcdsaP256);
    token.certificate("rsa", Kind::Rsa2048);
    let scene = token.scene(authority().certificate(Kind::EcdsaP256).clone(), |_| {});
    let file = scene.folder.path().join("dormouse.toml");
    let before = fs::read_to_string(&file).expect("the configuration");
    let with = |key: &str| {
        let mut text = String::new();
        for line in before.lines() {
            match line.starts_with("certificates") {
                true => {
                    text += &format!(
                        "certificates = [{{ cert = '{}', key = '{key}' }}]\n",
                        certificate.cert.display()
                    )
                }
                false => text += &format!("{line}\n"),
            }
        }
        text
    };
    let check = || {
        let output = Command::new(tools::dormouse())
            .arg("check")
            .arg(&file)
            .env("SOFTHSM2_CONF", token.configuration())
            .output()
            .expect("dormouse check");
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    };
    let uri = token.uri("site").replace(
        "token=web",
        "model=SoftHSM%20v2;manufacturer=SoftHSM%20project;token=web",
    );
    let admin = Admin::of(&scene);
    for (key, what) in unusable(&token, &uri, &other) {
        fs::write(&file, with(&key)).expect("written");
        let (accepted, said) = check();
        assert!(!accepted && said.contains(what), "{key}: {said}");
        let refused = admin.order("/reload").expect_err("an unusable key");
        assert!(refused.contains(what), "{key}: {refused}");
    }
    fs::write(&file, with(&uri)).expect("written");
    token.write_pin("000000");
    let (accepted, said) = check();
    assert!(
        !accepted && said.contains("the token refuses the PIN"),
        "{said}"
    );
    assert!(!said.contains("000000"), "{said}");
    token.write_pin(PIN);
    let (accepted, said) = check();
    assert!(accepted, "{said}");
    admin.order("/reload").expect("a reload");
    connect(scene.address).expect("a handshake");
    assert!(scene.terminator.named("signer").is_some());
    fs::write(&file, &before).expect("written");
    admin.order("/reload").expect("a reload");
    connect(scene.address).expect("a handshake");
    wait::until_true("the end of the signer", || {
        scene.terminator.named("signer").is_none()
    });
}

/// `connect` shows a client certificate whose key is in the token.
#[test]
fn connect_signs_with_a_key_in_a_token() {
    requires!(Can::BeDormouse, can_run());
    let token = Token::new();
    let certificate = token.certificate("client", Kind::EcdsaP256);
    let folder = tempfile::tempdir().expect("a folder");
    let host = unused_host();
    let (server, local) = (SocketAddr::new(host, 4433), SocketAddr::new(host, 8081));
    let own = authority().certificate(Kind::EcdsaP256);
    for version in ["-tls1_3", "-tls1_2"] {
        let (ca, accept) = (
            authority().trust().display().to_string(),
            server.to_string(),
        );
        let (cert, key) = (
            own.cert.display().to_string(),
            own.key.display().to_string(),
        );
        let words = [
            "openssl",
            "s_server",
            version,
            "-accept",
            &accept,
            "-cert",
            &cert,
            "-key",
            &key,
            "-CAfile",
            &ca,
            "-Verify",
            "1",
            "-verify_return_error",
            "-rev",
        ];
        let _server = Process::start("s_server", &words.map(str::to_owned), folder.path());
        wait::until_listening("s_server", server);
        let configuration = folder.path().join("connect.toml");
        let text = format!(
            "admin = 'none'\nworkers = 1\n[[originate]]\nlisten = '{local}'\nto = '{server}'\n\
             server_name = 'localhost'\nca = '{ca}'\ncertificates = [{{ cert = '{}', key = '{}' }}]\n",
            certificate.cert.display(),
            certificate.key.display()
        );
        fs::write(&configuration, text).expect("written");
        let words = [
            "env".to_owned(),
            format!("SOFTHSM2_CONF={}", token.configuration().display()),
            tools::dormouse().display().to_string(),
            "connect".to_owned(),
            "-c".to_owned(),
            configuration.display().to_string(),
        ];
        let mut connect = Process::start("connect", &words, folder.path());
        connect.wait_for_line(" ready ", PATIENCE);
        for _ in 0..2 {
            let mut tcp = peer::connect_tcp(local).expect("a connection");
            tcp.write_all(b"hello\n").expect("sent");
            let mut answer = [0; 6];
            tcp.read_exact(&mut answer).expect("an answer");
            assert_eq!(&answer, b"olleh\n");
        }
    }
}
