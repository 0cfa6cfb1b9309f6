//! `max_awake`: few connections have sockets, and many rest. A storm of wakes passes through the few places.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dormouse_interop::backend::Backend;
use dormouse_interop::cgroup::Cgroup;
use dormouse_interop::namespace;
use dormouse_interop::peer::Peer;
use dormouse_interop::requirement::Root;
use dormouse_interop::scene::{PLAIN_PORT, TLS_PORT};
use dormouse_interop::terminator::{Can, Target};
use dormouse_interop::wait::{self, PATIENCE};

use super::rest_after::{Quiet, address, connect_over, targets};

/// Connections of which each sends one message when all have sent theirs, and then waits for the answer.
pub(super) fn storm(quiet: &Quiet, clients: Vec<Peer>, most: u64) -> Vec<Peer> {
    let is_over = Arc::new(AtomicBool::new(false));
    let all_over = is_over.clone();
    let echoing = thread::spawn(move || {
        let mut clients = clients;
        let message = |number: usize| [number as u8; 700];
        for (number, client) in clients.iter_mut().enumerate() {
            let sent = client.stream().write_all(&message(number));
            sent.expect("a message");
        }
        for (number, client) in clients.iter_mut().enumerate() {
            let mut back = [0; 700];
            let timeout = Some(PATIENCE);
            client.tcp.set_read_timeout(timeout).expect("a timeout");
            let received = client.stream().read_exact(&mut back);
            received.expect("an answer in a storm");
            assert_eq!(back, message(number));
        }
        all_over.store(true, Ordering::Relaxed);
        clients
    });
    while !is_over.load(Ordering::Relaxed) && !echoing.is_finished() {
        let awake = quiet.counter("awake");
        assert!(awake <= most, "{awake} of {most} are awake");
    }
    echoing.join().expect("every answer was right")
}

#[test]
fn a_storm_of_wakes_passes_through_few_places() {
    requires!(Can::BeDormouse, Root);
    const CLIENTS: usize = 300;
    const AWAKE: u64 = 16;
    for target in targets() {
        // None rests by its own time.
        let quiet = Quiet::after("1h", &target, |settings| {
            settings.workers = 1;
            settings.option("max_awake", &AWAKE.to_string());
            settings.option("max_connections", &(CLIENTS + 10).to_string());
        });
        let Some(quiet) = quiet else { return };
        let mut clients = quiet.clients(CLIENTS, &target);
        assert_eq!(quiet.counter("connections"), CLIENTS as u64);
        assert!(quiet.counter("rests_early") as usize >= CLIENTS - AWAKE as usize);
        for _ in 0..2 {
            clients = storm(&quiet, clients, AWAKE);
        }
        assert!(quiet.counter("wakes_waited") > 0, "{target:?}");
        let status = quiet.admin.status();
        assert_eq!(status["connections"]["awake_max"], AWAKE);
        // New clients find a place, too.
        let more = quiet.clients(5, &target);
        assert_eq!(quiet.resets(), 0, "{target:?}");
        drop((clients, more));
        wait::until_true("all connections to end", || {
            quiet.counter("connections") == 0 && quiet.counter("awake") == 0
        });
    }
}

/// Sides that never rest keep the places of their connections: they always wake, and new clients wait.
#[test]
fn connections_that_rest_on_one_side_keep_their_places() {
    requires!(Can::BeDormouse, Root);
    const AWAKE: usize = 16;
    let folder = tempfile::tempdir().expect("a folder");
    let unix = folder.path().join("backend.sock");
    let backend = Backend::unix(&unix);
    let target = Target::Unix(unix);
    let Some(quiet) = Quiet::after("200ms", &target, |settings| {
        settings.workers = 1;
        settings.option("max_awake", &AWAKE.to_string());
    }) else {
        return;
    };
    // A part of the places is kept for packets.
    let mut clients = quiet.clients(AWAKE - 2, &target);
    for _ in 0..2 {
        quiet.wait_for_rest();
        for client in &mut clients {
            client.echo().expect("an echo");
        }
    }
    assert_eq!(quiet.counter("awake") as usize, AWAKE - 2);
    let room = quiet.room.name();
    let late = thread::spawn(move || {
        namespace::inside(&room, || {
            let tcp = TcpStream::connect(address(TLS_PORT)).expect("the listen queue");
            connect_over(tcp, 0, true)
        })
    });
    for client in &mut clients {
        client.echo().expect("an echo beside one that waits");
    }
    assert!(quiet.counter("paused_awake") > 0);
    assert!(!late.is_finished(), "it waits in the listen queue");
    drop(clients.pop());
    let late = late.join().expect("a place");
    assert_eq!(quiet.resets(), 0);
    drop((late, backend));
}

/// Thousands of quiet connections in a cgroup in which they would not fit if they were awake.
#[test]
fn a_budget_holds_for_connections_that_rest() {
    requires!(Can::BeDormouse, Root);
    const CLIENTS: usize = 2_500;
    const BUDGET: u64 = 96 << 20;
    let target = Target::Tcp(address(PLAIN_PORT));
    let Some(group) = Cgroup::with_memory(BUDGET) else {
        return;
    };
    let quiet = Quiet::after("5s", &target, |settings| {
        settings.workers = 1;
        settings.option("memory", &format!("{} MiB", BUDGET >> 20));
        settings.option("max_connections", &(CLIENTS + 10).to_string());
        settings.outer = group.wrapper();
    });
    let Some(quiet) = quiet else { return };
    let most = quiet.admin.status()["connections"]["awake_max"].as_u64();
    let most = most.expect("a limit");
    assert!((64..CLIENTS as u64 / 4).contains(&most), "{most} awake");
    let mut clients = quiet.clients(CLIENTS, &target);
    for _ in 0..2 {
        clients = storm(&quiet, clients, most);
    }
    assert_eq!(quiet.counter("connections"), CLIENTS as u64);
    assert_eq!(quiet.resets(), 0);
    assert_eq!(group.oom_kills(), 0);
    let peak = group.memory_peak();
    assert!(peak <= BUDGET, "{peak} bytes: {}", group.memory_parts());
    drop(clients);
    drop(quiet);
    drop(group);
}
