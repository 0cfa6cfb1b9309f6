//! Deep rest on machines of all kinds: firewalls, users, ports and addresses. Where connections cannot rest, the start
//! and `check` name the reason.

use std::net::SocketAddr;
use std::process::Command;

use dormouse_interop::machine::Machine;
use dormouse_interop::namespace::Room;
use dormouse_interop::requirement::Root;
use dormouse_interop::scene::{PLAIN_PORT, TLS_PORT};
use dormouse_interop::terminator::{Can, Target};
use dormouse_interop::tools;
use dormouse_interop::wait::PATIENCE;

use super::rest_after::{Quiet, address};

const REST_AFTER: &str = "200ms";

/// Runs a command in this network, which must succeed.
pub(super) fn run(room: &Room, line: &str) {
    let words = ["sh", "-c", line].map(str::to_owned);
    let words = room.command(&words);
    let output = Command::new(&words[0]).args(&words[1..]).output();
    let output = output.expect("a shell");
    assert!(output.status.success(), "{line}: {output:?}");
}

/// An address of the room that is not of loopback, as a firewall distinguishes them.
const OWN_ADDRESS: &str =
    "ip addr add 192.0.2.7/32 dev lo && ip route add default dev lo src 192.0.2.7";

/// Clients rest, echo, and rest again.
fn assert_rests(quiet: &Quiet, target: &Target) {
    let mut clients = quiet.clients(4, target);
    for _ in 0..2 {
        quiet.wait_for_rest();
        for client in &mut clients {
            client.echo().expect("an echo");
        }
    }
    assert_eq!(quiet.resets(), 0);
}

#[test]
fn a_firewall_that_follows_connections_disturbs_no_rest() {
    requires!(Can::BeDormouse, Root, "nft");
    let Some(room) = Room::make() else { return };
    run(&room, OWN_ADDRESS);
    run(
        &room,
        "nft 'table inet filter { chain input { type filter hook input priority 0; policy drop; \
         ct state invalid drop; ct state established,related accept; iif lo accept; }; }'",
    );
    let target = Target::Tcp(address(PLAIN_PORT));
    let quiet = Quiet::inside(room, REST_AFTER, &target, |_| {}).expect("a scene");
    assert_rests(&quiet, &target);
}

#[test]
fn a_firewall_that_prevents_wakes_is_named() {
    requires!(Can::BeDormouse, Root, "nft");
    let own = "own address (a firewall may drop packets";
    let rules = [
        ("iif lo ip saddr != 127.0.0.0/8 drop", own),
        ("iif lo ip saddr != 127.0.0.0/8 reject", own),
        ("iif lo drop", "127.0.0.1: nothing happened"),
        ("iif lo ip6 saddr ::1 drop", "::1: nothing happened"),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dormouse.toml");
    let text = "[[route]]\nlisten = '127.0.0.1:8443'\nto = 'echo:'\nself_signed = 'x'\nrest_after = '1m'\n";
    std::fs::write(&file, text).expect("written");
    for (rule, reason) in rules {
        let Some(room) = Room::make() else { return };
        run(&room, OWN_ADDRESS);
        run(
            &room,
            &format!(
                "nft 'table inet filter {{ chain input {{ type filter hook input priority 0; {rule}; }}; }}'"
            ),
        );
        for command in ["serve", "check"] {
            let file = file.display().to_string();
            let words = match command {
                "serve" => vec!["serve", "-c", &file],
                _ => vec!["check", &file],
            };
            let dormouse = tools::dormouse().display().to_string();
            let words: Vec<String> = ([dormouse.as_str()].into_iter().chain(words))
                .map(str::to_owned)
                .collect();
            let words = room.command(&words);
            let output = Command::new(&words[0]).args(&words[1..]).output();
            let output = output.expect("an end");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success(), "{command} with {rule}: {said}");
            assert!(said.contains("rest_after"), "{command} with {rule}: {said}");
            assert!(said.contains(reason), "{command} with {rule}: {said}");
        }
    }
}

#[test]
fn connections_of_ipv6_rest_on_both_sides() {
    requires!(Can::BeDormouse, Root);
    let Some(room) = Room::make() else { return };
    let on_v6 = |port| SocketAddr::new("::1".parse().expect("an address"), port);
    let target = Target::Tcp(on_v6(PLAIN_PORT));
    let quiet = Quiet::inside(room, REST_AFTER, &target, |settings| {
        settings.listen = on_v6(TLS_PORT);
    });
    assert_rests(&quiet.expect("a scene"), &target);
}

/// A listener of both families, which systemd has opened: its clients of IPv4 have sockets of IPv6.
#[test]
fn clients_of_both_families_rest_on_one_listener() {
    requires!(Can::BeDormouse, Root, "openssl", "systemd-socket-activate");
    let Some(machine) = Machine::start() else {
        return;
    };
    machine.write("dormouse.toml", &ON_443.replace("127.0.0.1:443", ":443"));
    let mut server = machine.start_in(
        &machine.home(),
        "exec systemd-socket-activate -l 443 $(which dormouse) serve -c dormouse.toml",
    );
    server.wait_for_line("Listening on", PATIENCE);
    for host in ["127.0.0.1", "[::1]"] {
        let said = machine.echoes(&format!("{host}:443"), "one two three");
        assert_eq!(said.trim(), "one\ntwo\nthree", "{host}: {}", server.log());
    }
    machine.stop(server);
}

/// What the service may do with the drop-in of the guide, as systemd would grant it.
pub(crate) fn granted() -> String {
    let read = |path: &str| {
        let text = std::fs::read_to_string(tools::home().join(path)).expect("a file");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("AmbientCapabilities="));
        line.expect("capabilities").to_owned()
    };
    let all = [
        read("../packaging/systemd/dormouse.service"),
        read("../docs/guide/deep-rest.md"),
    ];
    let all = all.join(" ").to_lowercase();
    let words = all.split_whitespace();
    let words: Vec<String> = words
        .map(|word| format!("+{}", word.trim_start_matches("cap_")))
        .collect();
    words.join(",")
}

/// The beginning of a command that runs as a user of its own with only these capabilities.
pub(crate) fn as_service(capabilities: &str) -> String {
    format!(
        "setpriv --reuid=65533 --regid=65533 --clear-groups --no-new-privs --bounding-set=-all,{capabilities} \
         --inh-caps=-all,{capabilities} --ambient-caps=-all,{capabilities}"
    )
}

const ON_443: &str = "admin = \"none\"\n[[route]]\nlisten = \"127.0.0.1:443\"\nto = \"echo:\"\n\
     self_signed = \"localhost\"\nrest_after = \"200ms\"\n";

#[test]
fn the_drop_in_of_the_guide_suffices_on_port_443() {
    requires!(Can::BeDormouse, Root, "setpriv", "openssl");
    let Some(machine) = Machine::start() else {
        return;
    };
    machine.write("dormouse.toml", ON_443);
    let service = as_service(&granted());
    let line = format!("{service} dormouse check dormouse.toml");
    machine.run(&line);
    let mut server = machine.start_in(
        &machine.home(),
        &format!("exec {service} dormouse serve -c dormouse.toml"),
    );
    server.wait_for_line("ready", PATIENCE);
    let said = machine.echoes("127.0.0.1:443", "one two three");
    assert_eq!(said.trim(), "one\ntwo\nthree", "{}", server.log());
    let repair = server.named("tcp-repair").expect("a process");
    let status = dormouse_interop::process::status(repair, "CapEff:");
    // CAP_NET_BIND_SERVICE and CAP_NET_ADMIN.
    assert_eq!(status, "0000000000001400");
    machine.stop(server);
}

/// The trial uses a port below 1024 if a listener has one: tcp-repair needs a capability for it, even where the listener
/// itself was opened by others.
#[test]
fn a_port_below_1024_without_the_capability_is_named() {
    requires!(Can::BeDormouse, Root, "setpriv", "openssl");
    let Some(machine) = Machine::start() else {
        return;
    };
    machine.write("dormouse.toml", ON_443);
    let service = as_service("+net_admin,+bpf,+net_raw");
    let handed_in = "systemd-socket-activate";
    if tools::present(&[handed_in]) {
        let line = format!(
            "timeout 20 {handed_in} -l 127.0.0.1:443 {service} dormouse serve -c dormouse.toml & \
             until : 2>/dev/null </dev/tcp/127.0.0.1/443; do sleep 0.1; done; wait"
        );
        let (_, log) = machine.run_in(&machine.home(), &line, PATIENCE);
        assert!(log.contains("below 1024 (CAP_NET_BIND_SERVICE)"), "{log}");
    }
    // Where the machine gives low ports to all users, nothing is missing.
    machine.run("echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start");
    let mut server = machine.start_in(
        &machine.home(),
        &format!("exec {service} dormouse serve -c dormouse.toml"),
    );
    server.wait_for_line("ready", PATIENCE);
    let said = machine.echoes("127.0.0.1:443", "one two three");
    assert_eq!(said.trim(), "one\ntwo\nthree", "{}", server.log());
    machine.stop(server);
}
