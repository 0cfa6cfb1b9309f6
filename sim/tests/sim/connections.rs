//! Whole connections through the data path, by seed; and the proof that the checks find what is
//! wrong.
//!
//! `SEED=n` replays one seed with a trace of every call. `SIM_SEEDS=n` runs so many seeds, from
//! `SIM_FIRST` on.

use dormouse_sim::{
    Buffers, Command, CountedWorker, DEAF_US, Faults, Options, ProxyHeaders, Sabotage, Scenario,
    Violation, Way, World,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Instant;

/// Seeds that one run of the tests takes.
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

/// What one thread has run.
#[derive(Default)]
struct Share {
    connections: u64,
    deaths: u64,
    failed: Vec<u64>,
}

impl Share {
    /// Takes one seed after the other until `last`.
    fn run(next: &AtomicU64, last: u64) -> Share {
        let mut share = Share::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= last {
                return share;
            }
            match World::run(Scenario::of(seed), None, false) {
                Ok(report) => {
                    share.connections += report.lives;
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

/// Must end as it should. `SIM_TRACE=1` shows every call of what does not.
fn must_hold(scenario: Scenario) {
    if let Err(violation) = World::run(scenario, None, false) {
        if number("SIM_TRACE").is_some() {
            let _ = World::run(scenario, None, true);
        }
        panic!("{violation}; {scenario:?}");
    }
}

/// Runs that one way gets: the deaths are spread evenly over its steps.
const DEATHS: u64 = 12;

/// Wherever a worker dies: the one connection that it was working on may be reset, and nothing else
/// is lost, said twice or left behind.
#[test]
fn a_worker_may_die_at_any_step() {
    let deaths = number("SIM_DEATHS").unwrap_or(DEATHS);
    for way in Way::ALL {
        let scenario = Scenario {
            way,
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
        let whole = World::run(scenario, None, false).expect("nobody dies");
        assert!(whole.steps > 300, "{way:?}: only {} steps", whole.steps);
        let stride = (whole.steps / deaths).max(1);
        for step in (1..whole.steps).step_by(stride as usize) {
            let kills = [step, u64::MAX];
            let done = World::run(Scenario { kills, ..scenario }, None, false);
            let report = done.unwrap_or_else(|why| panic!("{way:?}, death at step {step}: {why}"));
            assert_eq!(report.deaths, 1, "{way:?}, step {step}");
        }
    }
}

/// A worker that dies while it tells epoll of what it has found: epoll knows a socket of which the slot
/// says that it doesn't.
#[test]
fn a_worker_may_die_in_its_recovery() {
    for step in 1..60 {
        let scenario = Scenario {
            way: Way::Echo,
            clients: 1,
            established: 3,
            aborts: 0,
            kills: [step, u64::MAX],
            ..Scenario::calm(5)
        };
        let done = World::run(scenario, None, false);
        let report = done.unwrap_or_else(|why| panic!("death at step {step}: {why}"));
        assert_eq!(report.deaths, 1, "step {step}");
    }
}

/// The byte that says that a joint is connected must not be left out: the first byte of the backend
/// would be taken for it.
#[test]
fn a_joint_that_takes_nothing_loses_no_byte() {
    for seed in 1..=12 {
        let scenario = Scenario {
            way: Way::BackendTls,
            clients: 6,
            faults: Faults {
                joint_again: 2,
                ..Faults::default()
            },
            ..Scenario::calm(seed)
        };
        must_hold(scenario);
    }
}

/// The first violation that a broken kernel leads to.
fn found(sabotage: Sabotage, change: impl Fn(&mut Scenario)) -> Option<Violation> {
    (1..=60).find_map(|seed| {
        let mut scenario = Scenario::calm(seed);
        change(&mut scenario);
        World::run(scenario, Some(sabotage), false).err()
    })
}

#[test]
fn a_byte_that_is_lost_changed_or_repeated_is_found() {
    for sabotage in [
        Sabotage::LoseByte,
        Sabotage::ChangeByte,
        Sabotage::RepeatBytes,
    ] {
        let violation = found(sabotage, |_| {});
        println!("{sabotage:?}: {violation:?}");
        assert!(violation.is_some(), "{sabotage:?}");
    }
}

#[test]
fn an_end_that_is_forgotten_or_false_is_found() {
    let forgotten = found(Sabotage::ForgetEnd, |_| {}).expect("found");
    println!("{forgotten}");
    let is_false = found(Sabotage::EndForReset, |scenario| scenario.aborts = 2).expect("found");
    assert!(
        is_false.what.contains("the speaker has aborted"),
        "{is_false}"
    );
}

#[test]
fn a_worker_that_leaks_or_waits_for_nothing_is_found() {
    let leak = found(Sabotage::KeepDescriptor, |_| {}).expect("found");
    println!("{leak}");
    let stuck = found(Sabotage::NeverWritable, |_| {}).expect("found");
    println!("{stuck}");
}

#[test]
fn a_successor_that_goes_on_with_a_busy_connection_is_found() {
    let violation = (1..=40).find_map(|n| {
        found(Sabotage::ForgetBusy, |scenario| {
            scenario.kills = [n * 37, u64::MAX];
            scenario.clients = scenario.clients.min(2);
        })
    });
    println!("{violation:?}");
    assert!(violation.is_some());
}

/// Whoever must wait in his handshake for a limit can't know that; whoever leaves before he is accepted is
/// not waited for. (These seeds were found by a long run.)
#[test]
fn little_room_and_early_leavers() {
    for seed in 1..=40 {
        let scenario = Scenario {
            way: Way::Echo,
            clients: 8,
            at_once: 8,
            aborts: 2,
            low_limits: true,
            ..Scenario::calm(seed)
        };
        must_hold(scenario);
    }
}

/// Each option of the configuration, where everything else is quiet.
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
    ];
    for options in options {
        for seed in 1..=12 {
            let way = Scenario::of(seed).way;
            let is_possible = match (options.proxy_headers, way) {
                (ProxyHeaders::None, _) => options.warm == 0 || way == Way::Originate,
                (ProxyHeaders::FromClients, _) => way != Way::Originate,
                _ => !matches!(way, Way::Originate | Way::Echo),
            };
            if !is_possible {
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

/// Warm connections that end while the worker waits for an upgrade are replaced by the next one: the
/// worker must not look for them again and again.
#[test]
fn warm_connections_that_end_during_an_upgrade() {
    for seed in 1..=40 {
        must_hold(Scenario {
            way: Way::Originate,
            options: Options {
                warm: 2,
                ..Options::default()
            },
            command: (Command::Upgrade, 10 + seed),
            ..Scenario::calm(seed)
        });
    }
}

/// A peer that reads nothing holds up nobody but its partner.
#[test]
fn peers_that_do_not_read() {
    for deaf_us in [DEAF_US, 20 * DEAF_US] {
        for seed in 1..=24 {
            let scenario = Scenario {
                deaf_us,
                ..Scenario::calm(seed)
            };
            must_hold(scenario);
        }
    }
}

/// What `ci-bench` counts: one client after the other, each with a session of the one before.
#[test]
fn one_client_at_a_time() {
    let mut worker = CountedWorker::new(true).expect("a worker");
    for n in 0..3 {
        assert_eq!(worker.handshake(|turn| turn()), n > 0);
        worker.wake(|turn| turn());
        worker.wake(|turn| turn());
        worker.close();
    }
}
