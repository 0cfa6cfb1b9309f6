//! Client certificates: which clients are accepted.

use std::fs;
use std::path::Path;
use std::process::Command;

use dormouse_interop::certificates::{Files, Kind, authority};
use dormouse_interop::peer::{self, Peer, connect_tcp};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rcgen::{DistinguishedName, DnType, SanType};
use rustls::ClientConfig;

use super::site::{Site, can_run};

/// A user with a valid certificate.
fn person(folder: &Path, name: &str, unit: &str) -> Files {
    authority().give_out_with(name, Kind::EcdsaP256, folder, |params| {
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
            .distinguished_name
            .push(DnType::OrganizationalUnitName, unit);
        let dns = format!("{name}.agents.example").try_into().expect("a name");
        let uri = format!("spiffe://example.org/ns/{unit}/{name}");
        let uri = uri.try_into().expect("a URI");
        params.subject_alt_names = vec![SanType::DnsName(dns), SanType::URI(uri)];
    })
}

fn routes(rules: &str) -> String {
    let trust = authority().trust();
    let server = &authority().certificate(Kind::EcdsaP256).both;
    format!(
        "[[route]]\nlisten = 'LISTEN'\nto = 'echo:'\ncertificates = '{}'\n\
         client_certificates = 'required'\nclient_ca = '{}'\nclient_allow = {rules}\n",
        server.display(),
        trust.display()
    )
}

/// Whether a client is accepted. In TLS 1.3 the client learns it only after its handshake.
fn is_accepted(site: &Site, config: &ClientConfig) -> Result<bool, String> {
    let tcp = connect_tcp(site.address).expect("a connection");
    let mut peer = Peer::over(tcp, peer::client(config.clone())).map_err(|e| e.to_string())?;
    peer.echo().map_err(|error| error.to_string())?;
    let kind = peer.tls.handshake_kind();
    Ok(kind == Some(rustls::HandshakeKind::Resumed))
}

#[test]
fn rules_admit_named_clients_and_the_log_names_refused_ones() {
    requires!(can_run());
    let folder = tempfile::tempdir().expect("a folder");
    let alice = peer::config_showing(&person(folder.path(), "alice", "staff"));
    let bob = peer::config_showing(&person(folder.path(), "bob", "guests"));
    let site = Site::new(&routes("'cn=alice'"), |_| {});
    for rule in [
        "'cn=alice'",
        "'ou=staff'",
        "['cn=nobody', 'dns=alice.agents.example']",
        "'uri=spiffe://example.org/ns/staff/*'",
    ] {
        site.reload(&routes(rule));
        is_accepted(&site, &alice).unwrap_or_else(|why| panic!("alice by {rule}: {why}"));
        let why = is_accepted(&site, &bob).expect_err("bob is refused");
        assert!(why.contains("AccessDenied"), "{rule}: {why}");
    }
    site.reload(&routes("'dns=*.agents.example'"));
    is_accepted(&site, &bob).expect("bob's name matches too");
    let lines = site.process.logged("matches no rule of client_allow", 1);
    assert!(
        lines[0].contains("ou=guests") && lines[0].contains("cn=bob"),
        "{lines:?}"
    );
    assert!(lines[0].contains("access_denied"), "{lines:?}");
}

/// Every kind of rule, with OpenSSL as the client and for the digest.
#[test]
fn every_rule_works_with_openssl() {
    requires!(can_run());
    let folder = tempfile::tempdir().expect("a folder");
    let (alice, bob) = (
        person(folder.path(), "alice", "staff"),
        person(folder.path(), "bob", "guests"),
    );
    let digest = Command::new(tools::path("openssl"))
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in"])
        .arg(&alice.cert)
        .output()
        .expect("openssl runs");
    let digest = String::from_utf8(digest.stdout).expect("text");
    let (_, digest) = digest.trim().split_once('=').expect("a digest");
    let site = Site::new(&routes("'cn=alice'"), |_| {});
    let says = |who: &Files, more: &[&str]| {
        let (cert, key) = (who.cert.to_string_lossy(), who.key.to_string_lossy());
        let mut arguments = vec!["-servername", "localhost", "-cert", &cert, "-key", &key];
        arguments.extend(more);
        site.s_client(&arguments)
    };
    let rules = [
        "cn=alice".to_owned(),
        "ou=staff".to_owned(),
        "dns=alice.agents.example".to_owned(),
        "uri=spiffe://example.org/ns/staff/*".to_owned(),
        format!("sha256={digest}"),
        format!("sha256={}", digest.replace(':', "").to_lowercase()),
    ];
    for (n, rule) in rules.iter().enumerate() {
        site.reload(&routes(&format!("'{rule}'")));
        let said = says(&alice, &["-tls1_2"]);
        assert!(said.contains("Cipher is ECDHE"), "alice by {rule}: {said}");
        let said = says(&bob, &["-tls1_2"]);
        assert!(
            said.contains("SSL alert number 49"),
            "bob by {rule}: {said}"
        );
        // In TLS 1.3 the client learns it only after its handshake.
        let said = says(&bob, &["-tls1_3", "-ign_eof"]);
        assert!(
            said.contains("SSL alert number 49"),
            "bob by {rule}: {said}"
        );
        let refused = "matches no rule of client_allow";
        let lines = site.process.logged(refused, 2 * (n + 1));
        assert!(
            lines.iter().all(|line| line.contains("cn=bob")),
            "{lines:?}"
        );
    }
}

/// A client with a session is judged by the current rules.
#[test]
fn a_resumed_session_is_subject_to_the_rules() {
    requires!(can_run());
    let folder = tempfile::tempdir().expect("a folder");
    let alice = peer::config_showing(&person(folder.path(), "alice", "staff"));
    let site = Site::new(&routes("'ou=staff'"), |_| {});
    assert_eq!(is_accepted(&site, &alice), Ok(false), "a full handshake");
    assert_eq!(is_accepted(&site, &alice), Ok(true), "a resumed handshake");
    site.reload(&routes("'ou=board'"));
    let why = is_accepted(&site, &alice).expect_err("alice is no longer on the list");
    assert!(why.contains("AccessDenied"), "{why}");
    site.reload(&routes("'ou=staff'"));
    is_accepted(&site, &alice).expect("alice is on the list again");
}

/// Changed CA and CRL files are used without a reload.
#[test]
fn changed_cas_and_crls_are_used() {
    requires!(can_run());
    let folder = tempfile::tempdir().expect("a folder");
    let serial = vec![0x11, 0x22, 0x33];
    let carol = authority().give_out_with("carol", Kind::EcdsaP256, folder.path(), |params| {
        params.serial_number = Some(rcgen::SerialNumber::from_slice(&serial));
    });
    let carol = peer::config_showing(&carol);
    let server = &authority().certificate(Kind::EcdsaP256).both;
    let routes = format!(
        "[[route]]\nlisten = 'LISTEN'\nto = 'echo:'\ncertificates = '{}'\n\
         client_certificates = 'required'\nclient_ca = 'HERE/cas'\nclient_crl = 'HERE/crls'\n",
        server.display()
    );
    let stranger = rcgen::generate_simple_self_signed(vec!["stranger".to_owned()])
        .expect("a self-signed certificate");
    let site = Site::new(&routes, |folder| {
        fs::create_dir(folder.join("cas")).expect("a folder");
        fs::create_dir(folder.join("crls")).expect("a folder");
        fs::write(folder.join("cas/other.pem"), stranger.cert.pem()).expect("written");
        let list = authority().revocation_list(&[]);
        fs::write(folder.join("crls/list.pem"), list).expect("written");
    });
    is_accepted(&site, &carol).expect_err("carol's certificate has no trusted issuer");
    let own = site.folder.path().join("cas/own.pem");
    fs::copy(authority().trust(), own).expect("copied");
    let is_in = || is_accepted(&site, &carol).ok();
    wait::until("carol to come in", PATIENCE, is_in);
    let list = site.folder.path().join("crls/list.pem");
    // As long as the lists of public authorities: some MiB.
    let others = (0..90_000_u32).map(|n| [&[0x22], &n.to_be_bytes()[..], &[7; 11]].concat());
    let long = authority().revocation_list(&others.chain([serial]).collect::<Vec<_>>());
    assert!(long.len() > 3 << 20, "{} bytes", long.len());
    fs::write(list, long).expect("written");
    let is_out = || {
        is_accepted(&site, &carol)
            .err()
            .filter(|why| why.contains("Revoked"))
    };
    wait::until("carol to be refused", PATIENCE, is_out);
    site.process.logged("was revoked", 1);
}
