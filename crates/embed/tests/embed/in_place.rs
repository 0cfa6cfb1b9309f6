//! Sessions that open and seal in the caller's own buffers.

use dormouse_embed::{End, Session, SessionError};
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
