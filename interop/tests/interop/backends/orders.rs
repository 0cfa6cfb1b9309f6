//! Orders that change the running configuration: backends out and in, weights, log level, ticket keys.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;

use dormouse_interop::admin::Admin;
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::Process;
use dormouse_interop::strace::Strace;
use dormouse_interop::terminator::Can;
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rustls::HandshakeKind;

use super::balance::Scene;

/// `dormouse ctl` with these words.
fn ctl(scene: &Scene, words: &str) -> Output {
    Command::new(tools::dormouse())
        .arg("ctl")
        .args(words.split(' '))
        .arg("--admin")
        .arg(scene.folder.path().join("admin.sock"))
        .output()
        .expect("dormouse ctl")
}

fn done(scene: &Scene, words: &str) -> String {
    let output = ctl(scene, words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "dormouse ctl {words}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refused(scene: &Scene, words: &str) -> String {
    let output = ctl(scene, words);
    assert_eq!(output.status.code(), Some(2), "dormouse ctl {words}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The number of new connections that each backend gets.
fn shares(scene: &Scene, count: u8) -> Vec<u64> {
    let before = scene.accepted();
    for last in 0..count {
        drop(scene.connect(last));
    }
    let gained = scene.accepted().into_iter().zip(before);
    gained.map(|(after, before)| after - before).collect()
}

/// A backend that is out gets no new connections, keeps its current ones, and stays out across a crash of a
/// worker and an upgrade. A reload reads the file again.
#[test]
fn a_backend_is_taken_out_and_put_in() {
    requires!(Can::BeDormouse);
    let scene = Scene::new(&["", ""], |settings| {
        settings.workers = 1;
        Admin::in_folder(settings);
    });
    let host = scene.address.ip();
    let (first, second) = (format!("{host}:8080"), format!("{host}:8081"));
    let mut held: Vec<Peer> = (0..4).map(|last| scene.connect(last)).collect();
    assert_eq!(scene.accepted(), [2, 2]);

    let words = done(&scene, &format!("out {first}"));
    assert!(words.contains("is out: no new connections"), "{words}");
    assert_eq!(shares(&scene, 6), [0, 6]);
    let table = done(&scene, "backends");
    assert!(
        table
            .lines()
            .any(|line| line.contains(&first) && line.ends_with(" out")),
        "{table}"
    );
    assert!(
        table
            .lines()
            .any(|line| line.contains(&second) && line.ends_with(" in")),
        "{table}"
    );
    let why = refused(&scene, &format!("out {second}"));
    assert!(why.contains("route 1 would have no backend left"), "{why}");

    scene.terminator.kill_workers();
    assert_eq!(shares(&scene, 6), [0, 6], "after the death of the workers");
    scene.terminator.upgrade();
    assert_eq!(shares(&scene, 6), [0, 6], "after an upgrade");
    for peer in &mut held {
        peer.echo().expect("an echo on an older connection");
    }

    done(&scene, &format!("in {first}"));
    assert_eq!(shares(&scene, 6), [3, 3]);
    done(&scene, &format!("weight {first} 3"));
    assert_eq!(shares(&scene, 8), [6, 2]);
    done(&scene, &format!("out {second}"));
    let admin = Admin::at(&scene.folder.path().join("admin.sock"));
    let said = admin.order("/reload").expect("a reload");
    assert_eq!(
        shares(&scene, 6),
        [3, 3],
        "a reload applies the file's weights again"
    );
    for ended in [
        format!("backend {first} of route 1 has the weight 1 again, no longer 3"),
        format!("backend {second} of route 1 is in again"),
    ] {
        let line = format!("\nended by this reload: {ended}");
        assert!(said.contains(&line), "{line}: {said}");
        let logged = scene.terminator.logged("reload ended changes made by", 1);
        assert!(logged[0].contains(&ended), "{ended}: {logged:?}");
    }

    let why = refused(&scene, "out 192.0.2.1:80");
    assert!(
        why.contains("no backend 192.0.2.1:80; the configuration has: "),
        "{why}"
    );
    let why = refused(&scene, &format!("weight {first} 0"));
    assert!(
        why.contains("`0` is not a valid weight; use 1 to 1000"),
        "{why}"
    );
}

/// Routes share the entry of a backend, but not what an administrator sets for it.
#[test]
fn a_backend_is_taken_out_of_one_of_its_routes() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene_with_admin();
    let host = scene.address.ip();
    let (first, second) = (format!("{host}:8080"), format!("{host}:8081"));
    let file = scene.folder.path().join("dormouse.toml");
    let text = std::fs::read_to_string(&file).expect("the configuration");
    let other = format!(
        "\n[[route]]\nname = 'other'\nlisten = '{host}:8444'\nto = ['{first}', '{second}']\nself_signed = 'x'\n"
    );
    std::fs::write(&file, text + &other).expect("written");
    admin.order("/reload").expect("a reload");

    done(&scene, &format!("out {first} --route other"));
    done(&scene, &format!("weight {second} 7 --route other"));
    let table = done(&scene, "backends");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .collect();
    let expected = [
        vec!["1", &first, "1", "0", "in"],
        vec!["other", &first, "1", "out"],
        vec!["1", &second, "1", "0", "in"],
        vec!["other", &second, "7", "in"],
    ];
    assert_eq!(rows, expected);
}

/// `--wait` returns when the last connection has ended.
#[test]
fn a_backend_is_drained() {
    requires!(Can::BeDormouse);
    let scene = Scene::new(&["", ""], Admin::in_folder);
    let first = format!("{}:8080", scene.address.ip());
    let held: Vec<Peer> = (0..2).map(|last| scene.connect(last)).collect();
    let mut waiting = Command::new(tools::dormouse())
        .args(["ctl", "out", &first, "--wait", "--admin"])
        .arg(scene.folder.path().join("admin.sock"))
        .spawn()
        .expect("dormouse ctl");
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert!(
        waiting.try_wait().expect("it runs").is_none(),
        "a connection is left"
    );
    drop(held);
    assert!(waiting.wait().expect("its exit status").success());
}

#[test]
fn the_log_level_changes() {
    requires!(Can::BeDormouse);
    let mut scene = Scene::new(&[""], Admin::in_folder);
    assert!(scene.terminator.lines_with(" DEBUG ").is_empty());
    done(&scene, "log-level debug");
    drop(scene.connect(1));
    scene.terminator.wait_for_line(" DEBUG ", PATIENCE);
    let why = refused(&scene, "log-level loud");
    assert!(
        why.contains("one of off, error, warn, info, debug, trace"),
        "{why}"
    );
}

/// A ticket of the previous key is accepted after one rotation, but not after two.
#[test]
fn ticket_keys_are_rotated() {
    requires!(Can::BeDormouse);
    let scene = Scene::new(&[""], Admin::in_folder);
    for (rotations, expected) in [(1, HandshakeKind::Resumed), (3, HandshakeKind::Full)] {
        // A configuration with its own sessions.
        let [config, _] = peer::configs_by_version();
        let connect = || {
            let tcp = peer::connect_tcp(scene.address).expect("a connection");
            let mut peer = Peer::over(tcp, peer::client(config.clone())).expect("a handshake");
            peer.stream().write_all(b"echo\n").expect("a line");
            peer.echo().expect("an echo, and tickets before it");
            peer.tls.handshake_kind()
        };
        assert_eq!(connect(), Some(HandshakeKind::Full));
        for _ in 0..rotations {
            done(&scene, "rotate-ticket-keys");
        }
        assert_eq!(connect(), Some(expected), "after {rotations} rotations");
    }
}

/// A scene whose ticket keys are saved in `own.keys` in this folder.
fn scene_with_own_keys(folder: &Path) -> Scene {
    let [keys, secret] = ["own.keys", "secret"].map(|name| folder.join(name));
    std::fs::write(&secret, [7; 32]).expect("a secret");
    std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("a private file");
    Scene::new(&[""], |settings| {
        Admin::in_folder(settings);
        settings.option("ticket_keys", &format!("file:{}", keys.display()));
        settings.option("ticket_secret_file", &secret.display().to_string());
    })
}

/// Rotated keys that cannot be saved are in use until a restart, and the administrator learns that.
#[test]
fn unsaved_ticket_keys_are_reported() {
    requires!(Can::BeDormouse);
    let folder = tempfile::tempdir().expect("a folder");
    let [keys, in_the_way] = ["own.keys", "own.keys.new"].map(|name| folder.path().join(name));
    let scene = scene_with_own_keys(folder.path());
    let saved = || std::fs::read(&keys).expect("saved keys");
    let first = saved();
    std::fs::create_dir(&in_the_way).expect("a folder in place of a new file");
    let why = refused(&scene, "rotate-ticket-keys");
    let words = "new ticket keys are in use, but a restart returns to the previous ones";
    assert!(why.contains(words) && why.contains("own.keys"), "{why}");
    assert_eq!(saved(), first);
    std::fs::remove_dir(&in_the_way).expect("the folder removed");
    done(&scene, "rotate-ticket-keys");
    assert_ne!(saved(), first);
}

/// The order to rotate the keys waits for a disk that takes long to write; nothing else does.
#[test]
fn a_slow_disk_under_the_ticket_keys_holds_nothing_up() {
    requires!(Can::BeDormouse);
    let folder = tempfile::tempdir().expect("a folder");
    let [keys, beside] = ["own.keys", "own.keys.new"].map(|name| folder.path().join(name));
    let scene = scene_with_own_keys(folder.path());
    let admin = Admin::at(&scene.folder.path().join("admin.sock"));
    let saved = || std::fs::read(&keys).expect("saved keys");
    let first = saved();
    let Some(slow) = Strace::slow_disk(scene.terminator.pid()) else {
        return;
    };
    thread::scope(|scope| {
        let rotated = scope.spawn(|| admin.order("/ticket-keys/rotate"));
        wait::until_true("keys to be written", || beside.exists());
        let reloaded = admin.order("/reload");
        // To execute the new binary would wait for the disk.
        let upgraded = admin.order("/upgrade");
        let was_waiting = !rotated.is_finished();
        drop(slow);
        reloaded.expect("a reload");
        let why = upgraded.expect_err("a disk that is too slow");
        assert!(
            why.starts_with("the disk has not taken new ticket keys yet"),
            "{why}"
        );
        assert!(was_waiting, "the order waits for the disk");
        let words = rotated.join().expect("an answer").expect("a rotation");
        assert!(words.starts_with("new ticket keys are in use"), "{words}");
    });
    assert_ne!(saved(), first);
}

/// Two backends, and the program's admin socket.
fn scene_with_admin() -> (Scene, Admin) {
    let scene = Scene::new(&["", ""], |settings| {
        settings.workers = 1;
        Admin::in_folder(settings);
    });
    let admin = Admin::at(&scene.folder.path().join("admin.sock"));
    (scene, admin)
}

/// A reload cannot widen an address: the old listener holds it until the new one is open.
#[test]
fn a_wider_address_needs_a_restart() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene_with_admin();
    let file = scene.folder.path().join("dormouse.toml");
    let text = std::fs::read_to_string(&file).expect("the configuration");
    let wider = format!("0.0.0.0:{}", scene.address.port());
    let own = scene.address.to_string();
    std::fs::write(&file, text.replace(&own, &wider)).expect("written");
    let why = admin
        .order("/reload")
        .expect_err("two sockets for one address");
    let said = format!("cannot listen on {wider}: this program listens on {own}");
    assert!(why.contains(&said) && why.contains("restart"), "{why}");
    let check = Command::new(tools::dormouse())
        .arg("check")
        .arg(&file)
        .output();
    let why = String::from_utf8_lossy(&check.expect("dormouse check").stderr).into_owned();
    assert!(why.contains(&said), "{why}");
}

/// The result of the last reload stays until the next reload, whatever orders come in between: alerts depend on it.
#[test]
fn an_order_does_not_hide_a_refused_reload() {
    requires!(Can::BeDormouse);
    let (scene, admin) = scene_with_admin();
    let file = scene.folder.path().join("dormouse.toml");
    let text = std::fs::read_to_string(&file).expect("the configuration");
    std::fs::write(&file, format!("wokers = 2\n{text}")).expect("written");
    admin.order("/reload").expect_err("a mistake");
    done(&scene, "log-level info");
    let is_refused = || {
        let (_, metrics) = admin.ask("GET", "/metrics");
        let last = admin.status()["configuration"]["last_reload"].clone();
        assert_eq!(
            last["done"] == false,
            metrics.contains("dormouse_configuration_refused 1")
        );
        last["done"] == false
    };
    assert!(is_refused());
    std::fs::write(&file, text).expect("written");
    admin.order("/reload").expect("a reload");
    assert!(!is_refused());
}

/// `--keep` needs a file. Then a change outlasts reloads, upgrades and restarts until another order, and whatever has no effect
/// is named.
#[test]
fn kept_changes_outlast_a_reload_and_a_restart() {
    requires!(Can::BeDormouse);
    let (mut scene, admin) = scene_with_admin();
    let first = format!("{}:8080", scene.address.ip());
    let why = refused(&scene, &format!("out {first} --keep"));
    assert!(why.contains("set ctl_file = "), "{why}");
    assert_eq!(shares(&scene, 4), [2, 2], "a refused order changes nothing");

    let file = scene.folder.path().join("dormouse.toml");
    let text = std::fs::read_to_string(&file).expect("the configuration");
    std::fs::write(&file, format!("ctl_file = 'kept'\n{text}")).expect("written");
    admin.order("/reload").expect("a reload");
    let words = done(&scene, &format!("out {first} --keep"));
    assert!(
        words.contains("also after a reload and a restart"),
        "{words}"
    );
    done(&scene, "log-level debug --keep");
    let said = admin.order("/reload").expect("a reload");
    assert!(!said.contains("ended by this reload"), "{said}");
    assert_eq!(shares(&scene, 4), [0, 4], "after a reload");
    scene.terminator.upgrade();
    assert_eq!(shares(&scene, 4), [0, 4], "after an upgrade");
    restart(&mut scene);
    assert_eq!(shares(&scene, 4), [0, 4], "after a restart");
    let kept = || admin.status()["configuration"]["kept_changes"].clone();
    let expected = serde_json::json!([
        { "change": format!("out {first}"), "problem": null },
        { "change": "log-level debug", "problem": null },
    ]);
    assert_eq!(kept(), expected);
    let page = Command::new(tools::dormouse())
        .args(["status", "--admin"])
        .arg(scene.folder.path().join("admin.sock"))
        .output()
        .expect("dormouse status");
    let page = String::from_utf8_lossy(&page.stdout).into_owned();
    assert!(page.contains("  kept: log-level debug\n"), "{page}");

    // The order without --keep removes what is kept.
    done(&scene, &format!("in {first}"));
    assert_eq!(shares(&scene, 4), [2, 2]);
    let path = scene.folder.path().join("kept");
    let text = std::fs::read_to_string(&path).expect("what is kept");
    assert_eq!(text, "dormouse kept changes 1\nlog-level debug\n");

    // A backend that the configuration does not have is named, by the start too.
    std::fs::write(&path, text + "out 192.0.2.1:80\n").expect("written");
    restart(&mut scene);
    assert_eq!(shares(&scene, 4), [2, 2]);
    let useless = "`out 192.0.2.1:80` has no effect";
    scene.terminator.logged(useless, 1);
    let problem = kept()[1]["problem"].to_string();
    assert!(problem.contains("no backend 192.0.2.1:80"), "{problem}");
    let words = done(&scene, "in 192.0.2.1:80");
    assert!(words.contains("is no longer kept"), "{words}");
    assert_eq!(kept().as_array().map(Vec::len), Some(1));
}

/// Ends the program, and starts it again with the same file.
fn restart(scene: &mut Scene) {
    assert!(scene.terminator.terminate().success());
    let folder = scene.folder.path();
    let file = folder.join("dormouse.toml").display().to_string();
    let program = tools::dormouse().display().to_string();
    let command = [program, "serve".to_owned(), file];
    scene.terminator = Process::start("dormouse", &command, folder);
    scene.terminator.wait_for_line("ready", PATIENCE);
}
