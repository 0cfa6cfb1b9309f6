//! Certificates pushed through the admin socket: what clients receive, how long it lasts, and what is refused.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use dormouse_interop::certificates::{Files, Kind, authority};
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::tools;
use dormouse_interop::wait::PATIENCE;

use super::site::{Site, can_run};

const ROUTE: &str =
    "[[route]]\nname = 'shop'\nlisten = 'LISTEN'\nto = 'echo:'\ncertificates = 'HERE/certs'\n";

fn give(name: &str, kind: Kind, for_name: &str, folder: &Path) -> Files {
    authority().give_out_for(name, kind, &[for_name], folder)
}

/// A route with certificates for `first.example` and `second.example`.
fn site() -> Site {
    Site::new(ROUTE, |folder| {
        let certs = folder.join("certs");
        fs::create_dir(&certs).expect("a folder");
        for (name, for_name) in [("a-first", "first.example"), ("b-second", "second.example")] {
            let files = give(name, Kind::EcdsaP256, for_name, folder);
            fs::rename(files.both, certs.join(format!("{name}.pem"))).expect("moved");
        }
    })
}

fn ctl(site: &Site, words: &[&str]) -> Output {
    Command::new(tools::dormouse())
        .arg("ctl")
        .args(words)
        .arg("--admin")
        .arg(site.admin.path())
        .output()
        .expect("dormouse ctl")
}

fn done(site: &Site, words: &[&str]) -> String {
    let output = ctl(site, words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "dormouse ctl {words:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refused(site: &Site, words: &[&str]) -> String {
    let output = ctl(site, words);
    assert_eq!(output.status.code(), Some(2), "dormouse ctl {words:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn path(file: &Path) -> &str {
    file.to_str().expect("a path in UTF-8")
}

/// Clients receive the pushed certificate at once, and also after a worker was killed, after an upgrade and after a
/// file has changed. A reload restores the certificates from files.
#[test]
fn clients_see_a_pushed_certificate_until_a_reload() {
    requires!(can_run());
    let mut site = site();
    let folder = site.folder.path().to_owned();
    let new = give("new", Kind::EcdsaP256, "second.example", &folder);
    assert_eq!(site.shown("second.example", &[]), "b-second");
    let tls = peer::client_for(peer::config(), "second.example");
    let tcp = peer::connect_tcp(site.address).expect("a connection");
    let mut held = Peer::over(tcp, tls).expect("a handshake");

    let words = done(
        &site,
        &[
            "push-certificate",
            "--cert",
            path(&new.cert),
            "--key",
            path(&new.key),
        ],
    );
    assert!(
        words.starts_with("route shop: clients get the pushed certificate for second.example"),
        "{words}"
    );
    assert_eq!(site.shown("second.example", &[]), "new");
    assert_eq!(site.shown("first.example", &[]), "a-first");
    assert_eq!(site.shown("other.example", &[]), "a-first", "the default");
    held.stream().write_all(b"still here").expect("sent");
    let mut echoed = [0; 10];
    held.stream().read_exact(&mut echoed).expect("an echo");

    let listed = done(&site, &["certificates"]);
    assert!(
        listed.contains("pushed: second.example (ECDSA)"),
        "{listed}"
    );
    let status = site.admin.status();
    let all = status["certificates"].as_array().expect("a list");
    let pushed = all.iter().filter(|one| one["pushed"] == true).count();
    assert_eq!((pushed, all.len()), (1, 3));

    site.process.kill_workers();
    assert_eq!(site.shown("second.example", &[]), "new", "after a crash");
    site.process.upgrade();
    assert_eq!(site.shown("second.example", &[]), "new", "after an upgrade");

    let renewed = give("renewed", Kind::EcdsaP256, "second.example", &folder);
    fs::rename(&renewed.both, folder.join("certs/b-second.pem")).expect("moved");
    site.process
        .wait_for_line("certificates reloaded", PATIENCE);
    assert_eq!(
        site.shown("second.example", &[]),
        "new",
        "after a renewal of the file"
    );

    done(&site, &["withdraw-certificate", "second.example"]);
    assert_eq!(site.shown("second.example", &[]), "renewed");
    done(&site, &["push-certificate", "--cert", path(&new.both)]);
    assert_eq!(site.shown("second.example", &[]), "new");
    let said = site.admin.order("/reload").expect("a reload");
    assert_eq!(
        site.shown("second.example", &[]),
        "renewed",
        "after a reload"
    );
    let ended = "ended by this reload: certificate no longer used: pushed: second.example";
    assert!(said.contains(ended), "{said}");
    let why = refused(&site, &["withdraw-certificate", "second.example"]);
    assert!(
        why.contains("no certificate for second.example was pushed"),
        "{why}"
    );
}

/// Certificates can be pushed over HTTP with curl, as the guide shows. A name that no file covers needs a route; an
/// RSA certificate comes after the one for the same name with another kind of key.
#[test]
fn certificates_are_pushed_by_http() {
    requires!(can_run(), "curl");
    let site = site();
    let folder = site.folder.path();
    let push = |files: &Files, query: &str| {
        let mut curl = Command::new(tools::path("curl"))
            .args([
                "--silent",
                "--show-error",
                "--unix-socket",
                path(site.admin.path()),
            ])
            .args([
                "--data-binary",
                "@-",
                &format!("http://localhost/certificates{query}"),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("curl");
        let both = fs::read(&files.both).expect("a certificate and its key");
        let mut stdin = curl.stdin.take().expect("a pipe");
        stdin.write_all(&both).expect("written");
        drop(stdin);
        let output = curl.wait_with_output().expect("curl ends");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let third = give("third", Kind::EcdsaP256, "third.example", folder);
    let answer = push(&third, "");
    assert!(
        answer
            .contains("no route has a certificate for third.example yet: name the route (`--route`, or route= in the request): one of shop"),
        "{answer}"
    );
    let answer = push(&third, "?route=nowhere");
    assert!(
        answer.contains("no route nowhere with certificates"),
        "{answer}"
    );
    let answer = push(&third, "?route=shop");
    assert!(answer.contains("\"done\": true"), "{answer}");
    assert_eq!(site.shown("third.example", &[]), "third");

    let rsa = give("rsa", Kind::Rsa2048, "second.example", folder);
    let answer = push(&rsa, "");
    assert!(answer.contains("\"done\": true"), "{answer}");
    assert_eq!(site.shown("second.example", &[]), "b-second");
    let only_rsa = ["-sigalgs", "RSA-PSS+SHA256:RSA+SHA256"];
    assert_eq!(site.shown("second.example", &only_rsa), "rsa");
}

/// Writes a file into the site's directory.
fn write(site: &Site, name: &str, text: &str) -> PathBuf {
    let file = site.folder.path().join(name);
    fs::write(&file, text).expect("written");
    file
}

fn text(file: &Path) -> String {
    fs::read_to_string(file).expect("a file in UTF-8")
}

/// Returns the error of `dormouse check` for these files.
fn checked(site: &Site, cert: &Path, key: &Path) -> String {
    let route = format!(
        "[[route]]\nlisten = '127.0.0.1:1'\nto = 'echo:'\ncertificates = [{{ cert = '{}', key = '{}' }}]\n",
        cert.display(),
        key.display()
    );
    let config = write(site, "check.toml", &route);
    let mut check = Command::new(tools::dormouse());
    let output = check.arg("check").arg(&config).output();
    let output = output.expect("dormouse check");
    assert!(!output.status.success(), "{route}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A pushed certificate gets the same errors as files in `dormouse check`, and nothing changes.
#[test]
fn pushed_certificates_are_checked_like_files() {
    requires!(can_run());
    let site = site();
    let folder = site.folder.path();
    let one = give("one", Kind::EcdsaP256, "second.example", folder);
    let other = give("other", Kind::EcdsaP256, "second.example", folder);
    let key = text(&one.key);
    let broken = write(&site, "broken.pem", &text(&one.cert).replace('M', "*"));
    let nothing = write(&site, "nothing.pem", "");
    let prose = write(&site, "prose.pem", "a letter to nobody\n");
    let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let locked = write(&site, "locked.key", &encrypted);
    let two = write(
        &site,
        "two.key",
        &[key.as_str(), &text(&other.key)].concat(),
    );
    let not_its_key = "the key does not belong to the certificate";
    for (cert, key, problem) in [
        (&one.cert, &other.key, not_its_key),
        (&one.key, &one.cert, "the two files may be swapped"),
        (&broken, &one.key, "this line is neither base64 nor its end"),
        (&nothing, &one.key, "is empty"),
        (&prose, &one.key, "is not PEM"),
        (&one.cert, &locked, "is encrypted with a passphrase"),
        (&one.cert, &two, "contains 2 different private keys"),
    ] {
        let said = checked(&site, cert, key);
        assert!(said.contains(problem), "{said}");
        let words = ["push-certificate", "--cert", path(cert), "--key", path(key)];
        let why = refused(&site, &words);
        assert!(why.contains(problem), "{problem}: {why}");
    }
    // Main does not rely on the checks of `ctl`.
    let body = text(&one.cert) + &text(&other.key);
    let head = format!(
        "POST /certificates HTTP/1.1\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let answer = site
        .admin
        .say((head + &body).as_bytes())
        .expect("an answer");
    assert!(
        answer.starts_with("HTTP/1.1 409 ") && answer.contains(not_its_key),
        "{answer}"
    );
    assert_eq!(site.shown("second.example", &[]), "b-second");
}

/// No key is logged at any level, and an oversized body is refused.
#[test]
fn a_pushed_key_is_not_logged() {
    requires!(can_run());
    let mut site = site();
    done(&site, &["log-level", "trace"]);
    let one = give("one", Kind::EcdsaP256, "second.example", site.folder.path());
    done(&site, &["push-certificate", "--cert", path(&one.both)]);
    let changed = "certificates changed by an admin command";
    site.process.wait_for_line(changed, PATIENCE);
    let key = text(&one.key);
    let secret = key.lines().nth(1).expect("a line of the key");
    assert!(
        site.process.lines_with(secret).is_empty(),
        "a key was logged"
    );

    // Of a file, only its sections are sent.
    let both = text(&one.both);
    let (certificate, _) = both.split_once("-----BEGIN PRIVATE").expect("a key");
    let long = certificate.repeat(100) + &both;
    let too_long = write(&site, "long.pem", &long);
    let output = ctl(&site, &["push-certificate", "--cert", path(&too_long)]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("at most 49152 bytes are read"),
        "{said}"
    );
    assert_eq!(site.admin.status()["phase"], "ready");
}
