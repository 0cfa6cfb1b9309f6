//! Users, capabilities and secrets: everything that passes between processes is closed to other users.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use dormouse_interop::admin::Admin;
use dormouse_interop::backend::Backend;
use dormouse_interop::probe::Probe;
use dormouse_interop::process::{name, signal, status};
use dormouse_interop::requirement::Root;
use dormouse_interop::scene::{Scene, TLS_PORT, unused_host};
use dormouse_interop::slots::Slots;
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;

const NOBODY: &str = "65534";
/// No capability.
const NONE: &str = "0000000000000000";
/// CAP_DAC_OVERRIDE: access to sockets of other users.
const SOCKETS_OF_OTHERS: &str = "0000000000000002";

/// Asserts that `pid` has given up everything, and that no other user may inspect it.
fn is_closed(pid: u32, user: &str, capabilities: &str) {
    let uids = status(pid, "Uid:");
    assert!(
        uids.split_whitespace().all(|uid| uid == user),
        "{pid}: {uids}"
    );
    if user != "0" {
        assert_eq!(status(pid, "Groups:"), "", "{pid}: supplementary groups");
    }
    assert_eq!(status(pid, "CapEff:"), capabilities, "{pid}");
    assert_eq!(status(pid, "CapPrm:"), capabilities, "{pid}");
    assert_eq!(status(pid, "NoNewPrivs:"), "1", "{pid}");
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("its limits");
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let core: Vec<&str> = core.expect("a limit").split_whitespace().collect();
    assert_eq!(core[4..6], ["0", "0"], "{pid}: core dumps");
    // /proc shows root as the owner of a process that is not dumpable.
    let mem = fs::metadata(format!("/proc/{pid}/mem")).expect("its memory");
    assert_eq!(mem.uid(), 0, "{pid} can be looked into");
    let mut seen = 0;
    for link in fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("its descriptors")
        .flatten()
    {
        let target = fs::read_link(link.path()).unwrap_or_default();
        if target.to_string_lossy().starts_with("/memfd:dormouse") {
            let file = fs::metadata(link.path()).expect("a memory file");
            assert_eq!(file.mode() & 0o777, 0o600, "{}", target.display());
            seen += 1;
        }
    }
    assert!(seen >= 4, "{pid} has only {seen} memory files");
    if tools::present(&["setpriv"]) {
        for what in ["mem", "maps", "fd/3", "environ"] {
            let looked = Command::new(tools::path("setpriv"))
                .args([
                    "--reuid",
                    NOBODY,
                    "--regid",
                    NOBODY,
                    "--clear-groups",
                    "head",
                    "-c1",
                ])
                .arg(format!("/proc/{pid}/{what}"))
                .output()
                .expect("setpriv");
            assert!(
                !looked.status.success(),
                "{NOBODY} can read {what} of {pid}"
            );
        }
    }
}

fn processes(scene: &Scene) -> Vec<u32> {
    let mut all = scene.terminator.tree();
    all.retain(|pid| {
        let name = name(*pid);
        name.starts_with("keeper") || name.starts_with("worker")
    });
    all
}

/// As the user nobody from the start, after a crash, and after an upgrade.
#[test]
fn keepers_and_workers_give_up_everything() {
    requires!(Can::BeDormouse, Root);
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.option("user", NOBODY);
        // A file may give a number without quotes, but a user is a string.
        if let Some((_, value)) = settings.options.last_mut() {
            *value = format!("\"{NOBODY}\"");
        }
    });
    let mut probe = scene.probe();
    for what in ["start", "crash", "upgrade"] {
        match what {
            "crash" => {
                scene.terminator.kill_workers();
            }
            "upgrade" => {
                scene.terminator.upgrade();
            }
            _ => {}
        }
        probe
            .echo(100)
            .unwrap_or_else(|fault| panic!("after {what}: {fault:?}"));
        let all = wait::until("keeper and worker", PATIENCE, || {
            let all = processes(&scene);
            (all.len() == 2).then_some(all)
        });
        for pid in all {
            is_closed(pid, NOBODY, NONE);
        }
    }
}

/// Without `user`, root's keepers and workers run as nobody, where that is safe.
#[test]
fn without_a_user_workers_run_as_nobody() {
    requires!(Can::BeDormouse, Root);
    let scene = Scene::with(|settings| settings.target = Target::Echo);
    let _probe = scene.probe();
    for pid in processes(&scene) {
        is_closed(pid, NOBODY, NONE);
    }
    let warned = scene.terminator.lines_with("workers run as root");
    assert_eq!(warned.len(), 0, "{warned:?}");
}

/// A unix-socket backend may be open to root only: workers stay root, which is logged, with the one capability
/// that they need.
#[test]
fn with_a_unix_socket_workers_stay_root_with_one_capability() {
    requires!(Can::BeDormouse, Root);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("backend.sock");
    let backend = Backend::unix(&path);
    // Owned by another user, and closed to all others.
    std::os::unix::fs::chown(&path, Some(1), Some(1)).expect("a socket of the test");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a socket of the test");
    let listen = SocketAddr::new(unused_host(), TLS_PORT);
    let settings = Settings::new(listen, Target::Unix(path));
    let scene = Scene::of(Terminator::Dormouse, backend, &settings);
    let _probe = scene.probe();
    for pid in processes(&scene) {
        is_closed(pid, "0", SOCKETS_OF_OTHERS);
    }
    let warned = scene.terminator.logged("workers run as root", 1);
    assert_eq!(warned.len(), 1, "{}", scene.terminator.log());
}

/// As with `docker run --user 0 --cap-drop=ALL`: root cannot become nobody, so every process stays root and gives up all
/// capabilities.
#[test]
fn where_root_cannot_change_its_user_no_process_keeps_a_capability() {
    requires!(Can::BeDormouse, Root, "setpriv");
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.wrapper = vec![
            tools::path("setpriv"),
            "--bounding-set=-setuid,-setgid".to_owned(),
            "--inh-caps=-setuid,-setgid".to_owned(),
        ];
        Admin::in_folder(settings);
    });
    let _probe = scene.probe();
    for pid in processes(&scene) {
        is_closed(pid, "0", NONE);
    }
    let answer = Admin::of(&scene).status();
    let control = answer["control"]["pid"].as_u64().unwrap_or_default();
    let control = control.try_into().expect("a process id");
    assert_eq!(status(control, "CapPrm:"), NONE, "control");
    let failed = scene.terminator.lines_with("helper process failed");
    assert_eq!(failed.len(), 0, "{failed:?}");
}

/// The trial of a new binary can read what main can read. It has no other privilege, and no file of main's directory is an
/// argument to it.
#[test]
fn a_new_binary_is_tried_without_privileges() {
    requires!(Can::BeDormouse, Root);
    /// CAP_DAC_READ_SEARCH, or CAP_DAC_OVERRIDE in a container without it.
    const READING: [&str; 2] = ["0000000000000004", "0000000000000002"];
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.trial("hang:check");
    });
    let main = scene.terminator.pid();
    let before = scene.terminator.tree();
    signal(main, Signal::USR2);
    let is_tried = |pid: &u32| {
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.contains("--try-resume")
    };
    let trial = wait::until("the trial", PATIENCE, || {
        let tree = scene.terminator.tree();
        tree.into_iter()
            .find(|pid| !before.contains(pid) && is_tried(pid))
    });
    for set in ["CapEff:", "CapPrm:"] {
        let left = status(trial, set);
        assert!(READING.contains(&left.as_str()), "{set} {left}");
    }
    assert_eq!(status(trial, "NoNewPrivs:"), "1");
    assert_eq!(status(trial, "Seccomp:"), "2");
    let directory = fs::read_link(format!("/proc/{trial}/cwd"));
    assert_eq!(directory.expect("a directory"), Path::new("/"));
}

/// Secrets are wiped when their connection ends, and all of them at the end of the program: memory that
/// another process still maps holds none.
#[test]
fn records_are_wiped_at_the_end() {
    requires!(Can::BeDormouse, Root);
    let mut scene = Scene::with(|settings| settings.target = Target::Echo);
    let first = scene.probe();
    let slots = processes(&scene).into_iter().find_map(Slots::of);
    let slots = slots.expect("the memory of a worker");
    assert!(slots.hold_anything(), "a record at rest");
    first.finish().expect("a clean end");
    wait::until_true("the record to be wiped", || !slots.hold_anything());
    let _probes: Vec<Probe> = (0..50).map(|_| scene.probe()).collect();
    assert!(slots.hold_anything(), "50 records at rest");
    scene.terminator.terminate();
    assert!(!slots.hold_anything(), "records are left behind");
}
