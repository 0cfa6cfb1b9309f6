//! The functions over a state in the caller's memory, with a session at the other end.

use dormouse_embed::at_rest::{ANSWER_MAX, close, receive, seal, sealed_len, update_keys};
use dormouse_embed::{End, Protocols, SealError, Session, State};
use dormouse_record::{Reason, Refusal, SealKey, record_room, seal_record};
use dormouse_testkit::now;
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::pair::*;

fn state_of(mut session: Session) -> State {
    State::read_from_bytes(&session.export().unwrap()).unwrap()
}

#[test]
fn complete_records_are_opened_and_the_rest_is_left() {
    for protocols in VERSIONS {
        let (mut client, server) = established(protocols);
        let mut state = state_of(server);
        let mut wire = Vec::new();
        for words in ["one, ", "two, ", "three"] {
            client.send(words.as_bytes()).unwrap();
            wire.extend(client.take_output());
        }
        let whole = wire.len();
        client.send(b"four").unwrap();
        let last = client.take_output();
        wire.extend(&last[..6]);
        let mut output = [0; ANSWER_MAX];
        let received = receive(&mut state, now(), &mut wire, &mut output, None).unwrap();
        assert_eq!((received.consumed, received.need), (whole, last.len()));
        assert_eq!(&wire[..received.plaintext_len], b"one, two, three");
        assert_eq!((received.output_len, received.end), (0, None));
        let mut wire = last;
        let received = receive(&mut state, now(), &mut wire, &mut output, None).unwrap();
        assert_eq!((received.consumed, received.need), (wire.len(), 0));
        assert_eq!(&wire[..received.plaintext_len], b"four");
    }
}

#[test]
fn too_little_room_changes_nothing() {
    let (mut client, server) = established(Protocols::TLS13);
    let mut state = state_of(server);
    client.send(b"hello").unwrap();
    let mut wire = client.take_output();
    let before = wire.clone();
    let error = receive(&mut state, now(), &mut wire, &mut [0; ANSWER_MAX - 1], None);
    assert_eq!(error, Err(SealError::BufferTooSmall { need: ANSWER_MAX }));
    assert_eq!(wire, before);
    let need = sealed_len(&state, 5);
    let error = seal(&mut state, b"hello", &mut vec![0; need - 1]);
    assert_eq!(error, Err(SealError::BufferTooSmall { need }));
    let mut output = vec![0; need];
    let len = seal(&mut state, b"hello", &mut output).unwrap();
    assert_eq!(feed(&mut client, &output[..len], 4).plaintext, b"hello");
}

#[test]
fn ends_come_with_their_reply() {
    let (mut client, server) = established(Protocols::TLS13);
    let mut state = state_of(server);
    client.send(b"last").unwrap();
    client.close().unwrap();
    let mut wire = [client.take_output(), b"junk".to_vec()].concat();
    let mut output = [0; ANSWER_MAX];
    let received = receive(&mut state, now(), &mut wire, &mut output, None).unwrap();
    assert_eq!(received.end, Some(End::Closed));
    assert_eq!((received.consumed, received.plaintext_len), (wire.len(), 4));
    let len = update_keys(&mut state, &mut output).unwrap();
    assert_eq!(feed(&mut client, &output[..len], 9).end, None);
    let len = close(&mut state, &mut output).unwrap();
    assert_eq!(feed(&mut client, &output[..len], 9).end, Some(End::Closed));

    let (mut client, server) = established(Protocols::TLS13);
    let mut state = state_of(server);
    client.send(b"changed").unwrap();
    let mut wire = client.take_output();
    wire[9] ^= 1;
    let received = receive(&mut state, now(), &mut wire, &mut output, None).unwrap();
    assert!(matches!(received.end, Some(End::Refused(_))));
    let outcome = feed(&mut client, &output[..received.output_len], 9);
    assert_eq!(outcome.end, Some(End::Alert(20)));
}

/// As in a session that reads its tickets itself (RFC 8446 §6.2).
#[test]
fn a_ticket_that_cannot_be_decoded_is_refused() {
    let mut settings = server_settings();
    settings.tickets = None;
    let mut client = Session::connect(&client(client_settings()), NAME).unwrap();
    let mut peer = Session::accept(&server(settings));
    run_handshake(&mut client, &mut peer, usize::MAX);
    let mut tickets = client.take_tickets().unwrap();
    let mut state = state_of(client);
    let mut peer = state_of(peer);
    // A NewSessionTicket of one byte.
    let mut wire = [0; 100];
    let at = record_room(&peer).header;
    wire[at..at + 5].copy_from_slice(&[4, 0, 0, 1, 9]);
    let mut key = SealKey::new(&peer);
    let len = seal_record(&mut peer, &mut key, &mut wire, 22, 5, 0).unwrap();
    let mut output = [0; ANSWER_MAX];
    let (watch, wire) = (Some(&mut tickets), &mut wire[..len]);
    let received = receive(&mut state, now(), wire, &mut output, watch).unwrap();
    let refusal = Refusal::new(Reason::TicketMalformed);
    assert_eq!(received.end, Some(End::Refused(refusal)));
    let answer = &mut output[..received.output_len];
    let received = receive(&mut peer, now(), answer, &mut [0; ANSWER_MAX], None).unwrap();
    assert_eq!(received.end, Some(End::Alert(50)));
}

/// A key that can seal only some of the records seals none: the peer would miss them, and refuse the close_notify.
#[test]
fn an_exhausted_key_seals_all_records_or_none() {
    let (mut client, server) = established(Protocols::TLS12);
    let mut state = state_of(server);
    // The use of the key: one full record is left, besides two alerts.
    let used = u32::MAX - 2 - 300;
    let image = state.as_mut_bytes();
    image[124..].copy_from_slice(&used.to_ne_bytes());
    assert_eq!(state.records_left(), 1);
    let mut output = vec![0; 40_000];
    let sealed = seal(&mut state, &[7; 20_000], &mut output);
    assert_eq!(sealed, Err(SealError::KeyExhausted));
    let len = close(&mut state, &mut output).unwrap();
    assert_eq!(feed(&mut client, &output[..len], 9).end, Some(End::Closed));
}

#[test]
fn an_empty_state_opens_and_seals_nothing() {
    let mut state = State::empty();
    let mut output = [0; 200];
    let mut wire = [23, 3, 3, 0, 20].repeat(10);
    let received = receive(&mut state, now(), &mut wire, &mut output, None).unwrap();
    assert!(matches!(received.end, Some(End::Refused(_))));
    assert_eq!(received.output_len, 0);
    assert!(seal(&mut state, b"x", &mut output).is_err());
    assert!(close(&mut state, &mut output).is_err());
}
