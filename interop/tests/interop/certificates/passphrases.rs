//! Private keys that are encrypted with a passphrase, which is in a file.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::tools;
use dormouse_interop::wait;

use super::site::{Site, can_run};

const ROUTE: &str = "[[route]]\nlisten = 'LISTEN'\nto = 'echo:'\n\
    certificates = [{ cert = 'HERE/site.pem', key = 'HERE/site.key', passphrase = 'HERE/site.pass' }]\n";

/// Writes a certificate, its encrypted key and the passphrase.
fn write(folder: &Path, name: &str, passphrase: &str) {
    let own = tempfile::tempdir().expect("a folder");
    let files = authority().give_out_for(name, Kind::EcdsaP256, &[name], own.path());
    // Written anew each time, as with `install`.
    let made = Command::new(tools::path("openssl"))
        .args(["pkcs8", "-topk8", "-v2", "aes-256-cbc", "-iter", "10000"])
        .args(["-passout", &format!("pass:{passphrase}"), "-in"])
        .arg(&files.key)
        .arg("-out")
        .arg(folder.join("site.key"))
        .output()
        .expect("openssl runs");
    assert!(made.status.success(), "{made:?}");
    fs::copy(&files.cert, folder.join("site.pem")).expect("copied");
    let file = folder.join("site.pass");
    fs::write(&file, format!("{passphrase}\n")).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("its mode");
}

#[test]
fn an_encrypted_key_is_served_and_replaced() {
    requires!(can_run());
    let site = Site::new(ROUTE, |folder| write(folder, "one.example", "open sesame"));
    assert_eq!(site.shown("one.example", &[]), "one.example");
    // Both change: what was read half way is refused, and the next look finds all of it.
    write(site.folder.path(), "two.example", "other words");
    wait::until_true("the new certificate", || {
        site.shown("two.example", &[]) == "two.example"
    });
    // With a wrong passphrase nothing changes.
    let file = site.folder.path().join("site.pass");
    fs::write(&file, "open barley\n").expect("written");
    let refused = site.admin.order("/reload").expect_err("a wrong passphrase");
    assert!(
        refused.contains("the passphrase does not fit the key"),
        "{refused}"
    );
    assert_eq!(site.shown("two.example", &[]), "two.example");
    let log = site.process.log();
    assert!(!log.contains("sesame") && !log.contains("barley"), "{log}");
}

#[test]
fn a_passphrase_that_others_can_read_is_refused() {
    requires!(can_run());
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "one.example", "open sesame");
    let here = folder.path().to_string_lossy();
    let config = folder.path().join("dormouse.toml");
    let check = |route: &str| {
        let text = route
            .replace("HERE", &here)
            .replace("LISTEN", "127.0.0.1:8443");
        fs::write(&config, text).expect("written");
        let mut command = Command::new(tools::dormouse());
        let output = command.arg("check").arg("-c").arg(&config).output();
        let output = output.expect("check runs");
        let both = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&both).into_owned(),
        )
    };
    let (accepted, said) = check(ROUTE);
    assert!(accepted, "{said}");
    let (accepted, said) = check(&ROUTE.replace(", passphrase = 'HERE/site.pass'", ""));
    assert!(
        !accepted && said.contains("add passphrase = \"FILE\""),
        "{said}"
    );
    let file = folder.path().join("site.pass");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("its mode");
    let (accepted, said) = check(ROUTE);
    assert!(!accepted && said.contains("site.pass"), "{said}");
}
