//! The life of a session: handshake, rest, data, ends.

use dormouse_embed::{
    AlertDescription, End, Event, FailureKind, HandshakeLimits, Protocols, ServerContext, Session,
    SessionError, Suite, Version,
};
use dormouse_testkit::{Authority, now};

use crate::pair::*;

#[test]
fn data_passes_both_ways_and_both_rest_again() {
    for protocols in VERSIONS {
        for piece in [1, 7, usize::MAX] {
            let (client, server) = contexts(protocols);
            let mut client = Session::connect(&client, NAME).unwrap();
            let mut server = Session::accept(&server);
            let (by_client, by_server) = run_handshake(&mut client, &mut server, piece);
            let (info, of_server) = (by_client.info.unwrap(), by_server.info.unwrap());
            assert_eq!(
                (info.suite, info.protocol),
                (of_server.suite, protocols.max)
            );
            assert_eq!(info.peer_certificates.len(), 1);
            assert!(of_server.peer_certificates.is_empty() && info.exporter.is_none());
            for words in [&b"hello"[..], &[7; 40_000]] {
                client.send(words).unwrap();
                assert_eq!(pass(&mut client, &mut server, piece).plaintext, words);
                server.send(words).unwrap();
                assert_eq!(pass(&mut server, &mut client, piece).plaintext, words);
                assert!(client.is_at_rest() && server.is_at_rest());
            }
        }
    }
}

#[test]
fn a_client_rests_once_its_ticket_arrived_or_is_ignored() {
    let (context, server) = (client(client_settings()), server(server_settings()));
    for ignored in [false, true] {
        let mut client = Session::connect(&context, NAME).unwrap();
        let mut server = Session::accept(&server);
        client.feed(now(), &mut [], |_| {}).unwrap();
        pass(&mut client, &mut server, usize::MAX);
        pass(&mut server, &mut client, usize::MAX);
        assert!(client.awaits_tickets() && !client.is_at_rest());
        pass(&mut client, &mut server, usize::MAX);
        if ignored {
            client.ignore_tickets();
            assert!(client.is_at_rest());
        }
        pass(&mut server, &mut client, usize::MAX);
        assert!(client.is_at_rest() && server.is_at_rest());
    }
}

#[test]
fn a_partial_record_is_in_flight_until_complete() {
    for protocols in VERSIONS {
        let (mut client, mut server) = established(protocols);
        client.send(b"in two parts").unwrap();
        let wire = client.take_output();
        for cut in 1..wire.len() {
            let mut server = Session::import(&server_copy(&mut server)).unwrap();
            assert!(
                feed(&mut server, &wire[..cut], usize::MAX)
                    .plaintext
                    .is_empty()
            );
            assert!(!server.is_at_rest());
            let outcome = feed(&mut server, &wire[cut..], usize::MAX);
            assert_eq!(outcome.plaintext, b"in two parts");
            assert!(server.is_at_rest());
        }
    }
}

/// Copies the state's bytes, which only a test may do.
fn server_copy(session: &mut Session) -> Vec<u8> {
    let bytes = session.export().unwrap();
    *session = Session::import(&bytes).unwrap();
    bytes.to_vec()
}

#[test]
fn each_direction_ends_independently() {
    for protocols in VERSIONS {
        let (mut client, mut server) = established(protocols);
        client.send(b"last words").unwrap();
        client.close().unwrap();
        assert_eq!(client.send(b"more"), Err(SessionError::Closed));
        let outcome = pass(&mut client, &mut server, usize::MAX);
        assert_eq!(
            (outcome.plaintext, outcome.end),
            (b"last words".to_vec(), Some(End::Closed))
        );
        // A half-closed session rests like any other, and reports its end again.
        assert!(server.is_at_rest());
        assert_eq!(feed(&mut server, b"junk", 9).end, Some(End::Closed));
        assert_eq!(server.eof(), Ok(End::Closed));
        server.send(b"answer").unwrap();
        assert_eq!(pass(&mut server, &mut client, 9).plaintext, b"answer");
        assert_eq!(client.eof(), Ok(End::Truncated));
        assert_eq!(feed(&mut client, b"x", 9).end, Some(End::Truncated));
    }
}

#[test]
fn ends_are_distinguished() {
    let (mut client, mut server) = established(Protocols::TLS13);
    client.abort(AlertDescription::InternalError).unwrap();
    assert_eq!(pass(&mut client, &mut server, 3).end, Some(End::Alert(80)));
    assert_eq!(server.send(b"x"), Err(SessionError::Closed));

    let (mut client, mut server) = established(Protocols::TLS13);
    client.send(b"changed").unwrap();
    let mut wire = client.take_output();
    *wire.last_mut().unwrap() ^= 1;
    assert!(matches!(
        feed(&mut server, &wire, 9).end,
        Some(End::Refused(_))
    ));
    // The other side learns why.
    assert_eq!(pass(&mut server, &mut client, 9).end, Some(End::Alert(20)));

    let mut early = Session::accept(&contexts(Protocols::ALL).1);
    assert_eq!(early.send(b"x"), Err(SessionError::Handshaking));
    assert_eq!(early.close(), Err(SessionError::Handshaking));
    assert!(matches!(early.eof(), Ok(End::Handshake(_))));
    assert!(matches!(
        feed(&mut early, b"x", 9).end,
        Some(End::Handshake(_))
    ));
}

#[test]
fn seal_into_seals_everything_or_nothing() {
    for protocols in VERSIONS {
        let (mut client, mut server) = established(protocols);
        for len in [0, 1, 16_384, 16_385, 50_000] {
            let words = vec![7; len];
            client.send(b"first ").unwrap();
            let need = client.sealed_len(len);
            let mut room = vec![0; need];
            let few = &mut room[..need - 1];
            let error = client.seal_into(&words, few).unwrap_err();
            assert_eq!(error, SessionError::BufferTooSmall { need });
            let len = client.seal_into(&words, &mut room).unwrap();
            assert_eq!(len, need);
            assert!(client.is_at_rest());
            let outcome = feed(&mut server, &room[..len], usize::MAX);
            assert_eq!(outcome.plaintext, [b"first ", &words[..]].concat());
        }
    }
}

#[test]
fn keys_are_replaced_on_request() {
    let (mut client, mut server) = established(Protocols::TLS13);
    for _ in 0..3 {
        client.send(b"a").unwrap();
        client.update_keys().unwrap();
        client.send(b"b").unwrap();
        assert_eq!(pass(&mut client, &mut server, 5).plaintext, b"ab");
        server.update_keys().unwrap();
        server.send(b"c").unwrap();
        assert_eq!(pass(&mut server, &mut client, 5).plaintext, b"c");
    }
    let (mut client, _) = established(Protocols::TLS12);
    assert_eq!(client.update_keys(), Err(SessionError::NotTls13));
}

/// Feeds a listening session, and decides once the client has sent its request.
fn decide(client: &mut Session, choices: &[(&str, &ServerContext)], piece: usize) -> Session {
    let mut server = Session::listen(HandshakeLimits::default());
    client.feed(now(), &mut [], |_| {}).unwrap();
    let mut hello = None;
    for piece in client.take_output().chunks_mut(piece) {
        assert!(hello.is_none(), "reported before it was complete");
        let note = |event: Event<'_>| match event {
            Event::ClientHello(found) => hello = Some(found),
            other => panic!("{other:?}"),
        };
        server.feed(now(), piece, note).unwrap();
    }
    let hello = hello.expect("a ClientHello");
    let name = hello.server_name.unwrap_or_default();
    let chosen = choices.iter().find(|(one, _)| *one == name);
    server.decide(chosen.expect("a choice").1).unwrap();
    server.feed(now(), &mut [], |_| {}).unwrap();
    assert_eq!(server.decide(choices[0].1), Err(SessionError::Undecided));
    server
}

#[test]
fn the_context_is_chosen_by_the_client_hello() {
    let authority = Authority::shared();
    let of = |name: &str, alpn: &[u8]| {
        let identity = authority.ecdsa(&[name]).identity();
        let settings = dormouse_embed::ServerSettings::new(vec![identity]);
        server(settings).with_alpn(vec![alpn.to_vec()]).unwrap()
    };
    let (one, two) = (of("one.test", b"h2"), of("two.test", b"mqtt"));
    let mut settings = client_settings();
    settings.alpn = vec![b"mqtt".to_vec(), b"h2".to_vec()];
    settings.resumption = None;
    let context = client(settings);
    for (name, alpn) in [("one.test", &b"h2"[..]), ("two.test", b"mqtt")] {
        for piece in [1, 1_000_000] {
            let mut client = Session::connect(&context, name).unwrap();
            let mut server = decide(
                &mut client,
                &[("one.test", &one), ("two.test", &two)],
                piece,
            );
            let outcome = run_handshake(&mut client, &mut server, piece);
            let info = outcome.0.info.expect("established");
            assert_eq!(
                (info.alpn.as_deref(), info.protocol),
                (Some(alpn), Version::Tls13)
            );
        }
    }
}

#[test]
fn an_invalid_first_message_is_refused_by_any_context() {
    for first in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[22, 3, 1, 0x40, 0].repeat(20_000),
    ] {
        let mut server = Session::listen(HandshakeLimits::default());
        let mut asked = 0;
        let note = |event: Event<'_>| match event {
            Event::ClientHello(hello) => {
                assert_eq!(hello.server_name, None);
                asked += 1;
            }
            other => panic!("{other:?}"),
        };
        server.feed(now(), &mut first.to_vec(), note).unwrap();
        assert_eq!(asked, 1);
        server.decide(&contexts(Protocols::ALL).1).unwrap();
        let outcome = feed(&mut server, &[0], 1);
        assert!(
            matches!(outcome.end, Some(End::Handshake(_))),
            "{outcome:?}"
        );
    }
}

/// A client that sends on while the host decides: its request is reported once, and its bytes are limited.
#[test]
fn a_client_that_does_not_wait_for_the_decision() {
    let (context, server_context) = contexts(Protocols::TLS13);
    for enough in [false, true] {
        let mut client = Session::connect(&context, NAME).unwrap();
        let mut server = Session::listen(HandshakeLimits::default());
        client.feed(now(), &mut [], |_| {}).unwrap();
        let (mut asked, mut end) = (0, None);
        let mut note = |event: Event<'_>| match event {
            Event::ClientHello(_) => asked += 1,
            Event::Ended(found) => end = Some(found),
            other => panic!("{other:?}"),
        };
        server
            .feed(now(), &mut client.take_output(), &mut note)
            .unwrap();
        for _ in 0..if enough { 66 } else { 6 } {
            server.feed(now(), &mut [0; 1024], &mut note).unwrap();
        }
        assert_eq!(asked, 1);
        let Some(End::Handshake(failure)) = end else {
            assert!(!enough, "more than the limit was taken");
            server.decide(&server_context).unwrap();
            continue;
        };
        assert!(enough && failure.kind == FailureKind::TooLarge, "{failure}");
        assert_eq!(failure.alert(), Some(47));
        assert_eq!(server.decide(&server_context), Err(SessionError::Undecided));
        let told = pass(&mut server, &mut client, usize::MAX);
        assert!(matches!(told.end, Some(End::Handshake(_))), "{told:?}");
    }
}

#[test]
fn a_client_offers_only_its_suites() {
    for (suite, name) in [
        (Suite::Chacha20, "TLS_CHACHA20_POLY1305_SHA256"),
        (
            Suite::EcdsaAes256Gcm,
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        ),
    ] {
        let mut settings = client_settings();
        settings.suites = vec![suite];
        let mut client = Session::connect(&client(settings), NAME).unwrap();
        let mut server = Session::accept(&contexts(Protocols::ALL).1);
        let (_, by_server) = run_handshake(&mut client, &mut server, usize::MAX);
        assert_eq!(by_server.info.unwrap().suite, name);
    }
}

#[test]
fn a_client_is_refused_because_of_what_it_asks_for() {
    let mut client = Session::connect(&contexts(Protocols::ALL).0, NAME).unwrap();
    let mut server = Session::listen(HandshakeLimits::default());
    let why = AlertDescription::UnrecognizedName;
    client.feed(now(), &mut [], |_| {}).unwrap();
    let mut asked = false;
    server
        .feed(now(), &mut client.take_output(), |event| {
            asked |= matches!(event, Event::ClientHello(_));
        })
        .unwrap();
    assert!(asked);
    server.refuse(why).unwrap();
    assert_eq!(server.refuse(why), Err(SessionError::Undecided));
    assert_eq!(server.send(b"no"), Err(SessionError::Handshaking));
    let told = pass(&mut server, &mut client, usize::MAX);
    let Some(End::Handshake(failure)) = told.end else {
        panic!("{told:?}")
    };
    assert_eq!(failure.alert(), Some(why.code()));
    let told = feed(&mut server, &[0], 1);
    assert!(matches!(told.end, Some(End::Handshake(_))), "{told:?}");
    assert!(server.is_handshaking() && !server.is_at_rest());
}
