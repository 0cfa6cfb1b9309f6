//! Connections that hold memory beside an honest client: it is served at once, and they cost nothing.

use dormouse_sim::{Crowd, Effort, Hog, RouteKind};
use dormouse_tables::counters::Count;

/// A worker may serve what has arrived in this many turns for each record.
const TURNS_PER_RECORD: u64 = 6;

/// A unix socket does not report that it has drained, so the worker looks: after one millisecond, then two, …
const LOOK_US: u64 = 3_000;

/// Memory that a crowd leaves short.
#[derive(Clone, Copy, Debug)]
enum Scarce {
    Pending,
    Kernel,
}

/// Crowds that leave no memory but the reserves.
fn crowds() -> Vec<(String, RouteKind, Crowd)> {
    let mut all = Vec::new();
    for route_kind in [
        RouteKind::Echo,
        RouteKind::Terminate,
        RouteKind::TerminateUnix,
    ] {
        for (scarce, hog, count) in [
            (Scarce::Pending, Hog::ReadsNothing, 150),
            (Scarce::Kernel, Hog::ReadsNothing, 60),
            (Scarce::Pending, Hog::EndsNoRecord, 190),
        ] {
            let (pending, kernel) = match scarce {
                Scarce::Pending => (2 << 20, 0),
                Scarce::Kernel => (0, 4 << 20),
            };
            let mut crowd = Crowd::new(route_kind, pending, kernel).expect("a worker");
            crowd.welcome();
            crowd.invade(hog, count);
            // What is under way ends.
            crowd.wait(4);
            let what = format!("{route_kind:?}, {count} of {hog:?}, little {scarce:?} memory");
            all.push((what, route_kind, crowd));
        }
    }
    all
}

/// The honest client's records are echoed by events alone: at no time does it wait for a timer.
#[test]
fn an_honest_client_is_served_at_once() {
    for (what, route_kind, mut crowd) in crowds() {
        let all = crowd.connections();
        for (records, bytes) in [(1, 100), (5, 1_000), (1, 16_000), (40, 16_000)] {
            let effort = crowd.exchange(records, bytes);
            // The shortest timer is a millisecond.
            let (turns, us) = match route_kind {
                RouteKind::TerminateUnix => (6 * TURNS_PER_RECORD, LOOK_US * records as u64),
                _ => (TURNS_PER_RECORD, 999),
            };
            let turns = turns * (records as u64 + 2);
            assert!(
                effort.turns <= turns && effort.us <= us,
                "{records} records of {bytes} bytes: {what}: {effort:?}"
            );
        }
        assert_eq!(crowd.connections(), all, "nothing is closed for it");
    }
}

/// More of them than the reserve has room for: a record that finds none gets the room of those that have taken nothing for
/// the longest time, at least a thirtieth of `stall_timeout`. They lose no more than is needed.
#[test]
fn an_honest_client_gets_the_room_of_hogs() {
    const LIMIT: u64 = 1 << 20;
    for route_kind in [
        RouteKind::Echo,
        RouteKind::Terminate,
        RouteKind::TerminateUnix,
    ] {
        let mut crowd = Crowd::new(route_kind, 0, LIMIT).expect("a worker");
        crowd.welcome();
        crowd.invade(Hog::ReadsNothing, 80);
        let first = crowd.exchange(1, 16_000);
        assert!(first.us < 2_100_000, "{route_kind:?}: {first:?}");
        // Hogs that still waited for a record have got it by then.
        crowd.wait(5);
        let closed = crowd.count(Count::StallTimeouts);
        assert!(closed > 0, "{route_kind:?}");
        let then = crowd.exchange(40, 16_000);
        assert!(then.us <= 40 * LOOK_US, "{route_kind:?}: {then:?}");
        let more = crowd.count(Count::StallTimeouts) - closed;
        assert!(more <= 2, "{route_kind:?}: {more} more");
        crowd.wait(5);
        assert!(crowd.count(Count::KernelBytes) >= LIMIT / 4 * 3);
    }
}

#[test]
fn idle_hogs_cause_no_events() {
    for (what, _, mut crowd) in crowds() {
        let all = crowd.connections() as u64;
        let effort = crowd.wait(3);
        assert_eq!(effort.events, 0, "{what}: {effort:?}");
        // A check now and then, whether there is memory.
        assert!(effort.calls <= all * 20, "{all}: {what}: {effort:?}");
    }
}

/// They hold what others need, and take nothing.
#[test]
fn hogs_are_closed_while_memory_is_short() {
    for (what, _, mut crowd) in crowds() {
        let hogs = crowd.connections() as u64 - 1;
        crowd.wait(3);
        assert_eq!(crowd.count(Count::StallTimeouts), 0, "{what}");
        crowd.wait(57);
        let closed = crowd.count(Count::StallTimeouts);
        assert!(closed > hogs / 25, "{closed} of {hogs}: {what}");
    }
}

/// While there is memory, a client may stop to read for any time.
#[test]
fn a_few_hogs_are_left_alone() {
    let mut crowd = Crowd::new(RouteKind::Terminate, 0, 0).expect("a worker");
    crowd.welcome();
    crowd.invade(Hog::ReadsNothing, 5);
    crowd.wait(3);
    let Effort { events, .. } = crowd.wait(3_000);
    assert_eq!(events, 0);
    assert_eq!(crowd.connections(), 6);
}
