//! Tests that once a connection is at rest, its secrets are only in the state.
//!
//! Reads the process's own memory through /proc. One test in this file, so that no other test runs in the
//! process.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use dormouse_engine::{Handshake, Identity, Progress, Protocols};
use dormouse_record::State;
use dormouse_testkit::{Pair, PairSettings, now};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use zerocopy::IntoBytes;

/// Offsets of a state's secrets (in TLS 1.2: keys). Sixteen bytes are enough to recognise a secret, and too
/// much to leave behind.
const SECRETS: [std::ops::Range<usize>; 2] = [32..48, 80..96];

/// Copies that rustls leaves in freed blocks until these are reused, one for each end of the connection: it moves the key
/// schedule of TLS 1.3 from one boxed handshake state to the next, and does not wipe the key block of TLS 1.2
/// (`ConnectionSecrets::make_key_block`). Often the second end's block lies where the first
/// one's was. Our code must not leave any more.
const LIBRARY_LEAVES_MAX: usize = 2;

#[test]
fn secrets_are_where_they_are_used_and_nowhere_else() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return make_identity(Path::new(&folder));
    }
    private_keys_are_wiped();
    only_the_state_holds_the_secrets();
}

/// Tells another process of this test to make an identity in this folder, so that this process only reads it.
const FOLDER: &str = "DORMOUSE_IDENTITY_FOLDER";

/// Reading a key leaves no copy of it behind, neither of its bytes nor of its text.
fn private_keys_are_wiped() {
    let folder = std::env::temp_dir().join(format!("dormouse-secrets-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let made = Command::new(std::env::current_exe().unwrap())
        .env(FOLDER, &folder)
        .output();
    assert!(made.unwrap().status.success());
    let needles = std::fs::read(folder.join("needles")).unwrap();
    let needles: Vec<Vec<u8>> = needles.chunks(16).map(<[u8]>::to_vec).collect();
    let (certificate, key) = (folder.join("certificate"), folder.join("key"));
    let identity = Identity::from_files(&certificate, &key).unwrap();
    let used = search(&needles);
    drop(identity);
    let found = search(&needles);
    println!("key in use: {used:?}, dropped: {found:?}");
    // Proof that the search works.
    let text = std::fs::read(key).unwrap();
    let both = search(&needles);
    assert!(both.iter().any(|(nth, _)| *nth == 1), "{both:?}");
    drop(text);
    std::fs::remove_dir_all(folder).unwrap();
    assert!(found.is_empty(), "{found:?}");
}

fn make_identity(folder: &Path) {
    let (certificate, key) = Identity::self_signed_pem("localhost").unwrap();
    let der = PrivatePkcs8KeyDer::from_pem_slice(key.as_bytes()).unwrap();
    // Parts of the private number of a P-256 key, and of the text's second line; inverted.
    let needles = [&der.secret_pkcs8_der()[40..56], &key.as_bytes()[110..126]];
    let needles: Vec<u8> = needles.concat().iter().map(|byte| !byte).collect();
    std::fs::write(folder.join("certificate"), certificate).unwrap();
    std::fs::write(folder.join("key"), &*key).unwrap();
    std::fs::write(folder.join("needles"), needles).unwrap();
}

fn only_the_state_holds_the_secrets() {
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let pair = Pair::new(PairSettings {
            protocols,
            ..PairSettings::default()
        });
        let mut states = [State::empty(), State::empty()];
        let tickets = rest(&pair, &mut states);
        // Stored inverted, so that the search does not find itself.
        let needles: Vec<Vec<u8>> = SECRETS
            .map(|at| states[0].as_bytes()[at].iter().map(|byte| !byte).collect())
            .to_vec();
        // Proof that the search works: both states hold both secrets.
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

/// Completes a handshake, with both ends at rest in `states`.
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

/// Returns which needle lies in which mapping. The search has its own thread, so that it does not overwrite
/// what is left on this thread's stack.
#[inline(never)]
fn search(needles: &[Vec<u8>]) -> Vec<(usize, String)> {
    std::thread::scope(|scope| scope.spawn(|| search_memory(needles)).join().unwrap())
}

fn search_memory(needles: &[Vec<u8>]) -> Vec<(usize, String)> {
    let memory = File::open("/proc/self/mem").unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    // One buffer for all reads, whose own address range is skipped.
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
            // Chunks overlap, so that the search also finds needles across a boundary.
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
