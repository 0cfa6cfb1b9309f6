//! Tests of connections while pending memory is short.

use super::*;
use crate::memory::allowance::OPENING;
use crate::memory::holders::{Held, Waiting};
use dormouse_handover::slot::TimerPurpose;
use dormouse_record::{CONTENT_MAX, SealKey, record_room, seal_record};

/// Takes pending memory until at most `left` bytes are left.
fn take_memory(world: &mut World, left: usize) -> Vec<Handle> {
    let pending = &mut world.worker().parts().work.pending;
    let mut taken = Vec::new();
    while pending.bytes_max() - pending.bytes_in_use() > left {
        let handle = pending.alloc(30_000, u32::MAX);
        let handle = handle.or_else(|| pending.alloc(100, u32::MAX));
        taken.push(handle.expect("memory"));
    }
    taken
}

/// The send queues of a predecessor's connections are measured before their sockets are verified.
#[test]
fn a_slot_whose_sockets_are_others_holds_no_memory() {
    let mut world = World::new();
    world.connect();
    let slots = &mut world.worker().parts().connections.slots;
    slots.get_mut(0).expect("a slot").tls_cookie ^= 1;
    world.start_worker();
    let parts = world.worker().parts();
    let (connections, work) = (parts.connections, parts.work);
    let tls = Waiting {
        queue: 1 << 20,
        ..Waiting::default()
    };
    let held = Held {
        tls,
        ..Held::default()
    };
    work.kernel.note((0, 0), held, 0);
    let freed_before = connections.freed();
    connections.verify_some(work);
    assert_eq!((connections.live(), connections.at_rest()), (0, 0));
    assert_eq!(work.kernel.sum(), 0);
    assert_eq!(connections.freed(), freed_before + 1);
}

/// The client sends these bytes through a short queue. Returns what the backend receives.
fn upload(world: &mut World, bytes: &[u8], until: usize) -> Vec<u8> {
    let (tls, plain) = (world.ends[&1].tls, world.ends[&1].plain);
    let (mut sent, mut received) = (0, Vec::new());
    for _ in 0..5_000 {
        if let Ok(Attempt::Done(n)) = socket::send(tls, &bytes[sent..]) {
            sent += n;
        }
        world.run();
        let mut piece = [0; CONTENT_MAX];
        if let Ok(Attempt::Done(n)) = socket::recv(plain, &mut piece) {
            received.extend_from_slice(&piece[..n]);
        }
        if sent == bytes.len() && received.len() >= until {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    received
}

/// A connection whose client sends through the shortest queue, and a long record of this client.
fn with_long_record(world: &mut World) -> (Vec<u8>, Vec<u8>) {
    world.connect();
    let ends = world.ends.get_mut(&1).expect("the connection's sockets");
    socket::set_send_buffer(ends.tls, 1).expect("a socket");
    let content: Vec<u8> = (0..CONTENT_MAX).map(|n| n as u8).collect();
    (ends.client.seal(&content), content)
}

/// Clients send full records, which a short receive queue never holds. They must not wait until others free their memory.
#[test]
fn a_record_longer_than_the_receive_queue_is_read() {
    let mut world = World::new();
    let (client, here) = tcp();
    let here = Fd::from_owned(here.into());
    here.set_nonblocking().expect("a socket");
    world.connect_over(client, here);
    let content: Vec<u8> = (0..CONTENT_MAX).map(|n| n as u8).collect();
    let ends = world.ends.get_mut(&1).expect("the connection's sockets");
    let record = ends.client.seal(&content);
    take_memory(&mut world, 128 << 10);
    let work = world.worker().parts().work;
    assert!(matches!(
        work.allowance(0, Fd::NONE),
        Allowance::Lean { room: 0, .. }
    ));
    assert_eq!(upload(&mut world, &record, content.len()), content);
    // The last part of the reserve is kept.
    take_memory(&mut world, 64 << 10);
    assert!(!world.worker().parts().work.may_store_part(0, true));
}

/// Its chunk has room for all of it.
#[test]
fn a_record_that_began_before_memory_was_short_is_completed() {
    let mut world = World::new();
    let (record, content) = with_long_record(&mut world);
    let (begun, rest) = record.split_at(6_000);
    upload(&mut world, begun, 0);
    let slots = &world.worker().parts().connections.slots;
    let partial_len = slots.get(0).expect("a slot").partial_len;
    assert!(partial_len > 0);
    take_memory(&mut world, 0);
    assert_eq!(upload(&mut world, rest, content.len()), content);
}

/// Memory is short, and a record may still be stored in the reserve.
const SHORT: usize = 128 << 10;

fn slot(world: &mut World) -> &Slot {
    let slots = &world.worker().parts().connections.slots;
    slots.get(0).expect("a slot")
}

/// Sends from the client, and returns what the backend has received when nothing is ready any more.
fn pass(world: &mut World, bytes: &[u8]) -> Vec<u8> {
    let (tls, plain) = (world.ends[&1].tls, world.ends[&1].plain);
    let sent = socket::send(tls, bytes).expect("a writable socket");
    assert_eq!(sent, Attempt::Done(bytes.len()));
    world.run();
    let mut received = vec![0; CONTENT_MAX];
    let n = match socket::recv(plain, &mut received) {
        Ok(Attempt::Done(n)) => n,
        _ => 0,
    };
    received.truncate(n);
    received
}

/// Number of events that the poller reports.
fn events(world: &mut World) -> usize {
    let mut events = poller::Events::with_capacity(8);
    let io = &world.worker().parts().work.io;
    io.wait(&mut events, Some(0)).expect("a poll");
    events.len()
}

/// After each record the socket is empty. An empty socket is no part of a record, for whose rest the connection waits.
#[test]
fn records_are_read_when_they_arrive() {
    let mut world = World::new();
    world.connect();
    take_memory(&mut world, SHORT);
    for n in 0..20 {
        let content = vec![n; 1_000];
        let ends = world.ends.get_mut(&1).expect("the connection's sockets");
        let record = ends.client.seal(&content);
        assert_eq!(pass(&mut world, &record), content);
        assert!(!slot(&mut world).is_starved());
    }
}

/// The rest is read when it arrives, and until then nothing is reported.
#[test]
fn a_part_of_a_record_waits_for_the_rest() {
    let mut world = World::new();
    world.connect();
    take_memory(&mut world, SHORT);
    let content = vec![7; 10_000];
    for at in [3, 5, 6_000] {
        let ends = world.ends.get_mut(&1).expect("the connection's sockets");
        let record = ends.client.seal(&content);
        let (begun, rest) = record.split_at(at);
        assert!(pass(&mut world, begun).is_empty());
        assert!(slot(&mut world).has(Flag::AwaitsRecord));
        assert_eq!(
            slot(&mut world).timer_purpose(),
            TimerPurpose::PartialRecord
        );
        assert_eq!(events(&mut world), 0, "after {at} bytes");
        assert_eq!(pass(&mut world, rest), content);
        assert!(!slot(&mut world).is_starved());
        assert_eq!(slot(&mut world).timer_purpose(), TimerPurpose::Idle);
    }
}

/// A part of a record that arrived while memory was short is read when it isn't any more.
#[test]
fn a_part_of_a_record_is_read_when_there_is_memory() {
    let mut world = World::new();
    world.connect();
    let taken = take_memory(&mut world, SHORT);
    let ends = world.ends.get_mut(&1).expect("the connection's sockets");
    let record = ends.client.seal(&[7; 10_000]);
    pass(&mut world, &record[..6_000]);
    let parts = world.worker().parts();
    for handle in taken {
        assert!(parts.work.pending.free(handle));
    }
    parts.work.now_ms += 64;
    parts.connections.on_time(parts.settings, parts.work);
    world.run();
    assert_eq!(slot(&mut world).partial_len, 6_000);
    assert!(!slot(&mut world).is_starved());
}

/// No event reports the end again.
#[test]
fn an_end_behind_a_part_of_a_record_is_noticed() {
    let mut world = World::new();
    world.connect();
    take_memory(&mut world, SHORT);
    let ends = world.ends.get_mut(&1).expect("the connection's sockets");
    let record = ends.client.seal(&[7; 10_000]);
    pass(&mut world, &record[..6_000]);
    socket::shutdown_write(world.ends[&1].tls).expect("a socket");
    world.run();
    assert_eq!(world.worker().parts().connections.live(), 0);
}

/// A connection whose plain side is a TCP socket with a full send queue, and the peer's end.
fn with_full_queue(world: &mut World) -> (std::net::TcpStream, usize) {
    world.connect();
    let (plain, peer) = tcp();
    socket::set_send_buffer(plain, 64 << 10).expect("a socket");
    let mut filled = 0;
    while let Ok(Attempt::Done(n)) = socket::send(plain, &[0; 4096]) {
        filled += n;
    }
    replace_plain(world, plain);
    take_memory(world, SHORT);
    (peer, filled)
}

/// The rule of a check is that of the step: a connection is not woken only to wait again.
#[test]
fn a_check_wakes_only_what_will_be_read() {
    let mut world = World::new();
    let (_peer, _) = with_full_queue(&mut world);
    let parts = world.worker().parts();
    let slot = parts.connections.slots.get_mut(0).expect("a slot");
    // As if no event reported that the queue drains.
    let wait_ms = parts.work.starve(slot, &OPENING, true);
    let now_ms = parts.work.now_ms;
    parts.connections.starved.push((0, 1), now_ms, wait_ms);
    let mut checks = 0;
    for _ in 0..5_000 {
        parts.work.now_ms += 1;
        let next_ms = parts.connections.starved.next_deadline_ms();
        checks += usize::from(next_ms.is_some_and(|next_ms| next_ms <= parts.work.now_ms));
        let (settings, work) = (parts.settings, &mut *parts.work);
        parts.connections.resume_starved(settings, work);
        let slot = parts.connections.slots.get(0).expect("a slot");
        assert!(slot.has(Flag::Starved));
    }
    assert!((10..20).contains(&checks), "{checks} checks");
    assert_eq!(events(&mut world), 0);
}

/// While the plain side takes nothing, no event is reported; when it has taken all, the next record follows at once.
#[test]
fn an_event_reports_that_a_queue_has_drained() {
    use std::io::Read as _;
    let mut world = World::new();
    let (mut peer, filled) = with_full_queue(&mut world);
    let content = vec![7; 10_000];
    let ends = world.ends.get_mut(&1).expect("the connection's sockets");
    let record = ends.client.seal(&content);
    let sent = socket::send(ends.tls, &record).expect("a writable socket");
    assert_eq!(sent, Attempt::Done(record.len()));
    world.run();
    assert!(slot(&mut world).has(Flag::OpeningHeld));
    assert_eq!(events(&mut world), 0);
    let mut received = vec![1; filled];
    peer.read_exact(&mut received)
        .expect("what has filled the queue");
    let mut waited = poller::Events::with_capacity(8);
    let io = &world.worker().parts().work.io;
    io.wait(&mut waited, Some(20_000)).expect("a poll");
    assert_eq!(waited.len(), 1);
    world.run();
    assert!(!slot(&mut world).is_starved());
    received.resize(content.len(), 1);
    peer.read_exact(&mut received).expect("the record");
    assert_eq!(received, content);
    assert_eq!(events(&mut world), 0, "writable is not watched any more");
}

/// Ends the time of one turn, and all timers.
fn pass_time(world: &mut World, ms: u64) {
    let parts = world.worker().parts();
    parts.work.now_ms += ms;
    parts.connections.on_time(parts.settings, parts.work);
}

fn stalls(world: &World) -> u64 {
    world.counters.sum(Count::StallTimeouts as usize)
}

/// A peer that takes nothing is left alone until its memory is needed.
#[test]
fn a_peer_that_takes_nothing_is_closed_when_memory_is_short() {
    let mut world = World::new();
    let peer = with_pending_plaintext(&mut world);
    for _ in 0..20 {
        pass_time(&mut world, 10_000);
    }
    assert_eq!(world.worker().parts().connections.live(), 1);
    take_memory(&mut world, SHORT);
    pass_time(&mut world, 10_000);
    assert_eq!(world.worker().parts().connections.live(), 0);
    assert_eq!(stalls(&world), 1);
    assert_eq!(end_of(peer), Some(io::ErrorKind::ConnectionReset));
}

/// A route may ask for that whether or not memory is short.
#[test]
fn a_peer_that_takes_nothing_is_closed_by_its_route() {
    let mut world = World::new();
    let peer = with_pending_plaintext(&mut world);
    let mut settings = of_one_route(&world);
    only_route(&mut settings).lifetime.stall_ms = Some(60_000);
    settings.sums = crate::settings::RouteSums::of(&settings.routes, false);
    assert_is_closed_after_a_minute(world, peer, &settings);
}

fn of_one_route(world: &World) -> Settings {
    settings_of(vec![route(&world.tls, &sockets())])
}

/// Settings in which the only route may hold this share of the memory.
fn with_share(world: &World, percent: u32) -> Settings {
    let mut settings = of_one_route(world);
    only_route(&mut settings).limits.memory_share = Some(percent);
    settings.sums = crate::settings::RouteSums::of(&settings.routes, false);
    settings
}

/// With these settings, the only connection is closed because its peer takes nothing for a minute.
#[track_caller]
fn assert_is_closed_after_a_minute(
    mut world: World,
    peer: std::net::TcpStream,
    settings: &Settings,
) {
    world.worker().parts().work.step.follow(settings);
    let mut waited_ms = 0;
    while world.worker().parts().connections.live() > 0 {
        let parts = world.worker().parts();
        parts.work.now_ms += 1_000;
        parts.connections.on_time(settings, parts.work);
        waited_ms += 1_000;
    }
    assert!((59_000..65_000).contains(&waited_ms), "{waited_ms} ms");
    assert_eq!(stalls(&world), 1);
    assert_eq!(end_of(peer), Some(io::ErrorKind::ConnectionReset));
}

/// Other routes do not wait for a route that holds its share.
#[test]
fn a_route_that_holds_its_share_is_short_of_memory() {
    let mut world = World::new();
    world.connect();
    let settings = with_share(&world, 10);
    let work = world.worker().parts().work;
    work.step.follow(&settings);
    let mut held = Held::default();
    held.tls.queue = 110 << 20;
    work.note_held((7, 0), held);
    let row = dormouse_tables::traffic::Row::of_route(0);
    let reported = |work: &Workspace<OsIo>| {
        let tally = dormouse_tables::traffic::Tally::HeldBytes;
        work.traffic.sum(row, tally)
    };
    assert_eq!(work.allowance(0, Fd::NONE), Allowance::NOTHING);
    assert_eq!(work.allowance(1, Fd::NONE), Allowance::Full);
    assert!(work.may_store_part(0, true), "pending memory is left");
    assert_eq!(reported(work), 110 << 20);
    let parts = world.worker().parts();
    let slot = parts.connections.slots.get_mut(0).expect("a slot");
    let _ = parts.work.starve(slot, &OPENING, true);
    let work = parts.work;
    held.tls.queue = 0;
    (held.tls.pending, held.pending_memory) = (1, 100 << 10);
    work.note_held((7, 0), held);
    assert!(!work.may_store_part(0, true) && work.may_store_part(1, true));
    work.forget_held((7, 0));
    assert_eq!(reported(work), 0);
    assert!(world.counters.sum(Count::ShareExhausted as usize) == 1);
    assert_eq!(world.counters.sum(Count::KernelExhausted as usize), 0);
}

#[test]
fn a_peer_that_takes_nothing_is_closed_when_its_route_holds_half_of_its_share() {
    let mut world = World::new();
    let peer = with_pending_plaintext(&mut world);
    let settings = with_share(&world, 3);
    assert_is_closed_after_a_minute(world, peer, &settings);
}

/// When nothing is left, after a quarter of the time.
#[test]
fn a_peer_that_takes_nothing_is_closed_sooner_when_nothing_is_left() {
    for (left, expected_ms) in [(SHORT, 60_000), (0, 15_000)] {
        let mut world = World::new();
        let peer = with_pending_plaintext(&mut world);
        take_memory(&mut world, left);
        let mut waited_ms = 0;
        while world.worker().parts().connections.live() > 0 {
            pass_time(&mut world, 100);
            waited_ms += 100;
        }
        let range = expected_ms - 200..expected_ms + 4_000;
        assert!(range.contains(&waited_ms), "{waited_ms} ms");
        drop(peer);
    }
}

/// The same rule for the beginning of a record whose rest does not come; its own timeout is longer here.
#[test]
fn a_record_without_progress_is_closed_when_memory_is_short() {
    let mut world = World::new();
    world.connect();
    let ends = world.ends.get_mut(&1).expect("the connection's sockets");
    let record = ends.client.seal(&[7; 10_000]);
    pass(&mut world, &record[..5_000]);
    take_memory(&mut world, 0);
    for at in 5_000..5_010 {
        pass(&mut world, &record[at..=at]);
        pass_time(&mut world, 5_000);
    }
    assert_eq!(world.worker().parts().connections.live(), 1);
    pass_time(&mut world, 6_000);
    pass_time(&mut world, 6_000);
    assert_eq!(world.worker().parts().connections.live(), 0);
    assert_eq!(stalls(&world), 1);
}

/// A ClientHello in TLS 1.2: a request for renegotiation, which is answered with a warning.
fn client_hello(client: &mut Resting) -> Vec<u8> {
    const HANDSHAKE: u8 = 22;
    const MESSAGE: [u8; 4] = [1, 0, 0, 0];
    let room = record_room(&client.state);
    let mut record = vec![0; room.header + MESSAGE.len() + room.trailer];
    record[room.header..][..MESSAGE.len()].copy_from_slice(&MESSAGE);
    let mut key = SealKey::new(&client.state);
    let sealed = seal_record(
        &mut client.state,
        &mut key,
        &mut record,
        HANDSHAKE,
        MESSAGE.len(),
        0,
    );
    record.truncate(sealed.expect("sealed"));
    record
}

/// A client that reads nothing asks for renegotiation again and again.
#[test]
fn answers_that_nobody_reads_do_not_accumulate() {
    let mut world = World::new();
    world.connect();
    let key = || KeyIv {
        key: &[7; 16],
        iv: &[9; 12],
    };
    let suite = Suite::Aes128GcmSha256;
    let ends = world.ends.get_mut(&1).expect("the connection's sockets");
    assert!(ends.client.open(&[]).is_empty());
    (ends.client.state)
        .establish_tls12(Role::Client, suite, key(), 0, key(), 0)
        .expect("a state");
    let mut flood = Vec::new();
    for _ in 0..2_000 {
        flood.extend(ends.client.seal(&[1]));
        (0..4).for_each(|_| flood.extend(client_hello(&mut ends.client)));
    }
    let plain = ends.plain;
    let slots = &mut world.worker().parts().connections.slots;
    let slot = slots.get_mut(0).expect("a slot");
    slot.tls
        .establish_tls12(Role::Server, suite, key(), 0, key(), 0)
        .expect("a state");
    let capacity = |world: &mut World| {
        let parts = world.worker().parts();
        let slot = parts.connections.slots.get(0).expect("a slot");
        assert_eq!(slot.phase(), Phase::Established);
        parts.work.pending.capacity(slot.sealing_pending)
    };
    for _ in 0..10_000 {
        let _ = socket::send(plain, &[7; 65_536]);
        world.run();
        if capacity(&mut world) > 0 {
            break;
        }
    }
    assert_eq!(upload(&mut world, &flood, 2_000), [1; 2_000]);
    assert!(capacity(&mut world) <= limits().pending_per_connection);
}
