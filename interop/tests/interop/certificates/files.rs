//! Files as other programs leave them: what is in them is used, or named.

use std::fs;
use std::path::Path;
use std::process::Command;

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::peer::{self, Peer, connect_tcp};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::ClientConfig;

use super::site::{Site, can_run};

/// Joins files without a line break between them, as `cat` does.
fn glued(texts: &[&str]) -> String {
    let texts: Vec<&str> = texts.iter().map(|text| text.trim_end()).collect();
    texts.concat()
}

fn refusal(site: &Site, config: &ClientConfig) -> Option<String> {
    let tcp = connect_tcp(site.address).expect("a connection");
    let peer = Peer::over(tcp, peer::client(config.clone()));
    let echoed = peer.and_then(|mut peer| peer.echo());
    echoed.err().map(|error| error.to_string())
}

/// A list that was behind another one in its file was ignored.
#[test]
fn a_client_stays_revoked_when_lists_are_joined_without_a_line_break() {
    requires!(can_run());
    let folder = tempfile::tempdir().expect("a folder");
    let serial = vec![0x11, 0x22, 0x44];
    let carol = authority().give_out_with("carol", Kind::EcdsaP256, folder.path(), |params| {
        params.serial_number = Some(rcgen::SerialNumber::from_slice(&serial));
    });
    let carol = peer::config_showing(&carol);
    let list = authority().revocation_list(&[serial]);
    let routes = format!(
        "[[route]]\nlisten = 'LISTEN'\nto = 'echo:'\ncertificates = '{}'\n\
         client_certificates = 'required'\nclient_ca = '{}'\nclient_crl = 'HERE/lists.pem'\n",
        authority().certificate(Kind::EcdsaP256).both.display(),
        authority().trust().display()
    );
    let site = Site::new(&routes, |folder| {
        fs::write(folder.join("lists.pem"), &list).expect("written");
    });
    let is_refused = || refusal(&site, &carol).is_some_and(|why| why.contains("Revoked"));
    assert!(is_refused());
    let empty = authority().revocation_list(&[]);
    let lists = site.folder.path().join("lists.pem");
    fs::write(&lists, glued(&[&empty, &list])).expect("written");
    let place = format!(
        "lists.pem:{}: -----END and other text",
        empty.lines().count()
    );
    let said = || {
        let lines = site.process.lines_with("changed file rejected");
        lines.iter().any(|line| line.contains(&place)).then_some(())
    };
    wait::until("the file to be rejected", PATIENCE, said);
    assert!(is_refused());
    let refused = site
        .admin
        .order("/reload")
        .expect_err("a file that is refused");
    assert!(refused.contains(&place), "{refused}");
    assert!(is_refused());
}

/// Writes a chain whose intermediate certificate has expired, and its key, into one file.
fn write_chain_that_ends_first(file: &Path) {
    let params = |name: &str, until| {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        params
    };
    let authority = |name, until| {
        let mut params = params(name, until);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    };
    let key = || KeyPair::generate().expect("a key");
    let root = CertifiedIssuer::self_signed(authority("root", 2040), key()).expect("signed");
    let inter = CertifiedIssuer::signed_by(authority("inter", 2022), key(), &root);
    let inter = inter.expect("signed");
    let own = key();
    let leaf = params("late.example", 2035)
        .signed_by(&own, &inter)
        .expect("signed");
    let text = format!("{}{}{}", leaf.pem(), inter.pem(), own.serialize_pem());
    fs::write(file, text).expect("written");
}

/// A directory as HAProxy, Kubernetes and a careless administrator leave it.
#[test]
fn each_file_of_a_directory_is_used_or_named() {
    requires!(can_run());
    let routes = "[[route]]\nlisten = 'LISTEN'\nto = 'echo:'\ncertificates = 'HERE/certs/'\n";
    let site = Site::new(routes, |folder| {
        let certs = folder.join("certs");
        for name in ["certs", "certs/..data", "certs/c.example_ecc"] {
            fs::create_dir(folder.join(name)).expect("a directory");
        }
        let give = |name, kind| authority().give_out_for(name, kind, &[name], folder);
        let (a, b) = (
            give("a.example", Kind::Rsa2048),
            give("b.example", Kind::EcdsaP256),
        );
        let c = give("c.example", Kind::EcdsaP256);
        let copy = |from: &Path, to: &str| {
            fs::copy(from, certs.join(to)).expect("copied");
        };
        copy(&a.both, "a.pem.rsa");
        copy(&b.cert, "..data/tls.crt");
        copy(&b.key, "..data/tls.key");
        for name in ["tls.crt", "tls.key"] {
            let target = Path::new("..data").join(name);
            std::os::unix::fs::symlink(target, certs.join(name)).expect("a link");
        }
        copy(&c.cert, "c.example_ecc/fullchain.cer");
        copy(&c.key, "c.example_ecc/c.example.key");
        write_chain_that_ends_first(&certs.join("late.PEM"));
        let pkcs12 = Command::new(tools::path("openssl"))
            .args(["pkcs12", "-export", "-passout", "pass:x", "-in"])
            .arg(&a.both)
            .arg("-out")
            .arg(certs.join("a.pfx"))
            .status();
        assert!(pkcs12.expect("openssl runs").success());
        copy(&a.key, "lost.key");
        fs::write(certs.join("README"), "Certificates.\n").expect("written");
    });
    for name in ["a.example", "b.example", "c.example", "late.example"] {
        assert_eq!(site.shown(name, &[]), name);
    }
    let check = Command::new(tools::dormouse())
        .arg("check")
        .arg(site.folder.path().join("dormouse.toml"))
        .output()
        .expect("dormouse runs");
    let printed = String::from_utf8_lossy(&check.stderr).into_owned();
    let logged = site.process.logged("not used: ", 2).join("\n");
    for said in [&printed, &logged] {
        for words in [
            "a.pfx: is not PEM but PKCS #12",
            "lost.key: no chain belongs to this key",
        ] {
            assert_eq!(said.matches(words).count(), 1, "{words}: {said}");
        }
        assert!(!said.contains("README"), "{said}");
    }
    let expired = "late.PEM: certificate 2 of the chain (CN=inter) expired at Jan  1 00:00:00 2022";
    assert!(printed.contains(expired), "{printed}");
    let (_, metrics) = site.admin.ask("GET", "/metrics");
    let series = metrics.lines().find(|line| line.contains("late.PEM"));
    assert!(
        series.is_some_and(|line| line.ends_with(" 1640995200")),
        "{series:?}"
    );
}
