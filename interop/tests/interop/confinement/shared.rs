//! Attacks by a hijacked worker on what it shares with other processes: memory files, tables, listeners, logs.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use dormouse_interop::admin::Admin;
use dormouse_interop::content::random;
use dormouse_interop::intruder::{Intruder, libc};
use dormouse_interop::peer::Peer;
use dormouse_interop::probe::Probe;
use dormouse_interop::process::{signal, status};
use dormouse_interop::scene::Scene;
use dormouse_interop::slots;
use dormouse_interop::terminator::Target;
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;
use rustls::HandshakeKind;

use super::hijacked::{can_run, descriptors, is_refused};

/// Offset of the first slot in the memory file of slots, and the length of one.
const SLOTS_AT: usize = 16 * 4096;
const SLOT: usize = 192;

/// Two workers, of which a test hijacks the first.
fn scene_of_two(change: impl FnOnce(&mut dormouse_interop::terminator::Settings)) -> Scene {
    Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.workers = 2;
        // The tracer stops the worker for longer than a hang.
        settings.option("hang_timeout", "off");
        Admin::in_folder(settings);
        change(settings);
    })
}

/// Connections of the other worker: opened while the first one is stopped.
fn probes_of_the_other(scene: &Scene) -> Vec<Probe> {
    let first = scene.terminator.named("worker-0").expect("a worker");
    // Before it has stopped it could still accept a connection.
    slots::stop(first);
    let probes = (0..3).map(|_| scene.probe()).collect();
    signal(first, Signal::CONT);
    probes
}

fn assert_serves(scene: &Scene, probes: &mut [Probe], when: &str) {
    for probe in probes {
        let echo = probe.echo(500);
        echo.unwrap_or_else(|fault| panic!("{when}: a connection of the other worker: {fault:?}"));
    }
    for _ in 0..4 {
        let _newcomer = scene.probe();
    }
}

/// Names of memory files, as /proc shows them.
fn memory_files(intruder: &Intruder) -> Vec<(i64, String)> {
    let name = |fd: i64| {
        let link = fs::read_link(format!("/proc/{}/fd/{fd}", intruder.pid())).expect("open");
        let link = link.to_string_lossy().replace("/memfd:dormouse-", "");
        (fd, link.replace(" (deleted)", ""))
    };
    let all = intruder.descriptors("/memfd:dormouse-");
    all.into_iter().map(name).collect()
}

/// No memory file can be truncated, which would kill the processes that have mapped it, or sealed, which would keep
/// later ones from mapping it. What main has written cannot be changed.
#[test]
fn a_worker_cannot_change_memory_files_of_others() {
    const F_SEAL_WRITE: i64 = 8;
    const F_SEAL_FUTURE_WRITE: i64 = 16;
    requires!(can_run());
    let scene = scene_of_two(|settings| {
        settings.option("connection_log", "stderr");
    });
    let mut intruder = Intruder::enter_first(&scene.terminator);
    let files = memory_files(&intruder);
    let names: BTreeSet<&str> = files.iter().map(|(_, name)| name.as_str()).collect();
    for expected in [
        "slots", "pending", "counters", "clients", "backends", "roster", "handover", "board",
    ] {
        assert!(names.contains(expected), "no {expected} in {names:?}");
    }
    for (fd, name) in &files {
        let len = intruder.metadata(*fd).len();
        for to in [0, len / 2, len * 2] {
            let cut = intruder.call(libc::SYS_ftruncate, &[*fd, to as i64]);
            assert!(cut.is_err(), "{name} has now {to} bytes");
        }
        for seal in [F_SEAL_WRITE, F_SEAL_FUTURE_WRITE] {
            let arguments = [*fd, i64::from(libc::F_ADD_SEALS), seal];
            let sealed = intruder.call(libc::SYS_fcntl, &arguments);
            assert!(sealed.is_err(), "{name} has the seal {seal}");
        }
        if ["handover", "board", "roster"].contains(&name.as_str()) {
            assert!(intruder.overwrite(*fd, 0, b"forged").is_err(), "{name}");
            let writable = i64::from(libc::PROT_READ | libc::PROT_WRITE);
            let shared = i64::from(libc::MAP_SHARED);
            let mapped = intruder.call(libc::SYS_mmap, &[0, 4096, writable, shared, *fd, 0]);
            assert!(mapped.is_err(), "{name} is mapped for writing");
        }
    }
}

/// A worker has neither a descriptor nor a mapping of another worker's connections.
#[test]
fn a_worker_does_not_see_connections_of_another() {
    requires!(can_run());
    let scene = scene_of_two(|settings| {
        settings.option("connection_log", "stderr");
    });
    let of = |name: &str| {
        let pid = scene.terminator.named(name).expect("a process");
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors");
        let opened = fds.flatten().filter_map(|fd| {
            let link = fs::read_link(fd.path()).ok()?;
            let file = fs::metadata(fd.path()).ok()?;
            Some((link.to_string_lossy().into_owned(), file.ino()))
        });
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("its maps");
        let mapped = maps.lines().filter_map(|line| {
            let mut words = line.split_whitespace().skip(4);
            let inode = words.next()?.parse().ok()?;
            Some((words.next()?.to_owned(), inode))
        });
        let secret = ["slots", "pending", "log-entries", "handover"];
        let is_secret = |link: &str| {
            secret
                .iter()
                .any(|name| link.starts_with(&format!("/memfd:dormouse-{name}")))
        };
        let all: BTreeSet<u64> = (opened.chain(mapped.collect::<Vec<_>>()))
            .filter(|(link, _)| is_secret(link))
            .map(|(_, inode)| inode)
            .collect();
        assert!(all.len() >= 4, "{name}: {all:?}");
        all
    };
    let workers = [of("worker-0"), of("worker-1")];
    let both: Vec<&u64> = workers[0].intersection(&workers[1]).collect();
    assert!(both.is_empty(), "memory files of both workers: {both:?}");
}

/// Garbage in the tables that all workers share: counters, clients, backends, traffic. They are hints, so no other
/// process may crash, hang or stop serving. Ticket keys are not in them.
#[test]
fn garbage_in_shared_tables_stops_no_other_process() {
    const BYTES_MAX: usize = 128 << 10;
    requires!(can_run());
    let mut scene = scene_of_two(|settings| {
        settings.option("connections_per_client", "100000");
        settings.option("handshakes_per_client", "60000");
    });
    let admin = Admin::of(&scene);
    let mut probes = probes_of_the_other(&scene);
    let tree: BTreeSet<u32> = scene.terminator.tree().into_iter().collect();
    for pattern in ["ones", "random", "zeros"] {
        let mut intruder = Intruder::enter_first(&scene.terminator);
        let mut changed = 0;
        for (fd, name) in memory_files(&intruder) {
            let shared = ["counters", "clients", "backends", "traffic", "sessions"];
            if !shared.contains(&name.as_str()) {
                continue;
            }
            let len = (intruder.metadata(fd).len() as usize).min(BYTES_MAX);
            let content = match pattern {
                "ones" => vec![0xff; len],
                "zeros" => vec![0; len],
                _ => random(len),
            };
            intruder.overwrite(fd, 0, &content).expect("a shared table");
            changed += 1;
        }
        assert!(changed >= 4, "{changed} tables");
        drop(intruder);
        for probe in &mut probes {
            probe.echo(500).expect("an echo from the other worker");
        }
        for page in ["/status", "/metrics"] {
            let (status, _) = admin.ask("GET", page);
            assert_eq!(status, 200, "{page} with {pattern}");
        }
        // The answer may be wrong, because the counters contain the workers' process ids. But there is one.
        admin.ask("GET", "/healthz");
        admin.order("/reload").expect("a reload");
        let still: BTreeSet<u32> = scene.terminator.tree().into_iter().collect();
        assert_eq!(still, tree, "{pattern}: a process has died");
    }
    // Tables of zeros count as new, except for the limits per client, which are counted at random.
    assert_serves(&scene, &mut probes, "after all patterns");
    let resumed = peer_of(&scene);
    assert_eq!(resumed.tls.handshake_kind(), Some(HandshakeKind::Resumed));
    drop((resumed, probes));
    let status = scene.terminator.terminate();
    assert!(status.success(), "{status}");
}

fn peer_of(scene: &Scene) -> Peer {
    for _ in 0..2 {
        let mut peer = Peer::connect(scene.address).expect("a connection");
        peer.echo().expect("an echo");
    }
    let mut peer = Peer::connect(scene.address).expect("a connection");
    peer.echo().expect("an echo");
    peer
}

/// Garbage in its own slots, before it crashes: its successor drops the connections that it cannot verify, and
/// serves new ones. Other workers notice nothing.
#[test]
fn garbage_in_its_slots_costs_only_its_own_connections() {
    requires!(can_run());
    let mut scene = scene_of_two(|_| {});
    let mut probes = probes_of_the_other(&scene);
    let keepers = ["keeper-0", "keeper-1"].map(|name| scene.terminator.named(name));
    for (round, flips) in [None, Some(1), Some(8), Some(200), None]
        .into_iter()
        .enumerate()
    {
        // Some of them belong to the first worker.
        let _peers: Vec<Peer> = (0..12)
            .map(|_| Peer::connect(scene.address).expect("a peer"))
            .collect();
        let mut intruder = Intruder::enter_first(&scene.terminator);
        let first = intruder.pid();
        let slots = intruder.descriptors("/memfd:dormouse-slots")[0];
        let file = fs::read(format!("/proc/{first}/fd/{slots}")).expect("its slots");
        let mut content = file[SLOTS_AT..SLOTS_AT + 16 * SLOT].to_vec();
        match flips {
            None => content = random(content.len()),
            Some(flips) => {
                let places = random(3 * flips);
                for place in places.chunks(3) {
                    let at = usize::from(u16::from_le_bytes([place[0], place[1]])) % content.len();
                    content[at] ^= 1 << (place[2] % 8);
                }
            }
        }
        intruder
            .overwrite(slots, SLOTS_AT, &content)
            .expect("its own slots");
        intruder.crash();
        scene.terminator.successor_of(first);
        assert_serves(&scene, &mut probes, &format!("round {round}"));
        // A keeper that executes itself after a crash has another name for a moment.
        wait::until_true("the same keepers", || {
            let now = ["keeper-0", "keeper-1"].map(|name| scene.terminator.named(name));
            now == keepers
        });
    }
    let status = scene.terminator.terminate();
    assert!(status.success(), "{status}");
}

/// The largest number as the descriptor of its connections: the next worker makes no room for all smaller ones.
#[test]
fn a_descriptor_number_in_a_slot_takes_no_memory() {
    /// Offset of the descriptor in a slot.
    const DESCRIPTOR_AT: usize = 128;
    requires!(can_run());
    let scene = scene_of_two(|settings| settings.workers = 1);
    let _peers: Vec<Peer> = (0..4)
        .map(|_| Peer::connect(scene.address).expect("a peer"))
        .collect();
    let mut intruder = Intruder::enter_first(&scene.terminator);
    let first = intruder.pid();
    let slots = intruder.descriptors("/memfd:dormouse-slots")[0];
    for n in 0..4 {
        let at = SLOTS_AT + n * SLOT + DESCRIPTOR_AT;
        let largest = (i32::MAX - n as i32).to_le_bytes();
        intruder.overwrite(slots, at, &largest).expect("its own");
    }
    intruder.crash();
    let _newcomer = scene.probe();
    let next = scene.terminator.named("worker-0").expect("a worker");
    assert_ne!(next, first);
    let most = status(next, "VmHWM:");
    let most: u64 = most.trim_end_matches(" kB").parse().expect("a number");
    assert!(most < 128 << 10, "{most} kB");
}

/// Garbage in the header of its slots, which the keeper and the next worker read. The pair may be lost, and nothing
/// else.
#[test]
fn garbage_in_the_header_of_its_slots_costs_only_its_pair() {
    requires!(can_run());
    for pattern in [vec![0xff; 4096], vec![0; 4096], random(4096)] {
        let mut scene = scene_of_two(|_| {});
        let mut probes = probes_of_the_other(&scene);
        let mut intruder = Intruder::enter_first(&scene.terminator);
        let first = intruder.pid();
        let slots = intruder.descriptors("/memfd:dormouse-slots")[0];
        intruder
            .overwrite(slots, 0, &pattern)
            .expect("its own slots");
        intruder.crash();
        wait::until_true("the worker to end", || {
            scene.terminator.named("worker-0") != Some(first)
        });
        for _ in 0..3 {
            assert_serves(&scene, &mut probes, "after the crash");
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        Admin::of(&scene).status();
        scene.terminator.terminate();
    }
}

/// The listeners are shared by all workers. A worker cannot attach a filter to one; what it can change is undone when
/// it is replaced.
#[test]
fn listeners_outlive_a_worker_that_stops_them() {
    requires!(can_run());
    let scene = scene_of_two(|_| {});
    let mut probes = probes_of_the_other(&scene);
    let mut intruder = Intruder::enter_first(&scene.terminator);
    let first = intruder.pid();
    let listeners: Vec<i64> = intruder.descriptors("socket:");
    let mut stopped = 0;
    for fd in listeners {
        let filter = intruder.put(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for (what, level, option) in [
            ("SO_ATTACH_FILTER", libc::SOL_SOCKET, libc::SO_ATTACH_FILTER),
            ("SO_LOCK_FILTER", libc::SOL_SOCKET, libc::SO_LOCK_FILTER),
            ("SO_ATTACH_REUSEPORT_CBPF", libc::SOL_SOCKET, 51),
            ("SO_BINDTODEVICE", libc::SOL_SOCKET, libc::SO_BINDTODEVICE),
            ("SO_MARK", libc::SOL_SOCKET, libc::SO_MARK),
            ("SO_RCVLOWAT", libc::SOL_SOCKET, libc::SO_RCVLOWAT),
            (
                "TCP_DEFER_ACCEPT",
                libc::IPPROTO_TCP,
                libc::TCP_DEFER_ACCEPT,
            ),
            ("TCP_REPAIR", libc::IPPROTO_TCP, libc::TCP_REPAIR),
            ("TCP_MD5SIG", libc::IPPROTO_TCP, libc::TCP_MD5SIG),
        ] {
            let arguments = [fd, i64::from(level), i64::from(option), filter, 16];
            let set = intruder.call(libc::SYS_setsockopt, &arguments);
            assert!(is_refused(&set), "{what}: {set:?}");
        }
        for how in [libc::SHUT_RD, libc::SHUT_RDWR] {
            let shut = intruder.call(libc::SYS_shutdown, &[fd, i64::from(how)]);
            assert!(is_refused(&shut), "shutdown({how}): {shut:?}");
        }
        // An accepted connection would inherit it: a reset instead of a proper end.
        let linger = intruder.put(&[1, 0, 0, 0, 0, 0, 0, 0]);
        let [level, option] = [libc::SOL_SOCKET, libc::SO_LINGER].map(i64::from);
        let _ = intruder.call(libc::SYS_setsockopt, &[fd, level, option, linger, 8]);
        // The kernel ends a listener that is "connected" to no address.
        let nowhere = intruder.put(&[0; 16]);
        if intruder.call(libc::SYS_connect, &[fd, nowhere, 16]).is_ok() {
            stopped += 1;
        }
    }
    assert!(
        stopped > 0,
        "a listener can be stopped, which is what this test repairs"
    );
    intruder.crash();
    scene.terminator.successor_of(first);
    wait::until("the listener to accept again", PATIENCE, || {
        std::net::TcpStream::connect(scene.address).ok()
    });
    assert_serves(&scene, &mut probes, "after the listener was restored");
    let mut peer = peer_of(&scene);
    peer.end_sending().expect("a connection");
    peer.receive_all().expect("a proper end, no reset");
}

/// A worker floods its socket to the writer of the connection log, with lines without end, control characters and
/// descriptors. The writer keeps no descriptor, and writes the lines of others.
#[test]
fn the_connection_log_survives_a_hijacked_worker() {
    requires!(can_run());
    let scene = scene_of_two(|settings| {
        settings.option("connection_log", "connections.log");
    });
    let writer = scene
        .terminator
        .tree()
        .into_iter()
        .find(|pid| {
            let title = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            title.contains("log-writer")
        })
        .expect("the log's writer");
    let before = descriptors(writer);
    let mut intruder = Intruder::enter_first(&scene.terminator);
    let sockets = intruder.unix_streams();
    assert!(!sockets.is_empty(), "no socket to the writer");
    let endless = vec![b'x'; 20_000];
    let forged = b"client=192.0.2.1 end=closed \x1b[2J\x00\n".repeat(200);
    for fd in &sockets {
        for content in [&endless, &forged, &random(20_000), &endless] {
            for some in [0, 1, 100] {
                let _ = intruder.send(*fd, content, &vec![*fd as i32; some]);
            }
        }
    }
    drop(intruder);
    let log = scene.folder.path().join("connections.log");
    let lines = || {
        let text = fs::read(&log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines()
            .filter(|line| line.contains("client=127."))
            .count()
    };
    let had = lines();
    for _ in 0..10 {
        let mut peer = Peer::connect(scene.address).expect("a connection");
        peer.echo().expect("an echo");
        peer.end_sending().expect("a connection");
        peer.receive_all().expect("a proper end");
    }
    // The first line after the flood may be the end of a forged one.
    wait::until_true("the lines of ten connections", || lines() >= had + 9);
    assert!(
        fs::metadata(format!("/proc/{writer}")).is_ok(),
        "the writer has died"
    );
    wait::until_true("the writer to keep no descriptor", || {
        descriptors(writer) == before
    });
}
