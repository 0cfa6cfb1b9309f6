//! Deaths of keepers and of main during a start and during an upgrade, at moments that a slow binary makes long enough.

use dormouse_interop::process::{Process, name, signal, status, until_asleep, until_ended};
use dormouse_interop::scene::{Scene, TLS_PORT, unused_host};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::time::Duration;

use super::upgrade::{Installed, begin_slow_upgrade, echo_scene, lines};

/// As [`begin_slow_upgrade`], and stops the old keeper before the commit, once it has told main of the new one.
fn stopped_before_the_commit(scene: &Scene, installed: &Installed, trial: &str) -> (u32, u32) {
    let (old, new) = begin_slow_upgrade(scene, installed, trial);
    until_asleep(old);
    signal(old, Signal::STOP);
    (old, new)
}

/// A new keeper dies before the old one, which is stopped, sees the commit: its death and the signal about it are there
/// at once.
#[test]
fn a_keeper_that_was_stopped_continues_after_its_successors_death() {
    requires!(Can::BeDormouse);
    let installed = Installed::new();
    let scene = echo_scene(&installed, 1);
    let mut probe = scene.probe();
    let (old, new) = stopped_before_the_commit(&scene, &installed, "crash:wait:0");
    wait::until_true("the new keeper to die", || {
        !scene.terminator.tree().contains(&new)
    });
    wait::until_true("the commit", || {
        lines(&scene.terminator, "upgrade committed") > 0
    });
    signal(old, Signal::CONT);
    wait::until_true("main to know", || {
        let known = lines(&scene.terminator, "this worker keeps the old binary");
        known > 0
    });
    probe.echo(1000).expect("an echo from the old binary");
}

/// The old keeper dies before its child has begun as the new one. The child ends, and so does the program when it is told
/// to.
#[test]
fn a_keeper_that_dies_before_its_successor_begins_leaves_no_process() {
    requires!(Can::BeDormouse);
    let installed = Installed::new();
    let mut scene = echo_scene(&installed, 2);
    let (old, new) = begin_slow_upgrade(&scene, &installed, "none");
    signal(old, Signal::KILL);
    wait::until_true("the end of the upgrade", || {
        lines(&scene.terminator, "a keeper died during the upgrade") > 0
    });
    until_ended(&[new]);
    signal(scene.terminator.pid(), Signal::TERM);
    scene.terminator.wait_for_end(Duration::from_secs(10));
}

/// A parent of lost processes, as `systemd --user` is one, that starts a command and waits.
const SUBREAPER: &str = "
import ctypes, os, sys
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
os.spawnvp(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
while True:
    os.waitpid(-1, 0)
";

/// Main and the old keeper die before the new one has begun, whose parent is now another process.
#[test]
fn a_new_keeper_without_main_ends_under_any_parent() {
    requires!(Can::BeDormouse, "python3");
    let installed = Installed::new();
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        installed.start_from_here(settings);
        let subreaper = [&tools::path("python3"), "-c", SUBREAPER].map(str::to_owned);
        settings.wrapper.splice(0..0, subreaper);
    });
    let (old, new) = begin_slow_upgrade(&scene, &installed, "none");
    let main = scene.terminator.parent_of(old).expect("its parent");
    assert_ne!(main, scene.terminator.pid());
    for pid in [main, old] {
        signal(pid, Signal::KILL);
    }
    wait::until_true("another parent", || {
        let parent = scene.terminator.parent_of(new);
        parent == Some(scene.terminator.pid()) || parent.is_none()
    });
    until_ended(&[new]);
}

/// An old keeper is stopped before the commit until the new keeper no longer waits for it and starts a worker. Then the
/// new keeper dies. The old keeper must not start a second worker: the first one uses the same pending memory.
#[test]
fn a_keeper_that_was_stopped_takes_nothing_back() {
    requires!(Can::BeDormouse);
    let installed = Installed::new();
    let scene = echo_scene(&installed, 1);
    let mut probe = scene.probe();
    let (old, new) = stopped_before_the_commit(&scene, &installed, "");
    wait::until_true("the new binary", || {
        lines(&scene.terminator, "new binary running") > 0
    });
    probe.echo(1000).expect("an echo from the new worker");
    signal(new, Signal::KILL);
    signal(old, Signal::CONT);
    wait::until_true("the old keeper to exit", || {
        !scene.terminator.tree().contains(&old)
    });
    let wrong = lines(&scene.terminator, "the old binary continues");
    assert_eq!(wrong, 0, "{}", scene.terminator.log());
    probe
        .echo(1000)
        .expect("an echo from the worker that lives on");
}

/// The program starts with all its workers or not at all: it does not stay without one that can never become ready.
#[test]
fn a_keeper_that_dies_during_the_start_ends_it() {
    requires!(Can::BeDormouse);
    let mut settings = Settings::new(SocketAddr::new(unused_host(), TLS_PORT), Target::Echo);
    settings.workers = 2;
    settings.trial("hold:descriptor");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let launch = Terminator::Dormouse.prepare(&settings, folder.path());
    wait::until("a keeper killed in time", PATIENCE, || {
        let mut program = Process::start("dormouse", &launch.command, folder.path());
        let is_early = kill_keeper_of_a_beginning_worker(&program);
        if is_early {
            assert!(!program.wait_for_end(PATIENCE).success());
            program.logged("a worker could not start: its keeper", 1);
        }
        program.end_orphans();
        is_early.then_some(())
    });
}

/// Stops the first worker and kills its keeper. Returns `false` if that was too late: the worker had confined itself.
fn kill_keeper_of_a_beginning_worker(program: &Process) -> bool {
    let (worker, keeper) = wait::until("the first worker", PATIENCE, || {
        let worker = program.named("worker-0")?;
        let keeper = program.parent_of(worker)?;
        // Before it starts the worker, the keeper itself has that name for a moment.
        (name(keeper) == "keeper-0").then_some((worker, keeper))
    });
    signal(worker, Signal::STOP);
    let filters = |pid| status(pid, "Seccomp_filters:");
    let is_early = filters(worker) == filters(keeper);
    signal(keeper, Signal::KILL);
    is_early
}
