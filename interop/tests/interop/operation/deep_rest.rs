//! Deep rest, as far as a command can show it: connections leave the kernel and come back, through a process that can
//! do nothing else; and where that is impossible, the reason is named.

use std::process::{Command, Output};

use dormouse_interop::namespace::Room;
use dormouse_interop::requirement::Root;
use dormouse_interop::terminator::Can;
use dormouse_interop::tools;

/// Runs the trial in a network of its own, after these words of a shell.
fn trial(room: &Room, before: &str) -> Output {
    let program = tools::dormouse().display().to_string();
    let script = format!("{before} {program} rest-trial");
    let words = room.command(&["sh".to_owned(), "-c".to_owned(), script]);
    Command::new(&words[0])
        .args(&words[1..])
        .output()
        .expect("a shell")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A counter of the room's TCP.
pub(super) fn counted(room: &Room, name: &'static str) -> u64 {
    room.run(move || {
        let text = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
        let mut rows = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
        let (names, values) = (rows.next().expect("names"), rows.next().expect("values"));
        let pairs = names.split(' ').zip(values.split(' '));
        let mut found = pairs.filter(|(word, _)| *word == name);
        found
            .next()
            .expect("a counter")
            .1
            .parse()
            .expect("a number")
    })
}

#[test]
fn connections_leave_the_kernel_and_come_back() {
    requires!(Can::BeDormouse, Root);
    let Some(room) = Room::make() else { return };
    // An address that is not of loopback, as a firewall distinguishes them.
    let own = "ip addr add 192.0.2.7/32 dev lo && ip route add default dev lo src 192.0.2.7 &&";
    let output = trial(&room, own);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    for ip in ["127.0.0.1: ", "::1: ", "192.0.2.7: "] {
        assert!(said.contains(ip), "{said}");
    }
    assert_eq!(counted(&room, "OutRsts"), 0);
    assert_eq!(counted(&room, "RetransSegs"), 0);
}

#[test]
fn the_process_that_repairs_can_do_nothing_else() {
    requires!(Can::BeDormouse, Root);
    let Some(room) = Room::make() else { return };
    let said = text(&trial(&room, "DORMOUSE_TRIAL=forbidden").stderr);
    let refused = "ptrace process_vm_readv mount bpf unshare open create execve fork kill \
                   executable_memory packet_socket listen setuid raise_limit";
    for what in refused.split(' ') {
        assert!(said.contains(&format!("{what}=refused")), "{what}: {said}");
    }
    assert!(said.contains("TcpRepair"), "{said}");
}

#[test]
fn a_missing_privilege_is_named() {
    requires!(Can::BeDormouse, Root, "setpriv");
    let Some(room) = Room::make() else { return };
    for (capabilities, reason) in [
        ("-bpf,-sys_admin", "(BPF): Operation not permitted"),
        ("-net_admin", "CAP_NET_ADMIN"),
        ("-net_raw", "(CAP_NET_RAW): Operation not permitted"),
    ] {
        let without = format!("setpriv --bounding-set={capabilities}");
        let output = trial(&room, &without);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{capabilities}: {said}");
        assert!(said.contains(reason), "{capabilities}: {said}");
    }
}
