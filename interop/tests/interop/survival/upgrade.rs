//! Upgrades: another binary in place of the running one, unnoticed by established connections.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::{assert_echoes, probes};
use dormouse_interop::admin::Admin;
use dormouse_interop::probe::Load;
use dormouse_interop::process::{Process, kill_asleep, signal, title};
use dormouse_interop::requirement::Root;
use dormouse_interop::scene::{Scene, TLS_PORT};
use dormouse_interop::slots::Slots;
use dormouse_interop::terminator::{Can, Settings, Target};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;
use tempfile::TempDir;

/// Copies an executable in a separate process: another test's child could inherit a descriptor of ours that is
/// open for writing, and the copy would be a "text file busy" until that child has executed its program.
fn install(from: &Path, to: &Path) {
    let done = Command::new("install")
        .args(["-m", "755"])
        .args([from, to])
        .status();
    assert!(
        done.is_ok_and(|status| status.success()),
        "{}",
        to.display()
    );
}

/// A program at its own path, so that another one can replace it.
pub(super) struct Installed {
    folder: TempDir,
}

impl Installed {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let installed = Self { folder };
        installed.put(tools::dormouse());
        installed
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("dormouse")
    }

    /// Replaces the binary by renaming, as a package manager does.
    fn put(&self, binary: &Path) {
        let _ = fs::remove_file(self.folder.path().join("dormouse.trial"));
        let new = self.folder.path().join("new");
        install(binary, &new);
        fs::rename(&new, self.path()).expect("the old binary replaced");
    }

    /// Replaces the binary by one that tries these faults, one a line.
    pub(super) fn put_failing(&self, trials: &str) {
        self.put(tools::dormouse());
        fs::write(self.folder.path().join("dormouse.trial"), trials).expect("a file");
    }

    /// Starts the terminator from this path instead of the build folder.
    pub(super) fn start_from_here(&self, settings: &mut Settings) {
        let here = self.path().to_string_lossy().into_owned();
        let command = [
            "/bin/sh",
            "-c",
            "cd \"${0%/*}\" && shift && exec \"$0\" \"$@\"",
            &here,
        ];
        settings.wrapper = command.map(String::from).to_vec();
    }
}

pub(super) fn lines(process: &Process, text: &str) -> usize {
    process.lines_with(text).len()
}

/// Process ids of the keepers: children of main.
fn keepers(scene: &Scene) -> Vec<u32> {
    let tree = scene.terminator.tree();
    let leaves = scene.terminator.leaves();
    let mut keepers = tree;
    keepers.retain(|pid| *pid != scene.terminator.pid() && !leaves.contains(pid));
    keepers.sort_unstable();
    keepers
}

pub(super) fn echo_scene(installed: &Installed, workers: u32) -> Scene {
    Scene::with(|settings| {
        settings.workers = workers;
        settings.target = Target::Echo;
        installed.start_from_here(settings);
    })
}

/// Connections in every state survive with the same main pid, and every process below main is new.
#[test]
fn connections_survive_an_upgrade() {
    requires!(Can::BeDormouse);
    let installed = Installed::new();
    let scene = echo_scene(&installed, 2);
    let mut probes = probes(&scene, 60);
    for round in 0..3 {
        let before = keepers(&scene);
        for probe in &mut probes {
            // In flight while the binary is replaced.
            probe.send(200).expect("sent");
        }
        installed.put(tools::dormouse());
        scene.terminator.upgrade();
        for probe in &mut probes {
            probe.receive().expect("the echo of bytes in flight");
            probe.echo(5000).expect("an echo after an upgrade");
        }
        wait::until_true("two new keepers", || {
            let now = keepers(&scene);
            now.len() == 2 && now.iter().all(|pid| !before.contains(pid))
        });
        let _newcomer = scene.probe();
        // Crashes after the upgrade are repaired as usual.
        if round == 1 {
            scene.terminator.leaves().into_iter().for_each(kill_asleep);
            assert_echoes(&mut probes);
        }
    }
    for probe in probes {
        probe.finish().expect("a clean end");
    }
    let errors = scene.terminator.lines_with(" ERROR ");
    let other = errors.iter().filter(|line| !line.contains("SIGKILL"));
    assert_eq!(other.count(), 0, "{errors:?}");
}

/// The new binary copies the connections, and then nothing of them is left in the old binary's memory file.
#[test]
fn an_upgrade_wipes_the_old_memory() {
    requires!(Can::BeDormouse, Root);
    let installed = Installed::new();
    let scene = echo_scene(&installed, 1);
    let mut probes = probes(&scene, 8);
    let slots = || {
        let worker = scene.terminator.named("worker-0").expect("a worker");
        Slots::of(worker).expect("its slots")
    };
    let old = slots();
    assert!(old.hold_anything());
    scene.terminator.upgrade();
    wait::until_true("the old memory to be wiped", || !old.hold_anything());
    assert_echoes(&mut probes);
    assert!(slots().hold_anything());
}

/// New binaries that fail, each in another phase: the old binary continues, and logs the reason.
#[test]
fn a_failing_binary_changes_nothing() {
    requires!(Can::BeDormouse);
    let installed = Installed::new();
    let scene = echo_scene(&installed, 5);
    let mut probes = probes(&scene, 50);
    let before = keepers(&scene);
    assert_eq!(before.len(), 5);
    let phases = [
        ("crash:check", "killed by SIGABRT"),
        ("crash:prepare", "killed by SIGABRT"),
        (
            "crash:prepare:3",
            "worker 3: new keeper ended during the takeover: killed by SIGABRT",
        ),
        (
            "crash:report:3",
            "worker 3: new keeper ended during the takeover: killed by SIGABRT",
        ),
        ("hang:prepare:3", "worker 3 not taken over within"),
    ];
    for (trial, why) in phases {
        installed.put_failing(trial);
        scene.terminator.upgrade_until("upgrade failed");
        let said = scene.terminator.lines_with("upgrade failed");
        let said = said.last().expect("a line");
        assert!(said.contains(why), "{trial}: {said}");
        assert_echoes(&mut probes);
        let _newcomer = scene.probe();
        // A keeper whose worker is just being replaced is not recognised as one.
        wait::until_true(&format!("{trial}: the old keepers"), || {
            keepers(&scene) == before
        });
    }
    // Not a program at all.
    let new = installed.folder.path().join("new");
    fs::write(&new, "no program").expect("a file");
    fs::rename(&new, installed.path()).expect("the replaced binary");
    scene.terminator.upgrade_until("upgrade failed");
    // A working binary at last.
    installed.put(tools::dormouse());
    scene.terminator.upgrade();
    assert_echoes(&mut probes);
}

/// A new binary that dies after its report, in the fourth of five pairs, before or after main's commit. No
/// connection is lost, and the pair survives its next crash.
#[test]
fn a_binary_that_fails_during_the_commit_loses_no_connection() {
    requires!(Can::BeDormouse);
    let installed = Installed::new();
    let scene = echo_scene(&installed, 5);
    let mut probes = probes(&scene, 50);
    installed.put_failing("crash:wait:3");
    signal(scene.terminator.pid(), Signal::USR2);
    let end = wait::until("the upgrade to end", PATIENCE, || {
        let ends = ["this worker keeps the old binary", "upgrade failed"];
        ends.into_iter()
            .find(|end| lines(&scene.terminator, end) > 0)
    });
    println!("{end}");
    for round in 0..2 {
        assert_echoes(&mut probes);
        let _newcomer = scene.probe();
        if round == 0 {
            scene.terminator.kill_workers();
        }
    }
    // A keeper is identified by its worker, and the last worker may just have been killed.
    wait::until_true("five keepers with their workers", || {
        keepers(&scene).len() == 5
    });
}

/// Main cannot execute the new binary, although its keeper could: main continues as the old binary, with all its helpers
/// and commands, and a later upgrade succeeds.
#[test]
fn main_continues_with_its_helpers_if_it_cannot_execute_the_new_binary() {
    requires!(Can::BeDormouse);
    let installed = Installed::new();
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.option("connection_log", "connections.log");
        settings.option(
            "redirect",
            &format!("{}:{}", settings.listen.ip(), TLS_PORT + 1),
        );
        Admin::in_folder(settings);
        installed.start_from_here(settings);
    });
    let admin = Admin::of(&scene);
    let mut probes = probes(&scene, 4);
    let helpers = [
        "dormouse: control",
        "dormouse: log-writer",
        "dormouse: redirect",
    ];
    let all_helpers_run = || {
        wait::until_true("one process of each helper", || {
            let tree = scene.terminator.tree();
            let mut titles: Vec<String> = tree.into_iter().map(title).collect();
            titles.retain(|title| helpers.contains(&title.as_str()));
            titles.sort();
            titles == helpers
        });
    };
    for round in 0..2 {
        installed.put_failing("fail:execution");
        signal(scene.terminator.pid(), Signal::USR2);
        wait::until_true("main to fail", || {
            let lines = lines(&scene.terminator, "main could not execute the new binary");
            lines == round + 1
        });
        all_helpers_run();
        assert_echoes(&mut probes);
        admin.order("/reload").expect("a reload");
        let status = admin.status();
        assert_eq!(status["phase"], "ready", "round {round}: {status}");
        all_helpers_run();
    }
    let pages = probes.len();
    for probe in probes {
        probe.finish().expect("a clean end");
    }
    let log = scene.folder.path().join("connections.log");
    wait::until_true("a line for each connection", || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.lines().count() == pages
    });
    installed.put(tools::dormouse());
    scene.terminator.upgrade();
    admin.order("/reload").expect("a reload after the upgrade");
}

/// During an upgrade, no other change can begin, and during a drain no upgrade can.
#[test]
fn upgrades_exclude_other_changes() {
    requires!(Can::BeDormouse);
    let installed = Installed::new();
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        Admin::in_folder(settings);
        installed.start_from_here(settings);
    });
    let admin = Admin::of(&scene);
    let mut probes = probes(&scene, 4);
    installed.put_failing("hang:check");
    signal(scene.terminator.pid(), Signal::USR2);
    wait::until_true("the new binary to be tried", || {
        lines(&scene.terminator, "checking the new binary") > 0
    });
    for order in ["/reload", "/drain?over=10s", "/drain/stop", "/upgrade"] {
        let refused = admin.order(order).expect_err("an upgrade is in progress");
        println!("{order}: {refused}");
    }
    assert_echoes(&mut probes);
    wait::until_true("the upgrade to be given up", || {
        lines(&scene.terminator, "took longer than 10 s") > 0
    });
    installed.put(tools::dormouse());
    admin.order("/drain?over=1h").expect("a drain");
    let refused = admin.order("/upgrade").expect_err("a drain is in progress");
    assert!(
        refused.contains("a drain or a reload is in progress"),
        "{refused}"
    );
    admin.order("/reload").expect("a reload during a drain");
    admin.order("/drain/stop").expect("the end of the drain");
    admin.order("/upgrade").expect("an upgrade");
    assert_echoes(&mut probes);
}

/// The successor of a worker that dies while workers become quiet also becomes quiet, so the upgrade succeeds.
#[test]
fn an_upgrade_continues_after_the_death_of_a_worker_that_becomes_quiet() {
    requires!(Can::BeDormouse);
    let installed = Installed::new();
    let scene = Scene::with(|settings| {
        settings.workers = 2;
        settings.target = Target::Echo;
        settings.option("handshake_grace", "6s");
        Admin::in_folder(settings);
        installed.start_from_here(settings);
    });
    let admin = Admin::of(&scene);
    let mut probes = probes(&scene, 4);
    // A handshake in flight: one of the workers waits for it.
    let silent = TcpStream::connect(scene.address).expect("a connection");
    let handshaking = |admin: &Admin| admin.status()["connections"]["handshaking"] == 1;
    wait::until_true("the handshake", || handshaking(&admin));
    let ordered = thread::spawn({
        let admin = admin.clone();
        move || admin.order("/upgrade")
    });
    wait::until_true("quiet workers", || {
        // Nobody accepts any more.
        let mut client = TcpStream::connect(scene.address).expect("the queue has room");
        let timeout = Some(Duration::from_millis(300));
        client.set_read_timeout(timeout).expect("a socket");
        client.write_all(b"this is not TLS").expect("a write");
        client.read(&mut [0; 100]).is_err()
    });
    for worker in scene.terminator.workers() {
        signal(worker, Signal::KILL);
    }
    let result = ordered.join().expect("the order");
    result.expect("an upgrade");
    assert_echoes(&mut probes);
    drop(silent);
}

/// No upgrade begins while a worker waits for its replacement by one with another sandbox, however long that takes.
#[test]
fn an_upgrade_waits_for_a_worker_that_is_replaced_late() {
    requires!(Can::BeDormouse);
    let installed = Installed::new();
    let scene = Scene::with(|settings| {
        settings.workers = 2;
        settings.target = Target::Echo;
        settings.option("hang_timeout", "1min");
        Admin::in_folder(settings);
        installed.start_from_here(settings);
    });
    let admin = Admin::of(&scene);
    let late = scene.terminator.workers()[0];
    signal(late, Signal::STOP);
    let file = scene.folder.path().join("dormouse.toml");
    let text = fs::read_to_string(&file).expect("the configuration");
    fs::write(&file, text.replace("\"echo:\"", "\"unix:backend.sock\"")).expect("written");
    let words = admin.order("/reload").expect("a reload");
    assert!(words.contains("has not confirmed it yet"), "{words}");
    let why = admin.order("/upgrade").expect_err("a worker is late");
    assert!(why.contains("is being replaced"), "{why}");
    signal(late, Signal::CONT);
    wait::until_true("the worker to be replaced", || {
        let now = scene.terminator.workers();
        now.len() == 2 && !now.contains(&late)
    });
    wait::until("an upgrade", PATIENCE, || admin.order("/upgrade").ok());
}

/// The answer to an order comes when the new binary runs, so another upgrade may follow at once.
#[test]
fn upgrades_follow_each_other_at_once() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        Admin::in_folder(settings);
    });
    let admin = Admin::of(&scene);
    let mut probes = probes(&scene, 4);
    for _ in 0..10 {
        admin.order("/upgrade").expect("an upgrade");
        assert_echoes(&mut probes);
    }
}

/// Main stays the old one if the new binary cannot be executed after the workers have changed to it. The order is
/// answered with that, and others are possible.
#[test]
fn an_upgrade_that_main_cannot_follow_is_answered() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.trial("fail:execution");
        Admin::in_folder(settings);
    });
    let admin = Admin::of(&scene);
    let mut probes = probes(&scene, 4);
    for _ in 0..2 {
        let failed = admin.order("/upgrade").expect_err("no execution");
        assert!(
            failed.contains("could not execute the new binary"),
            "{failed}"
        );
        admin.order("/reload").expect("a reload");
        assert_echoes(&mut probes);
    }
}

/// After such an upgrade, main starts its helpers again, without a reload.
#[test]
fn helpers_run_again_after_an_upgrade_that_main_cannot_follow() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.option("connection_log", "connections.log");
        settings.option("check", "connect");
        settings.trial("fail:execution");
        Admin::in_folder(settings);
    });
    let helpers = ["control", "log-writer", "scout"].map(|name| format!("dormouse: {name}"));
    let running = |others: &[u32]| {
        let tree = scene.terminator.tree();
        let pid = |name: &String| {
            let mut found = tree.iter().filter(|&&pid| title(pid) == *name);
            found.find(|pid| !others.contains(pid)).copied()
        };
        helpers.iter().map(pid).collect::<Option<Vec<u32>>>()
    };
    let before = wait::until("all helpers", PATIENCE, || running(&[]));
    let refused = Admin::of(&scene).order("/upgrade");
    refused.expect_err("no execution");
    wait::until("other helpers", PATIENCE, || running(&before));
    wait::until_true("the former ones to end", || {
        let tree = scene.terminator.tree();
        !before.iter().any(|pid| tree.contains(pid))
    });
}

/// A new binary that dies in main's place has not replaced the old one: the order says so, and the old control process
/// reports that main is dead.
#[test]
fn an_upgrade_whose_main_dies_is_answered() {
    requires!(Can::BeDormouse);
    let installed = Installed::new();
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        Admin::in_folder(settings);
        installed.start_from_here(settings);
    });
    let admin = Admin::of(&scene);
    let mut probes = probes(&scene, 4);
    installed.put_failing("crash:resume");
    let failed = admin.order("/upgrade").expect_err("a dead main process");
    assert!(failed.contains("the main process is gone"), "{failed}");
    let status = admin.status();
    assert_eq!(status["phase"], "orphaned", "{status}");
    assert_echoes(&mut probes);
}

/// A worker's death is reported once, also if an upgrade follows before its keeper has reaped it.
#[test]
fn an_upgrade_after_a_workers_death_does_not_report_it_again() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.workers = 1;
        Admin::in_folder(settings);
    });
    let admin = Admin::of(&scene);
    for round in 1..=3 {
        let before = admin.status();
        let worker = before["workers"][0]["pid"].as_u64().expect("a worker");
        signal(worker as u32, Signal::KILL);
        wait::until("an upgrade", PATIENCE, || admin.order("/upgrade").ok());
        let died = scene.terminator.logged("worker died; starting", round);
        assert_eq!(died.len(), round);
    }
    assert_eq!(lines(&scene.terminator, "orphaned worker died"), 0);
}

/// Ten upgrades in a row, between builds with different connection layouts, under load.
#[test]
#[ignore = "takes a minute or more: it compiles the program with another layout"]
fn ten_upgrades_between_two_layouts_under_load() {
    requires!(Can::BeDormouse);
    let installed = Installed::new();
    let scene = Scene::with(|settings| {
        settings.workers = 2;
        settings.target = Target::Echo;
        settings.option("log_level", "debug");
        installed.start_from_here(settings);
    });
    let load = Load::start(scene.address, 4, 10, "", Duration::from_millis(1));
    for round in 0..10 {
        installed.put(if round % 2 == 0 {
            tools::dormouse_with_another_layout()
        } else {
            tools::dormouse()
        });
        scene.terminator.upgrade();
        let until = load.echoes() + 200;
        wait::until_true("200 more echoes", || load.echoes() >= until);
    }
    let seen = load.finish();
    assert_eq!(seen.lost, Vec::<String>::new());
    assert_eq!(seen.wrong, Vec::<String>::new());
    let converted = scene.terminator.logged("slots converted", 20);
    assert_eq!(converted.len(), 20);
    println!("longest echo over ten upgrades: {:?}", seen.longest);
}

/// Another program is not executed, not even for a trial: not a shell, for which `serve` would be a script, and no script.
#[test]
fn another_program_is_refused() {
    requires!(Can::BeDormouse);
    let installed = Installed::new();
    let scene = echo_scene(&installed, 1);
    let mut probes = probes(&scene, 4);
    let workers = scene.terminator.leaves();
    let script = installed.folder.path().join("script");
    let executed = installed.folder.path().join("executed");
    let text = format!("#!/bin/sh\ntouch {}\nexit 75\n", executed.display());
    fs::write(&script, &text).expect("a script");
    // Main's working directory.
    let cwd = fs::read_link(format!("/proc/{}/cwd", scene.terminator.pid()));
    fs::write(cwd.expect("a directory").join("serve"), text).expect("a script");
    for (number, program) in [Path::new("/bin/true"), Path::new("/bin/bash"), &script]
        .iter()
        .enumerate()
    {
        installed.put(program);
        signal(scene.terminator.pid(), Signal::USR2);
        wait::until_true("the upgrade to fail", || {
            lines(&scene.terminator, "upgrade failed") == number + 1
        });
        let refused = scene.terminator.logged("is not a Dormouse", number + 1);
        assert_eq!(refused.len(), number + 1);
    }
    assert!(!executed.exists());
    assert_eq!(scene.terminator.leaves(), workers, "no worker was stopped");
    assert_echoes(&mut probes);
}

/// Requests an upgrade to a binary with this trial whose keeper begins slowly, and waits until this keeper has executed it.
/// Returns both keepers, the old one first.
pub(super) fn begin_slow_upgrade(scene: &Scene, installed: &Installed, trial: &str) -> (u32, u32) {
    installed.put_failing(&format!("wait:take-over\n{trial}"));
    let children_of = |parent: u32| {
        let mut tree = scene.terminator.tree();
        tree.retain(|&pid| scene.terminator.parent_of(pid) == Some(parent));
        tree
    };
    let old = scene.terminator.named("keeper-0").expect("a keeper");
    let workers = children_of(old);
    let main = scene.terminator.parent_of(old).expect("its parent");
    let executable = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    signal(main, Signal::USR2);
    let new = wait::until("the new keeper", PATIENCE, || {
        let mut others = children_of(old).into_iter();
        others.find(|&pid| !workers.contains(&pid) && executable(pid) != executable(old))
    });
    (old, new)
}
