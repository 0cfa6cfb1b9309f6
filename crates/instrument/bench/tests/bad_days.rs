//! Failures during a run: each gives a clear message, the figures so far, and a status that is not
//! 0.

mod common;

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{KnownServer, Silent, measure, measure_at, spec};
use dormouse_bench::load::{Cycle, Fleet, Order, Plan, Setup, Tally, Tls, Trust};
use dormouse_bench::{Bulk, Console, Hold, Mode, Progress};
use dormouse_measure::{Server, ServerSource};

fn hold(connections: u64, for_s: f64) -> Mode {
    Mode::Hold(Hold {
        connections,
        rate_per_s: 0.0,
        in_flight: 16,
        every_s: None,
        for_s,
        echoes: 0,
        echo_rate_per_s: 0.0,
        after_s: 0.0,
    })
}

#[test]
fn nobody_listens() {
    let _alone = common::alone();
    // A port that was free a moment ago may be in use now; no program listens on port 1.
    let run = measure_at(&spec("127.0.0.1:1", hold(10, 0.0)));
    assert_eq!(run.outcome.exit_status, 3, "{:?}", run.outcome);
    assert!(run.outcome.message.unwrap().contains("refused"));
}

#[test]
fn the_server_says_nothing() {
    let _alone = common::alone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut spec = spec(&listener.local_addr().unwrap().to_string(), hold(10, 0.0));
    spec.timeout = Duration::from_millis(500);
    let run = measure_at(&spec);
    assert_eq!(run.outcome.exit_status, 3, "{:?}", run.outcome);
    assert!(run.outcome.message.unwrap().contains("stopped answering"));
}

#[test]
fn the_server_speaks_something_else() {
    let _alone = common::alone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        use std::io::Write;
        for stream in listener.incoming().flatten() {
            let _ = (&stream).write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n");
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    let run = measure_at(&spec(&target, hold(10, 0.0)));
    assert_eq!(run.outcome.exit_status, 3, "{:?}", run.outcome);
    assert!(run.outcome.message.unwrap().contains("handshake"));
}

#[test]
fn the_certificate_is_not_trusted() {
    let _alone = common::alone();
    let server = KnownServer::start(&[]);
    let mut spec = spec(&server.address, hold(10, 0.0));
    if let Some(tls) = &mut spec.tls {
        tls.trust = Trust::System;
        tls.server_name = "localhost".into();
    }
    let run = measure_at(&spec);
    assert_eq!(run.outcome.exit_status, 3, "{:?}", run.outcome);
    let message = run.outcome.message.unwrap();
    assert!(message.contains("certificate"), "{message}");
}

/// Does something to the server when a part of the run begins.
struct At<F: FnMut()> {
    stage: &'static str,
    then: F,
}

impl<F: FnMut()> Console for At<F> {
    fn stage(&mut self, name: &str, _total: Option<u64>) {
        if name == self.stage {
            (self.then)();
        }
    }
    fn progress(&mut self, _at: &Progress) {}
    fn stage_over(&mut self) {}
}

fn signal(pid: i32, signal: &str) {
    let kill = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(kill.unwrap().success());
}

#[test]
fn the_server_dies_while_it_is_measured() {
    let _alone = common::alone();
    let server = KnownServer::start(&[]);
    let pid = server.pid();
    let mut spec = spec(&server.address, hold(200, 30.0));
    spec.server = ServerSource::Pid(pid);
    let mut console = At {
        stage: "holding",
        then: || signal(pid, "-KILL"),
    };
    let run = dormouse_bench::run(&spec, &common::launcher(), &mut console);
    assert_eq!(run.outcome.exit_status, 3, "{:?}", run.outcome);
    assert!(run.outcome.message.as_deref().unwrap().contains("died"));
    assert_eq!(run.value("connections.alive"), Some(200.0));
    assert!(
        run.value("memory.at_n.pss").is_some(),
        "the figures so far are there"
    );
}

#[test]
fn the_server_stops_answering_in_the_middle() {
    let _alone = common::alone();
    let server = KnownServer::start(&[]);
    let pid = server.pid();
    let mut mode = hold(50, 0.0);
    if let Mode::Hold(hold) = &mut mode {
        hold.echoes = 2;
    }
    let mut spec = spec(&server.address, mode);
    spec.server = ServerSource::Pid(pid);
    spec.timeout = Duration::from_secs(6);
    let mut console = At {
        stage: "echo 2",
        then: || signal(pid, "-STOP"),
    };
    let run = dormouse_bench::run(&spec, &common::launcher(), &mut console);
    assert_eq!(run.outcome.exit_status, 1, "{:?}", run.outcome);
    let (reason, count) = run.failures.first_key_value().unwrap();
    assert!(reason.contains("stopped answering"), "{reason}");
    // All connections, except those that a busy machine was too slow for before.
    assert_eq!(
        run.value("connections.lost"),
        Some(*count as f64),
        "{run:?}"
    );
    assert_eq!(run.value("connections.echoed.2"), Some(0.0));
    assert!(run.value("connections.echoed.1") > Some(0.0), "{run:?}");
}

#[test]
fn the_server_resets_all_connections() {
    let _alone = common::alone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Closing a socket with unread bytes resets the connection.
            let _ = stream.peek(&mut [0]);
        }
    });
    let run = measure_at(&spec(&target, hold(10, 0.0)));
    assert_eq!(run.outcome.exit_status, 3, "{:?}", run.outcome);
    let message = run.outcome.message.unwrap();
    assert!(message.contains("reset"), "{message}");
}

#[test]
fn no_such_process() {
    let _alone = common::alone();
    let mut spec = spec("127.0.0.1:1", hold(10, 0.0));
    spec.server = ServerSource::Pid(i32::MAX);
    let run = dormouse_bench::run(&spec, &common::launcher(), &mut Silent);
    assert_eq!(run.outcome.exit_status, 3, "{:?}", run.outcome);
    assert!(run.outcome.message.unwrap().contains("no process"));
}

/// The figures of a process that serves nothing would meet every limit.
#[test]
fn the_process_of_another_server() {
    let _alone = common::alone();
    let (server, other) = (KnownServer::start(&[]), KnownServer::start(&[]));
    let mut spec = spec(&server.address, hold(10, 0.0));
    spec.server = ServerSource::Pid(other.pid());
    let run = measure_at(&spec);
    assert_eq!(run.outcome.exit_status, 2, "{:?}", run.outcome);
    let message = run.outcome.message.unwrap();
    assert!(message.contains("do not listen"), "{message}");
}

#[test]
fn a_server_that_does_not_start_is_quoted() {
    let _alone = common::alone();
    let mut spec = spec("127.0.0.1:1", hold(10, 0.0));
    spec.server = ServerSource::Command("echo 'cannot find my hat' >&2; exit 7".into());
    let run = measure_at(&spec);
    assert_eq!(run.outcome.exit_status, 3, "{:?}", run.outcome);
    assert!(run.outcome.message.unwrap().contains("cannot find my hat"));
}

#[test]
fn a_started_server_is_stopped_with_all_its_processes() {
    let _alone = common::alone();
    // An address that no other test uses: the port stays free until the server takes it.
    let port = TcpListener::bind("127.83.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mark = format!("86400.{port}");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (ready, asked) = (path("ready"), path("asked"));
    let daemon = format!(
        "import signal; signal.signal(signal.SIGTERM, lambda *_: exit(print(file=open('{asked}', 'w')))); \
         open('{ready}', 'w'); signal.pause()"
    );
    let listener = format!(
        "import os, socket, time\nwhile not os.path.exists('{ready}'): time.sleep(.01)\n\
         s = socket.create_server(('127.83.0.1', {port})); time.sleep(600)"
    );
    let mut spec = spec(&format!("127.83.0.1:{port}"), hold(1, 0.0));
    // Daemons that detach, and a listener without TLS.
    spec.server = ServerSource::Command(format!(
        "setsid sleep {mark} & setsid python3 -c \"{daemon}\" {mark} & python3 -c \"{listener}\""
    ));
    spec.timeout = Duration::from_millis(300);
    let run = measure_at(&spec);
    assert_eq!(run.outcome.exit_status, 3, "{:?}", run.outcome);
    assert!(
        run.server.iter().any(|process| process.command == "sleep"),
        "{:?}, {:?}",
        run.server,
        run.outcome
    );
    let left = std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(&mark)
    });
    assert!(!left, "a daemon still runs");
    // A started process must receive signals, whatever signals this process blocks.
    assert!(
        Path::new(&asked).exists(),
        "the process was killed without a signal to stop"
    );
}

/// An audit starts the server once, and measures it in several sessions. A server that detaches is no descendant of the
/// process that was started, which has exited.
#[test]
fn a_daemon_is_measured_again() {
    let _alone = common::alone();
    let free = TcpListener::bind("127.84.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let listener = format!(
        "import socket, time; s = socket.create_server(('127.84.0.1', {port})); time.sleep(600)"
    );
    let source = ServerSource::Command(format!(
        "setsid python3 -c \"{listener}\" >/dev/null 2>&1 &"
    ));
    let target = format!("127.84.0.1:{port}").parse().unwrap();
    let open = |source: &ServerSource| Server::open(source, &target, &mut || true);
    let server = open(&source).unwrap().unwrap();
    let started = server.tree.root();
    while server.tree.pids().unwrap().contains(&started) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let again = open(&ServerSource::Tree(server.tree.clone())).unwrap();
    assert_eq!(again.unwrap().sample().unwrap().processes, 1);
    assert!(open(&ServerSource::Pid(started)).is_err());
}

#[test]
fn a_stream_without_end_is_stopped() {
    let _alone = common::alone();
    // Without TLS, so that bytes flow without a pause on any machine.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut fleet = for_one_connection(&listener, None);
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let _ = std::io::copy(&mut &stream, &mut &stream);
    });
    let streams = Order::Cycle(Cycle {
        connections: 1,
        lanes: 1,
        exchanges: Some(1),
        exchanges_max: 0,
        bytes_heard_max: 0,
        bulk_bytes: 1 << 50,
        for_ms: 0,
    });
    let until_bytes_flow = &mut |tally: &Tally| tally.bytes_heard == 0;
    let report = fleet
        .carry_out(&streams, Duration::from_secs(15), until_bytes_flow)
        .expect("the bytes so far");
    assert!(report.of.tally.bytes_heard > 0, "{report:?}");
    assert_eq!(fleet.alive(), 0, "{report:?}");
}

/// A server at its limit leaves the last connections without an answer, and no more are to be opened meanwhile.
#[test]
fn a_generator_without_work_sleeps() {
    let _alone = common::alone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tls = spec("127.0.0.1:1", hold(1, 0.0)).tls;
    let mut fleet = for_one_connection(&listener, tls);
    let before = fleet.cpu().total_ns;
    let order = Order::Open {
        alive: 1,
        per_s: 0.0,
        in_flight_max: 16,
    };
    let began = Instant::now();
    let for_a_while = &mut |_: &Tally| began.elapsed() < Duration::from_secs(1);
    let report = fleet.carry_out(&order, Duration::from_secs(15), for_a_while);
    assert_eq!(report.unwrap().of.tally.alive, 0);
    let used = Duration::from_nanos(fleet.cpu().total_ns - before);
    assert!(used < Duration::from_millis(200), "{used:?}");
}

/// Recorded: audit ordered one connection beside as many as it held, and waited for it without an end.
#[test]
fn an_order_without_room_is_refused() {
    let _alone = common::alone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut fleet = for_one_connection(&listener, None);
    let mut orders = [
        Order::Open {
            alive: 1,
            per_s: 0.0,
            in_flight_max: 1,
        },
        Order::Cycle(Cycle::once(1, 1)),
    ]
    .into_iter();
    let mut carry_out = || {
        let order = orders.next().unwrap();
        let in_time = &mut |_: &Tally| true;
        let harvest = fleet.carry_out(&order, Duration::from_secs(15), in_time);
        harvest.expect("an end of the order").of
    };
    let opened = carry_out();
    assert_eq!((opened.tally.alive, opened.gave_up), (1, None));
    let refused = carry_out().gave_up.expect("a refusal");
    assert!(refused.contains("1 connections are open"), "{refused}");
}

/// Starts a generator of at most one connection.
fn for_one_connection(listener: &TcpListener, tls: Option<Tls>) -> Fleet {
    let spec = spec(&listener.local_addr().unwrap().to_string(), hold(1, 0.0));
    let setup = Setup {
        target: spec.target.clone(),
        tls,
        talk: spec.talk.clone(),
        connections_max: 1,
        sources: Vec::new(),
        timeout_ms: 30_000,
        index: 0,
    };
    let plan = Plan {
        generators: 1,
        connections_each: 1,
        notes: Vec::new(),
    };
    let target = spec.target.parse().unwrap();
    Fleet::start(&common::launcher(), &setup, &plan, &target).unwrap()
}

#[test]
fn streams_are_checked_byte_by_byte() {
    let _alone = common::alone();
    let server = KnownServer::start(&[]);
    let run = measure(
        &server,
        Mode::Bulk(Bulk {
            streams: 2,
            bytes: 300_000,
        }),
        false,
    );
    assert_eq!(
        run.value("bytes.heard"),
        Some(600_000.0),
        "{:?}",
        run.outcome
    );
}
