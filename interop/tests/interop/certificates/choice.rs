//! The choice of the certificate: by name, by the client's signature algorithms, from a directory that
//! changes.

use std::fs;

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::wait::{self, PATIENCE};

use super::site::{Site, can_run, subject};

const ROUTE: &str = "[[route]]\nlisten = 'LISTEN'\nto = 'echo:'\n";

fn directory(more: &str) -> Site {
    let route = format!("{ROUTE}certificates = 'HERE/certs'\n{more}");
    Site::new(&route, |folder| {
        let certs = folder.join("certs");
        fs::create_dir(&certs).expect("a folder");
        let give =
            |name: &str, kind, names: &[&str]| authority().give_out_for(name, kind, names, folder);
        // One file with both, two files, and a folder in the layout of certbot.
        let first = give("a-first", Kind::EcdsaP256, &["first.example"]);
        fs::rename(&first.both, certs.join("a-first.pem")).expect("the file renamed");
        let wild = give("wild", Kind::EcdsaP256, &["*.wild.example"]);
        fs::rename(&wild.cert, certs.join("wild.crt")).expect("the file renamed");
        fs::rename(&wild.key, certs.join("wild.key")).expect("the file renamed");
        let exact = give("exact", Kind::EcdsaP256, &["exact.wild.example"]);
        let live = certs.join("live");
        fs::create_dir(&live).expect("a folder");
        fs::rename(&exact.cert, live.join("fullchain.pem")).expect("the file renamed");
        fs::rename(&exact.key, live.join("privkey.pem")).expect("the file renamed");
        for (name, kind) in [("both-ec", Kind::EcdsaP256), ("both-rsa", Kind::Rsa2048)] {
            let files = give(name, kind, &["both.example"]);
            fs::rename(&files.both, certs.join(format!("{name}.pem"))).expect("the file renamed");
        }
        fs::write(certs.join("README"), "not a certificate").expect("written");
        fs::write(certs.join("zz.pem"), "neither is this").expect("written");
    })
}

#[test]
fn a_certificate_of_a_directory_is_chosen_by_name_and_signature() {
    requires!(can_run());
    let site = directory("");
    assert_eq!(site.shown("first.example", &[]), "a-first");
    assert_eq!(site.shown("x.wild.example", &[]), "wild");
    assert_eq!(site.shown("EXACT.wild.example", &[]), "exact");
    assert_eq!(
        site.shown("x.y.wild.example", &[]),
        "a-first",
        "one label only"
    );
    assert_eq!(
        site.shown("exact.wild.example.", &[]),
        "exact",
        "a final dot"
    );
    assert_eq!(site.shown("other.example", &[]), "a-first", "the default");
    for version in ["-tls1_3", "-tls1_2"] {
        let ecdsa = ["-sigalgs", "ECDSA+SHA256", version];
        let rsa = ["-sigalgs", "RSA-PSS+SHA256:RSA+SHA256", version];
        assert_eq!(site.shown("both.example", &ecdsa), "both-ec");
        assert_eq!(site.shown("both.example", &rsa), "both-rsa");
        assert_eq!(
            site.shown("both.example", &[version]),
            "both-ec",
            "the first"
        );
    }
    let left_out = site.process.logged("invalid certificate skipped", 1);
    assert!(left_out[0].contains("zz.pem"), "{left_out:?}");
}

/// A file that changes shortly before an upgrade is read by the new binary.
#[test]
fn a_change_before_an_upgrade_is_followed() {
    requires!(can_run());
    let route = format!("reload_certificates = '3s'\n{ROUTE}certificates = 'HERE/site.pem'\n");
    let give = |name: &str, folder: &std::path::Path| {
        let files = authority().give_out_for(name, Kind::EcdsaP256, &["site.example"], folder);
        fs::rename(files.both, folder.join("site.pem")).expect("the file renamed");
    };
    let site = Site::new(&route, |folder| give("before", folder));
    assert_eq!(site.shown("site.example", &[]), "before");
    give("after", site.folder.path());
    site.admin.order("/upgrade").expect("an upgrade");
    wait::until_true("the changed certificate", || {
        site.shown("site.example", &[]) == "after"
    });
}

#[test]
fn changes_of_a_directory_are_followed() {
    requires!(can_run());
    let site = directory("");
    let certs = site.folder.path().join("certs");
    let new =
        authority().give_out_for("new", Kind::EcdsaP256, &["new.example"], site.folder.path());
    assert_eq!(site.shown("new.example", &[]), "a-first");
    fs::rename(&new.both, certs.join("new.pem")).expect("the file renamed");
    let shows = |what: &str, name: &str, subject: &str| {
        wait::until_true(what, || site.shown(name, &[]) == subject);
    };
    shows("the new one", "new.example", "new");
    fs::remove_file(certs.join("both-ec.pem")).expect("removed");
    shows("the other one for that name", "both.example", "both-rsa");
    // A file that is broken for a moment removes nothing.
    fs::write(certs.join("new.pem"), "").expect("written");
    let complains = || {
        site.process
            .log()
            .contains("new.pem: is empty")
            .then_some(())
    };
    wait::until("a complaint", PATIENCE, complains);
    assert_eq!(site.shown("new.example", &[]), "new");
}

/// Devices send what they were configured with.
#[test]
fn a_name_that_is_no_host_name_gets_a_certificate() {
    requires!(can_run());
    let site = directory("");
    let session = site.folder.path().join("session.pem");
    let session = session.to_string_lossy();
    for version in ["-tls1_3", "-tls1_2"] {
        for (name, shown) in [
            ("exact.wild.example:8883", "exact"),
            ("[::1]", "a-first"),
            ("[::1]:8883", "a-first"),
            ("no host", "a-first"),
        ] {
            let with = |more: &[&str]| {
                let arguments = [&["-servername", name, version], more].concat();
                site.s_client_with_echo(&arguments)
            };
            let said = with(&["-sess_out", &session]);
            assert_eq!(subject(&said), shown, "{name}");
            assert!(said.ends_with("hello\n"), "{name}: {said}");
            let said = with(&["-sess_in", &session]);
            assert!(said.contains("\nReused, TLS"), "{name}: {said}");
            assert!(said.ends_with("hello\n"), "{name}: {said}");
        }
    }
    // With a second ClientHello.
    let other_group = ["-servername", "[::1]", "-tls1_3", "-groups", "X448:X25519"];
    let said = site.s_client_with_echo(&other_group);
    assert!(said.ends_with("hello\n"), "{said}");
    site.process.logged("sni=[::1]:8883", 1);
}

/// A client signs all messages so far as it has sent them.
#[test]
fn a_client_certificate_is_verified_with_such_a_name() {
    requires!(can_run());
    let trust = authority().trust();
    let site = directory(&format!(
        "client_certificates = 'required'\nclient_ca = '{}'\n",
        trust.display()
    ));
    let own = authority().give_out("device", Kind::EcdsaP256, 2035, site.folder.path());
    let [cert, key] = [&own.cert, &own.key].map(|path| path.to_string_lossy());
    for version in ["-tls1_3", "-tls1_2"] {
        let arguments = [
            "-servername",
            "[::1]",
            version,
            "-cert",
            &cert,
            "-key",
            &key,
        ];
        let said = site.s_client_with_echo(&arguments);
        assert!(said.ends_with("hello\n"), "{version}: {said}");
    }
}

#[test]
fn unknown_names_are_refused_with_an_alert() {
    requires!(can_run());
    let site = directory("unknown_name = 'refuse'\n");
    assert_eq!(site.shown("first.example", &[]), "a-first");
    assert_eq!(site.shown("x.wild.example", &[]), "wild");
    for version in ["-tls1_3", "-tls1_2"] {
        let said = site.s_client(&["-servername", "other.example", version]);
        assert!(said.contains("SSL alert number 112"), "{said}");
        let said = site.s_client(&["-servername", "[::1]", version]);
        assert!(said.contains("SSL alert number 112"), "{said}");
        let said = site.s_client(&["-noservername", version]);
        assert!(said.contains("SSL alert number 109"), "{said}");
    }
    let unknown = "the client requested the unknown server name other.example";
    let lines = site.process.logged(unknown, 1);
    assert!(lines[0].contains("unrecognized_name"), "{lines:?}");
}

#[test]
fn a_client_without_a_name_gets_the_first_certificate_while_unknown_names_are_refused() {
    requires!(can_run());
    let site = directory("unknown_name = 'refuse-named'\n");
    assert_eq!(site.shown("first.example", &[]), "a-first");
    for version in ["-tls1_3", "-tls1_2"] {
        for name in ["other.example", "[::1]"] {
            let said = site.s_client(&["-servername", name, version]);
            assert!(said.contains("SSL alert number 112"), "{said}");
        }
        let said = site.s_client(&["-noservername", version]);
        assert!(said.contains("a-first"), "{said}");
    }
}
