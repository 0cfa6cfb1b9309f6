//! Attacks by a hijacked worker of `dormouse connect` on the sessions that all workers share.

use std::fs;
use std::io::Write as _;

use dormouse_interop::content::random;
use dormouse_interop::intruder::Intruder;
use dormouse_interop::originator::{Originator, Settings};
use dormouse_interop::scene::Scene;

use super::hijacked::can_run;

/// Layout of the mapping: a page, then places with their slots.
const PAGE: usize = 4096;
const SLOTS_AT: usize = PAGE + 48;
const SLOT: usize = 2_032;
/// The key of a session in its slot.
const KEY_AT: usize = 32 + 20;

/// A name, and a change to the first place of the mapping.
type Attack = (&'static str, fn(&mut [u8]));

const ATTACKS: [Attack; 4] = [
    ("keys of another server", |bytes| {
        for slot in 0..8 {
            bytes[SLOTS_AT + slot * SLOT + KEY_AT] ^= 1;
        }
    }),
    ("ones", |bytes| bytes[PAGE..].fill(0xff)),
    ("random", |bytes| {
        let len = bytes.len() - PAGE;
        bytes[PAGE..].copy_from_slice(&random(len));
    }),
    ("zeros", |bytes| bytes[PAGE..].fill(0)),
];

/// How many of this number of connections succeed. A server that knows a ticket, but not the key that comes with it, refuses the
/// handshake; then the session is dropped.
fn echoes(connect: &Originator, number: usize) -> usize {
    let echo = |_: &usize| {
        let mut client = connect.client();
        client.tcp.write_all(b"echo\n").is_ok() && client.echo().is_ok()
    };
    (0..number).filter(echo).count()
}

/// Whatever a hijacked worker writes into the sessions: the other worker makes full handshakes instead, and sessions are
/// resumed again after them.
#[test]
fn forged_sessions_end_in_a_full_handshake() {
    requires!(can_run());
    let server = Scene::new();
    let settings = Settings::new(&[server.address])
        .top("hang_timeout = \"off\"")
        .workers(2);
    for (attack, change) in ATTACKS {
        // With sessions in the first place: after an attack workers may use another.
        let connect = Originator::start(&settings);
        assert!(echoes(&connect, 4) == 4, "before: {attack}");
        let mut intruder = Intruder::enter_first(&connect.process);
        let sessions = intruder.descriptors("/memfd:dormouse-sessions")[0];
        let file = fs::read(format!("/proc/{}/fd/{sessions}", intruder.pid()));
        let file = file.expect("its sessions");
        let mut bytes = file[..5 * PAGE].to_vec();
        change(&mut bytes);
        intruder
            .overwrite(sessions, 0, &bytes)
            .expect("a table that workers write");
        drop(intruder);
        let (full, resumed) = connect.handshakes();
        let good = echoes(&connect, 12);
        assert!(good >= 10, "{good} of 12 connections after: {attack}");
        let (full_after, resumed_after) = connect.handshakes();
        assert!(full_after > full, "{attack}: no full handshake");
        assert!(
            resumed_after > resumed,
            "{attack}: nothing is resumed any more"
        );
    }
}
