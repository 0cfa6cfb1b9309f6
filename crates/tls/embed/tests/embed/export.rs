//! Sessions that continue elsewhere.

use dormouse_embed::{
    AlertDescription, Corrupt, ImportError, Protocols, STATE_LEN, Session, SessionError,
};

use crate::pair::*;

fn moved(mut session: Session) -> Session {
    let bytes = session.export().unwrap();
    Session::import(&bytes).unwrap()
}

#[test]
fn a_session_at_rest_is_128_bytes_and_continues() {
    for protocols in VERSIONS {
        let (mut client, mut server) = established(protocols);
        for round in 0..3 {
            let bytes = server.export().unwrap();
            assert_eq!(bytes.len(), STATE_LEN);
            server = Session::import(&bytes).unwrap();
            client = moved(client);
            let words = [round; 10];
            client.send(&words).unwrap();
            assert_eq!(pass(&mut client, &mut server, 3).plaintext, words);
            server.send(&words).unwrap();
            assert_eq!(pass(&mut server, &mut client, 3).plaintext, words);
        }
    }
}

#[test]
fn data_in_flight_is_exported() {
    for protocols in VERSIONS {
        let (mut client, mut server) = established(protocols);
        client.send(b"hello, server").unwrap();
        server.send(b"hello, client").unwrap();
        let wire = client.take_output();
        let outcome = feed(&mut server, &wire[..wire.len() - 3], usize::MAX);
        assert!(outcome.plaintext.is_empty() && !server.is_at_rest());
        let mut server = moved(server);
        let outcome = feed(&mut server, &wire[wire.len() - 3..], usize::MAX);
        assert_eq!(outcome.plaintext, b"hello, server");
        assert_eq!(
            pass(&mut server, &mut client, 3).plaintext,
            b"hello, client"
        );
        assert!(server.is_at_rest());
    }
}

#[test]
fn a_session_is_exported_once() {
    let (mut client, _) = established(Protocols::TLS13);
    client.export().unwrap();
    assert_eq!(client.export(), Err(SessionError::Exported));
    assert_eq!(client.send(b"x"), Err(SessionError::Exported));
    assert!(client.state().is_empty());
}

#[test]
fn half_closed_stays_half_closed() {
    let (mut client, mut server) = established(Protocols::TLS13);
    client.close().unwrap();
    pass(&mut client, &mut server, 3);
    let (mut client, mut server) = (moved(client), moved(server));
    assert_eq!(client.send(b"x"), Err(SessionError::Closed));
    server.send(b"still here").unwrap();
    assert_eq!(pass(&mut server, &mut client, 3).plaintext, b"still here");
}

#[test]
fn unestablished_sessions_are_not_exported() {
    let (_, context) = contexts(Protocols::ALL);
    let mut session = Session::accept(&context);
    assert_eq!(session.export(), Err(SessionError::Handshaking));
    assert!(session.is_handshaking());
    let (mut client, _) = established(Protocols::ALL);
    client.abort(AlertDescription::InternalError).unwrap();
    assert_eq!(client.export(), Err(SessionError::Failed));
}

#[test]
fn invalid_exports_are_refused() {
    let (mut client, mut server) = established(Protocols::TLS13);
    server.send(b"unsent").unwrap();
    let (rested, flying) = (client.export().unwrap(), server.export().unwrap());
    for good in [&rested, &flying] {
        for len in (0..good.len()).filter(|len| *len != STATE_LEN) {
            let error = Session::import(&good[..len]).unwrap_err();
            assert_eq!(error, ImportError::Length(len));
        }
        let longer = [&good[..], &[0]].concat();
        assert!(matches!(
            Session::import(&longer),
            Err(ImportError::Length(_))
        ));
    }
    let with = |at: usize, byte: u8| {
        let mut bytes = rested.to_vec();
        bytes[at] = byte;
        Session::import(&bytes).unwrap_err()
    };
    assert_eq!(with(0, 2), ImportError::State(Corrupt::Layout(2)));
    assert_eq!(with(1, 9), ImportError::State(Corrupt::Version(9)));
    assert_eq!(with(2, 9), ImportError::State(Corrupt::Suite(9)));
    assert_eq!(with(3, 0), ImportError::State(Corrupt::Role(0)));
    assert_eq!(with(15, 1), ImportError::State(Corrupt::Counters));
    let empty = Session::import(&[0; STATE_LEN]).unwrap_err();
    assert_eq!(empty, ImportError::State(Corrupt::Empty));
}
