//! Tests of pages of connections: what they list, and what becomes of connections that they close.

use super::closing::{end_joint, heard_by, join};
use super::*;
use crate::lifecycle::page;
use dormouse_handover::connections::{
    CLOSED_MAX, ConnectionFilter, Page, PageAction, PageOrder, PagePlace, ROWS_MAX,
};
use std::collections::BTreeSet;

fn order(filter: ConnectionFilter, action: PageAction) -> PageOrder {
    PageOrder {
        filter,
        action,
        from: PagePlace::of_worker(0),
    }
}

fn page(world: &mut World, order: &PageOrder) -> Page {
    let parts = world.worker().parts();
    page::make(order, parts.connections, parts.settings, parts.work)
}

/// All pages; `between` happens after each.
fn pages(world: &mut World, mut order: PageOrder, between: impl Fn(&mut World)) -> Vec<Page> {
    let mut all = Vec::new();
    loop {
        let page = page(world, &order);
        between(world);
        let next = page.next;
        all.push(page);
        match next {
            Some(next) => order.from = next,
            None => return all,
        }
    }
}

/// Sets since when each connection is there, in seconds before now, by its index.
fn set_ages(world: &mut World, age_s: impl Fn(u32) -> u32) {
    let parts = world.worker().parts();
    let now_s = (parts.work.io.boottime_ms() / 1000) as u32;
    parts.work.now_ms = u64::from(now_s) * 1000;
    let indices: Vec<u32> = parts.connections.slots.indices().collect();
    for index in indices {
        let slot = parts.connections.slots.at_mut(index);
        slot.opened_s = now_s.saturating_sub(age_s(index));
        slot.active_s = slot.opened_s;
    }
}

#[test]
fn pages_are_bounded_and_miss_no_connection_that_is_moved() {
    let count = 3 * ROWS_MAX + 7;
    let mut world = World::new();
    for _ in 0..count + 40 {
        world.connect();
    }
    // Places to which the connections on the next pages are moved.
    for index in 0..40 {
        world.close(index);
    }
    let all = order(ConnectionFilter::default(), PageAction::List);
    let listed = pages(&mut world, all, |world| {
        let worker = world.worker();
        for _ in 0..10 {
            let last = worker.parts().connections.slots.highest_live();
            relocate(worker, last.expect("a connection"));
        }
    });
    assert!(listed.iter().all(|page| page.rows.len() <= ROWS_MAX));
    let ids = listed.iter().flat_map(|page| &page.rows);
    let ids: BTreeSet<&String> = ids.map(|row| &row.id).collect();
    assert_eq!(ids.len(), count, "none is missed");
    let counted = pages(
        &mut world,
        order(ConnectionFilter::default(), PageAction::Count),
        |_| {},
    );
    let matched: u32 = counted.iter().map(|page| page.matched).sum();
    assert_eq!(matched as usize, count);
    assert!(counted.iter().all(|page| page.rows.is_empty()));
    world.check_all("after");
}

#[test]
fn a_page_has_the_connections_with_all_properties() {
    let mut world = World::new();
    for _ in 0..10 {
        world.connect();
    }
    set_ages(&mut world, |index| 100 * index);
    let older = |ms| ConnectionFilter {
        older_ms: Some(ms),
        ..ConnectionFilter::default()
    };
    let route = |name: &str| ConnectionFilter {
        route: Some(name.to_owned()),
        ..ConnectionFilter::default()
    };
    let client = ConnectionFilter {
        client: dormouse_config::read_network("10.0.0.0/8").ok(),
        ..ConnectionFilter::default()
    };
    let name = ConnectionFilter {
        name: Some("localhost".to_owned()),
        ..ConnectionFilter::default()
    };
    let both = ConnectionFilter {
        idle_ms: Some(800_000),
        ..route("1")
    };
    for (filter, matched, unknown) in [
        (older(500_000), 5, 0),
        (older(901_000), 0, 0),
        (route("1"), 10, 0),
        (route("2"), 0, 0),
        (both, 2, 0),
        // The sockets of this test are unix sockets.
        (client, 0, 0),
        // There is no connection log.
        (name, 0, 10),
    ] {
        let found = page(&mut world, &order(filter.clone(), PageAction::List));
        assert_eq!(
            (found.matched, found.unknown),
            (matched, unknown),
            "{filter}"
        );
        assert_eq!(found.rows.len(), matched as usize);
        assert_eq!(found.next, None);
    }
    let found = page(&mut world, &order(older(900_000), PageAction::List));
    let id = ConnectionFilter {
        id: Some(found.rows[0].id.clone()),
        ..ConnectionFilter::default()
    };
    assert_eq!((found.rows[0].age_s, found.rows[0].idle_s), (900, 900));
    assert_eq!(
        page(&mut world, &order(id, PageAction::List)).rows,
        found.rows
    );
}

#[test]
fn connections_are_counted_by_age_route_and_backend() {
    let mut world = World::new();
    for _ in 0..10 {
        world.connect();
    }
    const HOUR_S: u32 = 3_600;
    let parts = world.worker().parts();
    let now_s = 400 * 24 * HOUR_S;
    parts.work.now_ms = u64::from(now_s) * 1000;
    for index in 0..10 {
        parts.connections.slots.at_mut(index).opened_s = now_s
            - match index {
                0..4 => 60,
                4..7 => HOUR_S,
                7..9 => 24 * HOUR_S,
                _ => 7 * 24 * HOUR_S,
            };
    }
    let route = parts.connections.slots.at(0).route;
    let groups = |world: &mut World, filter| {
        let pages = pages(world, order(filter, PageAction::CountAges), |_| {});
        let ages = pages.into_iter().map(|page| (page.matched, page.ages));
        let ages: Vec<_> = ages.collect();
        let [(matched, Some(groups))] = &*ages else {
            panic!("{ages:?}");
        };
        (*matched, groups.clone())
    };
    let (matched, all) = groups(&mut world, ConnectionFilter::default());
    assert_eq!(matched, 10);
    assert_eq!(all.routes, [(route, [4, 3, 2, 1])].into());
    assert_eq!(
        all.backends.values().copied().collect::<Vec<_>>(),
        [[4, 3, 2, 1]]
    );
    let older = ConnectionFilter {
        older_ms: Some(3_600_000),
        ..ConnectionFilter::default()
    };
    let (matched, old) = groups(&mut world, older);
    assert_eq!((matched, old.routes), (6, [(route, [0, 3, 2, 1])].into()));
    let other = ConnectionFilter {
        route: Some("other".to_owned()),
        ..ConnectionFilter::default()
    };
    let (matched, none) = groups(&mut world, other);
    assert_eq!((matched, none.routes.len()), (0, 0));
}

#[test]
fn an_order_closes_a_bounded_number_and_no_others() {
    let mut world = World::new();
    let old = CLOSED_MAX + 10;
    for _ in 0..old + 5 {
        world.connect();
    }
    set_ages(&mut world, |index| if index < old { 100 } else { 0 });
    let filter = ConnectionFilter {
        older_ms: Some(50_000),
        ..ConnectionFilter::default()
    };
    let few = page(&mut world, &order(filter.clone(), PageAction::Close(3)));
    assert_eq!((few.matched, few.closed, few.ending), (3, 3, 0));
    let most = page(
        &mut world,
        &order(filter.clone(), PageAction::Close(u32::MAX)),
    );
    assert_eq!(most.closed, CLOSED_MAX);
    let rest = page(&mut world, &order(filter, PageAction::Close(u32::MAX)));
    assert_eq!(
        (rest.closed, rest.next),
        (7, None),
        "those that close do not count"
    );
    for generation in 1..=old {
        let ended = [Event::Ended(End::Closed)];
        assert_eq!(heard_by(&mut world, generation), ended, "{generation}");
        let ends = world.ends.remove(&generation).expect("its sockets");
        let end = socket::recv(ends.plain, &mut [0; 8]);
        assert_eq!(end.expect("a FIN"), Attempt::Done(0));
    }
    world.check_all("after");
}

/// The client's half does not know the other one: its own direction ends, and then the backend's.
#[test]
fn a_connection_with_tls_to_its_backend_ends_through_the_backend() {
    for follows in [true, false] {
        let mut world = World::new();
        world.connect();
        let there = join(&mut world);
        let close = order(ConnectionFilter::default(), PageAction::Close(1));
        let first = page(&mut world, &close);
        assert_eq!((first.closed, first.ending), (1, 1));
        world.run();
        assert!(heard_by(&mut world, 1).is_empty(), "the answer may follow");
        let work = world.worker().parts().work;
        let mut buffer = [0; 16];
        let received = work
            .io
            .recv_from_joint(there, &mut buffer, std::slice::from_ref(&(0..16)));
        let Ok(Attempt::Done(received)) = received else {
            panic!("the other half hears nothing");
        };
        assert!(received.is_end, "a proper end");
        if follows {
            let sent = socket::send(there, b"the last answer").expect("a writable socket");
            assert_eq!(sent, Attempt::Done(15));
            end_joint(&mut world, there);
            world.run();
            let heard = [
                Event::Data(b"the last answer".to_vec()),
                Event::Ended(End::Closed),
            ];
            assert_eq!(heard_by(&mut world, 1), heard);
        } else {
            let second = page(&mut world, &close);
            assert_eq!((second.closed, second.ending), (1, 0));
            let tls = world.ends[&1].tls;
            world.run();
            let end = socket::recv(tls, &mut buffer);
            assert!(!matches!(end, Ok(Attempt::WouldBlock)), "it has ended");
        }
        there.close();
    }
}
