//! Tests that the instrument is right, with servers whose costs are known.

mod common;

use common::{KnownServer, alone, clean, has_run_in_own_network, measure, measure_at, spec};
use dormouse_bench::load::TlsVersion;
use dormouse_bench::{Churn, Hold, Mode};
use dormouse_measure::{ServerSource, Verdict};

#[test]
fn ten_thousand_bytes_per_connection_are_reported_as_such() {
    let _alone = alone();
    if has_run_in_own_network("ten_thousand_bytes_per_connection_are_reported_as_such") {
        return;
    }
    let server = KnownServer::start(&[]);
    let hold = Hold {
        connections: 3_000,
        rate_per_s: 0.0,
        in_flight: 16,
        every_s: None,
        for_s: 0.5,
        echoes: 2,
        echo_rate_per_s: 0.0,
        after_s: 0.0,
    };
    let run = clean(measure(&server, Mode::Hold(hold), false));
    for name in ["memory.per_connection.pss", "memory.per_connection.slope"] {
        let bytes = run.value(name).unwrap();
        assert!((9_700.0..=10_300.0).contains(&bytes), "{name}: {bytes}");
    }
    assert_eq!(run.value("connections.alive"), Some(3_000.0));
    assert_eq!(run.value("connections.echoed.2"), Some(3_000.0));
    // The kernel's part is reported separately: two sockets each in this network.
    let sockets = run.value("kernel.sockets").unwrap();
    assert!(
        (1.8..2.6).contains(&sockets),
        "{sockets} sockets per connection"
    );
}

fn churn(connections: u64, rounds: u32, concurrency: u32) -> Mode {
    Mode::Churn(Churn {
        connections,
        concurrency,
        rounds,
        exchange: true,
        after_s: 0.0,
    })
}

#[test]
fn a_leak_is_flagged_with_its_size() {
    let _alone = alone();
    let server = KnownServer::start(&["--leak", "2000"]);
    let run = clean(measure(&server, churn(1_000, 8, 8), false));
    let growth = run.growth.unwrap();
    assert_eq!(growth.verdict, Verdict::Grows, "{growth}");
    let bytes = growth.bytes_per_connection().unwrap();
    // malloc adds to the leak, and the rest of the heap varies a little.
    assert!((1_700.0..2_400.0).contains(&bytes), "{growth}");
}

#[test]
fn a_clean_server_is_not_flagged() {
    let _alone = alone();
    let server = KnownServer::start(&[]);
    let run = clean(measure(&server, churn(600, 6, 8), false));
    let growth = run.growth.as_ref().unwrap();
    assert_ne!(growth.verdict, Verdict::Grows, "{growth}");
    assert_eq!(run.value("handshakes.resumed"), Some(0.0));
}

#[test]
fn burnt_cpu_time_is_reported_within_ten_percent() {
    let _alone = alone();
    let server = KnownServer::start(&["--burn-us", "8000"]);
    let run = clean(measure(&server, churn(150, 2, 4), false));
    let us = run.value("cpu.server.per_handshake").unwrap();
    assert!((7_200.0..=8_800.0).contains(&us), "{us} µs");
}

/// The server wastes CPU time only after a handshake that the client has completed.
#[test]
fn connections_without_an_exchange_complete_their_handshakes() {
    let _alone = alone();
    let server = KnownServer::start(&["--burn-us", "8000"]);
    for resume in [false, true] {
        let mode = Mode::Churn(Churn {
            connections: 100,
            concurrency: 4,
            rounds: 2,
            exchange: false,
            after_s: 0.0,
        });
        let mut spec = spec(&server.address, mode);
        spec.server = ServerSource::Pid(server.pid());
        if let Some(tls) = &mut spec.tls {
            tls.resume = resume;
        }
        if resume {
            // A server sends tickets of TLS 1.3 after the handshake.
            let refused = measure_at(&spec).outcome;
            assert_eq!(refused.exit_status, 2, "{refused:?}");
            if let Some(tls) = &mut spec.tls {
                tls.version = Some(TlsVersion::V12);
            }
        }
        let run = clean(measure_at(&spec));
        assert_eq!(run.value("handshakes.count"), Some(200.0));
        let resumed = if resume { 100.0 } else { 0.0 };
        assert_eq!(run.value("handshakes.resumed"), Some(resumed));
        assert!(!run.latencies.contains_key("exchange"), "{resume}");
        let us = run.value("cpu.server.per_handshake").unwrap();
        assert!(us > 6_500.0, "{us} µs");
    }
}

#[test]
fn three_of_eight_resumptions_are_reported_as_such() {
    let _alone = alone();
    let server = KnownServer::start(&["--resume-every-second"]);
    let run = clean(measure(&server, churn(24, 2, 1), true));
    // A refused ticket is used up, and a resumption replaces its ticket. So the four tickets of a full
    // handshake last for three resumptions and four refusals; then comes the next full handshake.
    assert_eq!(run.value("handshakes.resumed"), Some(37.5));
}

#[test]
fn every_resumption_is_all() {
    let _alone = alone();
    let server = KnownServer::start(&[]);
    // With very many clients, the first ones are done before the last ones begin.
    for clients in [8, 600] {
        let run = clean(measure(&server, churn(2_000, 1, clients), true));
        assert_eq!(run.value("handshakes.resumed"), Some(100.0), "{clients}");
    }
}
