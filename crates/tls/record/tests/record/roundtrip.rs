//! Round trips: every version, suite and role, data cut anywhere, with key updates.

use crate::common::{End, pair};
use dormouse_record::{CONTENT_MAX, OpenKey, Opened, State, Suite, Version, open};
use proptest::prelude::*;

/// Opens all complete records of a stream that arrives in pieces ending at `cuts`.
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
                    assert_eq!(pending, before, "a partial record was changed");
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
    fn sealed_streams_open_with_any_cuts(
        tls13 in any::<bool>(),
        suite in 0..3_usize,
        from_server in any::<bool>(),
        seed in any::<u8>(),
        sizes in prop::collection::vec(prop_oneof![0..200_usize, Just(0), Just(CONTENT_MAX)], 1..12),
        updates in any::<u16>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..24),
    ) {
        let version = if tls13 { Version::Tls13 } else { Version::Tls12 };
        let (server, client) = pair(version, Suite::ALL[suite], seed);
        let (sender, mut receiver) = if from_server { (server, client) } else { (client, server) };
        let mut sender = End::new(sender);
        let (mut stream, mut sent) = (Vec::new(), Vec::new());
        for (nth, &size) in sizes.iter().enumerate() {
            if tls13 && updates >> nth & 1 == 1 {
                stream.extend(sender.key_update());
            }
            let content: Vec<u8> = (0..size).map(|at| (at * 7 + nth) as u8).collect();
            stream.extend(sender.data(&content));
            sent.extend(content);
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.sort_unstable();
        prop_assert_eq!(receive(&mut receiver, &stream, &cuts), sent);
        prop_assert_eq!(receiver.read_sequence(), sender.state.write_sequence());
    }
}
