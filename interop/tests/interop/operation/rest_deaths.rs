//! Deep rest: the worker and tcp-repair die before each of their system calls, or main dies, and no connection is lost.

use dormouse_interop::peer::Peer;
use dormouse_interop::process::signal;
use dormouse_interop::requirement::Root;
use dormouse_interop::scene::{self, PLAIN_PORT};
use dormouse_interop::strace::Strace;
use dormouse_interop::terminator::{Can, Target, Terminator};
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;

use super::rest_after::{Quiet, address, targets};

/// A process dies before each of its system calls while connections wake and rest again: at every `each`-th call, of as
/// many as such a cycle has.
fn deaths_at_every_call(victim: fn(&Quiet) -> u32, each: usize) {
    requires!(Can::BeDormouse, Root, "strace");
    // A process that dies again and again is started again after growing pauses.
    const DEATHS_EACH: usize = 3;
    let mut calls = (1..).step_by(each);
    let mut deaths = 0;
    let target = Target::Tcp(address(PLAIN_PORT));
    loop {
        let Some(quiet) = Quiet::after("50ms", &target, |settings| settings.workers = 1) else {
            return;
        };
        let mut clients = quiet.clients(2, &target);
        let died = calls.by_ref().take(DEATHS_EACH).take_while(|call| {
            quiet.wait_for_rest();
            let pid = victim(&quiet);
            let strace = Strace::kill_at(pid, *call);
            for client in &mut clients {
                let echo = client.echo();
                echo.unwrap_or_else(|error| panic!("no echo, death at call {call}: {error}"));
            }
            quiet.wait_for_rest();
            drop(strace);
            victim(&quiet) != pid
        });
        let died = died.count();
        deaths += died;
        for client in &mut clients {
            client.echo().expect("an echo after all deaths");
        }
        assert_eq!(quiet.resets(), 0);
        if died < DEATHS_EACH {
            break;
        }
    }
    assert!(deaths > 3, "only {deaths} died");
    println!("died {deaths} times");
}

fn the_worker(quiet: &Quiet) -> u32 {
    wait::until("a worker", PATIENCE, || {
        quiet.scene.terminator.named("worker-0")
    })
}

#[test]
fn a_worker_may_die_at_its_calls() {
    deaths_at_every_call(the_worker, 7);
}

#[test]
fn tcp_repair_may_die_at_its_calls() {
    deaths_at_every_call(Quiet::repair_process, 7);
}

#[test]
#[ignore = "a minute"]
fn a_worker_may_die_at_any_call() {
    deaths_at_every_call(the_worker, 1);
}

#[test]
#[ignore = "a minute"]
fn tcp_repair_may_die_at_any_call() {
    deaths_at_every_call(Quiet::repair_process, 1);
}

/// Packets come to resting connections for as long as workers are left to serve them, also beside the next start.
#[test]
fn resting_connections_are_served_after_the_death_of_main() {
    requires!(Can::BeDormouse, Root);
    for target in targets() {
        let Some(mut quiet) = Quiet::after("200ms", &target, |settings| {
            settings.option("shutdown_drain", "10m");
        }) else {
            return;
        };
        let mut clients = quiet.clients(4, &target);
        quiet.wait_for_rest();
        signal(quiet.scene.terminator.pid(), Signal::KILL);
        quiet.scene.terminator.wait_for_end(PATIENCE);
        let echo_all = |clients: &mut Vec<Peer>, when: &str| {
            for client in clients {
                let echoed = client.echo();
                echoed.unwrap_or_else(|error| panic!("{target:?}, {when}: {error}"));
            }
        };
        echo_all(&mut clients, "after the death of main");
        quiet.wait_for_rest();
        // The same addresses.
        let folder = quiet.scene.folder.path();
        let next = scene::start(Terminator::chosen(), &quiet.settings, folder);
        let mut newcomers = quiet.clients(4, &target);
        quiet.wait_for_rest();
        echo_all(&mut clients, "beside the next start");
        echo_all(&mut newcomers, "of the next start");
        assert_eq!(quiet.resets(), 0, "{target:?}");
        drop((clients, newcomers, next));
    }
}
