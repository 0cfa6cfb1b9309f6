//! Simulations of whole connections through the data path, and tests that the checks detect defects.
//!
//! `SEED=n` replays one seed with a trace of every call. `SIM_SEEDS=n` runs n seeds, from `SIM_FIRST`
//! on.

use dormouse_sim::{
    Buffers, Command, CountedWorker, Faults, Options, ProxyHeaders, Report, RouteKind, STALL_US,
    Sabotage, Scenario, Violation, World,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Instant;

/// Default number of seeds.
const SEEDS: u64 = 120;

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number")),
    )
}

#[test]
fn connections_keep_their_bytes_and_their_ends() {
    if let Some(seed) = number("SEED") {
        let report = World::run(Scenario::of(seed), None, true);
        return println!("{report:?}");
    }
    let first = number("SIM_FIRST").unwrap_or(1);
    let last = first + number("SIM_SEEDS").unwrap_or(SEEDS);
    let begun = Instant::now();
    let next = AtomicU64::new(first);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let shares: Vec<Share> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| Share::run(&next, last)))
            .collect();
        let join = |thread: ScopedJoinHandle<'_, Share>| thread.join().expect("no panic");
        running.into_iter().map(join).collect()
    });
    println!(
        "{} connections, {} deaths of workers in {:?}, on {threads} threads",
        shares.iter().map(|share| share.connections).sum::<u64>(),
        shares.iter().map(|share| share.deaths).sum::<u64>(),
        begun.elapsed()
    );
    let failed: Vec<u64> = shares.into_iter().flat_map(|share| share.failed).collect();
    assert!(failed.is_empty(), "seeds {failed:?}");
}

/// The seeds that one thread has run.
#[derive(Default)]
struct Share {
    connections: u64,
    deaths: u64,
    failed: Vec<u64>,
}

impl Share {
    /// Runs seed after seed until `last`.
    fn run(next: &AtomicU64, last: u64) -> Share {
        let mut share = Share::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= last {
                return share;
            }
            match World::run(Scenario::of(seed), None, false) {
                Ok(report) => {
                    share.connections += report.connections;
                    share.deaths += report.deaths;
                }
                Err(violation) => {
                    println!("seed {seed}: {violation}");
                    println!(
                        "  SEED={seed} cargo test -p dormouse-sim --test sim connections_keep -- --nocapture"
                    );
                    share.failed.push(seed);
                }
            }
        }
    }
}

/// Runs a scenario, which must have no violation. `SIM_TRACE=1` prints every call of a scenario that
/// fails.
fn must_hold(scenario: Scenario) -> Report {
    World::run(scenario, None, false).unwrap_or_else(|violation| {
        if number("SIM_TRACE").is_some() {
            let _ = World::run(scenario, None, true);
        }
        panic!("{violation}; {scenario:?}");
    })
}

/// Runs for each kind of route, with deaths spread evenly over the steps.
const DEATHS: u64 = 12;

/// At whatever step a worker dies, only the connection that it was busy with may be reset; nothing else
/// is lost, repeated or leaked.
#[test]
fn a_worker_may_die_at_any_step() {
    let deaths = number("SIM_DEATHS").unwrap_or(DEATHS);
    for route_kind in RouteKind::ALL {
        let scenario = Scenario {
            route_kind,
            clients: 2,
            at_once: 2,
            established: 3,
            aborts: 0,
            buffers: Buffers {
                send: 4_096,
                receive: 4_096,
            },
            ..Scenario::calm(77)
        };
        let whole = World::run(scenario, None, false).expect("no violation without a death");
        let steps = whole.steps;
        assert!(steps > 300, "{route_kind:?}: only {steps} steps");
        let stride = (whole.steps / deaths).max(1);
        for step in (1..whole.steps).step_by(stride as usize) {
            let kills = [step, u64::MAX];
            let done = World::run(Scenario { kills, ..scenario }, None, false);
            let report = done.unwrap_or_else(|violation| {
                panic!("{route_kind:?}, death at step {step}: {violation}")
            });
            assert_eq!(report.deaths, 1, "{route_kind:?}, step {step}");
        }
    }
}

/// Connections leave the kernel and come back between their messages, also when only four of them may have sockets. At
/// whatever step the worker, tcp-repair or both die, only the connection that a worker was busy with may be reset; no byte
/// is lost, and no record, socket or entry of the table is left.
#[test]
fn connections_rest_whatever_process_dies() {
    let deaths = number("SIM_DEATHS").unwrap_or(DEATHS / 4);
    for (route_kind, awake) in [
        (RouteKind::Echo, 4),
        (RouteKind::Terminate, 4),
        (RouteKind::TerminateUnix, 0),
        (RouteKind::BackendTls, 0),
        (RouteKind::PassThrough, 0),
    ] {
        let with = |repair_dies, kill| Scenario {
            route_kind,
            clients: 2,
            at_once: 2,
            established: 6,
            aborts: 0,
            buffers: Buffers {
                send: 65_536,
                receive: 65_536,
            },
            options: Options {
                rests: true,
                awake,
                repair_dies,
                ..Options::default()
            },
            kills: [kill, u64::MAX],
            ..Scenario::calm(number("SIM_FIRST").unwrap_or(78))
        };
        let whole = must_hold(with(0, u64::MAX));
        let repair = whole.repair;
        assert!(repair.rests > 3 && repair.wakes > 3, "{whole:?}");
        for n in 0..deaths {
            let of_repair = 1 + n * repair.steps / deaths;
            let of_worker = 1 + n * whole.steps / deaths;
            for (repair_dies, kill) in [(of_repair, u64::MAX), (0, of_worker), (1 + n, of_worker)] {
                let report = must_hold(with(repair_dies, kill));
                let died = [report.repair.deaths > 0, report.deaths > 0];
                assert_eq!(died, [repair_dies > 0, kill < u64::MAX], "{report:?}");
            }
        }
    }
}

/// A worker dies at every step of a connection's rests and wakes. Its successor finds a message, its consequence, or both:
/// the connection ends as it would have.
#[test]
fn a_worker_may_die_at_every_step_of_a_rest_and_of_a_wake() {
    for (route_kind, seed) in [
        (RouteKind::Echo, 1),
        (RouteKind::Terminate, 2),
        (RouteKind::TerminateUnix, 2),
    ] {
        let scenario = Scenario {
            route_kind,
            clients: 0,
            established: 1,
            aborts: 0,
            options: Options {
                rests: true,
                ..Options::default()
            },
            ..Scenario::calm(seed)
        };
        let repair = must_hold(scenario).repair;
        assert!(repair.rests > 0 && repair.wakes > 0, "{route_kind:?}");
        let [first, last] = repair.worker_steps;
        for step in first - 10..last + 10 {
            let kills = [step, u64::MAX];
            let _ = must_hold(Scenario { kills, ..scenario });
        }
    }
}

/// tcp-repair dies when it has noticed that a client has reset its resting connection.
#[test]
fn the_end_of_a_resting_connection_is_told_by_a_successor() {
    let scenario = Scenario::of(5673);
    assert!(scenario.options.rests && scenario.options.repair_dies > 0);
    let _ = must_hold(scenario);
}

/// One connection without faults, which one of its peers may abort.
fn one_connection(route_kind: RouteKind, seed: u64, aborts: usize) -> Scenario {
    Scenario {
        route_kind,
        clients: 0,
        established: 1,
        aborts,
        buffers: Buffers {
            send: 65_536,
            receive: 65_536,
        },
        ..Scenario::calm(seed)
    }
}

/// An abort arrives as an abort, at whatever step a worker dies: also between the step in which the slot forgets a socket
/// and its reset. With these seeds a peer of the plain side has received everything when the other one aborts.
#[test]
fn a_death_turns_no_abort_into_an_end() {
    for (route_kind, seed) in [
        (RouteKind::Terminate, 2),
        (RouteKind::Originate, 11),
        (RouteKind::Originate, 29),
    ] {
        let scenario = one_connection(route_kind, seed, 2);
        let whole = World::run(scenario, None, false).expect("no violation without a death");
        for step in 1..whole.steps {
            let kills = [step, u64::MAX];
            must_hold(Scenario { kills, ..scenario });
        }
    }
}

/// The same while the next worker resets the connection that the first one was busy with.
#[test]
fn a_second_death_turns_no_abort_into_an_end() {
    for (route_kind, seed) in [(RouteKind::Terminate, 2), (RouteKind::Originate, 11)] {
        let scenario = one_connection(route_kind, seed, 0);
        let whole = World::run(scenario, None, false).expect("no violation without a death");
        for first in (1..whole.steps).step_by(11) {
            for second in 1..24 {
                let kills = [first, second];
                must_hold(Scenario { kills, ..scenario });
            }
        }
    }
}

/// A worker that dies while it registers the sockets it has found leaves sockets that are registered with
/// epoll, but not marked as registered in their slots.
#[test]
fn a_worker_may_die_in_its_recovery() {
    for step in 1..60 {
        let scenario = Scenario {
            route_kind: RouteKind::Echo,
            clients: 1,
            established: 3,
            aborts: 0,
            kills: [step, u64::MAX],
            ..Scenario::calm(5)
        };
        let done = World::run(scenario, None, false);
        let report = done.unwrap_or_else(|violation| panic!("death at step {step}: {violation}"));
        assert_eq!(report.deaths, 1, "step {step}");
    }
}

/// The first byte on a joint reports that the backend is connected. If a full joint made the worker skip
/// it, the first byte of the backend would be mistaken for it.
#[test]
fn a_blocked_joint_loses_no_byte() {
    for seed in 1..=12 {
        let scenario = Scenario {
            route_kind: RouteKind::BackendTls,
            clients: 6,
            faults: Faults {
                joint_would_block: 2,
                ..Faults::default()
            },
            ..Scenario::calm(seed)
        };
        must_hold(scenario);
    }
}

/// The kernel watches no more sockets at times. The connection that it does not watch is closed, the others continue, and
/// accepting pauses.
#[test]
fn watches_run_out() {
    for route_kind in RouteKind::ALL {
        let mut pauses = 0;
        for seed in 1..=12 {
            let scenario = Scenario {
                route_kind,
                clients: 6,
                faults: Faults {
                    no_watch: 3,
                    ..Faults::default()
                },
                ..Scenario::calm(seed)
            };
            pauses += must_hold(scenario).memory_pauses;
        }
        assert!(pauses > 0, "{route_kind:?}");
    }
}

/// At times, there is no local port for a backend, or no descriptor. That is no failure of the backend, also if the
/// connection to it has TLS.
#[test]
fn ports_and_descriptors_run_out() {
    for route_kind in [RouteKind::Terminate, RouteKind::BackendTls] {
        for (no_port, no_descriptor) in [(3, 0), (0, 3)] {
            for seed in 1..=12 {
                let scenario = Scenario {
                    route_kind,
                    clients: 6,
                    faults: Faults {
                        no_port,
                        no_descriptor,
                        ..Faults::default()
                    },
                    ..Scenario::calm(seed)
                };
                let failed = must_hold(scenario).connects_failed;
                assert_eq!(failed, 0, "{scenario:?}");
            }
        }
    }
}

/// The first violation that is detected with a broken kernel.
fn detect(sabotage: Sabotage, change: impl Fn(&mut Scenario)) -> Option<Violation> {
    (1..=60).find_map(|seed| {
        let mut scenario = Scenario::calm(seed);
        change(&mut scenario);
        World::run(scenario, Some(sabotage), false).err()
    })
}

#[test]
fn a_lost_changed_or_repeated_byte_is_detected() {
    for sabotage in [
        Sabotage::LoseByte,
        Sabotage::ChangeByte,
        Sabotage::RepeatBytes,
    ] {
        let violation = detect(sabotage, |_| {});
        println!("{sabotage:?}: {violation:?}");
        assert!(violation.is_some(), "{sabotage:?}");
    }
}

#[test]
fn a_missing_or_false_end_is_detected() {
    let missing = detect(Sabotage::ForgetEnd, |_| {}).expect("a violation");
    println!("{missing}");
    let is_false =
        detect(Sabotage::EndForReset, |scenario| scenario.aborts = 2).expect("a violation");
    assert!(is_false.what.contains("the sender aborted"), "{is_false}");
}

#[test]
fn a_leak_and_a_missing_event_are_detected() {
    let leak = detect(Sabotage::KeepDescriptor, |_| {}).expect("a violation");
    println!("{leak}");
    let stuck = detect(Sabotage::NeverWritable, |_| {}).expect("a violation");
    println!("{stuck}");
}

#[test]
fn a_worker_that_spins_is_detected() {
    let violation = detect(Sabotage::KeepWatch, |scenario| {
        scenario.route_kind = RouteKind::Terminate;
        (scenario.aborts, scenario.stall_us) = (2, STALL_US);
    });
    let spins = violation.expect("a violation");
    assert_eq!(spins.what, "the worker spins");
}

#[test]
fn a_successor_that_continues_a_busy_connection_is_detected() {
    let violation = (1..=40).find_map(|n| {
        detect(Sabotage::ForgetBusy, |scenario| {
            scenario.kills = [n * 37, u64::MAX];
            scenario.clients = scenario.clients.min(2);
        })
    });
    println!("{violation:?}");
    assert!(violation.is_some());
}

/// Clients whose handshake is delayed by a limit, and clients that close before they are accepted. (Seeds
/// that failed in a long run.)
#[test]
fn low_limits_and_early_closes() {
    for seed in 1..=40 {
        let scenario = Scenario {
            route_kind: RouteKind::Echo,
            clients: 8,
            at_once: 8,
            aborts: 2,
            low_limits: true,
            ..Scenario::calm(seed)
        };
        must_hold(scenario);
    }
}

/// Each option of the configuration, without faults.
#[test]
fn options_of_the_configuration() {
    let options = [
        Options {
            truncation_closes: true,
            ..Options::default()
        },
        Options {
            paced: true,
            ..Options::default()
        },
        Options {
            proxy_headers: ProxyHeaders::FromClients,
            ..Options::default()
        },
        Options {
            proxy_headers: ProxyHeaders::ToBackendsV1,
            ..Options::default()
        },
        Options {
            proxy_headers: ProxyHeaders::ToBackendsV2,
            ..Options::default()
        },
        Options {
            warm: 2,
            ..Options::default()
        },
        Options {
            closes_both: true,
            ..Options::default()
        },
        Options {
            connects_late: true,
            ..Options::default()
        },
    ];
    for options in options {
        for seed in 1..=12 {
            let route_kind = Scenario::of(seed).route_kind;
            let is_originate = route_kind == RouteKind::Originate;
            let is_possible = match options.proxy_headers {
                ProxyHeaders::None => options.warm == 0 || is_originate,
                ProxyHeaders::FromClients => !is_originate,
                _ => !is_originate && route_kind != RouteKind::Echo,
            };
            if !is_possible || (options.closes_both && !route_kind.may_close_both()) {
                continue;
            }
            let scenario = Scenario {
                options,
                aborts: 3,
                ..Scenario::calm(seed)
            };
            must_hold(scenario);
        }
    }
}

/// Warm connections that end during an upgrade are replaced by the next worker: the quiescing worker must
/// not try in a loop.
#[test]
fn warm_connections_that_end_during_an_upgrade() {
    for seed in 1..=40 {
        must_hold(Scenario {
            route_kind: RouteKind::Originate,
            options: Options {
                warm: 2,
                ..Options::default()
            },
            command: (Command::Upgrade, 10 + seed),
            ..Scenario::calm(seed)
        });
    }
}

/// A drain lets connections become established that are about to be: none of them fails.
#[test]
fn connections_that_are_not_established_when_a_drain_begins() {
    for route_kind in [RouteKind::BackendTls, RouteKind::Originate] {
        for seed in 1..=40 {
            must_hold(Scenario {
                route_kind,
                clients: 8,
                at_once: 8,
                command: (Command::Drain, 3 + seed),
                ..Scenario::calm(seed)
            });
        }
    }
}

/// When a drain is stopped, the worker makes the warm connections again that the drain has closed.
#[test]
fn warm_connections_after_a_stopped_drain() {
    for seed in 1..=20 {
        must_hold(Scenario {
            route_kind: RouteKind::Originate,
            clients: 1,
            established: 0,
            options: Options {
                warm: 2,
                ..Options::default()
            },
            command: (Command::DrainAndBack, 10 + seed),
            ..Scenario::calm(seed)
        });
    }
}

/// A peer that reads nothing delays only its partner.
#[test]
fn peers_that_do_not_read() {
    for stall_us in [STALL_US, 20 * STALL_US] {
        for seed in 1..=24 {
            let scenario = Scenario {
                stall_us,
                ..Scenario::calm(seed)
            };
            must_hold(scenario);
        }
    }
}

/// The same when the gateway closes the connections: their clients close at once, their backends read nothing.
#[test]
fn peers_that_do_not_read_during_a_drain() {
    for seed in 1..=24 {
        must_hold(Scenario {
            stall_us: STALL_US,
            command: (Command::Drain, 20 + 3 * seed),
            ..Scenario::calm(seed)
        });
    }
}

/// The worker of `ci-bench`: one client after the other, each resuming the previous client's session.
#[test]
fn one_client_at_a_time() {
    for route_kind in [RouteKind::Echo, RouteKind::Terminate] {
        let mut worker = CountedWorker::new(route_kind, true).expect("a worker");
        for n in 0..3 {
            assert_eq!(worker.handshake(|turn| turn()), n > 0);
            worker.wake(|turn| turn());
            worker.forget_keys();
            worker.wake(|turn| turn());
            worker.close();
        }
    }
}
