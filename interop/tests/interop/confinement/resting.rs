//! Attacks on connections in deep rest: by a hijacked worker, and by the process tcp-repair, which a packet has hijacked.
//! All assertions are made from outside.

use std::fs;
use std::time::Duration;

use dormouse_interop::intruder::{Intruder, Thread, libc};
use dormouse_interop::namespace::Room;
use dormouse_interop::peer::Peer;
use dormouse_interop::scene::PLAIN_PORT;
use dormouse_interop::terminator::{Settings, Target};

use super::hijacked::{can_run, is_refused};
use crate::operation::rest_after::{Quiet, address};
use crate::operation::rest_on_machines::{as_service, granted};

/// The length of a message, and the descriptors that fit into one.
const MESSAGE_LEN: usize = 8;
const DESCRIPTORS_MAX: usize = 253;

/// Subjects of messages: all that exist, and some that do not.
const SUBJECTS: u8 = 20;

/// A gateway with two workers, and connections of both that rest.
fn resting(change: impl FnOnce(&mut Settings)) -> Option<(Quiet, Vec<Peer>)> {
    let target = Target::Tcp(address(PLAIN_PORT));
    let quiet = Quiet::inside(Room::make()?, "200ms", &target, |settings| {
        settings.workers = 2;
        change(settings);
    })?;
    let clients = quiet.clients(16, &target);
    quiet.wait_for_rest();
    Some((quiet, clients))
}

fn assert_alive(quiet: &Quiet, clients: &mut [Peer]) {
    for client in clients {
        client.echo().expect("an echo");
    }
    quiet.wait_for_rest();
    assert_eq!(quiet.resets(), 0);
}

/// The worker's end of its channel to tcp-repair, as its handover names it, the descriptor of the records, and the
/// number of its own records.
fn channel(intruder: &Intruder) -> (i64, i64, u32) {
    let pid = intruder.pid();
    let places = intruder.descriptors("/memfd:dormouse-handover");
    let texts = places.into_iter().filter_map(|place| {
        let bytes = fs::read(format!("/proc/{pid}/fd/{place}")).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    });
    let found = texts.into_iter().find_map(|text| {
        let end = text.find("\"records_count\"")?;
        let number = |name: &str, from: usize| {
            let word = format!("\"{name}\":");
            let at = match from {
                0 => text[..end].rfind(&word)?,
                from => from + text[from..].find(&word)?,
            };
            let digits = text[at + word.len()..].chars();
            let digits: String = digits.take_while(char::is_ascii_digit).collect();
            digits.parse::<u32>().ok()
        };
        Some((
            number("channel", 0)?.into(),
            number("records", 0)?.into(),
            number("count", end)?,
        ))
    });
    found.expect("a channel to tcp-repair")
}

fn message(subject: u8, record: u32) -> [u8; MESSAGE_LEN] {
    let [a, b, c, d] = record.to_le_bytes();
    [subject, 0, 0, 0, a, b, c, d]
}

/// Messages of every kind about its own records, those of the other worker, and none, with descriptors of every kind.
#[test]
fn a_hijacked_worker_disturbs_no_connection_of_another() {
    requires!(can_run());
    let Some((quiet, mut clients)) = resting(|_| {}) else {
        return;
    };
    let repair = quiet.repair_process();
    let mut intruder = Intruder::enter_first(&quiet.scene.terminator);
    let (to_repair, records, count) = channel(&intruder);
    let sockets = intruder.descriptors("socket:");
    let all: Vec<i32> = sockets.iter().map(|fd| *fd as i32).collect();
    let all = &all[..all.len().min(DESCRIPTORS_MAX)];
    for subject in 0..SUBJECTS {
        // Not its own, of which every misuse is its own loss.
        for record in [count, count + 1, 2 * count, u32::MAX] {
            for descriptors in [&[][..], &all[..1], all] {
                let bytes = message(subject, record);
                let _ = intruder.send(to_repair, &bytes, descriptors);
            }
        }
    }
    for garbage in [&[0xff; MESSAGE_LEN][..], &[0; 3], &[0; 400]] {
        let _ = intruder.send(to_repair, garbage, all);
    }
    // It may read the records, and neither write nor cut them.
    let file = intruder.overwrite(records, 0, &[0; 64]);
    assert!(file.is_err(), "a worker writes records");
    let zero = [records, 0];
    assert!(intruder.call(libc::SYS_ftruncate, &zero).is_err());
    let write = i64::from(libc::PROT_READ | libc::PROT_WRITE);
    let shared = i64::from(libc::MAP_SHARED);
    let mapped = intruder.call(libc::SYS_mmap, &[0, 4096, write, shared, records, 0]);
    assert!(mapped.is_err(), "a worker maps records to write");
    // And it does not repair connections itself.
    let on = intruder.put(&1_u32.to_le_bytes());
    let tcp = (libc::AF_INET, libc::SOCK_STREAM);
    let new = intruder.call(libc::SYS_socket, &[tcp.0.into(), tcp.1.into(), 0]);
    let option = [
        new.expect("a socket"),
        libc::IPPROTO_TCP.into(),
        libc::TCP_REPAIR.into(),
        on,
        4,
    ];
    let repaired = intruder.call(libc::SYS_setsockopt, &option);
    assert!(is_refused(&repaired), "{repaired:?}");
    // It has said nonsense about itself, too. Its successor begins anew.
    intruder.crash();
    assert_eq!(quiet.repair_process(), repair, "tcp-repair has died");
    assert_alive(&quiet, &mut clients);
}

/// The kernel counts descriptors on their way by user, and refuses more than the limit of the process that sends one.
/// tcp-repair sends one for every wake.
#[test]
fn a_hijacked_worker_with_descriptors_on_their_way_ends_no_process() {
    requires!(can_run(), "setpriv");
    // Of this user all gateways would suffer, also those of other tests.
    let own_user = |settings: &mut Settings| {
        // It writes the admin socket into the test's folder.
        let words = as_service(&format!("{},+dac_override", granted()));
        settings.wrapper = words.split(' ').map(str::to_owned).collect();
    };
    let Some((quiet, mut clients)) = resting(own_user) else {
        return;
    };
    let repair = quiet.repair_process();
    let mut intruder = Intruder::enter_first(&quiet.scene.terminator);
    let any = intruder.channel() as i32;
    let mut is_full = false;
    // Pairs that nobody reads.
    for _ in 0..100 {
        let ends = intruder.put(&[0; 8]);
        let unix = [libc::AF_UNIX.into(), libc::SOCK_STREAM.into(), 0, ends];
        if intruder.call(libc::SYS_socketpair, &unix).is_err() {
            break;
        }
        let ends = intruder.look(ends, 4);
        let end = i32::from_le_bytes(ends.try_into().expect("a number"));
        let refused = (0..1000)
            .find_map(|_| (intruder.send(end.into(), b"x", &[any; DESCRIPTORS_MAX])).err());
        let refused = refused.expect("a full pair");
        if refused.raw_os_error() == Some(libc::ETOOMANYREFS) {
            is_full = true;
            break;
        }
    }
    assert!(is_full, "as many as it may send are on their way");
    // Nothing can wake meanwhile: these clients wait. They stay, because their kernel resets what comes for closed sockets.
    let mut waiting: Vec<_> = clients.drain(..2).collect();
    for client in &mut waiting {
        let timeout = Some(Duration::from_secs(2));
        client.tcp.set_read_timeout(timeout).expect("a timeout");
        let _ = client.echo();
    }
    assert_eq!(quiet.repair_process(), repair, "tcp-repair has died");
    intruder.crash();
    assert_alive(&quiet, &mut clients);
    assert_eq!(quiet.repair_process(), repair, "tcp-repair has died");
    let broken = quiet
        .scene
        .terminator
        .lines_with("channel to tcp-repair broken");
    assert!(broken.is_empty(), "{broken:?}");
}

/// What it could do with CAP_NET_ADMIN and its descriptors, besides TCP.
#[test]
fn a_hijacked_repair_process_configures_no_network_and_reaches_no_process() {
    requires!(can_run());
    let Some((quiet, mut clients)) = resting(|_| {}) else {
        return;
    };
    let main = i64::from(quiet.scene.terminator.pid());
    let mut intruder = Intruder::enter_thread(quiet.repair_process(), Thread::First);
    let room = intruder.put(&[0; 256]);
    let path = intruder.put(b"/etc/passwd\0");
    for (family, kind, protocol) in [
        (libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE),
        (libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER),
        (libc::AF_PACKET, libc::SOCK_RAW, 0),
        (libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_TCP),
        (libc::AF_INET, libc::SOCK_DGRAM, 0),
        (libc::AF_UNIX, libc::SOCK_STREAM, 0),
        (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP),
    ] {
        let words = [family, kind, protocol].map(i64::from);
        let made = intruder.call(libc::SYS_socket, &words);
        assert!(is_refused(&made), "socket {words:?}: {made:?}");
    }
    let tcp = [libc::AF_INET, libc::SOCK_STREAM, 0].map(i64::from);
    let tcp = intruder.call(libc::SYS_socket, &tcp).expect("its own kind");
    for request in [
        libc::SIOCSIFFLAGS as i64,
        libc::SIOCSIFADDR as i64,
        libc::SIOCADDRT as i64,
    ] {
        let asked = intruder.call(libc::SYS_ioctl, &[tcp, request, room]);
        assert!(is_refused(&asked), "ioctl {request:#x}: {asked:?}");
    }
    for (level, option) in [
        (libc::SOL_SOCKET, libc::SO_MARK),
        (libc::SOL_SOCKET, libc::SO_BINDTODEVICE),
        (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE),
        (libc::SOL_IP, libc::IP_TRANSPARENT),
        (libc::SOL_IP, 64), // IPT_SO_SET_REPLACE
    ] {
        let set = [tcp, level.into(), option.into(), room, 4];
        let set = intruder.call(libc::SYS_setsockopt, &set);
        assert!(is_refused(&set), "option {level} {option}: {set:?}");
    }
    for (what, number, words) in [
        ("open", libc::SYS_openat, [-100, path, 0, 0]),
        ("execve", libc::SYS_execve, [path, 0, 0, 0]),
        ("kill", libc::SYS_kill, [main, 9, 0, 0]),
        ("ptrace", libc::SYS_ptrace, [16, main, 0, 0]),
        ("bpf", libc::SYS_bpf, [5, room, 128, 0]),
        ("listen", libc::SYS_listen, [tcp, 1, 0, 0]),
        ("unshare", libc::SYS_unshare, [0x1000_0000, 0, 0, 0]),
        ("setns", libc::SYS_setns, [tcp, 0, 0, 0]),
        ("fork", libc::SYS_clone, [17, 0, 0, 0]),
        ("pidfd", libc::SYS_pidfd_open, [main, 0, 0, 0]),
        ("memory", libc::SYS_mmap, [0, 4096, 7, 0x22]),
        ("setuid", libc::SYS_setuid, [0, 0, 0, 0]),
    ] {
        let called = intruder.call(number, &words);
        assert!(is_refused(&called), "{what}: {called:?}");
    }
    let _ = intruder.call(libc::SYS_close, &[tcp]);
    // The records have their length for ever: workers map them.
    for file in intruder.descriptors("/memfd:tcp-records") {
        assert!(intruder.call(libc::SYS_ftruncate, &[file, 0]).is_err());
    }
    drop(intruder);
    assert_alive(&quiet, &mut clients);
}
