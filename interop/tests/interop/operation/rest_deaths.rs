//! Deep rest: the worker and tcp-repair die before each of their system calls, and no connection is lost.

use dormouse_interop::requirement::Root;
use dormouse_interop::scene::PLAIN_PORT;
use dormouse_interop::strace::Strace;
use dormouse_interop::terminator::{Can, Target};
use dormouse_interop::wait::{self, PATIENCE};

use super::rest_after::{Quiet, address};

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
