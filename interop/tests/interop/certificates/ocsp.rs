//! OCSP: responses are stapled, from a file or fetched automatically, with OpenSSL as the responder and as
//! the client.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use dormouse_interop::certificates::{Files, Kind, authority};
use dormouse_interop::scene::{unused_host, unused_port};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rcgen::{CustomExtension, SerialNumber};

use super::site::{Site, can_run};

const SERIAL: &[u8] = &[0x4a, 0xbc, 0x01];

/// A certificate with this responder, followed by the CA's own certificate.
fn certificate(name: &str, serial: &[u8], responder: SocketAddr, folder: &Path) -> Files {
    let files = authority().give_out_with(name, Kind::EcdsaP256, folder, |params| {
        params.serial_number = Some(SerialNumber::from_slice(serial));
        let url = format!("http://{responder}/ocsp");
        // AuthorityInfoAccess { { id-ad-ocsp, uniformResourceIdentifier } } (RFC 5280 §4.2.2.1).
        let tagged = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
        let method = tagged(6, &[0x2b, 6, 1, 5, 5, 7, 0x30, 1]);
        let location = tagged(0x86, url.as_bytes());
        let access = tagged(0x30, &tagged(0x30, &[method, location].concat()));
        let extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], access);
        params.custom_extensions.push(extension);
    });
    let chain = [fs::read(&files.cert), fs::read(authority().trust())];
    let chain = chain
        .map(|part| part.expect("a readable PEM file"))
        .concat();
    fs::write(&files.cert, chain).expect("written");
    files
}

/// OpenSSL's index of issued certificates.
pub(super) fn index(folder: &Path, state: &str, serial: &[u8]) {
    let serial: String = serial.iter().map(|byte| format!("{byte:02X}")).collect();
    let line = match state {
        "V" => format!("V\t351231235959Z\t\t{serial}\tunknown\t/CN=localhost\n"),
        _ => format!("R\t351231235959Z\t240101000000Z\t{serial}\tunknown\t/CN=localhost\n"),
    };
    fs::write(folder.join("index.txt"), line).expect("written");
}

fn ocsp(folder: &Path) -> Command {
    let trust = authority().trust();
    let mut command = Command::new(tools::path("openssl"));
    command
        .args(["ocsp", "-index"])
        .arg(folder.join("index.txt"))
        .arg("-CA")
        .arg(&trust)
        .arg("-rsigner")
        .arg(&trust)
        .arg("-rkey")
        .arg(authority().key())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// OpenSSL's responder; dropping it ends it.
struct Responder(Child);

impl Responder {
    fn start(address: SocketAddr, folder: &Path) -> Responder {
        let log = folder.join("responder.log");
        let output = fs::File::create(&log).expect("a log file");
        let mut command = ocsp(folder);
        command.args(["-port", &address.port().to_string(), "-ndays", "2"]);
        command.stderr(output);
        let mut responder = Responder(command.spawn().expect("openssl runs"));
        // Not probed by a connection: one without a request would end it.
        let waits = || {
            let log = fs::read_to_string(&log).unwrap_or_default();
            let ended = responder.0.try_wait().expect("its state");
            assert!(ended.is_none(), "openssl ocsp ended: {log}");
            log.contains("waiting for OCSP client").then_some(())
        };
        wait::until("the responder to listen", PATIENCE, waits);
        responder
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes a response for the certificate with this serial number to a file.
pub(super) fn response(folder: &Path, serial: &[u8], file: &Path) {
    let serial: String = serial.iter().map(|byte| format!("{byte:02x}")).collect();
    let (request, trust) = (folder.join("request.der"), authority().trust());
    let made = Command::new(tools::path("openssl"))
        .args(["ocsp", "-no_nonce", "-issuer"])
        .arg(&trust)
        .args(["-serial", &format!("0x{serial}"), "-reqout"])
        .arg(&request)
        .output()
        .expect("openssl runs");
    assert!(
        request.is_file(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let mut command = ocsp(folder);
    command.args(["-ndays", "2", "-reqin"]).arg(&request);
    command.arg("-respout").arg(file);
    assert!(command.status().expect("openssl runs").success());
}

/// OpenSSL's responder listens on all addresses.
fn responder() -> SocketAddr {
    SocketAddr::new(unused_host(), unused_port())
}

fn staple(site: &Site) -> Option<String> {
    let said = site.s_client(&["-servername", "localhost", "-status"]);
    let at = said.find("Cert Status: ")?;
    Some(
        said[at + 13..]
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
    )
}

const ROUTE: &str = "[[route]]\nlisten = 'LISTEN'\nto = 'echo:'\n";

#[test]
fn an_ocsp_response_is_fetched_and_stapled() {
    requires!(can_run());
    let folder = tempfile::tempdir().expect("a folder");
    let address = responder();
    let files = certificate("fetched", SERIAL, address, folder.path());
    index(folder.path(), "V", SERIAL);
    let _responder = Responder::start(address, folder.path());
    let (cert, key) = (files.cert.display(), files.key.display());
    let route = format!("{ROUTE}certificates = {{ cert = '{cert}', key = '{key}' }}\n");
    let site = Site::new(&route, |_| {});
    let good = || staple(&site).filter(|status| status == "good");
    wait::until("a staple", PATIENCE, good);
    for version in ["-tls1_2", "-tls1_3"] {
        let said = site.s_client(&["-servername", "localhost", "-status", version]);
        assert!(
            said.contains("OCSP Response Status: successful (0x0)"),
            "{said}"
        );
    }
    let said = site.s_client(&["-servername", "localhost"]);
    assert!(
        !said.contains("OCSP Response Status"),
        "who does not ask gets none"
    );
    // The errand has exited, and a reload does not query again.
    let errand = || site.process.named("errand");
    wait::until_true("the errand to end", || errand().is_none());
    drop(_responder);
    site.reload(&route);
    assert_eq!(staple(&site).as_deref(), Some("good"));
}

/// A responder that is down, and one that reports a revocation: both leave the certificate without a staple,
/// and are logged.
#[test]
fn missing_and_revoked_responses_are_logged() {
    requires!(can_run());
    let folder = tempfile::tempdir().expect("a folder");
    let (absent, address) = (responder(), responder());
    let gone = certificate("gone", &[0x11], absent, folder.path());
    let revoked = certificate("revoked", &[0x22], address, folder.path());
    index(folder.path(), "R", &[0x22]);
    let _responder = Responder::start(address, folder.path());
    let pair = |files: &Files| {
        format!(
            "{{ cert = '{}', key = '{}' }}",
            files.cert.display(),
            files.key.display()
        )
    };
    let route = format!(
        "{ROUTE}certificates = [{}, {}]\n",
        pair(&revoked),
        pair(&gone)
    );
    let site = Site::new(&route, |_| {});
    let says = |what: &str| {
        site.process.logged(what, 1);
    };
    says("says that the certificate is REVOKED");
    says("Connection refused");
    assert_eq!(staple(&site), None);
}

#[test]
fn an_ocsp_response_from_a_file_is_verified() {
    requires!(can_run());
    let folder = tempfile::tempdir().expect("a folder");
    let files = certificate("from-file", SERIAL, responder(), folder.path());
    index(folder.path(), "V", SERIAL);
    let file = folder.path().join("response.der");
    response(folder.path(), SERIAL, &file);
    let (cert, key) = (files.cert.display(), files.key.display());
    let shown = file.display();
    let certificate = format!("{{ cert = '{cert}', key = '{key}', ocsp = '{shown}' }}");
    let route = format!("{ROUTE}certificates = {certificate}\n");
    let site = Site::new(&route, |_| {});
    assert_eq!(staple(&site).as_deref(), Some("good"));
    // A response for another certificate is rejected; the previous one stays.
    response(folder.path(), &[0x77], &file);
    site.process.logged("is about another certificate", 1);
    assert_eq!(staple(&site).as_deref(), Some("good"));
    let refused = site.admin.order("/reload").expect_err("the file is wrong");
    assert!(
        refused.contains("is about another certificate"),
        "{refused}"
    );
}
