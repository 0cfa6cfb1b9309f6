//! Tests that no secret is left in memory once the state is wiped and the keys are dropped.
//!
//! Reads the process's own memory through /proc and searches for every secret and key that was in it, and for
//! the padded forms that HMAC makes of a secret. IVs are not searched for: a key that is moved leaves its IV
//! behind, and an IV without its key is harmless.
//!
//! One test in this file, so that no other test runs in the process.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use dormouse_record::{
    OpenKey, Role, SMALL_RECORD_MAX, SealKey, State, Suite, open, record_room, seal_in_place,
    seal_key_update,
};
use zeroize::Zeroize;

/// A byte string to search for, stored with all bits inverted, so that the search does not find itself.
struct Needle {
    name: String,
    inverted: Vec<u8>,
}

#[test]
fn no_secret_is_left_in_memory() {
    for suite in Suite::ALL {
        // One operation per run: the next operation would overwrite what this one leaves on the stack.
        for (work, does) in [expand, transfer, update].into_iter().enumerate() {
            leaves_nothing(suite, does, work);
        }
    }
}

fn leaves_nothing(suite: Suite, does: fn(&mut State, &mut State), work: usize) {
    let mut secrets = [[0_u8; 48]; 2];
    for secret in &mut secrets {
        File::open("/dev/urandom")
            .unwrap()
            .read_exact(secret)
            .unwrap();
    }
    let needles = needles(suite, &secrets);
    let (mut server, mut client) = (State::empty(), State::empty());
    establish(suite, &mut server, &mut client, &secrets);

    // Proof that the search works: it finds the secrets that the states still hold.
    let found = search(&needles);
    for name in ["secret 0", "secret 1"] {
        assert!(found.iter().any(|found| found == name), "{name}: {found:?}");
    }

    secrets.zeroize();
    does(&mut server, &mut client);
    // In place: moving a state, even into `drop`, would leave its bytes behind.
    server.wipe();
    client.wipe();
    let found = search(&needles);
    assert!(found.is_empty(), "{suite:?}, work {work}: {found:?}");
}

#[inline(never)]
fn establish(suite: Suite, server: &mut State, client: &mut State, secrets: &[[u8; 48]; 2]) {
    let len = suite.secret_len();
    let [up, down] = secrets.each_ref().map(|secret| &secret[..len]);
    server
        .establish_tls13(Role::Server, suite, up, 0, down, 0)
        .unwrap();
    client
        .establish_tls13(Role::Client, suite, down, 0, up, 0)
        .unwrap();
}

#[inline(never)]
fn expand(server: &mut State, _client: &mut State) {
    let _seal_key = SealKey::new(server);
    let _open_key = OpenKey::new(server);
}

#[inline(never)]
fn transfer(server: &mut State, client: &mut State) {
    let (mut seal_key, mut open_key) = (SealKey::new(server), OpenKey::new(client));
    let mut buf = [b'x'; 100];
    let room = record_room(server);
    let content_len = 100 - room.header - room.trailer;
    let len = seal_in_place(server, &mut seal_key, &mut buf, content_len).unwrap();
    open(client, &mut open_key, &mut buf[..len]).unwrap();
}

#[inline(never)]
fn update(server: &mut State, client: &mut State) {
    let (mut seal_key, mut open_key) = (SealKey::new(server), OpenKey::new(client));
    let mut out = [0; SMALL_RECORD_MAX];
    let len = seal_key_update(server, &mut seal_key, &mut out).unwrap();
    open(client, &mut open_key, &mut out[..len]).unwrap();
}

/// Returns both secrets, their keys and next generations, and each secret as HMAC pads it.
fn needles(suite: Suite, secrets: &[[u8; 48]; 2]) -> Vec<Needle> {
    let mut needles = Vec::new();
    let mut add = |name: String, bytes: &[u8]| {
        let inverted = bytes.iter().map(|byte| !byte).collect();
        needles.push(Needle { name, inverted });
    };
    for (nth, secret) in secrets.iter().enumerate() {
        let secret = &secret[..suite.secret_len()];
        // A third of a secret is enough to recognise it, and too much to leave behind.
        add(format!("secret {nth}"), &secret[..16]);
        add(format!("end of secret {nth}"), &secret[secret.len() - 16..]);
        for pad in [0x36, 0x5c] {
            let padded: Vec<u8> = secret[..16].iter().map(|byte| byte ^ pad).collect();
            add(format!("secret {nth} xor {pad:#x}"), &padded);
        }
        let derived = apart::derive(suite, secret);
        for (name, bytes) in &derived {
            add(format!("{name} {nth}"), bytes);
        }
    }
    needles
}

/// The same derivations by an independent path, in memory that is wiped.
mod apart {
    use aws_lc_rs::hkdf;
    use dormouse_record::Suite;

    struct Len(usize);

    impl hkdf::KeyType for Len {
        fn len(&self) -> usize {
            self.0
        }
    }

    #[inline(never)]
    pub(crate) fn derive(
        suite: Suite,
        secret: &[u8],
    ) -> Vec<(&'static str, zeroize::Zeroizing<Vec<u8>>)> {
        let algorithm = match suite {
            Suite::Aes256GcmSha384 => hkdf::HKDF_SHA384,
            _ => hkdf::HKDF_SHA256,
        };
        let prk = hkdf::Prk::new_less_safe(algorithm, secret);
        let derived = [("key", suite.key_len()), ("traffic upd", secret.len())]
            .map(|(label, len)| {
                let mut info = vec![0, len as u8, 6 + label.len() as u8];
                info.extend(b"tls13 ");
                info.extend(label.as_bytes());
                info.push(0);
                let mut out = zeroize::Zeroizing::new(vec![0; len]);
                prk.expand(&[&info], Len(len))
                    .unwrap()
                    .fill(&mut out)
                    .unwrap();
                (label, out)
            })
            .into_iter()
            .collect();
        drop(prk);
        scrub();
        derived
    }

    #[inline(never)]
    fn scrub() {
        let mut zeros = [0_u8; 16_384];
        std::hint::black_box(&mut zeros);
    }
}

/// Names of the needles found anywhere in this process's writable memory. The search has its own thread, so
/// that it does not overwrite what is left on this thread's stack.
#[inline(never)]
fn search(needles: &[Needle]) -> Vec<String> {
    std::thread::scope(|scope| scope.spawn(|| search_memory(needles)).join().unwrap())
}

fn search_memory(needles: &[Needle]) -> Vec<String> {
    let memory = File::open("/proc/self/mem").unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    // One buffer for all reads, whose own address range is skipped.
    let mut buf = vec![0_u8; 1 << 20];
    let own = buf.as_ptr() as u64..buf.as_ptr() as u64 + buf.len() as u64;
    let mut found = Vec::new();
    for map in maps
        .lines()
        .filter(|map| map.split(' ').nth(1).unwrap().starts_with("rw"))
    {
        let (from, to) = map.split(' ').next().unwrap().split_once('-').unwrap();
        let from = u64::from_str_radix(from, 16).unwrap();
        let to = u64::from_str_radix(to, 16).unwrap();
        let mut at = from;
        while at < to {
            if own.contains(&at) {
                at = own.end;
                continue;
            }
            let end = to.min(at + buf.len() as u64);
            let end = if (at..end).contains(&own.start) {
                own.start
            } else {
                end
            };
            let part = &mut buf[..(end - at) as usize];
            if memory.read_exact_at(part, at).is_ok() {
                search_part(part, needles, &mut found);
            }
            // Chunks overlap, so that the search also finds needles across a boundary.
            at = if end == to || end == own.start {
                end
            } else {
                end - 64
            };
        }
    }
    // The next search may get other memory, and would find in this what it holds a copy of.
    buf.zeroize();
    found
}

fn search_part(part: &[u8], needles: &[Needle], found: &mut Vec<String>) {
    let mut begins = [false; 256];
    for needle in needles {
        begins[usize::from(!needle.inverted[0])] = true;
    }
    for (at, &byte) in part.iter().enumerate() {
        if !begins[usize::from(byte)] {
            continue;
        }
        for Needle { name, inverted } in needles {
            let same = part[at..].len() >= inverted.len()
                && part[at..]
                    .iter()
                    .zip(inverted)
                    .all(|(found, turned)| *found == !turned);
            if same && !found.contains(name) {
                found.push(name.clone());
            }
        }
    }
}
