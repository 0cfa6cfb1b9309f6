//! Rotation: while files of a certificate are replaced, a reload, the watch on files and an upgrade keep what serves.

use std::fs;
use std::path::{Path, PathBuf};

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::wait::{self, PATIENCE};

use super::site::{Site, can_run};

const ROUTE: &str = "[[route]]\nlisten = 'LISTEN'\nto = 'echo:'\ncertificates = 'HERE/certs'\n";

/// A certificate for `site.example` or another site, with this common name: the paths of the files.
fn give(common_name: &str, site: &str, folder: &Path) -> (PathBuf, PathBuf) {
    let files = authority().give_out_for(common_name, Kind::EcdsaP256, &[site], folder);
    (files.cert, files.key)
}

/// A directory with the sites `another.example`, which is the default, and `site.example`.
fn site(options: &str) -> Site {
    Site::new(&format!("{options}{ROUTE}"), |folder| {
        let certs = folder.join("certs");
        fs::create_dir(&certs).expect("a folder");
        for (file, site) in [("a", "another.example"), ("s", "site.example")] {
            let (cert, key) = give(&format!("{site} old"), site, folder);
            fs::rename(cert, certs.join(file).with_extension("pem")).expect("renamed");
            fs::rename(key, certs.join(file).with_extension("key")).expect("renamed");
        }
    })
}

#[test]
fn a_reload_in_the_middle_of_a_rotation_keeps_the_pair_that_serves() {
    requires!(can_run());
    // Only commands read files.
    let site = site("reload_certificates = '1h'\n");
    let at = |file: &str| site.folder.path().join("certs").join(file);
    let reload = || site.admin.order("/reload").expect("a reload");
    let shown = || site.shown("site.example", &[]);
    assert_eq!(shown(), "site.example old");

    let (cert, key) = give("site.example new", "site.example", site.folder.path());
    fs::copy(&key, at("s.key")).expect("copied");
    let said = reload();
    assert!(said.contains("\nkept the certificate in use: "), "{said}");
    assert!(said.contains("s.key: the key does not belong"), "{said}");
    assert_eq!(shown(), "site.example old");
    // A new binary has never read the old key, and neither has a new worker.
    site.admin.order("/upgrade").expect("an upgrade");
    assert_eq!(shown(), "site.example old");
    let said = reload();
    assert!(said.contains("s.key: the key does not belong"), "{said}");
    assert_eq!(shown(), "site.example old");
    fs::copy(&cert, at("s.pem")).expect("copied");
    let said = reload();
    assert!(!said.contains('\n'), "{said}");
    assert_eq!(shown(), "site.example new");

    // A removal is explicit when two looks find no file.
    for file in ["s.pem", "s.key"] {
        fs::remove_file(at(file)).expect("removed");
    }
    let said = reload();
    assert!(said.contains("s.pem: no such file"), "{said}");
    assert_eq!(shown(), "site.example new");
    let said = reload();
    assert!(said.contains("\ncertificate removed: "), "{said}");
    assert!(
        said.contains("\nno certificate any more for: site.example"),
        "{said}"
    );
    assert_eq!(shown(), "another.example old");
}

#[test]
fn a_directory_that_is_away_loses_no_certificate() {
    requires!(can_run());
    let site = site("");
    let (certs, away) = (
        site.folder.path().join("certs"),
        site.folder.path().join("away"),
    );
    let shown = || site.shown("site.example", &[]);
    let complains = |what: &str| {
        let log = || site.process.log().contains(what).then_some(());
        wait::until("a complaint", PATIENCE, log);
    };
    fs::rename(&certs, &away).expect("renamed");
    complains("certs: cannot be read");
    assert_eq!(shown(), "site.example old");
    fs::create_dir(&certs).expect("a folder");
    complains("certs: no certificates in this directory");
    assert_eq!(shown(), "site.example old");
    let why = site.admin.order("/reload").expect_err("a rejected reload");
    assert!(why.contains("no certificates in this directory"), "{why}");
    fs::remove_dir(&certs).expect("removed");
    let (cert, key) = give("site.example new", "site.example", site.folder.path());
    fs::rename(cert, away.join("s.pem")).expect("renamed");
    fs::rename(key, away.join("s.key")).expect("renamed");
    assert_eq!(shown(), "site.example old");
    fs::rename(&away, &certs).expect("renamed back");
    wait::until_true("the renewed one", || shown() == "site.example new");
}
