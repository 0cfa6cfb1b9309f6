//! Signals to main, and to all processes at once: none leaves workers that no command can end.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use dormouse_interop::intruder::libc;
use dormouse_interop::peer::Peer;
use dormouse_interop::process::{signal, until_ended};
use dormouse_interop::scene::Scene;
use dormouse_interop::terminator::{Can, Target};
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;

fn echo_scene() -> Scene {
    Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.workers = 2;
        settings.option("shutdown_drain", "2s");
    })
}

fn connect(scene: &Scene) -> Peer {
    let mut peer = Peer::connect(scene.address).expect("a connection");
    peer.echo().expect("an echo");
    peer
}

/// The receivers of a signal.
#[derive(Clone, Copy, Debug)]
enum To {
    Main,
    /// Every process, as by Ctrl-C in a terminal.
    All,
}

impl To {
    fn processes(self, scene: &Scene) -> Vec<u32> {
        match self {
            To::Main => vec![scene.terminator.pid()],
            To::All => scene.terminator.tree(),
        }
    }
}

fn is_gone(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

/// SIGQUIT and SIGUSR1: nothing new is accepted, established connections end properly one after the other, then
/// the program exits, with all of its processes.
#[test]
fn quit_and_usr1_end_the_program_gracefully() {
    requires!(Can::BeDormouse);
    for (number, to) in [
        (Signal::QUIT, To::Main),
        (Signal::USR1, To::Main),
        (Signal::QUIT, To::All),
        (Signal::USR1, To::All),
    ] {
        let mut scene = echo_scene();
        let peers: Vec<Peer> = (0..6).map(|_| connect(&scene)).collect();
        let tree = scene.terminator.tree();
        for pid in to.processes(&scene) {
            signal(pid, number);
        }
        scene
            .terminator
            .wait_for_line("draining before exit", PATIENCE);
        wait::until("new connections to be refused", PATIENCE, || {
            TcpStream::connect(scene.address).err()
        });
        assert!(scene.terminator.runs(), "{number:?} to {to:?}: no drain");
        for mut peer in peers {
            let rest = peer.receive_all();
            assert!(
                rest.is_ok(),
                "{number:?} to {to:?}: no close_notify: {rest:?}"
            );
            // The connection is over only when both sides have ended.
            let _ = peer.end_sending();
        }
        let status = scene.terminator.wait_for_end(PATIENCE);
        assert!(status.success(), "{number:?} to {to:?}: {status}");
        wait::until_true("every process to be gone", || {
            tree.iter().all(|&pid| is_gone(pid))
        });
        TcpListener::bind(scene.address).expect("the address to be free again");
    }
}

/// SIGTERM cuts a drain short.
#[test]
fn sigterm_cuts_a_drain_short() {
    requires!(Can::BeDormouse);
    let mut scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.option("shutdown_drain", "1h");
    });
    let mut peer = connect(&scene);
    signal(scene.terminator.pid(), Signal::QUIT);
    let draining = "draining before exit";
    scene.terminator.wait_for_line(draining, PATIENCE);
    peer.echo().expect("an echo during the drain");
    signal(scene.terminator.pid(), Signal::QUIT);
    peer.echo().expect("a second SIGQUIT changes nothing");
    signal(scene.terminator.pid(), Signal::TERM);
    peer.receive_all().expect("a proper end");
    let _ = peer.end_sending();
    assert!(scene.terminator.wait_for_end(PATIENCE).success());
}

/// All other signals, except those that stop or kill any process and those for faults of the program.
#[test]
fn other_signals_change_nothing() {
    const WITHOUT_EFFECT: [i32; 13] = [
        libc::SIGPIPE,
        libc::SIGALRM,
        libc::SIGSTKFLT,
        libc::SIGCHLD,
        libc::SIGCONT,
        libc::SIGURG,
        libc::SIGXCPU,
        libc::SIGXFSZ,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGWINCH,
        libc::SIGIO,
        libc::SIGPWR,
    ];
    const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;
    requires!(Can::BeDormouse);
    let mut scene = echo_scene();
    let mut peer = connect(&scene);
    let tree = scene.terminator.tree();
    for number in WITHOUT_EFFECT.into_iter().chain(REAL_TIME) {
        let mut kill = Command::new("sh");
        kill.args(["-c", "number=$1; shift; kill -$number \"$@\"", "sh"]);
        kill.arg(number.to_string());
        kill.args(tree.iter().map(u32::to_string));
        assert!(kill.status().expect("a shell").success(), "signal {number}");
        peer.echo()
            .unwrap_or_else(|error| panic!("signal {number}: {error}"));
        assert!(scene.terminator.runs(), "signal {number} has ended main");
    }
    connect(&scene);
    assert_eq!(scene.terminator.tree(), tree, "the same processes");
}

/// Signals for faults end main, however they come. The other processes then end in a bounded time, and do not hold
/// the address.
#[test]
fn a_fault_of_main_leaves_nothing_behind() {
    requires!(Can::BeDormouse);
    for fault in [Signal::ABORT, Signal::ILL, Signal::TRAP] {
        let mut scene = Scene::with(|settings| {
            settings.target = Target::Echo;
            settings.option("shutdown_drain", "1s");
            settings.option("shutdown_grace", "100ms");
        });
        let mut peer = connect(&scene);
        let tree = scene.terminator.tree();
        signal(scene.terminator.pid(), fault);
        scene.terminator.wait_for_end(PATIENCE);
        wait::until("the address to be free", PATIENCE, || {
            TcpListener::bind(scene.address).ok()
        });
        peer.receive_all().expect("a proper end");
        until_ended(&tree);
    }
}
