//! However many connections a worker has, a turn looks at few of them and ends few, so that the others do not wait.

use super::*;
use crate::lifecycle::drain::Drain;
use dormouse_handover::control::DrainOrder;
use dormouse_reactor::slab::looks;

const COUNT: u32 = 7_000;

/// A turn may look at this many slots; a step looks at one several times.
const LOOKS: u64 = 3_000;

/// A turn may end this many connections.
const ENDS: u32 = 64;

/// Makes turns until no connection is left. Returns how many. `turn` returns when the next one is due.
fn turns_to_the_end(
    world: &mut World,
    mut turn: impl FnMut(&mut Connections, &mut Workspace<OsIo>) -> u64,
) -> u32 {
    let parts = world.worker().parts();
    let (connections, work) = (parts.connections, parts.work);
    for turns in 0..COUNT {
        let (live, looked) = (connections.live(), looks());
        if live == 0 {
            return turns;
        }
        let next_ms = turn(connections, work);
        let (ended, looked) = (live - connections.live(), looks() - looked);
        assert!(ended <= ENDS, "{ended} ended in a turn");
        assert!(looked <= LOOKS, "{looked} looks in a turn");
        work.now_ms = next_ms.max(work.now_ms);
    }
    panic!("{} connections are left", connections.live());
}

fn settings(world: &World) -> Settings {
    settings_of(vec![route(&world.tls, &sockets())])
}

/// In both orders, in time and late.
#[test]
fn a_turn_of_a_drain_is_short() {
    for (order, over_ms) in [
        (DrainOrder::Longest, 60_000),
        (DrainOrder::Shortest, 60_000),
        (DrainOrder::Longest, 1),
    ] {
        let mut world = World::new();
        let settings = settings(&world);
        let parts = world.worker().parts();
        let begun_ms = parts.work.now_ms;
        parts.connections.add_quiet(COUNT, parts.work.now_s());
        let mut drain = Drain::new(begun_ms, over_ms, order, COUNT);
        let mut last_ms = begun_ms;
        turns_to_the_end(&mut world, |connections, work| {
            drain.turn(connections, &settings, work);
            last_ms = work.now_ms;
            drain.next_deadline_ms()
        });
        assert!(last_ms <= begun_ms + over_ms + 1_000, "{order:?}");
    }
}

/// The first to be closed are those that come first, although they are looked for in many turns.
#[test]
fn a_drain_in_short_turns_keeps_its_order() {
    let mut world = World::new();
    let settings = settings(&world);
    let parts = world.worker().parts();
    let (connections, work) = (parts.connections, parts.work);
    connections.add_quiet(COUNT, 0);
    let now_s = work.now_s();
    for index in 0..COUNT {
        // A permutation.
        connections.slots.at_mut(index).active_s = now_s - index * 3 % COUNT;
    }
    let mut drain = Drain::new(work.now_ms, 1_000, DrainOrder::Longest, COUNT);
    work.now_ms += 100;
    while connections.live() == COUNT {
        drain.turn(connections, &settings, work);
    }
    let gone = |connections: &Connections| -> u32 {
        let left = connections.iter().map(|slot| now_s - slot.active_s);
        COUNT - 1 - left.max().expect("a connection")
    };
    assert_eq!(gone(connections), COUNT - connections.live());
}

/// All are overdue, and all waits for a rate limit end.
#[test]
fn a_turn_that_ends_many_waits_is_short() {
    let mut world = World::new();
    let mut settings = settings(&world);
    only_route(&mut settings).lifetime.idle_ms = Some(1_000);
    let parts = world.worker().parts();
    let (connections, work) = (parts.connections, parts.work);
    connections.add_quiet(COUNT, work.now_s());
    for index in 0..COUNT {
        let generation = connections.slots.at(index).generation;
        connections.set_timer(index, &settings, work.now_ms);
        connections.slots.at_mut(index).set(Flag::Paced);
        connections.paced.push((index, generation), work.now_ms, ());
    }
    connections.end_all_waits();
    let looked = looks();
    connections.end_waits(&settings, work);
    assert!(looks() - looked <= LOOKS, "{}", looks() - looked);
    while connections.paced() > 0 {
        connections.end_waits(&settings, work);
    }
    work.now_ms += 10_000;
    turns_to_the_end(&mut world, |connections, work| {
        connections.on_time(&settings, work);
        work.now_ms + 100
    });
}
