//! Untrusted text in every output: it cannot affect a reader's terminal, browser or log.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use dormouse_interop::certificates::{Files, Kind, authority};
use dormouse_interop::peer::{self, Peer, connect_tcp};
use dormouse_interop::tools;
use dormouse_interop::wait;
use rcgen::{DistinguishedName, DnType};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificates::site::{Site, can_run};

/// A hostile name: a forged log entry, a cleared screen, a changed window title, reversed text, markup.
const HOSTILE: &str = "x\n<0>2026-01-01T00:00:00.000000Z ERROR forged\r\u{1b}[2J\u{1b}]0;mine\u{7}\u{9b}31m\u{202e}gpj<script>";

/// Characters that act on a terminal, or reorder text.
const ACTIVE: [char; 7] = ['\u{1b}', '\u{9b}', '\u{7}', '\r', '\u{202e}', '\u{8}', '\0'];

fn harmless(outlet: &str, text: &str) {
    assert!(
        text.contains("forged"),
        "{outlet} does not quote it: {text}"
    );
    for active in ACTIVE {
        assert!(
            !text.contains(active),
            "{outlet} holds {active:?}: {text:?}"
        );
    }
    for line in text.lines() {
        let line = line.trim_start();
        assert!(
            !line.starts_with("<0>") && !line.starts_with("2026-01-01T"),
            "{outlet}: {line:?}"
        );
    }
}

/// A certificate with a hostile, overlong subject.
fn hostile(folder: &Path) -> Files {
    authority().give_out_with("hostile", Kind::EcdsaP256, folder, |params| {
        params.distinguished_name = DistinguishedName::new();
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, HOSTILE);
        name.push(DnType::OrganizationalUnitName, HOSTILE.repeat(100));
    })
}

/// A client's certificate and ALPN protocols, in a successful handshake and in a failed one.
#[test]
fn untrusted_text_cannot_forge_log_lines() {
    requires!(can_run());
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = peer::config_showing(&hostile(folder.path()));
    let routes = |format: &str, rule: &str| {
        let server = &authority().certificate(Kind::EcdsaP256).both;
        let (server, trust) = (server.display(), authority().trust());
        format!(
            "workers = 1\nlog_format = '{format}'\n[[route]]\nlisten = 'LISTEN'\nto = 'echo:'\n\
             certificates = '{server}'\nclient_certificates = 'required'\nclient_ca = '{}'\n{rule}",
            trust.display()
        )
    };
    for format in ["text", "json"] {
        let site = Site::new(&routes(format, ""), |_| {});
        let connect = |config: &rustls::ClientConfig| {
            let tcp = connect_tcp(site.address).expect("a connection");
            let peer = Peer::over(tcp, peer::client(config.clone()));
            peer.and_then(|mut peer| peer.echo())
        };
        connect(&config).expect("a good certificate");
        site.reload(&routes(format, "client_allow = 'cn=alice'\n"));
        connect(&config).expect_err("a client that no rule allows");
        config.alpn_protocols = vec![HOSTILE.as_bytes().to_vec()];
        let _ = connect(&config);
        config.alpn_protocols.clear();
        wait::until_true("lines of both clients", || {
            let refused = site.process.lines_with("matches no rule").len();
            refused >= 2
        });
        let log = site.process.log();
        harmless(format, &log);
        assert!(log.lines().all(|line| line.len() < 4096), "{log}");
        for line in log.lines() {
            match format {
                "json" => drop(serde_json::from_str::<serde_json::Value>(line).expect("an object")),
                _ => assert!(line.starts_with("20") && line.contains('Z'), "{line}"),
            }
        }
    }
}

/// A server with a hostile certificate and a hostile banner. Returns its address.
fn server(files: &Files) -> SocketAddr {
    let chain = CertificateDer::pem_file_iter(&files.cert).expect("a file");
    let chain = chain.map(|one| one.expect("a certificate")).collect();
    let key = PrivateKeyDer::from_pem_file(&files.key).expect("a key");
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let config = Arc::new(
        config
            .with_single_cert(chain, key)
            .expect("a key of the certificate"),
    );
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for tcp in listener.incoming() {
            let Ok(tcp) = tcp else { return };
            let config = Arc::clone(&config);
            std::thread::spawn(move || answer(tcp, config));
        }
    });
    address
}

/// Answers one request. Errors are ignored, because the client of a finished test is gone.
fn answer(tcp: std::net::TcpStream, config: Arc<rustls::ServerConfig>) -> Option<()> {
    let tls = rustls::ServerConnection::new(config).ok()?;
    let mut stream = rustls::StreamOwned::new(tls, tcp);
    let mut room = [0; 4096];
    while stream.read(&mut room).ok()? > 0 {
        let banner = HOSTILE.replace(['\n', '\r'], " ");
        let response =
            format!("HTTP/1.1 200 OK\r\nServer: {banner}\r\nContent-Length: 2\r\n\r\nok");
        stream.write_all(response.as_bytes()).ok()?;
        stream.flush().ok()?;
    }
    None
}

fn audit(arguments: &[&str]) -> Output {
    Command::new(tools::dormouse())
        .args(["audit", "server", "-q", "--fail-on", "never"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the audit starts")
}

#[test]
fn untrusted_text_cannot_affect_an_audit() {
    requires!(can_run());
    let folder = tempfile::tempdir().expect("a folder");
    let address = server(&hostile(folder.path())).to_string();
    let (json, page) = (folder.path().join("a.json"), folder.path().join("a.html"));
    let text = |path: &Path| fs::read_to_string(path).expect("written");
    let (json_file, page_file) = (json.to_string_lossy(), page.to_string_lossy());
    let done = audit(&[
        &address,
        "--insecure",
        "--json",
        &json_file,
        "--html",
        &page_file,
    ]);
    let both = [done.stdout, done.stderr].concat();
    harmless("the text", &String::from_utf8_lossy(&both));
    harmless("the page", &text(&page));
    assert!(!text(&page).contains("<script"), "markup of a stranger");
    harmless("JSON", &text(&json));
    serde_json::from_str::<serde_json::Value>(&text(&json)).expect("a document");
    // The error path: the certificate is not trusted, and the reason quotes it.
    let refused = audit(&[&address]);
    assert_eq!(refused.status.code(), Some(3));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    for active in ACTIVE {
        assert!(!said.contains(active), "{said:?}");
    }
}
