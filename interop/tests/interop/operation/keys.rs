//! Private keys that other users can read: a warning wherever they are loaded.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use dormouse_interop::admin::Admin;
use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::scene::Scene;
use dormouse_interop::terminator::{Can, Target};
use dormouse_interop::tools;

const WARNING: &str = "lets other users read or change this private key";

#[test]
fn check_start_and_reload_warn_about_readable_keys() {
    requires!(Can::BeDormouse);
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("a folder of ours");
    let files = authority().give_out("site", Kind::EcdsaP256, 2035, folder.path());
    let set = |mode| {
        fs::set_permissions(&files.key, Permissions::from_mode(mode)).expect("a file of ours");
    };
    set(0o644);
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.certificate = files.clone();
        Admin::in_folder(settings);
    });
    let warned = |count| scene.terminator.logged(WARNING, count).len();
    assert_eq!(warned(1), 1, "at the start");
    let admin = Admin::of(&scene);
    admin.order("/reload").expect("a reload");
    assert_eq!(warned(2), 2, "at a reload");
    let check = || {
        let config = scene.folder.path().join("dormouse.toml");
        let mut check = Command::new(tools::dormouse());
        let output = check.arg("check").arg(config).output().expect("check");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).contains(WARNING)
    };
    assert!(check());
    set(0o600);
    assert!(!check());
    admin.order("/reload").expect("a reload");
    assert_eq!(warned(2), 2, "the key is private now");
}
