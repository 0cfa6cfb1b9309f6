//! Tests of the table of clients.

use super::*;

fn table() -> Clients {
    Clients::create(16, 7).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

const TWO: ClientLimits = ClientLimits {
    connections_max: Some(2),
    handshakes_per_minute: None,
    bytes: None,
    bytes_of_all: None,
};

fn enter(clients: &Clients, address: &str) -> Result<ClientPlace, Exceeded> {
    let place = clients.place(ip(address), TWO, 0).expect("room");
    clients.enter(place, TWO).map(|()| place)
}

#[test]
fn connections_are_counted_per_address_and_per_64() {
    let clients = table();
    for (first, same, other) in [
        ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
        ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"),
        ("::1", "::2", "1::1"),
    ] {
        let place = enter(&clients, first).unwrap();
        assert_eq!(enter(&clients, same), Ok(place));
        assert_eq!(enter(&clients, same), Err(Exceeded::Connections));
        let exceeded = clients.count_handshake(ip(same), TWO, 0);
        assert_eq!(exceeded, Err(Exceeded::Connections));
        assert!(enter(&clients, other).is_ok());
        clients.leave(place);
        assert_eq!(enter(&clients, first), Ok(place), "after one has closed");
    }
}

/// No rate is rounded up, wherever in the minute it begins.
#[test]
fn a_client_may_use_exactly_its_rate_at_once() {
    for per_minute in [1, 6, 7, 700, 7_000, 20_001, 35_000, 60_000] {
        for now_ms in [1_000_000, 1_004_999] {
            let clients = table();
            let limits = ClientLimits {
                handshakes_per_minute: Some(per_minute),
                ..ClientLimits::default()
            };
            let client = ip("192.0.2.1");
            let count = || clients.count_handshake(client, limits, now_ms);
            for _ in 0..per_minute {
                count().unwrap();
            }
            assert_eq!(count(), Err(Exceeded::Rate), "{per_minute}");
        }
    }
}

#[test]
fn two_workers_find_one_entry_for_a_new_client() {
    let clients = Clients::create(40_000, 7).unwrap();
    let places = || -> Vec<Option<ClientPlace>> {
        let addresses = (0..10_000).map(|n| IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n)));
        addresses
            .map(|address| clients.place(address, TWO, 0))
            .collect()
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(places);
        let own = places();
        assert_eq!(own, other.join().unwrap());
    });
}

#[test]
fn a_rate_is_exhausted_and_recovers() {
    let clients = table();
    let limits = ClientLimits {
        handshakes_per_minute: Some(6),
        ..ClientLimits::default()
    };
    let client = ip("192.0.2.1");
    for _ in 0..6 {
        clients.count_handshake(client, limits, 1_000_000).unwrap();
    }
    assert_eq!(
        clients.count_handshake(client, limits, 1_000_000),
        Err(Exceeded::Rate)
    );
    assert_eq!(
        clients.count_handshake(client, limits, 1_009_999),
        Err(Exceeded::Rate)
    );
    clients.count_handshake(client, limits, 1_010_000).unwrap();
    assert_eq!(
        clients.count_handshake(client, limits, 1_010_000),
        Err(Exceeded::Rate)
    );
}

/// A compromised worker sets the client's recovery to the end of time.
#[test]
fn a_forged_recovery_refuses_nobody_for_ever() {
    let clients = table();
    let limits = ClientLimits {
        handshakes_per_minute: Some(6),
        ..ClientLimits::default()
    };
    let client = ip("192.0.2.1");
    let place = clients.place(client, limits, 0).expect("room");
    clients.recovered(place).store(u64::MAX, Ordering::Relaxed);
    assert_eq!(clients.count_handshake(client, limits, 1_000_000), Ok(()));
    clients.recovered(place).store(1_060_000, Ordering::Relaxed);
    let refused = clients.count_handshake(client, limits, 1_000_000);
    assert_eq!(refused, Err(Exceeded::Rate), "as after a burst");
    assert_eq!(clients.count_handshake(client, limits, 1_010_000), Ok(()));
}

/// A compromised worker stores far times, or the latest that a sound one could, in every entry. Far times keep none of
/// them, and the others do for a minute.
#[test]
fn forged_times_keep_no_entries_for_ever() {
    let pace = Pace {
        bytes_per_s: 100_000,
        burst_bytes: 100_000,
    };
    let limits = ClientLimits {
        handshakes_per_minute: Some(6),
        bytes: Some(pace),
        ..ClientLimits::default()
    };
    let client = ip("2001:db8::1");
    let full = |recovered_ms: u64, bytes: u64| {
        let clients = table();
        for place in 1..=clients.entries {
            clients.owner(place).store(place.into(), Ordering::Relaxed);
            let recovered = clients.recovered(place);
            recovered.store(recovered_ms, Ordering::Relaxed);
            clients.pay(place, limits, bytes, 1_000);
        }
        clients
    };
    for far_ms in [61_001, u64::MAX] {
        let clients = full(far_ms, 0);
        assert!(clients.place(client, limits, 1_000).is_some(), "{far_ms}");
    }
    let clients = full(61_000, 0);
    assert_eq!(clients.place(client, limits, 1_000), None);
    assert!(clients.place(client, limits, 61_000).is_some());

    // 16 connections cannot owe more than 16 steps of 128 KiB and a burst, and a last step on top.
    let clients = full(0, 1 << 20);
    assert_eq!(clients.place(client, limits, 1_000), None);
    let clients = full(0, 1 << 40);
    assert!(clients.place(client, limits, 1_000).is_some());
}

#[test]
fn ipv4_clients_of_a_translator_are_not_one_client() {
    for (first, second) in [
        ("64:ff9b::192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("64:ff9b::1:0:0", "64:ff9b::2:0:0"),
        ("64:ff9b:1::1", "64:ff9b:1::2"),
    ] {
        assert_eq!(key(ip(first)), key(ip(second)), "{first}");
    }
    assert_ne!(key(ip("64:ff9b::192.0.2.1")), key(ip("64:ff9b::192.0.2.2")));
    assert_ne!(key(ip("64:ff9b::1:0:1")), key(ip("64:ff9b::0.0.0.1")));
}

/// With more addresses than entries, no client is refused for it, the table does not grow, and
/// entries become free when their connections have closed.
#[test]
fn a_full_table_refuses_no_client() {
    let clients = table();
    let address = |n: u32| IpAddr::V4(n.into());
    let places: Vec<Option<ClientPlace>> = (0..20_000)
        .map(|n| clients.place(address(n), TWO, 0))
        .inspect(|place| {
            if let Some(place) = *place {
                clients.enter(place, TWO).unwrap();
            }
        })
        .collect();
    assert_eq!(places.iter().flatten().count(), clients.entries as usize);
    assert_eq!(clients.count_handshake(address(19_999), TWO, 0), Ok(()));
    for place in places.into_iter().flatten() {
        clients.leave(place);
    }
    assert!(clients.place(address(30_000), TWO, 0).is_some());
}

/// A count never goes below zero, and an invalid place is ignored.
#[test]
fn leaving_too_often_is_harmless() {
    let clients = table();
    let place = enter(&clients, "192.0.2.1").unwrap();
    for place in [place, place, 0, u32::MAX] {
        clients.leave(place);
    }
    assert_eq!(clients.count(place).load(Ordering::Relaxed), 0);
    assert_eq!(enter(&clients, "192.0.2.1"), Ok(place));
}

/// Bytes are charged per address, over all workers. A debt outlives the connection, and its entry is
/// not reused before the debt is paid.
#[test]
fn bytes_are_charged_per_address() {
    let pace = Pace {
        bytes_per_s: 1_000,
        burst_bytes: 1_000,
    };
    let limits = ClientLimits {
        bytes: Some(pace),
        bytes_of_all: Some(Pace {
            bytes_per_s: 10_000,
            ..pace
        }),
        ..ClientLimits::default()
    };
    let clients = table();
    let other = Clients::adopt(clients.fd(), 16).unwrap();
    let place = |address| clients.place(ip(address), limits, 0).unwrap();
    let (one, two) = (place("2001:db8::1"), place("192.0.2.1"));
    assert_eq!(clients.pay(one, limits, 1_000, 0), 0);
    assert_eq!(other.pay(one, limits, 500, 0), 500);
    assert_eq!(other.pay(two, limits, 1_000, 0), 0, "another client");
    assert_eq!(clients.pay(0, limits, 1 << 40, 0), 0, "without an entry");
    assert_eq!(clients.pay_for_all(limits, 2_000, 0), 100);
    assert_eq!(place("2001:db8::9"), one, "the same network");
    // Other clients take all free entries.
    let all = (0..20_000)
        .filter_map(|n| clients.place(IpAddr::V4(Ipv4Addr::from_bits(n)), limits, 1_499));
    assert!(all.into_iter().all(|taken| taken != one));
    let mut all = (0..20_000)
        .filter_map(|n| clients.place(IpAddr::V4(Ipv4Addr::from_bits(n)), limits, 1_500));
    assert!(all.any(|taken| taken == one), "the debt is paid");
    clients.fd().close();
}

#[test]
fn workers_share_one_table() {
    let clients = table();
    let other = Clients::adopt(clients.fd(), 16).unwrap();
    let place = enter(&clients, "192.0.2.1");
    assert_eq!(enter(&other, "192.0.2.1"), place);
    assert_eq!(enter(&clients, "192.0.2.1"), Err(Exceeded::Connections));
    clients.fd().close();
}

/// Most of the table of a program with few clients was never touched.
#[test]
fn clearing_allocates_nothing() {
    use std::os::unix::fs::MetadataExt as _;
    let clients = Clients::create(100_000, 7).unwrap();
    let limits = ClientLimits::default();
    let places = ["192.0.2.1", "192.0.2.2"].map(|one| clients.place(ip(one), limits, 1).unwrap());
    for place in places {
        clients.enter(place, limits).unwrap();
    }
    let file = format!("/proc/self/fd/{}", clients.fd().0);
    let blocks = || std::fs::metadata(&file).unwrap().blocks();
    let before = blocks();
    clients.clear();
    assert_eq!(blocks(), before);
    for place in places {
        assert_eq!(clients.count(place).load(Ordering::Relaxed), 0);
    }
    clients.fd().close();
}

/// A worker is gone for good: the others count again, and no entry changes its client meanwhile.
#[test]
fn connections_of_a_lost_worker_are_forgotten() {
    let main = table();
    let mut worker = Clients::adopt(main.fd(), 16).unwrap();
    let limits = ClientLimits {
        connections_max: Some(3),
        ..ClientLimits::default()
    };
    let place = worker.place(ip("192.0.2.1"), limits, 1).unwrap();
    // Two of the lost worker, then one of this one.
    for _ in 0..3 {
        main.enter(place, limits).unwrap();
    }
    assert!(worker.enter(place, limits).is_err());
    main.freeze(1);
    worker.uncount();
    // Those that come and go meanwhile are not counted.
    assert!(
        worker.enter(place, limits).is_err(),
        "a client at its limit"
    );
    worker.leave(place);
    assert!(worker.enter(place, limits).is_err(), "counted");
    let former: Vec<_> = (0..=255)
        .filter_map(|n| main.place(ip(&format!("198.51.100.{n}")), limits, 2))
        .filter(|&other| other == place)
        .collect();
    assert!(former.is_empty(), "the entry was given away");
    main.clear();
    worker.count_again([0, place].into_iter());
    worker.count_again([0, place].into_iter());
    for _ in 0..2 {
        worker.enter(place, limits).unwrap();
    }
    assert!(worker.enter(place, limits).is_err());
}
