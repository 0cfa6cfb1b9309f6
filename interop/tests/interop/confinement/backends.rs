//! Attacks by a hijacked worker on what decides where other workers connect: the tables of backends.

use std::fs;

use dormouse_interop::admin::Admin;
use dormouse_interop::checks;
use dormouse_interop::intruder::{Intruder, libc};
use dormouse_interop::peer::Peer;

use serde_json::Value;

use super::hijacked::can_run;
use crate::backends::balance::Scene;

/// Two workers and two backends with health checks.
fn scene() -> (Scene, Admin) {
    let limit = ", max_connections = 40";
    let scene = Scene::new(&[limit, limit], |settings| {
        settings.workers = 2;
        settings.option("check", "connect");
        settings.option("check_every", "200ms");
        // The tracer stops the worker for longer than a hang.
        settings.option("hang_timeout", "off");
        Admin::in_folder(settings);
    });
    let admin = Admin::at(&scene.folder.path().join("admin.sock"));
    checks::until(&admin, 0, "healthy");
    checks::until(&admin, 1, "healthy");
    (scene, admin)
}

/// The results of health checks, and the places of backends: a worker can read them only.
#[test]
fn a_worker_cannot_forge_the_result_of_a_check() {
    requires!(can_run());
    let (scene, _admin) = scene();
    let mut intruder = Intruder::enter_first(&scene.terminator);
    let roster = intruder.descriptors("/memfd:dormouse-roster");
    assert!(!roster.is_empty(), "no table to attack");
    let writable = i64::from(libc::PROT_READ | libc::PROT_WRITE);
    let shared = i64::from(libc::MAP_SHARED);
    for fd in roster {
        assert!(intruder.overwrite(fd, 0, &[0xff; 4096]).is_err());
        let mapped = intruder.call(libc::SYS_mmap, &[0, 4096, writable, shared, fd, 0]);
        assert!(mapped.is_err(), "mapped for writing");
    }
    let maps = fs::read_to_string(format!("/proc/{}/maps", intruder.pid())).expect("its maps");
    let of_roster = maps.lines().filter(|line| line.contains("dormouse-roster"));
    let starts: Vec<i64> = of_roster
        .filter_map(|line| i64::from_str_radix(line.split('-').next()?, 16).ok())
        .collect();
    assert!(!starts.is_empty(), "{maps}");
    for start in starts {
        let changed = intruder.call(libc::SYS_mprotect, &[start, 4096, writable]);
        assert!(changed.is_err(), "the mapping has become writable");
    }
}

/// Connections to each backend. A forged number is as large as any.
fn connections(status: &Value) -> [u128; 2] {
    [0, 1].map(|number| {
        status["backends"][number]["connections"]
            .as_u64()
            .unwrap_or(0)
            .into()
    })
}

/// A hijacked worker writes into all marks that every backend has failed and is full, for all workers and for ever.
/// When the worker has ended, both backends get connections again, of both workers.
#[test]
fn forged_marks_end_with_the_worker() {
    requires!(can_run());
    let (scene, admin) = scene();
    let mut held: Vec<Peer> = (0..6).map(|n| scene.connect(n + 1)).collect();
    let mut intruder = Intruder::enter_first(&scene.terminator);
    let first = intruder.pid();
    for fd in intruder.descriptors("/memfd:dormouse-backends") {
        let len = intruder.metadata(fd).len() as usize;
        intruder
            .overwrite(fd, 0, &vec![0xff; len])
            .expect("a table that workers write");
    }
    intruder.crash();
    scene.terminator.successor_of(first);
    // Until both workers have written their counts, both backends seem full, and clients may be refused.
    held.extend((0..16).filter_map(|n| scene.try_connect(n + 1).ok()));
    // A worker writes its own counts again when it chooses a backend. The kernel decides which worker accepts.
    for n in 0..40 {
        if connections(&admin.status()).iter().sum::<u128>() == held.len() as u128 {
            break;
        }
        held.extend(scene.try_connect(n % 16 + 1).ok());
    }
    // Whatever the first ones did, when one worker's counts were still wrong: from now on both backends are chosen.
    held.extend((0..8).map(|n| scene.connect(n + 1)));
    let status = admin.status();
    let connections = connections(&status);
    // Those of the worker that has ended were taken over.
    assert_eq!(
        connections.iter().sum::<u128>(),
        held.len() as u128,
        "{status}"
    );
    assert!(connections.iter().all(|&some| some >= 4), "{status}");
    assert!(
        (0..2).all(|number| status["backends"][number]["up"] == true),
        "{status}"
    );
    for peer in &mut held {
        peer.echo().expect("an echo");
    }
}
