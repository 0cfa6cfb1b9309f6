use super::*;
use crate::socket::{self, Attempt, pair};

fn wait(poller: &Poller) -> Vec<Event> {
    let mut events = Events::with_capacity(16);
    poller.wait(&mut events, Some(0)).unwrap();
    events.iter().collect()
}

#[test]
fn readiness_is_level_triggered_and_can_be_changed() {
    let (a, b) = pair(OnExec::Close).unwrap();
    let poller = Poller::create(OnExec::Close).unwrap();
    poller.add(a, u64::MAX, Interest::READ).unwrap();
    assert!(poller.add(a, 1, Interest::READ).is_err());
    assert!(wait(&poller).is_empty());
    socket::send(b, b"x").unwrap().done().unwrap();
    for _ in 0..2 {
        let events = wait(&poller);
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].token(), u64::MAX);
        assert!(events[0].is_readable() && !events[0].is_writable());
    }
    poller.modify(a, 5, Interest::WRITE).unwrap();
    let event = wait(&poller)[0];
    assert_eq!((event.token(), event.is_writable()), (5, true));
    assert!(!event.is_readable());
    poller.modify(a, 5, Interest::NONE).unwrap();
    assert!(wait(&poller).is_empty());
    poller.remove(a).unwrap();
    assert!(poller.remove(a).is_err());
    [a, b, poller.fd()].into_iter().for_each(Fd::close);
}

#[test]
fn the_end_of_reading_is_reported_only_while_reading() {
    let (a, b) = pair(OnExec::Close).unwrap();
    let poller = Poller::create(OnExec::Close).unwrap();
    poller.add(a, 1, Interest::NONE).unwrap();
    socket::shutdown_write(b).unwrap();
    // Backpressure must not become a busy loop.
    assert!(wait(&poller).is_empty());
    poller.modify(a, 1, Interest::READ).unwrap();
    let event = wait(&poller)[0];
    assert!(event.is_readable() && !event.is_hung_up());
    b.close();
    let event = wait(&poller)[0];
    assert!(event.is_hung_up());
    [a, poller.fd()].into_iter().for_each(Fd::close);
}

#[test]
fn an_instance_is_adopted_with_its_registrations() {
    let (a, b) = pair(OnExec::Close).unwrap();
    let fd = {
        let poller = Poller::create(OnExec::Keep).unwrap();
        assert_eq!(poller.fd().on_exec().unwrap(), OnExec::Keep);
        poller.add(a, 77, Interest::READ).unwrap();
        socket::send(b, b"x").unwrap().done().unwrap();
        poller.fd()
    };
    let poller = Poller::adopt(fd).unwrap();
    assert_eq!(wait(&poller)[0].token(), 77);
    assert!(Poller::adopt(a).is_err() && Poller::adopt(Fd::NONE).is_err());
    [a, b, fd].into_iter().for_each(Fd::close);
}

#[test]
fn one_of_several_watchers_can_stop() {
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = socket::listen(&any, &socket::ListenOptions::default()).unwrap();
    let address = socket::Addr::local(listener).unwrap();
    let pollers = [(); 2].map(|()| Poller::create(OnExec::Close).unwrap());
    for poller in &pollers {
        poller.add_exclusive(listener, 3).unwrap();
    }
    // The first worker is full: it stops watching, and the other one gets every connection.
    pollers[0].remove(listener).unwrap();
    let client = socket::connect(&address, &socket::ConnectOptions::default()).unwrap();
    let mut events = Events::with_capacity(1);
    pollers[1].wait(&mut events, None).unwrap();
    assert_eq!(events.get(0).map(Event::token), Some(3));
    assert!(wait(&pollers[0]).is_empty());
    match socket::accept(listener, OnExec::Close).unwrap() {
        Attempt::Done(accepted) => accepted.fd.close(),
        Attempt::WouldBlock => panic!("the listener was ready"),
    }
    [client.fd(), listener, pollers[0].fd(), pollers[1].fd()]
        .into_iter()
        .for_each(Fd::close);
}

#[test]
fn events_can_be_simulated() {
    let mut events = Events::with_capacity(1);
    events.push(7, Interest::READ, Condition::NONE);
    events.push(8, Interest::READ | Interest::WRITE, Condition::ERROR);
    let made: Vec<Event> = events.iter().collect();
    assert_eq!((made[0].token(), made[1].token()), (7, 8));
    assert!(made[0].is_readable() && !made[0].is_writable() && !made[0].is_hung_up());
    assert!(made[1].is_error() && made[1].is_hung_up() && made[1].is_writable());
    events.clear();
    assert!(events.is_empty());
}
