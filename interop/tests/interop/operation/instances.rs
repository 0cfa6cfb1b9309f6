//! Commands that name a configuration file reach only the instance that runs it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use dormouse_interop::admin::Admin;
use dormouse_interop::peer::Peer;
use dormouse_interop::scene::Scene;
use dormouse_interop::terminator::Can;
use dormouse_interop::tools;

/// Exit status and standard error of `dormouse COMMAND -c FILE`.
fn order(command: &[&str], file: &Path) -> (Option<i32>, String) {
    let ran = Command::new(tools::dormouse())
        .args(command)
        .arg("-c")
        .arg(file)
        .output()
        .expect("dormouse");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    (ran.status.code(), said)
}

/// Two instances with the default admin socket: the first one has it.
#[test]
fn a_command_with_a_file_does_not_reach_another_instance() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(Admin::in_folder);
    let admin = Admin::of(&scene);
    let at = |name: &str| scene.folder.path().join(name);
    let [one, two, link] = ["dormouse.toml", "two.toml", "link.toml"].map(at);
    fs::copy(&one, &two).expect("copied");
    symlink(&one, &link).expect("a link");
    let commands: [&[&str]; 7] = [
        &["drain"],
        &["reload"],
        &["upgrade"],
        &["status"],
        &["ctl", "log-level", "trace"],
        &["ctl", "reopen-logs"],
        &["ctl", "backends"],
    ];
    for command in commands {
        let (code, said) = order(command, &two);
        assert_eq!(code, Some(3), "{command:?}: {said}");
        let runs = format!("runs {}, not {}", one.display(), two.display());
        assert!(said.contains(&runs), "{command:?}: {said}");
    }
    let status = admin.status();
    assert_eq!(status["phase"], "ready");
    assert_eq!(status["configuration"]["edition"], 1);
    Peer::echoing(scene.address);
    // The same file by another name.
    for file in [&one, &link] {
        for command in [&["status"][..], &["reload"], &["ctl", "reopen-logs"]] {
            let (code, said) = order(command, file);
            assert_eq!(code, Some(0), "{command:?}: {said}");
        }
    }
}
