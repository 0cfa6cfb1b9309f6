//! Connections that hold memory beside an honest client: it is served at once, and they cost nothing.

use dormouse_sim::{Crowd, Effort, Hog, RouteKind};
use dormouse_tables::counters::Count;

/// A worker may serve what has arrived in this many turns for each record.
const TURNS_PER_RECORD: u64 = 6;

/// Crowds that leave no memory: of pending bytes, of the kernel's, of pending bytes by records.
fn crowds() -> Vec<(&'static str, Crowd)> {
    let mut all = Vec::new();
    for route_kind in [
        RouteKind::Echo,
        RouteKind::Terminate,
        RouteKind::TerminateUnix,
    ] {
        for (kernel_bytes, hog, count) in [
            (0, Hog::ReadsNothing, 150),
            (1 << 20, Hog::ReadsNothing, 70),
            (0, Hog::EndsNoRecord, 190),
        ] {
            let mut crowd = Crowd::new(route_kind, kernel_bytes).expect("a worker");
            crowd.welcome();
            crowd.invade(hog, count);
            let what = match hog {
                Hog::ReadsNothing => "hogs that read nothing",
                Hog::EndsNoRecord => "hogs that end no record",
            };
            all.push((what, crowd));
        }
    }
    all
}

/// The honest client's records are echoed by events alone: at no time does it wait for a timer.
#[test]
fn an_honest_client_is_served_at_once() {
    for (what, mut crowd) in crowds() {
        let all = crowd.connections();
        for (records, bytes) in [(1, 100), (5, 1_000), (1, 16_000), (40, 16_000)] {
            let effort = crowd.exchange(records, bytes);
            let most = TURNS_PER_RECORD * (records as u64 + 2);
            assert!(
                effort.turns <= most,
                "{records} records of {bytes} bytes beside {what}: {effort:?}"
            );
        }
        assert_eq!(crowd.connections(), all, "nothing is closed for it");
    }
}

#[test]
fn idle_hogs_cause_no_events() {
    for (what, mut crowd) in crowds() {
        let all = crowd.connections() as u64;
        // What is under way ends.
        crowd.wait(3);
        let effort = crowd.wait(10);
        assert_eq!(effort.events, 0, "{what}: {effort:?}");
        // A check now and then, whether there is memory.
        assert!(effort.calls <= all * 60, "{all} {what}: {effort:?}");
    }
}

/// They hold what others need, and take nothing.
#[test]
fn hogs_are_closed_while_memory_is_short() {
    for (what, mut crowd) in crowds() {
        let hogs = crowd.connections() as u64 - 1;
        crowd.wait(6);
        assert_eq!(crowd.count(Count::StallTimeouts), 0, "{what}");
        crowd.wait(34);
        let closed = crowd.count(Count::StallTimeouts);
        assert!(closed > hogs / 10, "{closed} of {hogs} {what}");
        // Those that are left hold memory that nobody needs.
        let effort = crowd.exchange(40, 16_000);
        assert!(effort.turns < 200, "{what}: {effort:?}");
    }
}

/// While there is memory, a client may stop to read for any time.
#[test]
fn a_few_hogs_are_left_alone() {
    let mut crowd = Crowd::new(RouteKind::Terminate, 0).expect("a worker");
    crowd.welcome();
    crowd.invade(Hog::ReadsNothing, 5);
    crowd.wait(3);
    let Effort { events, calls, .. } = crowd.wait(3_000);
    assert_eq!((events, calls), (0, 0));
    assert_eq!(crowd.connections(), 6);
}
