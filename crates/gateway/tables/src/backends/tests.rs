use super::*;
use crate::hash;
use crate::retired_places::RetiredPlaces;
use std::collections::HashSet;

#[test]
fn an_address_keeps_its_place_in_every_worker() {
    let table = Backends::create(2).unwrap();
    let first = Backends::adopt(table.fds(), 2, 0).unwrap();
    let second = Backends::adopt(table.fds(), 2, 1).unwrap();
    assert_eq!(first.place("10.0.0.1:80"), 0, "only main adds a backend");
    let a = table.place("10.0.0.1:80");
    let b = table.place("10.0.0.2:80");
    assert!(a != b && a != 0 && b != 0);
    assert_eq!(
        [&first, &second].map(|one| one.place("10.0.0.2:80")),
        [b, b]
    );
    first.enter(a);
    second.enter(a);
    second.enter(b);
    assert_eq!((table.load(a), table.load(b)), (2, 1));
    // The second worker dies; its successor finds one connection, to a.
    second.recount([a].into_iter());
    assert_eq!((table.load(a), table.load(b)), (2, 0));
    first.leave(a);
    first.leave(a);
    assert_eq!(table.load(a), 1, "a worker changes only its own count");
    table.fds().close();
}

/// When the pause of a failed backend is over, one connection probes it, and the others use other
/// backends until the probe has a result.
#[test]
fn one_connection_probes_after_a_pause() {
    let table = Backends::create(1).unwrap();
    let place = table.place("10.0.0.1:80");
    assert_eq!(table.failed(place, 1, 1_000, 5_000), HealthChange::Down);
    assert!(table.try_again(place, 1_000, 5_500), "during the pause");
    assert!(!table.is_up(place, 5_999) && table.is_up(place, 6_000));
    assert!(table.try_again(place, 1_000, 6_000));
    assert!(!table.is_up(place, 6_999), "being probed");
    assert_eq!(table.failed(place, 1, 1_000, 6_500), HealthChange::None);
    assert!(!table.is_up(place, 7_499) && table.is_up(place, 7_500));
    assert!(table.try_again(place, 1_000, 7_500));
    assert_eq!(table.succeeded(place, 7_600), HealthChange::Up);
    assert!(table.is_up(place, 7_600));
    // A healthy backend is used by all connections.
    assert!(table.try_again(place, 1_000, 7_700));
    assert!(table.is_up(place, 7_700));
    table.fds().close();
}

#[test]
fn a_full_table_returns_no_place() {
    let table = Backends::create(1).unwrap();
    let places: Vec<BackendPlace> = (0..PLACES + 5)
        .map(|n| table.place(&format!("10.0.0.1:{n}")))
        .collect();
    assert_eq!(places.iter().filter(|&&place| place == 0).count(), 5);
    table.fds().close();
}

#[test]
fn frees_only_places_without_configuration_and_connections() {
    let table = Backends::create(2).unwrap();
    let names: Vec<String> = (0..PLACES).map(|n| format!("10.0.0.1:{n}")).collect();
    let places: Vec<BackendPlace> = names.iter().map(|name| table.place(name)).collect();
    table.enter(places[7]);
    table.failed(places[8], 1, 1000, 10);
    table.set_checked(places[8], CheckedHealth::Down, 10);
    let named: HashSet<u64> = names[100..]
        .iter()
        .map(|name| hash::of_text(name))
        .collect();
    let mut main = RetiredPlaces::default();
    assert!(main.sweep(&table, &named, 1_000).is_empty(), "too soon");
    assert!(main.any_retired());
    assert!(main.sweep(&table, &named, 60_999).is_empty());
    assert_eq!(
        main.sweep(&table, &named, 61_000).len(),
        99,
        "all but the one with a connection"
    );
    for (name, &place) in names.iter().zip(&places).skip(100) {
        assert_eq!(table.place(name), place, "also after freed places");
    }
    table.leave(places[7]);
    let freed = main.sweep(&table, &named, 100_000);
    assert!(freed.is_empty(), "its connection has just ended");
    assert_eq!(main.sweep(&table, &named, 160_999), [places[7]]);
    assert!(!main.any_retired());
    let new: Vec<BackendPlace> = (0..100).map(|n| table.place(&format!("b{n}"))).collect();
    assert!(
        new.iter()
            .all(|&place| place != 0 && table.is_up(place, 10))
    );
    assert_eq!(table.place("one more"), 0);
    table.fds().close();
}

#[test]
fn checks_and_connections_both_mark_a_backend_down() {
    let table = Backends::create(1).unwrap();
    let place = table.place("a");
    table.failed(place, 1, 1_000, 10);
    table.set_checked(place, CheckedHealth::Down, 20);
    assert!(!table.is_up(place, 5_000), "until a check succeeds");
    table.set_checked(place, CheckedHealth::Up, 6_000);
    assert!(table.is_up(place, 6_000), "the pause has ended, too");
    assert_eq!(table.up_since_ms(place), 6_000);
    table.failed(place, 1, 1_000, 6_000);
    assert!(!table.is_up(place, 6_500), "a failed connect counts, too");
    table.set_checked(place, CheckedHealth::Up, 6_600);
    assert!(
        !table.is_up(place, 6_600),
        "the check's result did not change"
    );
    table.fds().close();
}

#[test]
fn failures_in_a_row_mark_a_backend_down_and_a_success_marks_it_up() {
    let table = Backends::create(1).unwrap();
    let place = table.place("a");
    assert_eq!(table.failed(place, 3, 1000, 10), HealthChange::None);
    assert_eq!(
        table.succeeded(place, 10),
        HealthChange::None,
        "the count starts again"
    );
    assert_eq!(table.failed(place, 3, 1000, 10), HealthChange::None);
    assert_eq!(table.failed(place, 3, 1000, 10), HealthChange::None);
    assert!(table.is_up(place, 10));
    assert_eq!(table.failed(place, 3, 1000, 10), HealthChange::Down);
    assert!(!table.is_up(place, 1009));
    assert!(table.is_up(place, 1010), "the pause is over");
    assert!(!table.works(place, 1010), "nothing has succeeded since");
    assert_eq!(
        table.failed(place, 3, 1000, 1010),
        HealthChange::None,
        "reported once"
    );
    assert!(!table.is_up(place, 1011));
    assert_eq!(table.succeeded(place, 3000), HealthChange::Up);
    assert!(table.works(place, 3000));
    assert_eq!(table.up_since_ms(place), 3000);
    table.fds().close();
}

/// A compromised worker fills the marks with these bytes and ends. What it wrote hides no backend from the others.
#[test]
fn forged_marks_do_not_last() {
    let table = Backends::create(3).unwrap();
    let places: Vec<BackendPlace> = (0..4).map(|n| table.place(&format!("b{n}"))).collect();
    let [first, second] = [1, 2].map(|n| Backends::adopt(table.fds(), 3, n).unwrap());
    first.enter(places[0]);
    table.set_checked(places[1], CheckedHealth::Down, 10);
    let (forged, now_ms) = (u64::MAX, 1_000_000);
    let words = || (0..len(3) / 8).filter_map(|n| table.marks.word(8 * n));
    words().for_each(|word| word.store(forged, Ordering::Relaxed));
    for (n, &place) in places.iter().enumerate() {
        assert_eq!(
            table.place(&format!("b{n}")),
            place,
            "places are not in the marks"
        );
        assert_eq!(
            second.is_up(place, now_ms),
            n != 1,
            "{n}: results of checks"
        );
        assert_eq!(second.works(place, now_ms), n != 1, "{n}: as it is shown");
    }
    // The successor of the compromised worker, and connections to another backend at each other worker.
    Backends::adopt(table.fds(), 3, 0)
        .unwrap()
        .recount([].into_iter());
    let entered = PLACES / STATED_AT_ONCE;
    for worker in [&first, &second] {
        (0..entered).for_each(|_| worker.enter(places[3]));
    }
    let loads: Vec<u64> = places.iter().map(|&place| second.load(place)).collect();
    assert_eq!(loads, [1, 0, 0, 2 * entered as u64]);
    // The longest pause that counts.
    table
        .word(places[2], 0)
        .store(now_ms + PAUSE_MAX_MS, Ordering::Relaxed);
    assert!(!first.is_up(places[2], now_ms) && first.is_up(places[2], now_ms + PAUSE_MAX_MS));
    table.fds().close();
}
