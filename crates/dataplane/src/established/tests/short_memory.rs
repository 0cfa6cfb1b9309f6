//! Tests of connections while pending memory is short.

use super::*;
use dormouse_record::{CONTENT_MAX, SealKey, record_room, seal_record};

/// Takes pending memory until at most `left` bytes are left.
fn take_memory(world: &mut World, left: usize) {
    let pending = &mut world.worker().parts().work.pending;
    while pending.bytes_max() - pending.bytes_in_use() > left {
        pending.alloc(30_000, u32::MAX).expect("memory");
    }
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
    work.kernel.note(0, 1 << 20);
    work.has_room_again = false;
    connections.verify_some(work);
    assert_eq!((connections.live(), connections.at_rest()), (0, 0));
    assert_eq!(work.kernel.sum(), 0);
    assert!(work.has_room_again && connections.take_freed());
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
    let (record, content) = with_long_record(&mut world);
    let mut sockets = sockets();
    sockets.receive_buffer = config::Amount::Exactly(config::ByteSize(4 << 10));
    let settings = Settings {
        limits: limits(),
        routes: vec![route(&world.tls, &sockets)],
    };
    world.worker().parts().work.limit_steps(&settings);
    take_memory(&mut world, 128 << 10);
    let work = world.worker().parts().work;
    assert!(matches!(work.allowance(Fd::NONE), Allowance::Nothing));
    assert_eq!(upload(&mut world, &record, content.len()), content);
    // The last part of the reserve is kept.
    take_memory(&mut world, 64 << 10);
    assert!(!world.worker().parts().work.may_store_part(16_000, 4_000));
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
