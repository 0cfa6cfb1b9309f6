//! What is left of a connection's secrets in this process once it is at rest: the state has
//! them, and nothing else.
//!
//! Reads the process's own memory through /proc. One test in this file, so that nothing else
//! runs beside it.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::os::unix::fs::FileExt;

use dormouse_engine::{Handshake, Progress, Protocols};
use dormouse_record::State;
use dormouse_testkit::{Pair, PairSettings, now};
use zerocopy::IntoBytes;

/// Where a state has its secrets (TLS 1.2: its keys). Sixteen bytes of one are enough to be
/// recognised, and too much to be left.
const SECRETS: [std::ops::Range<usize>; 2] = [32..48, 80..96];

/// rustls moves its key schedule out of one boxed handshake state into the next, and the
/// freed block keeps its bytes until it is used again. Nothing of ours may add to that.
const LIBRARY_LEAVES_MAX: usize = 1;

#[test]
fn nothing_but_the_state_has_the_secrets() {
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let pair = Pair::new(PairSettings {
            protocols,
            ..PairSettings::default()
        });
        let mut states = [State::empty(), State::empty()];
        let tickets = rest(&pair, &mut states);
        // Held with all bits turned round, so that the search does not find itself.
        let needles: Vec<Vec<u8>> = SECRETS
            .map(|at| states[0].as_bytes()[at].iter().map(|byte| !byte).collect())
            .to_vec();
        // The search works: both states have both secrets.
        let found = search(&needles);
        println!("{protocols:?} at rest: {found:?}");
        assert!(found.len() >= 4, "{found:?}");
        drop(tickets);
        for state in &mut states {
            state.wipe();
        }
        let found = search(&needles);
        println!("{protocols:?} wiped: {found:?}");
        for nth in 0..SECRETS.len() {
            let left = found.iter().filter(|(found, _)| *found == nth).count();
            assert!(left <= LIBRARY_LEAVES_MAX, "{protocols:?}: {found:?}");
        }
    }
}

/// A handshake, both ends at rest in `states`.
#[inline(never)]
fn rest(pair: &Pair, states: &mut [State; 2]) -> Option<dormouse_engine::TicketWatch> {
    let (mut client, mut server) = pair.handshakes();
    client.handle_input(now(), &[]).unwrap();
    while pass(&mut client, &mut server) == Progress::Handshaking {
        pass(&mut server, &mut client);
    }
    pass(&mut server, &mut client);
    let [one, other] = states;
    server.rest(one).unwrap();
    client.rest(other).unwrap().tickets
}

fn pass(from: &mut Handshake, to: &mut Handshake) -> Progress {
    let bytes = from.output().to_vec();
    from.output_sent(bytes.len());
    to.handle_input(now(), &bytes).unwrap()
}

/// Which needle lies in which mapping. A thread of its own looks for them, so that the search
/// does not overwrite what was left on this one's stack.
#[inline(never)]
fn search(needles: &[Vec<u8>]) -> Vec<(usize, String)> {
    std::thread::scope(|scope| scope.spawn(|| search_memory(needles)).join().unwrap())
}

fn search_memory(needles: &[Vec<u8>]) -> Vec<(usize, String)> {
    let memory = File::open("/proc/self/mem").unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    // One buffer for all, at a known place, which is left out.
    let mut buffer = vec![0_u8; 1 << 16];
    let own = buffer.as_ptr() as u64..buffer.as_ptr() as u64 + buffer.len() as u64;
    let mut found = Vec::new();
    for map in maps.lines().filter(|map| map.contains(" rw")) {
        let (from, to) = map.split(' ').next().unwrap().split_once('-').unwrap();
        let from = u64::from_str_radix(from, 16).unwrap();
        let to = u64::from_str_radix(to, 16).unwrap();
        let mut at = from;
        while at < to {
            if own.contains(&at) {
                at = own.end;
                continue;
            }
            let mut end = to.min(at + buffer.len() as u64);
            if (at..end).contains(&own.start) {
                end = own.start;
            }
            let part = &mut buffer[..(end - at) as usize];
            if memory.read_exact_at(part, at).is_ok() {
                for (offset, nth) in places(part, needles) {
                    let place = at + offset as u64;
                    let name = map.split_whitespace().nth(5).unwrap_or("anonymous");
                    found.push((nth, place, format!("{name}+{:#x}", place - from)));
                }
            }
            // Overlap, so that nothing hides on a border.
            at = if end == to || end == own.start {
                end
            } else {
                end - 16
            };
        }
    }
    found.sort();
    found.dedup();
    found
        .into_iter()
        .map(|(nth, _, place)| (nth, place))
        .collect()
}

fn places(part: &[u8], needles: &[Vec<u8>]) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    for (nth, needle) in needles.iter().enumerate() {
        let first = !needle[0];
        for (offset, _) in part.iter().enumerate().filter(|(_, byte)| **byte == first) {
            let rest = &part[offset..];
            if rest.len() >= 16
                && rest
                    .iter()
                    .zip(needle)
                    .all(|(byte, turned)| *byte == !turned)
            {
                places.push((offset, nth));
            }
        }
    }
    places
}
