//! Tests of timers.

use super::closing::readable;
use super::*;
use crate::established::fault::Fault;
use crate::outcome::Effect;
use dormouse_handover::slot::{PlainSide, TimerPurpose};

/// While the backend reads nothing, the client is not read. So it is not to blame for half a record.
#[test]
fn a_client_that_is_not_read_may_leave_a_record_incomplete() {
    let mut world = World::new();
    let _backend = with_pending_plaintext(&mut world);
    let parts = world.worker().parts();
    let (connections, settings, work) = (parts.connections, parts.settings, parts.work);
    let slot = connections.slots.get_mut(0).expect("a slot");
    // The pending bytes nearly always end with half a record.
    slot.partial_len = slot.partial_len.max(1);
    connections.finish(0, Step::default(), settings, work);
    work.now_ms += settings.route(0).expect("a route").lifetime.record_ms + 1_000;
    connections.on_time(settings, work);
    let slot = connections.slots.get(0).expect("a slot");
    assert_eq!(slot.phase(), Phase::Established);
}

/// A connection in slot 0 that waits for a local client.
fn with_warm() -> World {
    let mut world = World::new();
    world.connect();
    let slots = &mut world.worker().parts().connections.slots;
    let slot = slots.get_mut(0).expect("a slot");
    slot.detach_plain().close();
    slot.set_phase(Phase::Warm);
    world
}

/// The pool must hear of its end, or it would not be replaced.
#[test]
fn a_warm_connection_with_half_a_record_is_replaced() {
    let mut world = with_warm();
    let parts = world.worker().parts();
    let (connections, settings, work) = (parts.connections, parts.settings, parts.work);
    let slot = connections.slots.get_mut(0).expect("a slot");
    slot.set_timer_purpose(TimerPurpose::PartialRecord);
    connections.step(0, step::Event::Timer, settings, work);
    assert_eq!(connections.live(), 0);
    let effects = &connections.effects;
    assert!(matches!(effects[..], [Effect::WarmEnded { .. }]));
}

/// Its log line must not blame the server.
#[test]
fn a_warm_connection_that_dormouse_closes_was_not_cut_off_by_its_server() {
    let mut world = with_warm();
    let parts = world.worker().parts();
    let (connections, settings, work) = (parts.connections, parts.settings, parts.work);
    let slot = connections.slots.get_mut(0).expect("a slot");
    for event in [step::Event::Discard, step::Event::Timer] {
        slot.set_timer_purpose(TimerPurpose::Idle);
        let mut cx = Context::new(
            &mut *work,
            settings.route(0).expect("a route"),
            &settings.limits,
        );
        let done = step::act(slot, event, &mut cx);
        assert!(matches!(done, Err(Fault::NotNeeded)));
    }
}

/// Settings with a route to these backends, over TLS.
fn to_backends(backends: [&str; 2], known: &Backends) -> Settings {
    let flags = [
        ("listen", "127.0.0.1:8443"),
        ("to", backends[0]),
        ("to", backends[1]),
        ("self-signed", "x"),
        ("backend-tls", "true"),
    ];
    let flags = flags.map(|(name, value)| Given::new(name, value));
    let section = config::Section::Route;
    let loaded = config::load(None, section, &flags, &Machine::read()).expect("valid");
    let configured = &loaded.config.routes[0];
    let defaults = loaded.config.route_defaults();
    settings_of(vec![Route::without_context(
        &defaults,
        "1".to_owned(),
        configured,
        known,
    )])
}

/// Two names have an address in common, as of a load balancer. Each connection is for the name that was chosen.
#[test]
fn a_backend_with_tls_gets_its_own_name() {
    let mut world = World::new();
    world.connect();
    let parts = world.worker().parts();
    let (connections, work) = (parts.connections, parts.work);
    let settings = to_backends(["127.0.0.1:1", "localhost:1"], &work.backends);
    for _ in 0..3 {
        let slot = connections.slots.get_mut(0).expect("a slot");
        slot.detach_plain().close();
        slot.set_phase(Phase::Connecting);
        slot.set_timer_purpose(TimerPurpose::RetryConnect);
        connections.step(0, step::Event::Timer, &settings, work);
    }
    let names: Vec<&str> = (connections.effects.iter())
        .filter_map(|effect| match effect {
            Effect::ConnectBackend(request) => Some(request),
            _ => None,
        })
        .filter(|request| request.address.to_string() == "127.0.0.1:1")
        .map(|request| request.server_name.as_str())
        .collect();
    assert!(
        names.contains(&"127.0.0.1") && names.contains(&"localhost"),
        "{names:?}"
    );
}

/// The first backend fails its handshake shortly before `backend_connect_timeout`.
#[test]
fn each_backend_has_the_whole_connect_timeout() {
    let mut world = World::new();
    world.connect();
    let parts = world.worker().parts();
    let (connections, work) = (parts.connections, parts.work);
    let settings = to_backends(["127.0.0.1:1", "127.0.0.1:2"], &work.backends);
    let (joint, far) = work.io.joint().expect("a pair of sockets");
    let slot = connections.slots.get_mut(0).expect("a slot");
    slot.detach_plain().close();
    slot.attach_plain(joint, socket::cookie(joint).expect("a cookie") as u32);
    slot.set_plain_side(PlainSide::Joint);
    slot.set_phase(Phase::Connecting);
    let targets = settings
        .route(0)
        .expect("a route")
        .targets()
        .expect("backends");
    slot.backend = targets.all[0].place;
    connections.finish(0, Step::default(), &settings, work);
    work.now_ms += settings.route(0).expect("a route").lifetime.connect_ms - 100;
    far.close();
    let ready = step::Event::Ready(Side::Plain, readable());
    connections.step(0, ready, &settings, work);
    let slot = connections.slots.get(0).expect("a slot");
    assert_eq!(slot.backend, targets.all[1].place);
    let whole_ms = work.now_ms + settings.route(0).expect("a route").lifetime.connect_ms;
    assert!(slot.timer.due_ms() >= Some(whole_ms));
}

/// Connections that were quiet before and after a reload.
#[test]
fn a_reload_of_timeouts_reaches_quiet_connections() {
    const COUNT: u32 = 1_500;
    let mut world = World::new();
    let mut settings = settings_of(vec![route(&world.tls, &sockets())]);
    let parts = world.worker().parts();
    let (connections, work) = (parts.connections, parts.work);
    connections.add_quiet(COUNT, 0);
    for idle_ms in [Some(600_000), None, Some(60_000)] {
        only_route(&mut settings).lifetime.idle_ms = idle_ms;
        for index in 0..COUNT {
            let slot = connections.slots.get_mut(index).expect("a slot");
            slot.active_s = work.now_s();
        }
        connections.follow_new_timeouts();
        while connections.follows_new_timeouts() {
            connections.on_time(&settings, work);
        }
        let latest_ms = idle_ms.map(|idle_ms| work.now_ms + idle_ms + 2_000);
        for slot in connections.iter() {
            assert_eq!(slot.timer.due_ms().is_some(), idle_ms.is_some());
            assert!(slot.timer.due_ms() <= latest_ms);
        }
    }
}

/// A connection waits for its rest. Whatever a reload changes, it waits no longer than the new times say.
#[test]
fn a_reload_of_timeouts_reaches_connections_that_are_to_rest() {
    let hours = |hours: u64| Some(hours * 3_600_000);
    for (idle_ms, total_ms, rest_after_ms, due_ms) in [
        (Some(60_000), None, hours(1), 60_000),
        (None, Some(60_000), hours(1), 60_000),
        (hours(9), None, Some(60_000), 60_000),
        (hours(9), None, hours(2), 7_200_000),
        (hours(9), None, None, 9 * 3_600_000),
    ] {
        let mut world = World::new();
        let mut settings = settings_of(vec![route(&world.tls, &sockets())]);
        let lifetime = &mut only_route(&mut settings).lifetime;
        (lifetime.idle_ms, lifetime.rest_after_ms) = (hours(9), hours(1));
        let parts = world.worker().parts();
        let (connections, work) = (parts.connections, parts.work);
        connections.add_quiet(1, work.now_s());
        connections.set_timer(0, &settings, work.now_ms);
        let purpose = |connections: &Connections| connections.slots.at(0).timer_purpose();
        assert_eq!(purpose(connections), TimerPurpose::Rest);
        let lifetime = &mut only_route(&mut settings).lifetime;
        (lifetime.idle_ms, lifetime.total_ms) = (idle_ms, total_ms);
        lifetime.rest_after_ms = rest_after_ms;
        connections.follow_new_timeouts();
        connections.on_time(&settings, work);
        let due = connections.slots.at(0).timer.due_ms().expect("a timer");
        assert!(due.abs_diff(work.now_ms + due_ms) < 3_000, "{due_ms}");
    }
}

/// Each route has its timeouts, and connections whose route a reload has removed have those of the program.
#[test]
fn routes_have_timeouts_of_their_own() {
    let mut world = World::new();
    let route_with = |idle_ms, tls: &Pair| {
        let lifetime = Lifetime {
            idle_ms,
            total_ms: None,
            rest_after_ms: None,
            stall_ms: None,
            connect_ms: 5_000,
            record_ms: 60_000,
        };
        Route {
            lifetime,
            ..route(tls, &sockets())
        }
    };
    let idle_ms = [Some(60_000), None, Some(1_800_000)];
    let mut settings = settings_of(
        idle_ms
            .map(|idle_ms| route_with(idle_ms, &world.tls))
            .into(),
    );
    settings
        .routes
        .replace_removed(route_with(Some(600_000), &world.tls));
    let parts = world.worker().parts();
    let (connections, work) = (parts.connections, parts.work);
    let now_s = work.now_s();
    let dues = [0, 1, 2, 9].map(|number| {
        let index = connections.slots.insert().expect("a free place");
        let slot = connections.slots.get_mut(index).expect("a slot");
        slot.begin(Fd(1_000_000), 0, number, 1, now_s);
        slot.set_phase(Phase::Established);
        connections.set_timer(index, &settings, work.now_ms);
        connections.slots.at(index).timer.due_ms()
    });
    let expected = |idle_ms: u64| work.now_ms / 1000 * 1000 + idle_ms;
    let [short, none, long, removed] = dues;
    assert_eq!(none, None);
    for (due_ms, idle_ms) in [(short, 60_000), (long, 1_800_000), (removed, 600_000)] {
        let due_ms = due_ms.expect("a timer");
        assert!(
            due_ms.abs_diff(expected(idle_ms)) < 2_000,
            "{due_ms}, {idle_ms}"
        );
    }
}

/// Connections that began together do not end together: neither after a timeout, nor after a reload that brings it.
#[test]
fn no_timeout_ends_many_connections_at_once() {
    const COUNT: u32 = 2_000;
    const AGE_MS: u64 = 3_600_000;
    let mut world = World::new();
    let mut settings = settings_of(vec![route(&world.tls, &sockets())]);
    let parts = world.worker().parts();
    let (connections, work) = (parts.connections, parts.work);
    let begun_s = work.now_s();
    connections.add_quiet(COUNT, begun_s);
    work.now_ms += AGE_MS;
    // Some are accepted after the reload.
    let reloaded_ms = work.now_ms;
    let later_s = work.now_s() + 2;
    for index in 0..COUNT / 10 {
        let slot = connections.slots.get_mut(index).expect("a slot");
        (slot.opened_s, slot.active_s) = (later_s, later_s);
    }
    for (idle, timeout_ms, jitter) in [
        (true, 2 * AGE_MS, 10),
        (false, 2 * AGE_MS, 10),
        (true, 60_000, 10),
        (false, 60_000, 10),
        (true, 1_000, 10),
        (false, 1_000, 0),
    ] {
        let brings = timeout_ms < AGE_MS;
        only_route(&mut settings).lifetime = Lifetime {
            idle_ms: idle.then_some(timeout_ms),
            total_ms: (!idle).then_some(timeout_ms),
            rest_after_ms: None,
            stall_ms: None,
            connect_ms: 5_000,
            record_ms: 60_000,
        };
        settings.limits = Limits {
            timeout_jitter: jitter,
            timeouts_since_ms: if brings { reloaded_ms } else { 0 },
            ..limits()
        };
        connections.follow_new_timeouts();
        while connections.follows_new_timeouts() {
            connections.on_time(&settings, work);
        }
        let [new, old] = [true, false].map(|is_new| {
            let those = connections
                .iter()
                .filter(|slot| (slot.opened_s == later_s) == is_new);
            let dues = those.map(|slot| slot.timer.due_ms().expect("a timer"));
            let mut dues: Vec<u64> = dues.collect();
            dues.sort_unstable();
            dues
        });
        let what = format!("idle {idle}, {timeout_ms} ms");
        let (first, last) = (old[0], old[old.len() - 1]);
        let jitter_ms = timeout_ms / 100 * u64::from(jitter);
        let spread_ms = match brings {
            true => timeout_ms.max(10_000),
            false => jitter_ms,
        };
        assert!(
            last - first <= spread_ms + 1_000,
            "{what}: {first} to {last}"
        );
        // No second ends more than twice its share.
        let share = old.len() as u64 * 2_000 / spread_ms;
        for second in (first..last).step_by(1_000) {
            let of_second = old
                .iter()
                .filter(|due| (second..second + 1_000).contains(due));
            let count = of_second.count() as u64;
            assert!(
                count <= share.max(4),
                "{what}: {count} in a second, {share} allowed"
            );
        }
        // The reload does not change the time of connections that come later.
        let from_ms = u64::from(later_s) * 1_000 + 1_000 + timeout_ms;
        let range = match idle {
            true => from_ms..=from_ms + jitter_ms + 1_000,
            false => from_ms - jitter_ms..=from_ms + 1_000,
        };
        assert!(
            new.iter().all(|due| range.contains(due)),
            "{what}: {new:?} not in {range:?}"
        );
    }
}
