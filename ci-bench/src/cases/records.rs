//! A connection at rest receives a record and sends one back.

use std::hint::black_box;

use dormouse_record::{
    KeyIv, OpenKey, Opened, RecordRoom, Role, SealKey, State, Suite, Version, open, record_room,
    seal_in_place,
};

use crate::watch::{Once, Watch};

/// The source of the expanded keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    /// Expanded from the secrets for each record.
    Expanded,
    /// Expanded once, before counting.
    Kept,
}

/// Opens the client's record of `len` bytes and seals a record of the same length.
pub(super) fn echo(version: Version, suite: Suite, keys: Keys, len: usize) -> Once {
    let (mut server, mut client) = ends(version, suite);
    let mut client_key = SealKey::new(&client);
    let mut kept = (OpenKey::new(&server), SealKey::new(&server));
    let RecordRoom { header, trailer } = record_room(&client);
    let mut record = vec![7; header + len + trailer];
    Box::new(move |watch: Watch| {
        seal_in_place(&mut client, &mut client_key, &mut record, len).expect("room in the buffer");
        watch.count(|| match keys {
            Keys::Expanded => {
                let mut expanded = (OpenKey::new(&server), SealKey::new(&server));
                answer(&mut server, &mut expanded, &mut record, len);
            }
            Keys::Kept => answer(&mut server, &mut kept, &mut record, len),
        });
    })
}

fn answer(server: &mut State, keys: &mut (OpenKey, SealKey), record: &mut [u8], len: usize) {
    let opened = open(server, &mut keys.0, record).expect("the client's record");
    assert!(matches!(opened, Opened::Data { plaintext, .. } if plaintext.len() == len));
    black_box(seal_in_place(server, &mut keys.1, record, len).expect("room in the buffer"));
}

fn ends(version: Version, suite: Suite) -> (State, State) {
    let (up, down) = ([1; 48], [2; 48]);
    let (mut server, mut client) = (State::empty(), State::empty());
    let established = match version {
        Version::Tls13 => {
            let [up, down] = [&up, &down].map(|secret| &secret[..suite.secret_len()]);
            server
                .establish_tls13(Role::Server, suite, up, 0, down, 0)
                .and(client.establish_tls13(Role::Client, suite, down, 0, up, 0))
        }
        Version::Tls12 => {
            let [up, down] = [&up, &down].map(|secret| KeyIv {
                key: &secret[..suite.key_len()],
                iv: &secret[..12],
            });
            server
                .establish_tls12(Role::Server, suite, up, 0, down, 0)
                .and(client.establish_tls12(Role::Client, suite, down, 0, up, 0))
        }
    };
    established.expect("secrets of the right length");
    (server, client)
}
