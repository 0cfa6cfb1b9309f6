//! A certificate of `openssl req -x509`, which is an authority's, as the trusted certificate of the peer that shows it.

use std::path::{Path, PathBuf};
use std::process::Command;

use dormouse_interop::certificates::Files;
use dormouse_interop::originator::{Originator, Settings};
use dormouse_interop::tools;

use super::site::{Site, can_run};

/// OpenSSL's defaults: a root with its own key, CA:TRUE, for anything.
fn made(folder: &Path, name: &str) -> Files {
    let [cert, key] = ["pem", "key"].map(|end| folder.join(format!("{name}.{end}")));
    let made = Command::new(tools::path("openssl"))
        .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30".split(' '))
        .args(["-subj", &format!("/CN={name}")])
        .args(["-addext", "subjectAltName=DNS:localhost"])
        .arg("-out")
        .arg(&cert)
        .arg("-keyout")
        .arg(&key)
        .output()
        .expect("openssl starts");
    assert!(made.status.success(), "{made:?}");
    Files {
        both: PathBuf::new(),
        cert,
        key,
    }
}

/// `connect`, then a server with `backend_tls` and checks, then another server: each has a certificate of its own, which
/// the next one trusts.
#[test]
fn each_peer_is_trusted_by_its_own_certificate() {
    requires!(can_run());
    let folder = tempfile::tempdir().expect("a folder");
    let [outer, inner, client] = ["outer", "inner", "client"].map(|name| made(folder.path(), name));
    let pair = |files: &Files| format!("[{{ cert = {:?}, key = {:?} }}]", files.cert, files.key);
    let last = Site::new(
        &format!(
            "[[route]]\nlisten = 'LISTEN'\nto = 'echo:'\ncertificates = {}\n\
             client_certificates = 'required'\nclient_ca = {:?}\n",
            pair(&inner),
            outer.cert
        ),
        |_| {},
    );
    let first = Site::new(
        &format!(
            "[[route]]\nlisten = 'LISTEN'\nto = '{}'\ncertificates = {}\n\
             client_certificates = 'required'\nclient_ca = {:?}\n\
             backend_tls = true\nbackend_ca = {:?}\nbackend_name = 'localhost'\n\
             backend_certificates = {}\ncheck = 'tls'\ncheck_every = '200ms'\n",
            last.address,
            pair(&outer),
            client.cert,
            inner.cert,
            pair(&outer)
        ),
        |_| {},
    );
    let connect = |own: &Files| {
        let settings = Settings::new(&[first.address]).line(&format!("ca = {:?}", outer.cert));
        Originator::start(&settings.line(&format!("certificates = {}", pair(own))))
    };
    let accepted = connect(&client);
    let mut plain = accepted.client();
    plain.echo().expect("an echo through all three");
    // Checks are among them.
    last.process.logged("handshake done", 4);
    let failed = last.process.lines_with("handshake failed");
    assert!(failed.is_empty(), "{failed:?}");

    // With the same name, it is still another certificate.
    let others = tempfile::tempdir().expect("a folder");
    let refused = connect(&made(others.path(), "client"));
    refused.client().echo().expect_err("refused");
    first.process.logged("not itself a trusted certificate", 1);
}
