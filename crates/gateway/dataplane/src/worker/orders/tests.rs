//! Orders to a worker that could not load its certificates.

use super::*;
use crate::io::OsIo;
use crate::keeper::begin;
use dormouse_config::{self as config, Flag, Machine, Section};
use dormouse_engine::{Identity, TicketKeys, UnixTime};
use dormouse_handover::control::DrainOrder;
use dormouse_handover::notes::Notes;
use dormouse_handover::orders;
use dormouse_handover::share::Share;
use dormouse_handover::slot::{Phase, SLOT_LAYOUT_VERSION, Slot};
use dormouse_handover::{Descriptors, Handover, OriginPem, Pem, PemContents};
use dormouse_reactor::pending::Pending;
use dormouse_reactor::shared::Shared;
use dormouse_reactor::slab::Slab;
use dormouse_reactor::{OnExec, socket};
use dormouse_routes::route::Direction;
use dormouse_tables::backends::Backends;
use dormouse_tables::clients::Clients;
use dormouse_tables::traffic::Traffic;
use std::time::Duration;

const CONNECTIONS: u32 = 4_096;

fn pem(name: &str) -> Pem {
    let (chain, key) = Identity::self_signed_pem(name).expect("a certificate");
    Pem::from(PemContents {
        name: name.to_owned(),
        key_name: format!("{name}.key"),
        chain,
        ocsp: Vec::new(),
        ocsp_from_file: false,
        is_pushed: false,
        key: key.to_string(),
    })
}

/// The handover of a worker that has a connection, and main's end of its channel.
fn handover() -> (Handover, Fd) {
    let flags = [
        ("listen", "127.0.0.1:8443"),
        ("to", "echo:"),
        ("self-signed", "x"),
    ];
    let flags = flags.map(|(name, value)| Flag::new(name, value));
    let loaded = config::load(None, Section::Route, &flags, &Machine::read()).expect("valid");
    let mut plan = loaded.plan;
    (plan.workers, plan.connections_max) = (1, CONNECTIONS);
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
    let keys = TicketKeys::generate(now, 3_600).expect("keys");
    let share = Share::of(0, &plan);
    let slots = Slab::<Slot>::create("slots", CONNECTIONS, SLOT_LAYOUT_VERSION).expect("slots");
    let (main, orders) = socket::channel(OnExec::Close).expect("a channel");
    socket::name_senders(main).expect("an option");
    let pending = Pending::create("pending", share.pending_bytes_max as usize);
    let backends = Backends::create(1).expect("a table");
    let descriptors = Descriptors {
        slots: with_connection(slots).0,
        pending: pending.expect("pending memory").fd().0,
        counters: Shared::create("counters", 1).expect("counters").fd().0,
        clients: Clients::create(CONNECTIONS, 1).expect("a table").fd().0,
        clients_for: CONNECTIONS,
        backends: backends.fds().marks.0,
        roster: backends.fds().roster.0,
        orders: orders.0,
        notes: Notes::default().write().expect("notes").0,
        traffic: Traffic::create(1).expect("a table").fd().0,
        ..Descriptors::default()
    };
    let handover = Handover {
        worker: 0,
        edition: 1,
        config: loaded.config,
        user: None,
        share,
        numbers: vec![0],
        certificates: vec![vec![pem("x")]],
        clients: vec![None],
        origins: Vec::new(),
        backend_tls: vec![None],
        ticket_keys: keys.export().to_vec(),
        descriptors,
    };
    (handover, main)
}

/// Adds a connection, so that a worker builds its contexts late.
fn with_connection(mut slots: Slab<Slot>) -> Fd {
    let (here, _client) = socket::pair(OnExec::Close).expect("a pair of sockets");
    let cookie = socket::cookie(here).expect("a cookie") as u32;
    let index = slots.insert().expect("a free place");
    let slot = slots.get_mut(index).expect("a slot");
    slot.begin(here, cookie, 0, 1, 1_000_000);
    slot.set_phase(Phase::Established);
    slots.fd()
}

fn is_stopped(worker: &Worker<OsIo>) -> bool {
    worker.door.listeners.are_stopped()
}

/// Options of sockets are the program's, so an origination that stays the same gets them, too.
#[test]
fn a_reload_changes_the_sockets_of_an_unchanged_origination() {
    const BUFFER: usize = 1 << 20;
    let (mut handover, main) = handover();
    let flags = [
        ("listen", "127.0.0.1:7000"),
        ("to", "127.0.0.1:1"),
        ("server-name", "x"),
        ("insecure", "true"),
    ];
    let flags = flags.map(|(name, value)| Flag::new(name, value));
    let section = Section::Originate;
    let loaded = config::load(None, section, &flags, &Machine::read()).expect("valid");
    handover.config.originate = loaded.config.originate;
    handover.origins = vec![OriginPem::default()];
    handover.numbers = vec![0, 1];
    let first = handover.write().expect("a file");
    handover.config.sockets.socket_buffer = config::ByteSize(BUFFER as u64);
    let next = handover.write().expect("a file");
    let keep: Vec<Fd> = (3..20_000).map(Fd).collect();
    let begun = begin::begin(first, 0, &keep, |_| {}, OsIo::adopt);
    let (mut worker, _) = begun.expect("a worker");
    let buffers = |worker: &Worker<OsIo>| {
        let routes = worker.cx.settings.routes.iter();
        let buffers = routes.map(|(_, route)| route.sockets.send_buffer_bytes());
        buffers.collect::<Vec<_>>()
    };
    assert!(!buffers(&worker).contains(&BUFFER));
    let (handover, number) = (next, 1);
    worker.obey(Order::Reload { handover, number });
    assert_eq!(buffers(&worker), [BUFFER; 2]);
    main.close();
}

/// Established connections stay as they are. A reload looks at none of them, also if it changes which clients a route admits.
#[cfg(debug_assertions)]
#[test]
fn a_reload_looks_at_few_connections() {
    use dormouse_reactor::slab::looks;

    let (mut handover, main) = handover();
    let first = handover.write().expect("a file");
    let flags = [
        ("listen", "127.0.0.1:8443"),
        ("to", "echo:"),
        ("self-signed", "x"),
        ("deny", "192.0.2.0/24"),
    ];
    let flags = flags.map(|(name, value)| Flag::new(name, value));
    let loaded = config::load(None, Section::Route, &flags, &Machine::read());
    handover.config = loaded.expect("valid").config;
    let next = handover.write().expect("a file");
    let keep: Vec<Fd> = (3..20_000).map(Fd).collect();
    let begun = begin::begin(first, 0, &keep, |_| {}, OsIo::adopt);
    let (mut worker, _) = begun.expect("a worker");
    worker.cx.connections.add_quiet(CONNECTIONS - 1, 0);
    let former = looks();
    worker.obey(Order::Reload {
        handover: next,
        number: 1,
    });
    while worker.lifecycle.reloader.is_loading() {
        worker.turn().expect("a turn");
    }
    let route = worker.cx.settings.route(0).expect("a route");
    assert!(!route.access.deny.is_empty());
    assert!(looks() - former < 100, "{} looks", looks() - former);
    main.close();
}

/// Its predecessor could load the certificates, or another binary. A reload brings valid ones.
#[test]
fn a_worker_without_certificates_accepts_again_after_a_reload() {
    let (mut handover, main) = handover();
    let valid = handover.write().expect("a file");
    handover.certificates[0][0].change(|pem| pem.key = "not a key".to_owned());
    let [invalid, still_invalid] = [(); 2].map(|()| handover.write().expect("a file"));
    // Other tests in this process have open descriptors, too.
    let keep: Vec<Fd> = (3..20_000).map(Fd).collect();
    let begun = begin::begin(invalid, 0, &keep, |_| {}, OsIo::adopt);
    let (mut worker, _) = begun.expect("a worker");
    worker.turn().expect("a turn");
    assert!(is_stopped(&worker), "the key is invalid");
    let report = || {
        let report = orders::receive_report(main).expect("a report");
        report.and_then(|received| received.report)
    };
    assert_eq!(report(), Some(WorkerReport::Unusable));
    let number = 6;
    worker.obey(Order::Reload {
        handover: still_invalid,
        number,
    });
    let rejected = report();
    assert!(
        matches!(&rejected, Some(WorkerReport::NotReloaded(6, why)) if why.contains("key")),
        "{rejected:?}"
    );
    worker.obey(Order::StopDrain);
    assert!(is_stopped(&worker), "the end of a drain brings no key");
    worker.obey(Order::Reload {
        handover: valid,
        number: 7,
    });
    assert!(!is_stopped(&worker));
    let expected = [WorkerReport::Ready, WorkerReport::Reloaded(7)];
    assert_eq!([report(), report()], expected.map(Some));
}

/// Established connections are served between the turns. A reload that comes meanwhile follows.
#[test]
fn a_reload_with_many_certificates_is_spread_over_turns() {
    let (mut handover, main) = handover();
    let first = handover.write().expect("a file");
    handover.edition = 2;
    let many = (0..60).map(|n| pem(&format!("{n}.example")));
    handover.certificates[0] = many.collect();
    let second = handover.write().expect("a file");
    handover.edition = 3;
    handover.certificates[0].truncate(50);
    handover.certificates[0].push(pem("new.example"));
    let third = handover.write().expect("a file");
    let keep: Vec<Fd> = (3..20_000).map(Fd).collect();
    let begun = begin::begin(first, 0, &keep, |_| {}, OsIo::adopt);
    let (mut worker, _) = begun.expect("a worker");
    let report = || {
        let report = orders::receive_report(main).expect("a report");
        report.and_then(|received| received.report)
    };
    let turns_until = |worker: &mut Worker<OsIo>, expected: WorkerReport| {
        let turns = (1..200).find(|_| {
            worker.turn().expect("a turn");
            report().as_ref() == Some(&expected)
        });
        turns.expect("the report")
    };
    let served =
        |worker: &Worker<OsIo>| match &worker.cx.settings.route(0).expect("a route").direction {
            Direction::Terminate { context, .. } => {
                let context = context.as_ref().expect("a context");
                context.certificates().count()
            }
            _ => panic!("the route terminates TLS"),
        };
    turns_until(&mut worker, WorkerReport::Ready);
    for (handover, number) in [(second, 1), (third, 2)] {
        orders::send_order(main, &Order::Reload { handover, number }).expect("sent");
    }
    worker.turn().expect("a turn");
    assert!(worker.lifecycle.reloader.is_loading());
    assert_eq!(served(&worker), 1, "the former certificate");
    let turns = turns_until(&mut worker, WorkerReport::Reloaded(1));
    assert!(turns >= 60 / 8 - 1, "{turns} turns");
    assert_eq!(served(&worker), 60);
    turns_until(&mut worker, WorkerReport::Reloaded(2));
    assert_eq!(served(&worker), 51);
    while worker.lifecycle.reloader.retirement.is_due() {
        worker.turn().expect("a turn");
    }
    main.close();
}

/// The switch is one step: until all routes are compared, those of before serve. Those that have not changed stay in place.
#[test]
fn a_reload_of_many_routes_replaces_those_that_have_changed() {
    const COUNT: u16 = 600;
    const CHANGED: u16 = 500;
    let (mut handover, main) = handover();
    let count = usize::from(COUNT);
    handover.config.routes = vec![handover.config.routes[0].clone(); count];
    handover.certificates = vec![vec![pem("x")]; count];
    (handover.clients, handover.backend_tls) = (vec![None; count], vec![None; count]);
    handover.numbers = (0..COUNT).collect();
    let first = handover.write().expect("a file");
    handover.edition = 2;
    handover.config.routes[usize::from(CHANGED)].half_close = false;
    // The last route is removed, and there is a new one.
    handover.numbers[count - 1] = COUNT;
    let second = handover.write().expect("a file");
    let keep: Vec<Fd> = (3..20_000).map(Fd).collect();
    let begun = begin::begin(first, 0, &keep, |_| {}, OsIo::adopt);
    let (mut worker, _) = begun.expect("a worker");
    let report = || {
        let report = orders::receive_report(main).expect("a report");
        report.and_then(|received| received.report)
    };
    while report() != Some(WorkerReport::Ready) {
        worker.turn().expect("a turn");
    }
    let half_close = |worker: &Worker<OsIo>, number| {
        let route = worker.cx.settings.route(number);
        route.map(|route| (route.half_close, route.context().is_some()))
    };
    let place = |worker: &Worker<OsIo>, number| {
        std::ptr::from_ref(worker.cx.settings.route(number).expect("a route"))
    };
    let before = [0, CHANGED, COUNT - 2].map(|number| place(&worker, number));
    let (handover, number) = (second, 1);
    worker.obey(Order::Reload { handover, number });
    let mut turns = 0;
    loop {
        assert_eq!(half_close(&worker, CHANGED), Some((true, true)));
        assert!(half_close(&worker, COUNT - 1).is_some() && half_close(&worker, COUNT).is_none());
        worker.turn().expect("a turn");
        turns += 1;
        if let Some(report) = report() {
            assert_eq!(report, WorkerReport::Reloaded(1));
            break;
        }
    }
    assert!(turns >= count / 256, "{turns} turns");
    assert_eq!(half_close(&worker, CHANGED), Some((false, true)));
    assert!(half_close(&worker, COUNT - 1).is_none() && half_close(&worker, COUNT).is_some());
    let after = [0, CHANGED, COUNT - 2].map(|number| place(&worker, number));
    assert!(before[0] == after[0] && before[1] != after[1] && before[2] == after[2]);
    while worker.lifecycle.reloader.retirement.is_due() {
        worker.turn().expect("a turn");
    }
    main.close();
}

/// Only an order that depends on the reload waits for its end, and a stop does not leave it time.
#[test]
fn a_drain_and_a_stop_are_obeyed_during_a_long_reload() {
    let (mut handover, main) = handover();
    let first = handover.write().expect("a file");
    handover.certificates[0] = (0..200).map(|n| pem(&format!("{n}.example"))).collect();
    let [second, third] = [2, 3].map(|edition| {
        handover.edition = edition;
        handover.write().expect("a file")
    });
    let keep: Vec<Fd> = (3..20_000).map(Fd).collect();
    let begun = begin::begin(first, 0, &keep, |_| {}, OsIo::adopt);
    let (mut worker, _) = begun.expect("a worker");
    let reports = || {
        let report = || orders::receive_report(main).expect("a report");
        let reports = std::iter::from_fn(|| report().and_then(|received| received.report));
        reports.collect::<Vec<_>>()
    };
    while !reports().contains(&WorkerReport::Ready) {
        worker.turn().expect("a turn");
    }
    let send = |order| orders::send_order(main, &order).expect("sent");
    for (handover, number) in [(second, 1), (third, 2)] {
        send(Order::Reload { handover, number });
    }
    let (over_ms, order) = (60_000, DrainOrder::Longest);
    send(Order::Drain { over_ms, order });
    for _ in 0..3 {
        worker.turn().expect("a turn");
    }
    assert!(worker.lifecycle.reloader.is_loading());
    assert!(worker.lifecycle.drain.is_some());
    assert_eq!(worker.lifecycle.deferred.len(), 1, "the second reload");
    send(Order::Stop);
    worker.turn().expect("a turn");
    assert!(!worker.lifecycle.reloader.is_loading());
    let why = "the worker is stopping".to_owned();
    let given_up = [1, 2].map(|number| WorkerReport::NotReloaded(number, why.clone()));
    assert_eq!(reports(), given_up);
    main.close();
}
