//! Tests of connections that the worker closes: what each side sees when bytes are missing, and that the worker sleeps until
//! both sides are done.

use super::*;
use crate::established::fault::Fault;
use crate::lifecycle::stop::Stop;
use dormouse_handover::slot::{PlainSide, TimerPurpose};
use dormouse_reactor::poller::{Condition, Events, Interest};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;

/// The event of a side that has bytes, or has ended.
pub(super) fn readable() -> poller::Event {
    let mut events = Events::with_capacity(1);
    events.push(0, Interest::READ, Condition::NONE);
    events.get(0).expect("just added")
}

fn send(from: Fd, bytes: &[u8]) {
    let sent = socket::send(from, bytes).expect("a writable socket");
    assert_eq!(sent, Attempt::Done(bytes.len()));
}

/// What the client hears.
fn heard(world: &mut World) -> Vec<Event> {
    heard_by(world, 1)
}

/// What the peer of this connection hears, or of this half of one.
pub(super) fn heard_by(world: &mut World, number: u32) -> Vec<Event> {
    let ends = world.ends.get_mut(&number);
    let ends = ends.expect("the connection's sockets");
    let mut received = [0; 4096];
    match socket::recv(ends.tls, &mut received) {
        Ok(Attempt::Done(n)) => ends.client.open(&received[..n]),
        _ => Vec::new(),
    }
}

/// Fires the timer of a connection, unless it has ended.
fn step_timer(world: &mut World, index: u32) {
    let parts = world.worker().parts();
    let (connections, settings, work) = (parts.connections, parts.settings, parts.work);
    if connections.slots.is_live(index) {
        connections.step(index, step::Event::Timer, settings, work);
    }
}

fn stop(world: &mut World) {
    let parts = world.worker().parts();
    let close = step::Event::Close(CloseReason::Stopping);
    parts.connections.step(0, close, parts.settings, parts.work);
}

/// Makes the plain side of the connection a joint. Returns its far end.
pub(super) fn join(world: &mut World) -> Fd {
    let joint = world.worker().parts().work.io.joint();
    let (here, there) = joint.expect("a pair of sockets");
    replace_plain(world, here);
    let slots = &mut world.worker().parts().connections.slots;
    slots
        .get_mut(0)
        .expect("a slot")
        .set_plain_side(PlainSide::Joint);
    there
}

/// Ends the data of the far end of a joint, as its slot does.
pub(super) fn end_joint(world: &mut World, there: Fd) {
    let work = world.worker().parts().work;
    let any = work.backends.fds().marks;
    work.io.end_joint(there, any).expect("marked");
    work.io.shutdown_write(there).expect("shut down");
}

/// The backend sends until records for the client are pending.
fn send_until_pending(world: &mut World, backend: &std::net::TcpStream) {
    backend.set_nonblocking(true).expect("a socket");
    for _ in 0..10_000 {
        let _ = (&*backend).write(&[7; 65_536]);
        world.run();
        let slots = &world.worker().parts().connections.slots;
        if slots
            .get(0)
            .is_some_and(|slot| slot.sealing_pending.is_some())
        {
            return;
        }
    }
    panic!("the client's socket takes everything");
}

/// The client of a draining connection is gone, and the backend still reads nothing.
#[test]
fn a_client_that_is_gone_does_not_keep_the_worker_awake() {
    for is_reset in [false, true] {
        let mut world = World::new();
        let backend = with_pending_plaintext(&mut world);
        if is_reset {
            send_until_pending(&mut world, &backend);
        }
        let parts = world.worker().parts();
        let (connections, settings, work) = (parts.connections, parts.settings, parts.work);
        let slot = connections.slots.get_mut(0).expect("a slot");
        if is_reset {
            close::begin_reset(slot);
        } else {
            close::begin_abort(slot, work, &Fault::KeyExhausted);
        }
        slot.set_timer_purpose(TimerPurpose::None);
        connections.count_phases();
        connections.step(0, step::Event::Timer, settings, work);
        world.ends[&1].tls.close();
        world.run();
        let parts = world.worker().parts();
        assert_eq!(parts.connections.draining(), 1, "the backend has time");
        let mut events = Events::with_capacity(8);
        parts.work.io.wait(&mut events, Some(0)).expect("a poll");
        assert!(events.is_empty(), "reset: {is_reset}");
    }
}

#[test]
fn a_close_without_missing_bytes_is_a_proper_end() {
    let mut world = World::new();
    world.connect();
    stop(&mut world);
    assert_eq!(heard(&mut world), [Event::Ended(End::Closed)]);
    let end = socket::recv(world.ends[&1].plain, &mut [0; 8]);
    assert!(matches!(end, Ok(Attempt::Done(0))));

    // The backend behind a joint has ended, too.
    let mut world = World::new();
    world.connect();
    let there = join(&mut world);
    end_joint(&mut world, there);
    step_ready(&mut world, 0, Side::Plain);
    stop(&mut world);
    assert_eq!(heard(&mut world), [Event::Ended(End::Closed)]);
}

/// What a side has sent and ended is delivered, although the worker has not read it yet.
#[test]
fn a_close_reads_an_end_that_has_arrived() {
    let mut world = World::new();
    world.connect();
    let (plain, backend) = tcp();
    replace_plain(&mut world, plain);
    let ends = world.ends.get_mut(&1).expect("the connection's sockets");
    let mut records = ends.client.seal(b"a request");
    records.extend_from_slice(&ends.client.seal_close());
    send(ends.tls, &records);
    stop(&mut world);
    assert_eq!(heard(&mut world), [Event::Ended(End::Closed)]);
    assert_eq!(read_to_end(backend).expect("a proper end"), b"a request");

    for is_joined in [false, true] {
        let mut world = World::new();
        world.connect();
        let backend = match is_joined {
            true => join(&mut world),
            false => world.ends[&1].plain,
        };
        send(backend, b"an answer");
        match is_joined {
            true => end_joint(&mut world, backend),
            false => socket::shutdown_write(backend).expect("shut down"),
        }
        stop(&mut world);
        let answer = Event::Data(b"an answer".to_vec());
        assert_eq!(heard(&mut world), [answer, Event::Ended(End::Closed)]);
    }
}

/// The backend has sent more, and has not ended: the client gets the bytes that have arrived, then a reset.
#[test]
fn a_close_in_an_answer_is_no_proper_end() {
    for is_joined in [false, true] {
        let mut world = World::new();
        let (here, mut client) = tcp();
        world.connect_over(Fd(client.as_raw_fd()), here);
        let backend = match is_joined {
            true => join(&mut world),
            false => world.ends[&1].plain,
        };
        send(backend, b"the beginning of an answer");
        stop(&mut world);
        let mut received = [0; 4096];
        let len = client.read(&mut received).expect("bytes before the reset");
        let ends = world.ends.get_mut(&1).expect("the connection's sockets");
        let beginning = Event::Data(b"the beginning of an answer".to_vec());
        assert_eq!(ends.client.open(&received[..len]), [beginning]);
        step_timer(&mut world, 0);
        assert_eq!(world.worker().parts().connections.live(), 0);
        assert_eq!(end_of(client), Some(io::ErrorKind::ConnectionReset));
    }
}

/// The client has sent more: half a record, which is read or not.
#[test]
fn a_close_in_a_request_is_no_proper_end() {
    for is_connecting in [false, true] {
        let mut world = World::new();
        world.connect();
        let (plain, backend) = tcp();
        replace_plain(&mut world, plain);
        let ends = world.ends.get_mut(&1).expect("the connection's sockets");
        let record = ends.client.seal(b"the beginning of a request");
        send(ends.tls, &record[..10]);
        if is_connecting {
            let slots = &mut world.worker().parts().connections.slots;
            let slot = slots.get_mut(0).expect("a slot");
            slot.set_phase(Phase::Connecting);
        } else {
            world.run();
        }
        stop(&mut world);
        assert_eq!(heard(&mut world), []);
        assert_eq!(end_of(backend), Some(io::ErrorKind::ConnectionReset));
    }
}

/// A client that does not read until `drain_timeout` is over lacks records. It must not take that for a proper end.
#[test]
fn a_client_that_lacks_records_is_reset() {
    let mut world = World::new();
    let (here, client) = tcp();
    world.connect_over(Fd(client.as_raw_fd()), here);
    // As in the middle of a stream, which is received in large parts.
    world.worker().parts().work.step.note_plain(1, 1);
    send(world.ends[&1].plain, &[1; 60_000]);
    world.run();
    stop(&mut world);
    let parts = world.worker().parts();
    let (connections, settings, work) = (parts.connections, parts.settings, parts.work);
    let slot = connections.slots.get(0).expect("a slot");
    assert!(slot.tls_end() == TlsEnd::Linger && slot.sealing_pending.is_some());
    work.now_ms += settings.limits.drain_timeout_ms + 2_000;
    connections.step(0, step::Event::Timer, settings, work);
    assert_eq!(connections.live(), 0);
    assert_eq!(end_of(client), Some(io::ErrorKind::ConnectionReset));
}

/// `half_close = false` is not possible with `backend_tls` and `pass_through`, but a reload may bring it to a route whose
/// connections still have a joint or are passed through.
#[test]
fn a_reload_to_both_ends_at_once_breaks_no_end() {
    for is_joined in [true, false] {
        let mut world = World::new();
        world.connect();
        let mut route = route(&world.tls, &sockets());
        route.half_close = false;
        let settings = settings_of(vec![route]);
        let backend = match is_joined {
            true => join(&mut world),
            false => world.ends[&1].plain,
        };
        let ends = world.ends.get_mut(&1).expect("the connection's sockets");
        if is_joined {
            send(ends.tls, &ends.client.seal_close());
        } else {
            socket::shutdown_write(ends.tls).expect("shut down");
        }
        let parts = world.worker().parts();
        let slot = parts.connections.slots.get_mut(0).expect("a slot");
        if !is_joined {
            slot.set(Flag::PassThrough);
        }
        let ready = step::Event::Ready(Side::Tls, readable());
        parts.connections.step(0, ready, &settings, parts.work);
        assert_eq!(parts.connections.live(), 1, "the answer may still come");
        if !is_joined {
            let end = socket::recv(backend, &mut [0; 8]);
            assert!(matches!(end, Ok(Attempt::Done(0))), "forwarded: {end:?}");
            continue;
        }
        let range = 0..8;
        let end = (parts.work.io).recv_from_joint(backend, &mut [0; 8], &[range]);
        assert!(matches!(end, Ok(Attempt::Done(end)) if end.is_end));
        send(backend, b"answer");
        end_joint(&mut world, backend);
        let parts = world.worker().parts();
        let ready = step::Event::Ready(Side::Plain, readable());
        parts.connections.step(0, ready, &settings, parts.work);
        let answer = Event::Data(b"answer".to_vec());
        assert_eq!(heard(&mut world), [answer, Event::Ended(End::Closed)]);
    }
}

/// `truncation = "close"` is an option for clients. A reload may bring it to a route whose connections have TLS with their
/// backends or are passed through: a backend's truncation, or the reset of a client, is still no proper end.
#[test]
fn a_reload_hides_no_truncation_of_another_peer() {
    let closes = |world: &World| {
        let mut route = route(&world.tls, &sockets());
        route.truncation = Truncation::Close;
        settings_of(vec![route])
    };
    let mut world = with_two_halves();
    let settings = closes(&world);
    world.ends[&2].tls.close();
    let parts = world.worker().parts();
    for (index, side) in [(1, Side::Tls), (0, Side::Plain)] {
        let ready = step::Event::Ready(side, readable());
        parts.connections.step(index, ready, &settings, parts.work);
    }
    assert_eq!(parts.connections.live(), 0);
    assert_eq!(heard(&mut world), []);

    let mut world = World::new();
    let settings = closes(&world);
    let (here, client) = tcp();
    world.connect_over(Fd::from_owned(client.into()), here);
    let (plain, backend) = tcp();
    replace_plain(&mut world, plain);
    socket::reset_on_close(world.ends[&1].tls);
    world.ends[&1].tls.close();
    let parts = world.worker().parts();
    let slot = parts.connections.slots.get_mut(0).expect("a slot");
    slot.set(Flag::PassThrough);
    let ready = step::Event::Ready(Side::Tls, readable());
    parts.connections.step(0, ready, &settings, parts.work);
    assert_eq!(parts.connections.live(), 0);
    assert_eq!(end_of(backend), Some(io::ErrorKind::ConnectionReset));
}

/// A connection with TLS to its backend: slot 0 is the client's half, slot 1 the backend's.
pub(super) fn with_two_halves() -> World {
    let mut world = World::new();
    add_two_halves(&mut world);
    world
}

/// Adds such a connection in the next two slots.
pub(super) fn add_two_halves(world: &mut World) {
    let first = world.ends.len() as u32;
    world.connect();
    world.connect();
    let (here, backend) = world.tls.connect_and_take_tickets();
    let ends = world.ends.get_mut(&(first + 2));
    ends.expect("sockets").client = backend;
    let parts = world.worker().parts();
    let (one, other) = parts.work.io.joint().expect("a pair of sockets");
    for (index, end) in [(first, one), (first + 1, other)] {
        let slot = parts.connections.slots.get_mut(index).expect("a slot");
        slot.detach_plain().close();
        slot.attach_plain(end, socket::cookie(end).expect("a cookie") as u32);
        slot.set_plain_side(PlainSide::Joint);
    }
    let slots = &mut parts.connections.slots;
    let slot = slots.get_mut(first + 1).expect("a slot");
    slot.tls
        .as_mut_bytes()
        .copy_from_slice(here.state.as_bytes());
}

/// Makes a turn of a stop, `late_ms` after its beginning, and then lets both halves read what they have.
fn stop_turn(world: &mut World, late_ms: u64) {
    const GRACE_MS: u64 = 10_000;
    let parts = world.worker().parts();
    let (connections, settings, work) = (parts.connections, parts.settings, parts.work);
    let mut stop = Stop::new(work.now_ms.saturating_sub(late_ms), GRACE_MS);
    stop.turn(connections, settings, work);
    for index in [0, 1] {
        for side in [Side::Plain, Side::Tls] {
            step_ready(world, index, side);
        }
    }
}

pub(super) fn step_ready(world: &mut World, index: u32, side: Side) {
    let parts = world.worker().parts();
    let (connections, settings, work) = (parts.connections, parts.settings, parts.work);
    if connections
        .slots
        .get(index)
        .is_some_and(|slot| slot.phase() == Phase::Established)
    {
        connections.step(index, step::Event::Ready(side, readable()), settings, work);
    }
}

#[test]
fn a_stop_ends_both_halves_properly_if_nothing_is_missing() {
    let mut world = with_two_halves();
    stop_turn(&mut world, 0);
    stop_turn(&mut world, 0);
    assert_eq!(heard_by(&mut world, 1), [Event::Ended(End::Closed)]);
    assert_eq!(heard_by(&mut world, 2), [Event::Ended(End::Closed)]);
}

/// The backend has sent a record that is not read yet, or half of one.
#[test]
fn a_stop_in_an_answer_of_a_backend_with_tls_is_no_proper_end() {
    for len in [usize::MAX, 10] {
        let mut world = with_two_halves();
        let ends = world.ends.get_mut(&2).expect("sockets");
        let record = ends.client.seal(b"the beginning of an answer");
        send(ends.tls, &record[..record.len().min(len)]);
        let parts = world.worker().parts();
        let (connections, settings, work) = (parts.connections, parts.settings, parts.work);
        Stop::new(work.now_ms, 10_000).turn(connections, settings, work);
        for _ in 0..2 {
            step_ready(&mut world, 0, Side::Plain);
            stop_turn(&mut world, 0);
        }
        let delivered: &[Event] = match len {
            usize::MAX => &[Event::Data(b"the beginning of an answer".to_vec())],
            _ => &[],
        };
        assert_eq!(heard_by(&mut world, 1), delivered, "{len}");
    }
}

/// The backend has answered and ended, and its half has not read that.
#[test]
fn a_stop_passes_on_the_end_of_a_backend_with_tls() {
    let mut world = with_two_halves();
    let ends = world.ends.get_mut(&2).expect("sockets");
    let mut records = ends.client.seal(b"an answer");
    records.extend_from_slice(&ends.client.seal_close());
    send(ends.tls, &records);
    stop_turn(&mut world, 0);
    stop_turn(&mut world, 0);
    let answer = Event::Data(b"an answer".to_vec());
    assert_eq!(heard_by(&mut world, 1), [answer, Event::Ended(End::Closed)]);
    assert_eq!(heard_by(&mut world, 2), [Event::Ended(End::Closed)]);
}

/// The client has sent half a record, and sends no more.
#[test]
fn a_stop_in_a_request_for_a_backend_with_tls_is_no_proper_end() {
    let mut world = with_two_halves();
    let ends = world.ends.get_mut(&1).expect("sockets");
    let record = ends.client.seal(b"the beginning of a request");
    send(ends.tls, &record[..10]);
    step_ready(&mut world, 0, Side::Tls);
    for late_ms in [0, 0, 10_000] {
        stop_turn(&mut world, late_ms);
    }
    assert_eq!(heard_by(&mut world, 2), []);
}
