//! Sessions that open and seal in the caller's own buffers.

use dormouse_embed::{End, KeptKeys, Session, SessionError};
use dormouse_testkit::now;

use crate::pair::*;

/// Seals `words` as one batch.
fn seal(session: &mut Session, words: &[u8]) -> Vec<u8> {
    let mut batch = vec![0xa5; session.batch_len(words.len())];
    for (index, content) in words.chunks(16_384).enumerate() {
        let at = session.content_range(index).start;
        batch[at..at + content.len()].copy_from_slice(content);
    }
    let records = session.seal_batch(&mut batch, words.len()).unwrap();
    batch[records].to_vec()
}

#[test]
fn batches_and_whole_records_need_no_copy() {
    for protocols in VERSIONS {
        let (mut client, mut server) = established(protocols);
        for words in [&b"hello"[..], &[7; 16_384], &[8; 16_385], &[9; 70_000], b""] {
            let mut wire = seal(&mut client, words);
            let whole = wire.len();
            wire.extend([23, 3, 3, 0]);
            let received = server.receive_at_rest(now(), &mut wire).unwrap().unwrap();
            assert_eq!(received.consumed, whole);
            assert_eq!(&wire[..received.plaintext_len], words);
            assert!(server.is_at_rest() && client.is_at_rest());
        }
    }
}

#[test]
fn a_session_in_flight_opens_nothing_in_place() {
    for protocols in VERSIONS {
        let (mut client, mut server) = established(protocols);
        let mut wire = seal(&mut client, b"hello");
        let rest = wire.split_off(3);
        assert!(feed(&mut server, &wire, 3).plaintext.is_empty());
        let mut again = rest.clone();
        assert_eq!(server.receive_at_rest(now(), &mut again), Ok(None));
        assert_eq!(again, rest);
        assert_eq!(feed(&mut server, &rest, 99).plaintext, b"hello");
    }
}

#[test]
fn output_is_sent_before_a_batch() {
    let (mut client, mut server) = established(VERSIONS[1]);
    client.update_keys().unwrap();
    let mut batch = vec![0; client.batch_len(5)];
    assert_eq!(client.seal_batch(&mut batch, 5), Err(SessionError::Unsent));
    pass(&mut client, &mut server, 9);
    let wire = seal(&mut client, b"hello");
    assert_eq!(feed(&mut server, &wire, 9).plaintext, b"hello");
    let short = client.batch_len(5) - 1;
    assert!(client.seal_batch(&mut vec![0; short], 5).is_err());
    client.close().unwrap();
    client.take_output();
    assert_eq!(client.seal_batch(&mut batch, 5), Err(SessionError::Closed));
}

#[test]
fn ends_and_their_replies() {
    let (mut client, mut server) = established(VERSIONS[1]);
    let mut wire = seal(&mut client, b"last");
    let second = seal(&mut client, b"changed");
    wire.extend(second);
    *wire.last_mut().unwrap() ^= 1;
    let received = server.receive_at_rest(now(), &mut wire).unwrap().unwrap();
    assert!(matches!(received.end, Some(End::Refused(_))));
    assert_eq!(&wire[..received.plaintext_len], b"last");
    let outcome = pass(&mut server, &mut client, 9);
    assert_eq!(outcome.end, Some(End::Alert(20)));

    let (mut client, mut server) = established(VERSIONS[1]);
    client.close().unwrap();
    let mut wire = client.take_output();
    let received = server.receive_at_rest(now(), &mut wire).unwrap().unwrap();
    assert_eq!(received.end, Some(End::Closed));
    assert!(server.is_at_rest());
    let wire = seal(&mut server, b"the other direction is open");
    assert_eq!(feed(&mut client, &wire, 9).plaintext.len(), 27);
}

/// Sends `words` with kept keys in both directions.
fn say(
    keys: &mut KeptKeys,
    (from, number): (&mut Session, u64),
    to: (&mut Session, u64),
    words: &[u8],
) {
    let mut wire = vec![0; from.sealed_len(words.len())];
    let len = keys.seal_into(number, from, words, &mut wire).unwrap();
    wire.truncate(len);
    let received = keys.receive_at_rest(to.1, to.0, now(), &mut wire);
    let received = received.unwrap().expect("it was at rest");
    assert_eq!((received.consumed, received.end), (wire.len(), None));
    assert_eq!(&wire[..received.plaintext_len], words);
}

/// Sessions 1, 65 and 129 have the same place in the table.
#[test]
fn kept_keys_are_those_of_the_session_and_of_its_secrets() {
    let mut keys = KeptKeys::default();
    for protocols in VERSIONS {
        let (mut client, mut server) = established(protocols);
        let (mut other, mut others_server) = established(protocols);
        for words in [&b"one"[..], b"two", &[3; 40_000]] {
            say(&mut keys, (&mut client, 1), (&mut server, 2), words);
            say(&mut keys, (&mut server, 2), (&mut client, 1), words);
            say(
                &mut keys,
                (&mut other, 65),
                (&mut others_server, 129),
                words,
            );
            say(
                &mut keys,
                (&mut others_server, 129),
                (&mut other, 65),
                words,
            );
        }
        keys.forget(1);
        // A later session gets the number of one that has ended; without `forget` it may have, too.
        say(
            &mut keys,
            (&mut other, 1),
            (&mut others_server, 2),
            b"again",
        );
    }
}

#[test]
fn kept_keys_follow_key_updates() {
    let mut keys = KeptKeys::default();
    let (mut client, mut server) = established(VERSIONS[1]);
    for words in [b"one", b"two"] {
        say(&mut keys, (&mut client, 1), (&mut server, 2), words);
        client.update_keys().unwrap();
        let mut update = client.take_output();
        let received = keys.receive_at_rest(2, &mut server, now(), &mut update);
        assert_eq!(received.unwrap().unwrap().plaintext_len, 0);
        say(&mut keys, (&mut client, 1), (&mut server, 2), words);
        say(&mut keys, (&mut server, 2), (&mut client, 1), words);
    }
    client.close().unwrap();
    let closed = keys.seal_into(1, &mut client, b"late", &mut [0; 99]);
    assert_eq!(closed, Err(SessionError::Closed));
}
