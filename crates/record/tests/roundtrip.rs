//! What one side seals the other opens: every protocol, suite and role, data cut anywhere, key updates between.

use dormouse_record::{
    CONTENT_MAX, KeyIv, OpenKey, Opened, Protocol, Role, SMALL_RECORD_MAX, SealKey, State, Suite,
    open, record_room, seal_in_place, seal_key_update,
};
use proptest::prelude::*;

/// A connection's two ends, with secrets made from `seed`.
fn pair(protocol: Protocol, suite: Suite, seed: u8) -> (State, State) {
    let one: Vec<u8> = (0..48).map(|at| seed ^ at ^ 0x5a).collect();
    let two: Vec<u8> = (0..48).map(|at| seed ^ at ^ 0xa5).collect();
    let (mut server, mut client) = (State::empty(), State::empty());
    match protocol {
        Protocol::Tls13 => {
            let len = suite.secret_len();
            let (one, two) = (&one[..len], &two[..len]);
            server
                .establish_tls13(Role::Server, suite, one, 0, two, 1)
                .unwrap();
            client
                .establish_tls13(Role::Client, suite, two, 1, one, 0)
                .unwrap();
        }
        Protocol::Tls12 => {
            let len = suite.key_len();
            let one = KeyIv {
                key: &one[..len],
                iv: &one[32..44],
            };
            let two = KeyIv {
                key: &two[..len],
                iv: &two[32..44],
            };
            server
                .establish_tls12(Role::Server, suite, one, 1, two, 1)
                .unwrap();
            client
                .establish_tls12(Role::Client, suite, two, 1, one, 1)
                .unwrap();
        }
    }
    (server, client)
}

fn seal(state: &mut State, key: &mut SealKey, content: &[u8]) -> Vec<u8> {
    let room = record_room(state);
    let mut record = vec![0; room.header + content.len() + room.trailer];
    record[room.header..room.header + content.len()].copy_from_slice(content);
    let len = seal_in_place(state, key, &mut record, content.len()).unwrap();
    assert_eq!(len, record.len());
    record
}

/// Opens all whole records of a stream which arrives in pieces that end at `cuts`.
fn receive(state: &mut State, stream: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut key = OpenKey::new(state);
    let mut data = Vec::new();
    let mut pending: Vec<u8> = Vec::new();
    let mut from = 0;
    for &to in cuts.iter().chain([&stream.len()]) {
        pending.extend_from_slice(&stream[from..to]);
        from = to;
        let mut at = 0;
        while at < pending.len() {
            let before = pending.clone();
            match open(state, &mut key, &mut pending[at..]).unwrap() {
                Opened::Partial { need } => {
                    assert!(need > pending.len() - at);
                    assert_eq!(pending, before, "a partial record was touched");
                    break;
                }
                Opened::Data {
                    consumed,
                    plaintext,
                } => {
                    data.extend_from_slice(&pending[at..][plaintext]);
                    at += consumed;
                }
                Opened::Handled { consumed } => at += consumed,
                other => panic!("{other:?}"),
            }
        }
        pending.drain(..at);
    }
    assert!(pending.is_empty());
    data
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_seals_cut_anywhere(
        tls13 in any::<bool>(),
        suite in 0..3_usize,
        from_server in any::<bool>(),
        seed in any::<u8>(),
        sizes in prop::collection::vec(prop_oneof![0..200_usize, Just(0), Just(CONTENT_MAX)], 1..12),
        updates in any::<u16>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..24),
    ) {
        let protocol = if tls13 { Protocol::Tls13 } else { Protocol::Tls12 };
        let (server, client) = pair(protocol, Suite::ALL[suite], seed);
        let (mut sender, mut receiver) = if from_server { (server, client) } else { (client, server) };
        let mut key = SealKey::new(&sender);
        let (mut stream, mut sent) = (Vec::new(), Vec::new());
        for (nth, &size) in sizes.iter().enumerate() {
            if tls13 && updates >> nth & 1 == 1 {
                let mut out = [0; SMALL_RECORD_MAX];
                let len = seal_key_update(&mut sender, &mut key, &mut out).unwrap();
                stream.extend_from_slice(&out[..len]);
            }
            let content: Vec<u8> = (0..size).map(|at| (at * 7 + nth) as u8).collect();
            stream.extend(seal(&mut sender, &mut key, &content));
            sent.extend(content);
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.sort_unstable();
        prop_assert_eq!(receive(&mut receiver, &stream, &cuts), sent);
        prop_assert_eq!(receiver.read_sequence(), sender.write_sequence());
    }
}
